"""Missing objects of a dump: objects that a plan needs and the files lack.

A kind that was not dumped looks like a kind without objects. So only missing objects that other objects refer to are
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from flowcore.model.inter_pod_constraints import AffinityTerm
from flowcore.model.pods import Pod
from flowcore.model.volumes import Claim, ClaimVolume, PersistentVolume, StorageClass
from flowcore.questions.scenario.scenario import Scenario
from flowcore.rules.filters import Verdicts
from flowcore.rules.filters.rejection import Rejection

_ADD_NAMESPACES = "kubectl get namespaces -o json"
_ADD_STORAGE = "kubectl get pvc,pv,sc,csinodes,csidrivers,csistoragecapacities,volumeattachments -A -o json"
NO_CLAIMS_MESSAGE = f"the files contain no PersistentVolumeClaim (add them: {_ADD_STORAGE})"


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
                return (
                    f"FlowSchedulingPolicy {policy.name}: spec.selects.namespaceSelector: the files do not "
                    f"contain Namespace {pod.namespace}, whose labels it reads. Add the namespaces: {_ADD_NAMESPACES}"
                )
    return ""


def missing_objects(scenario: Scenario, pods: Sequence[Pod]) -> list[str]:
    """Sentences about missing objects that may change the result, each with the command that adds them.

    Args:
        pods: waiting pods that are planned or explained.
    """
    return [] if scenario.complete else [*scenario.gaps, *_namespaces(scenario, pods), *_storage(scenario, pods)]


def pods_with_unknown_claims(scenario: Scenario, pods: Iterable[Pod]) -> dict[str, str]:
    """Pods whose volume claims cannot be judged because the files have no claims: the reason by pod key."""
    if scenario.complete or _has_kind(scenario, Claim):
        return {}
    claims = {
        pod.key: ", ".join(each.name for each in pod.pod_class.volumes if isinstance(each, ClaimVolume)) for pod in pods
    }
    return {
        key: f"its volume claims ({names}) cannot be judged: {NO_CLAIMS_MESSAGE}"
        for key, names in claims.items()
        if names
    }


def without_claims(verdicts: Verdicts) -> Verdicts:
    """Verdicts for a pod with unknown claims: the filter's 'not found' is replaced, because only the files lack it."""
    return replace(
        verdicts,
        by_filter=tuple(
            (
                name,
                tuple(
                    Rejection(NO_CLAIMS_MESSAGE, r.nodes) if "persistentvolumeclaim" in r.reason else r
                    for r in rejections
                ),
            )
            for name, rejections in verdicts.by_filter
        ),
    )


def _namespaces(scenario: Scenario, pods: Sequence[Pod]) -> Iterator[str]:
    present = [*pods, *scenario.running()]
    missing = min({pod.namespace for pod in present} - scenario.cluster.namespaces.keys(), default="")
    if not missing:
        return
    selecting = [pod.key for pod in present if any(_selects_namespaces(term) for term in _terms(pod))]
    if selecting:
        yield (
            f"{_pods(selecting)}: affinity rules select namespaces by label, but the files do not contain Namespace "
            f"{missing}. Add the namespaces: {_ADD_NAMESPACES}"
        )


def _storage(scenario: Scenario, pods: Sequence[Pod]) -> Iterator[str]:
    claiming = [pod for pod in pods if pod.unbindable_reason]
    if not claiming:
        return
    if not _has_kind(scenario, Claim):
        yield f"{_pods([pod.key for pod in claiming])}: volume claims are not judged: {NO_CLAIMS_MESSAGE}"
        return
    named = {each.key for pod in claiming for each in pod.pod_class.volumes if isinstance(each, ClaimVolume)}
    stored = scenario.cluster.storage.objects.values()
    claims = [each for each in stored if isinstance(each, Claim) and (each.namespace, each.name) in named]
    for kind, lacking in (
        (PersistentVolume, [claim for claim in claims if claim.volume_name]),
        (StorageClass, [claim for claim in claims if claim.storage_class and not claim.volume_name]),
    ):
        if lacking and not _has_kind(scenario, kind):
            first = f"PersistentVolumeClaim {lacking[0].namespace}/{lacking[0].name}"
            yield f"{first}: it names a {kind.__name__}, but the files contain none. Add them: {_ADD_STORAGE}"


def _has_kind(scenario: Scenario, kind: type) -> bool:
    return any(isinstance(each, kind) for each in scenario.cluster.storage.objects.values())


def _terms(pod: Pod) -> Iterator[AffinityTerm]:
    if pod.constraints is not None:
        yield from pod.constraints.affinity
        yield from pod.constraints.anti_affinity
        yield from (each.term for each in pod.constraints.preferred)


def _selects_namespaces(term: AffinityTerm) -> bool:
    return term.namespace_selector is not None and bool(term.namespace_selector.requirements)


def _pods(keys: list[str]) -> str:
    return f"Pod {keys[0]}" if len(keys) == 1 else f"{len(keys)} pods, such as {keys[0]}"
