"""The admission policy that puts our scheduling gate on new pods, as manifests; pure.

A MutatingAdmissionPolicy (admissionregistration.k8s.io/v1, KEP-3962, generally available in Kubernetes 1.36) is carried
out by the API server itself: no webhook that could be away when a pod is created. See docs/decisions/0017.
Every field is written out as the API server would default it, so that what it stores can be compared with what is
wanted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from flowcore.model.gang_terms import NAMING_ANNOTATIONS, POD_GROUP_LABELS
from flowcore.model.policies import GATE, Delivery, Policy, Selects, WaitingMode
from flowcore.model.selectors import LabelSelector, Requirement
from thalweg_operator.names import GROUP, KIND, VERSION

Manifest = dict[str, Any]

ADMISSION: Final = "admissionregistration.k8s.io/v1"
#: Marks what is ours; its value is the policy's name, cut where it is too long for a label.
GATE_LABEL: Final = "scheduling.thalweg/gate"

#: Pods of the cluster's own components are never gated: they may be what must run before Thalweg can.
SYSTEM_NAMESPACES: Final = ("kube-system",)
#: Seconds after the last heartbeat for which pods are gated. A clock of the operator that is off by more gates nothing,
#: or gates for longer after an end.
FRESH: Final = 30

_NAME_LIMIT = 253
_VALUE_LIMIT = 63


@dataclass(frozen=True, slots=True)
class Gate:
    """The two objects that gate the pods of one policy. They have the same name.

    Attributes:
        policy, uid: name and uid of the FlowSchedulingPolicy.
        rule: the MutatingAdmissionPolicy.
        binding: the MutatingAdmissionPolicyBinding, without which the rule does nothing.
    """

    policy: str
    uid: str
    rule: Manifest
    binding: Manifest

    @property
    def name(self) -> str:
        """Of both."""
        return str(self.rule["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Which of a policy's pods wait behind our gate."""

    gangs: bool
    others: bool


def _kinds(policy: Policy) -> _Kinds:
    if policy.delivery is not Delivery.EXTENDER or policy.selects.nothing:
        return _Kinds(gangs=False, others=False)
    return _Kinds(policy.gangs.waiting is WaitingMode.GATE, policy.waiting is WaitingMode.GATE)


def wants_gate(policy: Policy) -> bool:
    """Whether pods that it governs are to wait behind our gate: all, those of gangs, or those of none."""
    kinds = _kinds(policy)
    return kinds.gangs or kinds.others


def gate(policy: Policy, uid: str, ordered: Iterable[Policy], spared: Iterable[str] = SYSTEM_NAMESPACES) -> Gate:
    """What gates the pods that a policy governs, as they are created.

    Args:
        uid: of the FlowSchedulingPolicy, which owns both objects: they go when it goes, whether we run or not.
        ordered: all policies in force, the one that comes first first. A pod that an earlier one governs is not gated
            here: that one may bind it or only observe it, and nobody would open the gate.
        spared: namespaces whose pods are not gated, whatever the policy selects.
    """
    name = _cut(f"thalweg-gate-{policy.name}", _NAME_LIMIT)
    metadata = {
        "name": name,
        "labels": {GATE_LABEL: _cut(policy.name, _VALUE_LIMIT)},
        "ownerReferences": [
            {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": policy.name, "uid": uid, "controller": True}
        ],
    }
    spec = {
        # Where anything about it fails, the pod is created without a gate, and held.
        "failurePolicy": "Ignore",
        # A webhook that runs after us may give the pod another scheduler or other labels.
        "reinvocationPolicy": "IfNeeded",
        # The policy itself: its status carries our heartbeat.
        "paramKind": {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND},
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": _namespaces(policy.selects.namespaces, spared),
            "objectSelector": _selector(policy.selects.pods),
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                    "scope": "Namespaced",
                }
            ],
        },
        "matchConditions": [
            {
                "name": "scheduler",
                "expression": f"object.spec.schedulerName in {_texts(policy.selects.scheduler_names)}",
            },
            {"name": "not-bound", "expression": '!has(object.spec.nodeName) || object.spec.nodeName == ""'},
            {"name": "heartbeat", "expression": _ALIVE},
            *_only(_kinds(policy)),
        ],
        "variables": [
            {"name": "labels", "expression": "has(object.metadata.labels) ? object.metadata.labels : {}"},
            {
                "name": "namespaceLabels",
                "expression": "has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}",
            },
            # Not a match condition: those know nothing of the namespace.
            {"name": "anothers", "expression": _any(_rivals(policy, ordered))},
        ],
        "mutations": [
            {
                # Merged by name: gates of others stay, and ours comes once.
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"variables.anothers ? Object{{}} : {_GATED}"},
            }
        ],
    }
    return Gate(
        policy=policy.name,
        uid=uid,
        rule={"apiVersion": ADMISSION, "kind": "MutatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        binding={
            "apiVersion": ADMISSION,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {
                "policyName": name,
                "paramRef": {"name": policy.name, "parameterNotFoundAction": "Allow"},
            },
        },
    )


