"""Fixes in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import shorten

from flowcore.cluster.indexes.gang_registry import GangRegistry
from flowcore.model.amount_text import counted, same_units
from flowcore.model.pods import Pod
from flowcore.questions.diagnosis.fixes.proposals.compared_values import replaced_value
from flowcore.questions.diagnosis.fixes.ranking import others_that_come
from flowcore.questions.diagnosis.lists import listed, listed_pods
from flowcore.questions.scenario.alternatives.replanning import PlanDifference
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    Change,
    CountDevices,
    DropDeviceConstraint,
    DropNodeSelector,
    DropPodRules,
    EvictPods,
    HonorTaints,
    MovePod,
    RaiseCap,
    RaiseQueueLimit,
    RemoveTaint,
    ReplaceDeviceSelector,
    ReplaceNodeLabel,
    Request,
    SetPriority,
    Tolerate,
    Uncordon,
)

_RULES = {"affinity": "pod affinity", "antiAffinity": "pod anti-affinity", "spread": "topology spread"}
#: Characters of a selector: it may have thousands.
_MAX_SELECTOR = 100


def sentence(
    changes: Sequence[Change],
    outcome: PlanDifference,
    wanted: Sequence[Pod],
    left: int,
    context: AnswerContext,
    gangs: GangRegistry,
    *,
    at_most: bool = False,
    alike: bool = False,
) -> str:
    """What to change, and what that does to others.

    Args:
        gangs: of the cluster.
        wanted: the pods to place, as they are.
        left: how many of them wait on.
        at_most: whether fewer new nodes may do as well.
        alike: the pods are one that was asked about and others like it.
    """
    pods = {pod.key: pod for pod in wanted}
    phrases = dict.fromkeys(_phrase(change, pods, gangs, at_most=at_most) for change in changes)
    text = " and ".join(phrases)
    parts = []
    if left or alike:
        parts.append(f"places {len(wanted) - left} of {len(wanted)}{' pods like it' if alike else ''}")
    if any(isinstance(change, AddNodes) for change in changes):
        if others := [key for key in outcome.places if key not in pods]:
            verb = "gets" if len(others) == 1 else "get"
            parts.append(f"{_by_workload(others, outcome, context)} {verb} a node too")
    elif others := others_that_come(wanted, outcome):
        verb = "gets" if len(others) == 1 else "get"
        parts.append(f"{counted(len(others), 'other pod')} {verb} a place there too")
    if outcome.loses:
        verb = "loses its place" if len(outcome.loses) == 1 else "lose their places"
        parts.append(f"{_by_workload(outcome.loses, outcome, context)} {verb}")
    if outcome.moves:
        verb = "runs on another node" if len(outcome.moves) == 1 else "run on other nodes"
        parts.append(f"{_by_workload(outcome.moves, outcome, context)} {verb}")
    if not outcome.loses:
        parts.append("nobody loses a place")
    return f"{text[:1].upper()}{text[1:]}: {', '.join(parts)}."


def _by_workload(keys: Sequence[str], outcome: PlanDifference, context: AnswerContext) -> str:
    """The pods, those of one workload as a number: of these any may be meant."""
    counts = Counter(outcome.workloads[key] for key in keys)
    names = []
    for key in keys:
        name = outcome.workloads[key]
        if counts[name] == 1:
            names.append(key)
        elif counts[name]:
            names.append(f"{counts[name]} pods of {name}" if context.may_name(key) else key)
            counts[name] = 0
    if all(context.may_name(key) for key in keys):
        return listed(names)
    return listed_pods(keys, context)


def _phrase(change: Change, pods: dict[str, Pod], gangs: GangRegistry, *, at_most: bool) -> str:
    """A change as a command, the same for all pods to place."""
    match change:
        case Tolerate():
            return f"tolerate the taint {_taint(change.key, change.value, change.effect)}"
        case DropNodeSelector():
            return f"require no label {change.label} of the node"
        case ReplaceNodeLabel():
            return f"ask for {change.new_label}={change.new_value}, not {change.label}={change.value}"
        case DropPodRules():
            return f"require no {_RULES[change.rules]} by {change.topology_key}"
        case HonorTaints():
            honored = "count only nodes whose taints it tolerates (nodeTaintsPolicy: Honor)"
            return f"{honored} in its topology spread by {change.topology_key}"
        case ReplaceDeviceSelector():
            return _other_devices(change)
        case DropDeviceConstraint():
            return f"require no constraint about {change.attribute} of the devices of claim {change.claim}"
        case CountDevices():
            devices = "1 device" if change.count == 1 else f"{change.count} devices"
            return f"ask for {devices} by request {change.request} of claim {change.claim}"
        case Request():
            asked = dict(pods[change.pod].pod_class.requests).get(change.resource, 0)
            amount, instead_of = (same_units(change.resource, each, asked) for each in (change.amount, asked))
            return f"ask for {amount} of {change.resource}, not {instead_of}"
        case SetPriority():
            pod = pods[change.pod]
            group = None if pod.gang is None else gangs.groups.get(pod.gang.key)
            said_by = "it" if group is None or group.spec.priority is None else group.key.display_name
            return f"give {said_by} priority {change.priority}, not {pod.pod_class.priority}"
        case RaiseCap():
            return f"raise maxPerDomain of constraint {change.constraint} of policy {change.policy} to {change.value}"
        case RaiseQueueLimit():
            amount = same_units(change.resource, change.amount, change.amount)
            return f"raise the limit of FlowQueue {change.queue} to {amount} of {change.resource}"
        case Uncordon():
            return f"uncordon node {change.node}"
        case RemoveTaint():
            return f"remove the taint {_taint(change.key, '', change.effect)} of node {change.node}"
        case AddNodes():
            most = "at most " if at_most else ""
            nodes = "a node" if change.count == 1 else f"{most}{change.count} nodes"
            return f"add {nodes} like {change.like}"
        case MovePod():
            return f"move {change.pod} to node {change.node}"
        case EvictPods():
            return f"evict {listed(change.pods)}"
        case _:
            raise TypeError(f"no fix makes the change {type(change).__name__}")


def _other_devices(change: ReplaceDeviceSelector) -> str:
    replaced = replaced_value(change.selector, change.new_selector)
    if replaced is not None:
        compared, value = replaced
        return f"ask for devices with {compared.attribute}={value}, not {compared.value}"
    selector = shorten(change.selector, _MAX_SELECTOR)
    return f"drop the selector {selector} of request {change.request} of claim {change.claim}"


def _taint(key: str, value: str, effect: str) -> str:
    return f"{key}{f'={value}' if value else ''}{f':{effect}' if effect else ''}"
