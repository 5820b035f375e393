"""Which new pods are to be given our scheduling gate and our mark, as data for the API server; pure.

A MutatingAdmissionPolicy (admissionregistration.k8s.io/v1, KEP-3962, generally available in Kubernetes 1.36) changes
pods in the API server itself: no webhook that could be away when a pod is created. It is static (rights/gates.yaml):
the operator needs no right to write admission policies. Its one parameter is the object NewPodRules ``thalweg``, in
which the operator says what ``new_pod_rules`` returns. See docs/decisions/0017, 0166 and 0167.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from flowcore.api.kinds import ObjectKind
from flowcore.api.policies import GROUP, VERSION
from flowcore.model.policies import GATE, Policy, WaitingMode
from flowcore.model.selectors import LabelSelector

Manifest = dict[str, Any]

ADMISSION: Final = "admissionregistration.k8s.io/v1"
#: Of the MutatingAdmissionPolicy and its binding.
GATE_NAME: Final = "thalweg-gate"
#: Marks admission policies that are ours.
GATE_LABEL: Final = "scheduling.thalweg/gate"
#: What the admission policy reads: one object of this name.
NEW_POD_RULES: Final = ObjectKind("NewPodRules", "newpodrules", GROUP, (VERSION,))
RULES_NAME: Final = "thalweg"
#: Rules, and bytes of all of them as JSON, that the API server evaluates for a pod within its budget (decision 166).
MOST_RULES, MOST_BYTES = 1_000, 2**18


def wants_gate(policy: Policy, gating: AbstractSet[str] = frozenset()) -> bool:
    """Whether pods of a policy wait behind our gate: all, pods of some gangs, or pods of no gang.

    Args:
        gating: names of policies of Auto whose new pods are gated (auto_waiting.py).
    """
    return any(_gated_pods(policy, gating))


def wants_mark(policy: Policy) -> bool:
    """Whether kube-scheduler is to ask about the pods of a policy, where it asks about pods with our mark only."""
    return policy.delivery.through_kube_scheduler and not policy.selects.nothing


def new_pod_rules(
    ordered: Iterable[Policy], gating: AbstractSet[str] = frozenset(), *, marks: bool = False
) -> tuple[list[Manifest], frozenset[str]]:
    """The rules in the order in which their policies govern: of those that match a pod, the first one decides.

    A pod is gated by ``podGroups`` if it belongs to a PodGroup of Kubernetes itself, by ``gangs`` if it belongs to
    another gang, by ``others`` if to none. A policy that neither gates nor marks has a rule only if a later one of the
    same scheduler does: nobody would open the gates of its pods.

    Args:
        ordered: all policies in force, in the order in which they govern.
        gating: names of policies of Auto whose new pods are gated (auto_waiting.py).
        marks: whether governed pods get our mark (``thalweg run --ask-for Governed``).

    Returns:
        The rules, MOST_RULES and MOST_BYTES at most, and the names of the policies whose rules are too many.
    """
    governing = [policy for policy in ordered if not policy.selects.nothing]
    rules: list[Manifest] = []
    later: set[str] = set()
    for policy in reversed(governing):
        wants = wants_gate(policy, gating) or (marks and wants_mark(policy))
        if wants:
            later.update(policy.selects.scheduler_names)
        if wants or not later.isdisjoint(policy.selects.scheduler_names):
            rules.append(_rule(policy, gating, marked=marks and wants_mark(policy)))
    rules.reverse()
    kept, size = 0, 0
    for rule in rules[:MOST_RULES]:
        size += len(msgspec.json.encode(rule))
        if size > MOST_BYTES:
            break
        kept += 1
    beyond = frozenset(rule["policy"] for rule in rules[kept:] if gates(rule) or rule["marked"])
    return rules[:kept], beyond


def open_patch(uid: str) -> Manifest:
    """The strategic merge patch that opens our gate of a pod. Gates of others stay as they are."""
    return {"metadata": {"uid": uid}, "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}


def gates(rule: Manifest) -> bool:
    """Whether a rule gates pods."""
    return any(rule[name] for name in ("podGroups", "gangs", "others"))


def _gated_pods(policy: Policy, gating: AbstractSet[str]) -> tuple[bool, bool, bool]:
    """Whether its pods of PodGroups of Kubernetes itself, of other gangs, and its others, wait behind our gate."""
    if not policy.delivery.through_kube_scheduler or policy.selects.nothing:
        return False, False, False
    of_gangs = policy.gangs.waiting
    others = policy.waiting is WaitingMode.GATE or policy.name in gating
    return of_gangs is WaitingMode.GATE, of_gangs is not WaitingMode.HOLD, others


def _rule(policy: Policy, gating: AbstractSet[str], *, marked: bool) -> Manifest:
    pod_groups, gangs, others = _gated_pods(policy, gating)
    return {
        "policy": policy.name,
        "schedulerNames": list(policy.selects.scheduler_names),
        "podLabels": _requirements(policy.selects.pods),
        "namespaceLabels": _requirements(policy.selects.namespaces),
        "podGroups": pod_groups,
        "gangs": gangs,
        "others": others,
        "marked": marked,
    }


def _requirements(selector: LabelSelector | None) -> list[Manifest]:
    return [
        {"key": requirement.key, "operator": requirement.operator, "values": list(requirement.values)}
        for requirement in (selector.requirements if selector is not None else ())
    ]
