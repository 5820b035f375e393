"""Missing objects of a dump: objects that a plan needs and the files lack.

A kind that was not dumped looks like a kind without objects. So only missing objects that other objects refer to are
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from flowcore.api.gang_parents import kinds_of
from flowcore.api.kinds import DEVICE_TAINT_RULE, DISRUPTION_BUDGET, HYPER_NODE, RESOURCE_CLAIM, RESOURCE_SLICE
from flowcore.model.errors import ModelError
from flowcore.model.gang_parents import ParentKey
from flowcore.model.inter_pod_constraints import AffinityTerm
from flowcore.model.pods import Pod
from flowcore.model.policies import by_precedence
from flowcore.model.volumes import Claim, ClaimVolume, PersistentVolume, StorageClass
from flowcore.questions.scenario.reading.dump_commands import DUMP_COMMAND
from flowcore.questions.scenario.scenario import Scenario
from flowcore.rules.filters import Verdicts, dynamic_resources, volume_filters
from flowcore.rules.filters.rejection import Rejection

_ADD_NAMESPACES = "kubectl get namespaces -o json"
_ADD_STORAGE = "kubectl get pvc,pv,sc,csinodes,csidrivers,csistoragecapacities,volumeattachments -A -o json"
_CLAIM = "PersistentVolumeClaim"
_ADD_BUDGETS = "kubectl get pdb -A -o json"
_ADD_DEVICES = "kubectl get resourceclaims,resourceslices,deviceclasses -A -o json"
_ADD_HYPER_NODES = "kubectl get hypernodes -o json"
_NO_HYPER_NODES = "you may not list HyperNodes"
#: Most sentences about HyperNodes: each node that is gone makes one.
_MAX_TOLD = 3
#: Of a dump; see ``_no_claims``.
NO_CLAIMS_MESSAGE = f"the files contain no PersistentVolumeClaim (add them: {_ADD_STORAGE})"
NO_DEVICE_CLAIMS_MESSAGE = f"the files contain no ResourceClaim (add them: {_ADD_DEVICES})"


def unknown_namespace(scenario: Scenario) -> str:
    """Why the policy of some pod is not known: a policy selects namespaces by label, and the pod's is missing; ""."""
    for policy in scenario.policies.values():
        selects = policy.selects
        if selects.namespaces is None or not selects.namespaces.requirements or selects.nothing:
            continue
        anywhere = msgspec.structs.replace(selects, namespaces=None)
        for pod in scenario.cluster.pods.values():
            if pod.terminal or pod.namespace in scenario.cluster.namespaces:
                continue
            # Constraints also count running pods, whichever policy governs them.
            counts = policy.constraints or (not pod.node_name and anywhere.matches(pod.scheduler_name, pod.labels, ()))
            if counts:
                reads = f"FlowSchedulingPolicy {policy.name}: spec.selects.namespaceSelector"
                if scenario.unread is not None:
                    return f"{reads}: it reads labels of namespaces, and you may not list them"
                return (
                    f"{reads}: the files do not contain Namespace {pod.namespace}, whose labels it reads. Add the "
                    f"namespaces: {_ADD_NAMESPACES}"
                )
    return ""


def check_for_pods(scenario: Scenario) -> None:
    """Refuses to say what is free or worth nothing where no pod is known.

    Raises:
        ModelError: a dump has no pods.
    """
    if scenario.free_by_omission:
        raise ModelError("", f"{scenario.free_by_omission}. Dump the cluster with: {DUMP_COMMAND}")


def missing_objects(scenario: Scenario, pods: Sequence[Pod]) -> list[str]:
    """Sentences about missing objects that may change the result, each with the command that adds them.

    Args:
        pods: waiting pods that are planned or explained.
    """
    if scenario.complete:
        return []
    return [
        *scenario.gaps,
        *_namespaces(scenario, pods),
        *_storage(scenario, pods),
        *_devices(scenario, pods),
        *_parents(scenario, pods),
        *_hyper_nodes(scenario, pods),
    ]


def pods_with_unknown_claims(scenario: Scenario, pods: Iterable[Pod]) -> dict[str, str]:
    """Pods whose claims cannot be judged because no claim is known: the reason by pod key."""
    if scenario.complete:
        return {}
    reasons = dict[str, str]()
    lacks_volumes, lacks_devices = _lacks(scenario, Claim, _CLAIM), _lacks_device_claims(scenario)
    for pod in pods:
        volumes = ", ".join(each.name for each in pod.pod_class.volumes if isinstance(each, ClaimVolume))
        devices = ", ".join(_named_claims(pod))
        if volumes and lacks_volumes:
            reasons[pod.key] = f"its volume claims ({volumes}) cannot be judged: {_no_claims(scenario)}"
        elif devices and lacks_devices:
            reasons[pod.key] = f"its resource claims ({devices}) cannot be judged: {_no_device_claims(scenario)}"
    return reasons


