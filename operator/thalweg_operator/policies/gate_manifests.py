"""Which new pods are to be given our scheduling gate, as data for the API server; pure.

A MutatingAdmissionPolicy (admissionregistration.k8s.io/v1, KEP-3962, generally available in Kubernetes 1.36) gates pods
in the API server itself: no webhook that could be away when a pod is created. It is static (rights/gates.yaml): the
operator needs no right to write admission policies. Its parameters are the FlowSchedulingPolicies, in whose status the
operator says what ``gate_rules`` returns. See docs/decisions/0017 and 0029.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from flowcore.model.policies import GATE, Policy, WaitingMode
from flowcore.model.selectors import LabelSelector

Manifest = dict[str, Any]

ADMISSION: Final = "admissionregistration.k8s.io/v1"
#: Of the MutatingAdmissionPolicy and its binding.
GATE_NAME: Final = "thalweg-gate"
#: Marks admission policies that are ours.
GATE_LABEL: Final = "scheduling.thalweg/gate"


def wants_gate(policy: Policy, gating: AbstractSet[str] = frozenset()) -> bool:
    """Whether pods of a policy wait behind our gate: all, pods of some gangs, or pods of no gang.

    Args:
        gating: names of policies of Auto whose new pods are gated (auto_waiting.py).
    """
    return any(_gated_pods(policy, gating))


def gate_rules(policy: Policy, ordered: Iterable[Policy], gating: AbstractSet[str] = frozenset()) -> list[Manifest]:
    """The policies that decide about the pods of a policy that wants a gate, in the order in which they govern.

    Of those that match a pod, the first one says whether it is gated: by ``podGroups`` where the pod belongs to a
    PodGroup of Kubernetes itself, by ``gangs`` where it belongs to another gang, by ``others`` where to none. The last
    one is the policy itself.

    Args:
        ordered: all policies in force, in the order in which they govern. One that may bind or only observe pods which
            this one would gate is among the result: nobody would open their gates.
        gating: names of policies of Auto whose new pods are gated (auto_waiting.py).
    """
    names, gated_pods = set(policy.selects.scheduler_names), _gated_pods(policy, gating)
    first: list[Manifest] = []
    for earlier in ordered:
        if earlier.name == policy.name:
            break
        ungated = any(
            wants and not gates for wants, gates in zip(gated_pods, _gated_pods(earlier, gating), strict=True)
        )
        if ungated and not earlier.selects.nothing and not names.isdisjoint(earlier.selects.scheduler_names):
            first.append(_gate_rule(earlier, gating))
    return [*first, _gate_rule(policy, gating)]


def open_patch(uid: str) -> Manifest:
    """The strategic merge patch that opens our gate of a pod. Gates of others stay as they are."""
    return {"metadata": {"uid": uid}, "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}


def _gated_pods(policy: Policy, gating: AbstractSet[str]) -> tuple[bool, bool, bool]:
    """Whether its pods of PodGroups of Kubernetes itself, of other gangs, and its others, wait behind our gate."""
    if not policy.delivery.through_kube_scheduler or policy.selects.nothing:
        return False, False, False
    of_gangs = policy.gangs.waiting
    others = policy.waiting is WaitingMode.GATE or policy.name in gating
    return of_gangs is WaitingMode.GATE, of_gangs is not WaitingMode.HOLD, others


def _gate_rule(policy: Policy, gating: AbstractSet[str]) -> Manifest:
    pod_groups, gangs, others = _gated_pods(policy, gating)
    return {
        "schedulerNames": list(policy.selects.scheduler_names),
        "podLabels": _requirements(policy.selects.pods),
        "namespaceLabels": _requirements(policy.selects.namespaces),
        "podGroups": pod_groups,
        "gangs": gangs,
        "others": others,
    }


def _requirements(selector: LabelSelector | None) -> list[Manifest]:
    return [
        {"key": requirement.key, "operator": requirement.operator, "values": list(requirement.values)}
        for requirement in (selector.requirements if selector is not None else ())
    ]
