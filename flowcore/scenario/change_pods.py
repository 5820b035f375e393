"""Hypothetical changes of pods."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.pods import Pod, PodClass, Toleration
from flowcore.scenario.changes import DropNodeSelector, DropPodRules, MovePod, Request, SetPriority, Tolerate
from flowcore.scenario.context import AnswerContext, UnknownName
from flowcore.scenario.edits import Edits

#: Fields of InterPodConstraints by the names that DropPodRules gives them.
_RULES = {"affinity": "affinity", "antiAffinity": "anti_affinity", "spread": "spread"}


def find_pod(edits: Edits, key: str, context: AnswerContext) -> Pod:
    """A pod by its key.

    Raises:
        UnknownName: there is none that the asker may see.
    """
    pod = edits.scenario.cluster.pods.get(key)
    if pod is None or not context.may_name(key):
        raise UnknownName("", f"there is no pod {key}")
    return pod


def to_waiting(pod: Pod, now: float) -> Pod:
    """A running pod as its controller creates it anew: it waits from now on.

    Args:
        now: seconds since the epoch.
    """
    return msgspec.structs.replace(
        pod,
        node_name="",
        pod_class=msgspec.structs.replace(pod.pod_class, node_name=""),
        created=now,
        usage=pod.pod_class.requests,
        nominated_node="",
        planned_node="",
        unschedulable_message="",
        unschedulable_reason="",
        unschedulable_since=0.0,
        started=0.0,
        immovable_reason="",
    )


def evict(edits: Edits, pods: Iterable[Pod], now: float) -> None:
    """Running pods wait; those that are being deleted are gone.

    Args:
        now: seconds since the epoch.
    """
    for pod in pods:
        if pod.deleting:
            edits.remove_pod(pod.key)
        else:
            edits.put_pod(to_waiting(pod, now))


def running(edits: Edits, keys: Iterable[str], context: AnswerContext) -> list[Pod]:
    """The running pods of these keys.

    Raises:
        UnknownName: there is no such pod, or it does not run.
    """
    found = [find_pod(edits, key, context) for key in keys]
    for pod in found:
        if not pod.node_name or pod.terminal:
            raise UnknownName("", f"pod {pod.key} does not run, so it cannot be evicted")
    return found


def move(edits: Edits, change: MovePod, context: AnswerContext) -> None:
    """Puts a pod on a node."""
    pod = find_pod(edits, change.pod, context)
    if change.node not in edits.scenario.cluster.nodes:
        raise UnknownName("", f"there is no node {change.node}")
    edits.put_pod(msgspec.structs.replace(pod, node_name=change.node, nominated_node="", planned_node=""))


def set_priority(edits: Edits, change: SetPriority, context: AnswerContext) -> None:
    """Gives a pod another priority."""
    _replace_class(edits, find_pod(edits, change.pod, context), priority=change.priority)


def tolerate(edits: Edits, change: Tolerate, context: AnswerContext) -> None:
    """Adds a toleration."""
    pod = find_pod(edits, change.pod, context)
    added = Toleration(change.key, "Equal", change.value, change.effect)
    _replace_class(edits, pod, tolerations=(*pod.pod_class.tolerations, added))


def drop_node_selector(edits: Edits, change: DropNodeSelector, context: AnswerContext) -> None:
    """Drops what a pod asks of one label of its node."""
    pod = find_pod(edits, change.pod, context)
    kept, required = pod.pod_class.node_selector, pod.pod_class.required_affinity
    if required is not None:
        terms = [
            msgspec.structs.replace(term, expressions=tuple(r for r in term.expressions if r.key != change.label))
            for term in required
        ]
        # A term without any requirement left holds for every node, so the alternatives to it are not needed.
        open_to_all = any(
            not after.expressions and not after.fields and before.expressions
            for before, after in zip(required, terms, strict=True)
        )
        required = None if open_to_all else tuple(terms)
    _replace_class(
        edits,
        pod,
        node_selector=tuple((key, value) for key, value in kept if key != change.label),
        required_affinity=required,
    )


def request(edits: Edits, change: Request, context: AnswerContext) -> None:
    """Lets a pod ask for another amount."""
    pod = find_pod(edits, change.pod, context)
    amounts = {**dict(pod.pod_class.requests), change.resource: change.amount}
    requests = tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0))
    changed = msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, requests=requests))
    edits.put_pod(msgspec.structs.replace(changed, usage=requests))


def drop_pod_rules(edits: Edits, change: DropPodRules, context: AnswerContext) -> None:
    """Drops required rules of a pod about other pods."""
    pod = find_pod(edits, change.pod, context)
    if change.rules not in _RULES:
        raise UnknownName("rules", f'"{change.rules}": expected one of {", ".join(_RULES)}')
    if pod.constraints is None:
        return
    field = _RULES[change.rules]
    kept = [
        each
        for each in getattr(pod.constraints, field)
        if change.topology_key and each.topology_key != change.topology_key
    ]
    rules = msgspec.structs.replace(pod.constraints, **{field: tuple(kept)})
    edits.put_pod(msgspec.structs.replace(pod, constraints=None if rules == InterPodConstraints() else rules))


def _replace_class(edits: Edits, pod: Pod, **fields: object) -> None:
    pod_class: PodClass = msgspec.structs.replace(pod.pod_class, **fields)
    edits.put_pod(msgspec.structs.replace(pod, pod_class=pod_class))