def unread_budgets(scenario: Scenario) -> Iterator[str]:
    """That PodDisruptionBudgets may keep running pods and are not known, of a plan in which such pods leave."""
    if scenario.complete or scenario.cluster.budgets.objects:
        return
    if scenario.unread is None:
        yield (
            "pods leave their nodes, and the files contain no PodDisruptionBudget. Add them if there are any: "
            f"{_ADD_BUDGETS}"
        )
    elif DISRUPTION_BUDGET.kind in scenario.unread:
        yield "pods leave their nodes, and you may not list PodDisruptionBudgets"


def _named_claims(pod: Pod) -> list[str]:
    """The resource claims that a pod names; none is there yet for its extended resources."""
    devices = pod.pod_class.devices
    return [] if devices is None else [claim.name for claim in devices.without_extended_claim.claims]


def without_claims(scenario: Scenario, verdicts: Verdicts) -> Verdicts:
    """Verdicts for a pod with unknown claims: the filter's 'not found' is replaced, for they may be there."""
    lacks_volumes, lacks_devices = _lacks(scenario, Claim, _CLAIM), _lacks_device_claims(scenario)

    def judged(name: str, rejection: Rejection) -> Rejection:
        if name in volume_filters.NAMES and lacks_volumes:
            return Rejection(_no_claims(scenario), rejection.nodes)
        if name == dynamic_resources.NAME and lacks_devices:
            return Rejection(_no_device_claims(scenario), rejection.nodes)
        return rejection

    by_filter = tuple((name, tuple(judged(name, each) for each in rejected)) for name, rejected in verdicts.by_filter)
    first = next((each.reason for _, rejected in by_filter for each in rejected), "")
    return replace(verdicts, by_filter=by_filter, before_nodes=first if verdicts.before_nodes else "")


def _namespaces(scenario: Scenario, pods: Sequence[Pod]) -> Iterator[str]:
    present = [*pods, *scenario.running()]
    missing = min({pod.namespace for pod in present} - scenario.cluster.namespaces.keys(), default="")
    if not missing or not _may_lack(scenario, "Namespace"):
        return
    selecting = [pod.key for pod in present if any(_selects_namespaces(term) for term in _terms(pod))]
    if selecting:
        if scenario.unread is not None:
            yield f"{_pods(selecting)}: affinity rules select namespaces by label, but you may not list namespaces"
            return
        yield (
            f"{_pods(selecting)}: affinity rules select namespaces by label, but the files do not contain Namespace "
            f"{missing}. Add the namespaces: {_ADD_NAMESPACES}"
        )


def _storage(scenario: Scenario, pods: Sequence[Pod]) -> Iterator[str]:
    claiming = [pod for pod in pods if pod.claims_volumes]
    if not claiming:
        return
    if _lacks(scenario, Claim, _CLAIM):
        yield f"{_pods([pod.key for pod in claiming])}: volume claims are not judged: {_no_claims(scenario)}"
        return
    named = {each.key for pod in claiming for each in pod.pod_class.volumes if isinstance(each, ClaimVolume)}
    stored = scenario.cluster.storage.objects.values()
    claims = [each for each in stored if isinstance(each, Claim) and (each.namespace, each.name) in named]
    for kind, lacking in (
        (PersistentVolume, [claim for claim in claims if claim.volume_name]),
        (StorageClass, [claim for claim in claims if claim.storage_class and not claim.volume_name]),
    ):
        if lacking and _lacks(scenario, kind, kind.__name__):
            names = f"PersistentVolumeClaim {lacking[0].namespace}/{lacking[0].name}: it names a {kind.__name__}, but"
            if scenario.unread is None:
                yield f"{names} the files contain none. Add them: {_ADD_STORAGE}"
            else:
                yield f"{names} you may not list these"


