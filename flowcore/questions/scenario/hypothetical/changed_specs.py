"""What a hypothetical change makes of one pod."""

from __future__ import annotations

import msgspec

from flowcore.model.errors import ModelError
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.pods import Pod, PodClass, Toleration
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resources import is_counted
from flowcore.model.selectors import Requirement
from flowcore.questions.scenario.hypothetical.changes import (
    DropNodeSelector,
    DropPodRules,
    HonorTaints,
    ReplaceNodeLabel,
    Request,
    SetPriority,
    Tolerate,
)

SpecChange = SetPriority | Tolerate | DropNodeSelector | ReplaceNodeLabel | Request | DropPodRules | HonorTaints

#: Fields of InterPodConstraints by the names that DropPodRules gives them.
_RULES = {"affinity": "affinity", "antiAffinity": "anti_affinity", "spread": "spread"}


def with_changed_spec(pod: Pod, change: SpecChange) -> Pod:
    """The pod with the spec that a change gives it.

    Raises:
        ModelError: the pod may not have a value that the change gives it.
    """
    match change:
        case SetPriority(_, priority):
            if not -(2**31) <= priority < 2**31:
                raise ModelError("priority", f"{priority} is no 32-bit number")
            return _with_class(pod, priority=change.priority)
        case Tolerate():
            added = Toleration(change.key, "Equal", change.value, change.effect)
            return _with_class(pod, tolerations=(*pod.pod_class.tolerations, added))
        case DropNodeSelector():
            return _without_node_label(pod, change.label)
        case ReplaceNodeLabel():
            return _with_other_label(pod, change)
        case Request():
            return _requesting(pod, change)
        case DropPodRules():
            return _without_rules(pod, change)
        case HonorTaints():
            return _honoring_taints(pod, change.topology_key)


def _without_node_label(pod: Pod, label: str) -> Pod:
    """Without what it asks of one label of its node."""
    kept, required = pod.pod_class.node_selector, pod.pod_class.required_affinity
    if required is not None:
        terms = [
            msgspec.structs.replace(term, expressions=tuple(r for r in term.expressions if r.key != label))
            for term in required
        ]
        # A term without any requirement left holds for every node, so the alternatives to it are not needed.
        open_to_all = any(
            not after.expressions and not after.fields and before.expressions
            for before, after in zip(required, terms, strict=True)
        )
        required = None if open_to_all else tuple(terms)
    return _with_class(
        pod, node_selector=tuple((key, value) for key, value in kept if key != label), required_affinity=required
    )


def _with_other_label(pod: Pod, change: ReplaceNodeLabel) -> Pod:
    """With another label in place of one, wherever it asks for that value."""
    asked, new = (change.label, change.value), (change.new_label, change.new_value)
    selector = tuple(sorted(new if each == asked else each for each in pod.pod_class.node_selector))
    required = pod.pod_class.required_affinity
    if required is not None:
        required = tuple(
            msgspec.structs.replace(term, expressions=tuple(_mended(each, change) for each in term.expressions))
            for term in required
        )
    return _with_class(pod, node_selector=selector, required_affinity=required)


def _mended(asked: Requirement, change: ReplaceNodeLabel) -> Requirement:
    if asked.key != change.label or asked.operator != "In" or change.value not in asked.values:
        return asked
    values = tuple(change.new_value if value == change.value else value for value in asked.values)
    return msgspec.structs.replace(asked, key=change.new_label, values=values)


def _requesting(pod: Pod, change: Request) -> Pod:
    if not is_counted(change.resource):
        raise ModelError("resource", f'"{change.resource}" is not scheduled by; give the full name of a resource')
    if not 0 <= change.amount <= MAX_AMOUNT:
        raise ModelError("amount", f"{change.amount}: give a number from 0 to {MAX_AMOUNT}")
    amounts = {**dict(pod.pod_class.requests), change.resource: change.amount}
    requests = tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0))
    return msgspec.structs.replace(_with_class(pod, requests=requests), usage=requests)


def _without_rules(pod: Pod, change: DropPodRules) -> Pod:
    if change.rules not in _RULES:
        raise ModelError("rules", f'"{change.rules}": expected one of {", ".join(_RULES)}')
    if pod.constraints is None:
        return pod
    field = _RULES[change.rules]
    kept = [
        rule
        for rule in getattr(pod.constraints, field)
        if change.topology_key and rule.topology_key != change.topology_key
    ]
    rules = msgspec.structs.replace(pod.constraints, **{field: tuple(kept)})
    return msgspec.structs.replace(pod, constraints=None if rules == InterPodConstraints() else rules)


def _honoring_taints(pod: Pod, topology_key: str) -> Pod:
    if pod.constraints is None:
        return pod
    spread = tuple(
        msgspec.structs.replace(rule, honors_taints=True) if rule.topology_key == topology_key else rule
        for rule in pod.constraints.spread
    )
    return msgspec.structs.replace(pod, constraints=msgspec.structs.replace(pod.constraints, spread=spread))


def _with_class(pod: Pod, **fields: object) -> Pod:
    pod_class: PodClass = msgspec.structs.replace(pod.pod_class, **fields)
    return msgspec.structs.replace(pod, pod_class=pod_class)
