"""Fixes in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowcore.diagnosis.fixes.replanning import Outcome
from flowcore.model.pods import Pod
from flowcore.model.resources import CPU
from flowcore.scenario.changes import (
    AddNodes,
    Change,
    DropNodeSelector,
    DropPodRules,
    EvictPods,
    MovePod,
    RaiseCap,
    RaiseQueueLimit,
    RemoveTaint,
    Request,
    SetPriority,
    Tolerate,
    Uncordon,
)
from flowcore.scenario.context import AnswerContext

#: Names that a sentence lists.
_MAX_NAMES = 3
_RULES = {"affinity": "pod affinity", "antiAffinity": "pod anti-affinity", "spread": "topology spread"}
_BINARY = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def sentence(
    changes: Sequence[Change], outcome: Outcome, wanted: Sequence[Pod], left: int, context: AnswerContext
) -> str:
    """What to change, and what that does to others.

    Args:
        wanted: the pods to place, as they are.
        left: how many of them wait on.
    """
    pods = {pod.key: pod for pod in wanted}
    phrases = dict.fromkeys(_phrase(change, pods) for change in changes)
    text = " and ".join(phrases)
    parts = []
    if left:
        parts.append(f"places {len(wanted) - left} of {len(wanted)}")
    if outcome.loses:
        verb = "loses its place" if len(outcome.loses) == 1 else "lose their places"
        parts.append(f"{_names(outcome.loses, context)} {verb}")
    if outcome.moves:
        verb = "runs on another node" if len(outcome.moves) == 1 else "run on other nodes"
        parts.append(f"{_names(outcome.moves, context)} {verb}")
    if not outcome.loses:
        parts.append("nobody loses a place")
    return f"{text[:1].upper()}{text[1:]}: {', '.join(parts)}."


def _names(keys: Sequence[str], context: AnswerContext) -> str:
    """Pods by name, those that the asker may read first."""
    shown, hidden = context.visible(keys), sum(not context.may_name(key) for key in keys)
    names = shown[:_MAX_NAMES]
    more = len(shown) - len(names)
    if more:
        names.append(f"{more} more")
    if hidden:
        names.append("a pod of another namespace" if hidden == 1 else f"{hidden} pods of other namespaces")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _phrase(change: Change, pods: dict[str, Pod]) -> str:
    """A change as a command, the same for all pods to place."""
    match change:
        case Tolerate():
            return f"tolerate the taint {_taint(change.key, change.value, change.effect)}"
        case DropNodeSelector():
            return f"require no label {change.label} of the node"
        case DropPodRules():
            return f"require no {_RULES[change.rules]} by {change.topology_key}"
        case Request():
            asked = dict(pods[change.pod].pod_class.requests).get(change.resource, 0)
            amount = quantity(change.resource, change.amount)
            return f"ask for {amount} of {change.resource}, not {quantity(change.resource, asked)}"
        case SetPriority():
            return f"give it priority {change.priority}, not {pods[change.pod].pod_class.priority}"
        case RaiseCap():
            return f"raise maxPerDomain of constraint {change.constraint} of policy {change.policy} to {change.value}"
        case RaiseQueueLimit():
            amount = quantity(change.resource, change.amount)
            return f"raise the limit of FlowQueue {change.queue} to {amount} of {change.resource}"
        case Uncordon():
            return f"uncordon node {change.node}"
        case RemoveTaint():
            return f"remove the taint {_taint(change.key, '', change.effect)} of node {change.node}"
        case AddNodes():
            nodes = "a node" if change.count == 1 else f"{change.count} nodes"
            return f"add {nodes} like {change.like}"
        case MovePod():
            return f"move {change.pod} to node {change.node}"
        case EvictPods():
            return f"evict {_list(change.pods)}"
        case _:
            raise TypeError(f"no fix makes the change {type(change).__name__}")


def _taint(key: str, value: str, effect: str) -> str:
    return f"{key}{f'={value}' if value else ''}{f':{effect}' if effect else ''}"


def _list(keys: Iterable[str]) -> str:
    names = list(keys)
    shown = names[:_MAX_NAMES] + ([f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def quantity(resource: str, amount: int) -> str:
    """An exact amount as Kubernetes writes it; bytes in the largest binary unit without a fraction."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    for suffix, unit in _BINARY:
        if amount and amount % unit == 0:
            return f"{amount // unit}{suffix}"
    return str(amount)