def _devices(scenario: Scenario, pods: Sequence[Pod]) -> Iterator[str]:
    claiming = [pod.key for pod in pods if pod.pod_class.devices is not None]
    if not claiming:
        return
    naming = [pod.key for pod in pods if _named_claims(pod)]
    if naming and _lacks_device_claims(scenario):
        yield f"{_pods(naming)}: resource claims are not judged: {_no_device_claims(scenario)}"
    elif not scenario.cluster.devices.slices and _may_lack(scenario, RESOURCE_SLICE.kind):
        why = f"the files contain no ResourceSlice (add them: {_ADD_DEVICES})"
        yield f"{_pods(claiming)}: {why if scenario.unread is None else 'you may not list ResourceSlices'}"
    if scenario.unread is not None and DEVICE_TAINT_RULE.kind in scenario.unread:
        yield f"{_pods(claiming)}: devices may be tainted: you may not list DeviceTaintRules"


def _parents(scenario: Scenario, pods: Sequence[Pod]) -> Iterator[str]:
    cluster, lacking = scenario.cluster, dict[str, list[str]]()
    objects: dict[ParentKey, list[str]] = {}
    for pod in pods:
        if (unknown := cluster.parent_gangs.unknown_parent(pod, cluster.namespaces)) is None:
            continue
        parent, kind_is_known = unknown
        if kind_is_known:
            objects.setdefault(parent, []).append(pod.key)
        else:
            lacking.setdefault(parent.kind, []).append(pod.key)
    rules = kinds_of(policy.gangs for policy in by_precedence(scenario.policies.values()))
    resources = {
        kind.qualified: f"{kind.plural}.{kind.versions[0]}.{kind.group}" for kind, rule in rules.items() if rule
    }
    for kind, keys in lacking.items():
        name, _, group = kind.partition(".")
        if scenario.unread is None:
            resource = resources.get(kind, f"{name.lower()}.{group}")
            add = f"the files contain no {name} (add them: kubectl get {resource} -A -o json)"
            yield f"{_pods(keys)}: planned one by one and not as gangs: {add}"
        elif name in scenario.unread:
            yield f"{_pods(keys)}: planned one by one and not as gangs: you may not list {name}s"
    for parent, keys in objects.items() if scenario.unread is None else ():
        yield f"{_pods(keys)}: planned one by one and not as gangs: the files do not contain {parent.display_name}"


def _hyper_nodes(scenario: Scenario, pods: Sequence[Pod]) -> Iterator[str]:
    """For gangs that keep to tiers: that no HyperNode is known, or what of them does not count."""
    cluster = scenario.cluster
    if not (asking := [pod.key for pod in pods if cluster.gangs.asks_for_tiers(pod)]):
        return
    if not cluster.hyper_nodes.objects and _may_lack(scenario, HYPER_NODE.kind):
        why = f"the files contain no HyperNode (add them: {_ADD_HYPER_NODES})"
        yield f"{_pods(asking)}: placed as if there were none: {why if scenario.unread is None else _NO_HYPER_NODES}"
    problems = list(cluster.hyper_nodes.problems())
    yield from problems[:_MAX_TOLD]
    if len(problems) > _MAX_TOLD:
        yield f"{len(problems) - _MAX_TOLD} more of what HyperNodes say does not count"


def _lacks_device_claims(scenario: Scenario) -> bool:
    return not scenario.cluster.devices.claims and _may_lack(scenario, RESOURCE_CLAIM.kind)


def _no_device_claims(scenario: Scenario) -> str:
    """Why no resource claim is known."""
    return NO_DEVICE_CLAIMS_MESSAGE if scenario.unread is None else "you may not list ResourceClaims"


def _no_claims(scenario: Scenario) -> str:
    """Why no volume claim is known."""
    return NO_CLAIMS_MESSAGE if scenario.unread is None else "you may not list PersistentVolumeClaims"


def _lacks(scenario: Scenario, kind: type, api_kind: str) -> bool:
    """Whether nothing of a kind is known though something may be there."""
    known = any(isinstance(each, kind) for each in scenario.cluster.storage.objects.values())
    return not known and _may_lack(scenario, api_kind)


def _may_lack(scenario: Scenario, api_kind: str) -> bool:
    return scenario.unread is None or api_kind in scenario.unread


def _terms(pod: Pod) -> Iterator[AffinityTerm]:
    if pod.constraints is not None:
        yield from pod.constraints.affinity
        yield from pod.constraints.anti_affinity
        yield from (each.term for each in pod.constraints.preferred)


def _selects_namespaces(term: AffinityTerm) -> bool:
    return term.namespace_selector is not None and bool(term.namespace_selector.requirements)


def _pods(keys: list[str]) -> str:
    return f"Pod {keys[0]}" if len(keys) == 1 else f"{len(keys)} pods, such as {keys[0]}"