def opening(uid: str) -> Manifest:
    """The strategic merge patch that opens our gate of a pod. Gates of others stay as they are."""
    return {"metadata": {"uid": uid}, "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}


def _only(kinds: _Kinds) -> list[Manifest]:
    """The condition that leaves pods of gangs, or all others, as they are."""
    if kinds.gangs and kinds.others:
        return []
    return [{"name": "gang", "expression": _IN_GANG if kinds.gangs else f"!({_IN_GANG})"}]


def _rivals(policy: Policy, ordered: Iterable[Policy]) -> Iterator[str]:
    """Which pods policies that come before this one may govern without gating them, though this one would."""
    names, mine = set(policy.selects.scheduler_names), _kinds(policy)
    for other in ordered:
        if other.name == policy.name:
            break
        theirs = _kinds(other)
        gangs, others = mine.gangs and not theirs.gangs, mine.others and not theirs.others
        if other.selects.nothing or not (gangs or others) or names.isdisjoint(other.selects.scheduler_names):
            continue
        if (gangs, others) == (mine.gangs, mine.others):
            yield _matches(other)
        else:
            yield f"({_matches(other)} && {'' if gangs else '!'}({_IN_GANG}))"


def _matches(policy: Policy) -> str:
    """``Selects.matches`` as an expression."""
    selects: Selects = policy.selects
    parts = [f"object.spec.schedulerName in {_texts(selects.scheduler_names)}"]
    for labels, selector in (("variables.labels", selects.pods), ("variables.namespaceLabels", selects.namespaces)):
        parts += [_accepts(labels, each) for each in (selector.requirements if selector is not None else ())]
    return f"({' && '.join(parts)})"


def _accepts(labels: str, requirement: Requirement) -> str:
    key = _text(requirement.key)
    there = f"{key} in {labels}"
    among = f"{there} && {labels}[{key}] in {_texts(requirement.values)}"
    match requirement.operator:
        case "In":
            return f"({among})"
        case "NotIn":
            return f"!({among})"
        case "Exists":
            return there
        case _:  # a policy in force has no other than DoesNotExist
            return f"!({there})"


def _any(parts: Iterable[str]) -> str:
    return " || ".join(parts) or "false"


def _texts(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _text(text: str) -> str:
    """A CEL string: JSON's escapes are among CEL's, but for surrogate pairs, which are not escaped here."""
    return json.dumps(text, ensure_ascii=False)


def _carries(where: str, keys: Iterable[str]) -> str:
    return f"(has(object.metadata.{where}) && {_texts(keys)}.exists(key, key in object.metadata.{where}))"


#: Whether the pod belongs to a gang, by any of the sources (model/gang_terms.py).
_IN_GANG = " || ".join(
    [
        "has(object.spec.schedulingGroup)",
        _carries("labels", POD_GROUP_LABELS),
        _carries("annotations", NAMING_ANNOTATIONS),
    ]
)
#: CEL has no clock. The API server writes the time of the request into the pod's managed fields before admission; where
#: a client keeps them empty the pod is not gated.
_ALIVE = (
    "has(params.status) && has(params.status.heartbeat)"
    " && has(object.metadata.managedFields) && size(object.metadata.managedFields) > 0"
    " && object.metadata.managedFields.all(each, has(each.time)"
    f' && timestamp(each.time) < timestamp(params.status.heartbeat) + duration("{FRESH}s"))'
)
_GATED = f"Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: {_text(GATE)}}}]}}}}"


def _selector(selector: LabelSelector | None) -> Manifest:
    if selector is None or not selector.requirements:
        return {}
    return {
        "matchExpressions": [
            {"key": each.key, "operator": each.operator, **({"values": list(each.values)} if each.values else {})}
            for each in selector.requirements
        ]
    }


def _namespaces(selector: LabelSelector | None, spared: Iterable[str]) -> Manifest:
    others = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": sorted(set(spared))}
    return {"matchExpressions": [*_selector(selector).get("matchExpressions", []), others]}


def _cut(text: str, limit: int) -> str:
    """The text, its end replaced by a digest where it is too long: two that begin alike stay apart."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 13].rstrip('-.')}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
