"""What a plan would read of a cluster and the files do not have: whoever dumped it left those kinds out.

Nothing tells a kind that was left out from a kind of which the cluster has no object. So only objects that others speak
of are missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from flowcore.filters import Verdicts
from flowcore.filters.rejection import Rejection
from flowcore.model.pods import Pod
from flowcore.model.rules import AffinityTerm
from flowcore.model.volumes import Claim, ClaimVolume, PersistentVolume, StorageClass
from thalweg.dump import Dump
from thalweg.files import DumpError

_ADD_NAMESPACES = "kubectl get namespaces -o json"
_ADD_STORAGE = "kubectl get pvc,pv,sc,csinodes,csidrivers,csistoragecapacities,volumeattachments -A -o json"
NO_CLAIMS = f"no PersistentVolumeClaim is in the files (add them: {_ADD_STORAGE})"


def refuse_unknown_governors(dump: Dump) -> None:
    """Policies that select namespaces by labels need the namespaces of all pods that may be theirs.

    Raises:
        DumpError: one is not there, so that nobody can say which policy governs its pods.
    """
    for policy in dump.policies.values():
        selects = policy.selects
        if selects.namespaces is None or not selects.namespaces.requirements or selects.nothing:
            continue
        anywhere = msgspec.structs.replace(selects, namespaces=None)
        for pod in dump.pods.values():
            if pod.terminal or pod.namespace in dump.namespaces:
                continue
            # Constraints count the pods that run too, whoever governs them.
            counts = policy.constraints or (not pod.node_name and anywhere.matches(pod.scheduler_name, pod.labels, ()))
            if counts:
                raise DumpError(
                    f"FlowSchedulingPolicy {policy.name}: spec.selects.namespaceSelector: it reads the labels of "
                    f"Namespace {pod.namespace}, which is not in the files. Add the namespaces: {_ADD_NAMESPACES}"
                )


def gaps(dump: Dump, judged: Sequence[Pod]) -> list[str]:
    """What is not there and may change what is said, in sentences, each with the command that adds it.

    Args:
        judged: waiting pods that are planned or explained.
    """
    return [*_namespaces(dump, judged), *_storage(dump, judged)]


def unknown_claims(dump: Dump, pods: Iterable[Pod]) -> dict[str, str]:
    """Pods, by key, whose claims cannot be judged since the files have none at all, and the reason."""
    if _has(dump, Claim):
        return {}
    claims = {
        pod.key: ", ".join(each.name for each in pod.pod_class.volumes if isinstance(each, ClaimVolume)) for pod in pods
    }
    return {key: f"its volume claims ({names}) cannot be judged: {NO_CLAIMS}" for key, names in claims.items() if names}


def without_claims(verdicts: Verdicts) -> Verdicts:
    """The verdicts for a pod with unknown claims: that a claim is not found would say that the cluster has none."""
    return replace(
        verdicts,
        by_filter=tuple(
            (name, tuple(Rejection(NO_CLAIMS, r.nodes) if "persistentvolumeclaim" in r.reason else r for r in found))
            for name, found in verdicts.by_filter
        ),
    )


def _namespaces(dump: Dump, judged: Sequence[Pod]) -> Iterator[str]:
    present = [*judged, *dump.running()]
    missing = min({pod.namespace for pod in present} - dump.namespaces.keys(), default="")
    if not missing:
        return
    selecting = [pod.key for pod in present if any(_selects_namespaces(term) for term in _terms(pod))]
    if selecting:
        yield (
            f"{_pods(selecting)}: affinity rules select namespaces by label, and Namespace {missing} is not in the "
            f"files. Add the namespaces: {_ADD_NAMESPACES}"
        )


def _storage(dump: Dump, judged: Sequence[Pod]) -> Iterator[str]:
    claiming = [pod for pod in judged if pod.unbindable]
    if not claiming:
        return
    if not _has(dump, Claim):
        yield f"{_pods([pod.key for pod in claiming])}: volume claims are not judged: {NO_CLAIMS}"
        return
    named = {each.key for pod in claiming for each in pod.pod_class.volumes if isinstance(each, ClaimVolume)}
    claims = [
        each for each in dump.storage.values() if isinstance(each, Claim) and (each.namespace, each.name) in named
    ]
    for kind, lacking in (
        (PersistentVolume, [claim for claim in claims if claim.volume_name]),
        (StorageClass, [claim for claim in claims if claim.storage_class and not claim.volume_name]),
    ):
        if lacking and not _has(dump, kind):
            first = f"PersistentVolumeClaim {lacking[0].namespace}/{lacking[0].name}"
            yield f"{first}: it names a {kind.__name__}, and none is in the files. Add them: {_ADD_STORAGE}"


def _has(dump: Dump, kind: type) -> bool:
    return any(isinstance(each, kind) for each in dump.storage.values())


def _terms(pod: Pod) -> Iterator[AffinityTerm]:
    if pod.rules is not None:
        yield from pod.rules.affinity
        yield from pod.rules.anti_affinity
        yield from (each.term for each in pod.rules.preferred)


def _selects_namespaces(term: AffinityTerm) -> bool:
    return term.namespace_selector is not None and bool(term.namespace_selector.requirements)


def _pods(keys: list[str]) -> str:
    return f"Pod {keys[0]}" if len(keys) == 1 else f"{len(keys)} pods, such as {keys[0]}"
