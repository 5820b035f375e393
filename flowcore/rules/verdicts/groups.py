"""From pending pods to groups of interchangeable ones.

Source: seeds "equivalence class"; the class is what scheduling reads (option 1 of that document), not the owner:
pods of one owner with different requests must not share a verdict (camsas/firmament, poseidon#171).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, WeightedTerm
from flowcore.model.pod_index import (
    AffinityMatch,
    PodIndex,
    PodMatch,
    PodSignature,
    SpreadMatch,
)
from flowcore.model.pods import PodClass
from flowcore.model.selector_index import ScopedIndex
from flowcore.model.workload_kinds import penalty_match
from flowcore.rules.topology.domain_limits import limit_match

_NO_CLASSES: Mapping[PodClass, PodClass] = {}
_NO_GANGS: Mapping[str, Gang] = {}


@dataclass(frozen=True, slots=True)
class Group:
    """Pods of one class under one policy, of one queue and of one foreseen use, the longest waiting first.

    Within a group pods are interchangeable, so those that waited longest are placed first.

    Attributes:
        signature: of one of its pods; those of the others differ only in labels that no rule reads.
    """

    pod_class: PodClass
    policy: str
    signature: PodSignature
    pods: tuple[PendingPod, ...]

    @property
    def foreseen(self) -> tuple[int, int] | None:
        """Cpu (milli-cores) and memory (bytes) that each pod is expected to use; None: unknown."""
        return self.pods[0].foreseen


def group(
    pending: Sequence[PendingPod],
    pod_index: PodIndex,
    classes: Mapping[PodClass, PodClass] = _NO_CLASSES,
    gangs: Mapping[str, Gang] = _NO_GANGS,
    apart: Collection[PodClass] = (),
    without_wish: Collection[str] = (),
    held_back: Collection[str] = (),
) -> tuple[Group, ...]:
    """Groups in the order of their first pod; the same pods always give the same groups.

    Pods with different labels are interchangeable if their own rules are equal and the same rules of others, running or
    pending, match them.

    Args:
        classes: replacements of classes in which some part makes no difference here; other classes stay.
        gangs: by name. Pods of a gang with a topology are interchangeable among each other only: their nodes
            are chosen for them alone.
        apart: classes, before they are replaced, of which one pod decides on what nodes the others do: each of their
            pods is a group of its own.
        without_wish: keys of pods whose wish (``PodClass.wish``) counts for nothing.
        held_back: keys of pods that get no node before others leave: they are interchangeable among each other only.
    """
    one_domain = {name for name, gang in gangs.items() if gang.has_topology}
    readers = _LabelReaders(pending, pod_index)
    groups: dict[
        tuple[
            PodClass,
            str,
            InterPodConstraints | None,
            str,
            frozenset[_Reader],
            tuple[str, ...],
            str,
            tuple[int, int] | None,
            str,
            bool,
        ],
        list[PendingPod],
    ] = {}
    for pod in pending:
        constraints = pod.signature.constraints
        # A spread constraint counts pods of the pod's own namespace.
        namespace = (
            pod.signature.namespace
            if constraints is not None and (constraints.spread or constraints.soft_spread)
            else ""
        )
        pod_class = classes.get(pod.pod_class, pod.pod_class)
        if pod_class.wish and pod.key in without_wish:
            pod_class = msgspec.structs.replace(pod_class, wish="")
        own_gangs = tuple(name for name in pod.gangs if name in one_domain) if one_domain else ()
        groups.setdefault(
            (
                pod_class,
                pod.policy,
                constraints,
                namespace,
                readers.of(pod.signature),
                own_gangs,
                pod.queue,
                pod.foreseen,
                pod.key if pod.pod_class in apart else "",
                pod.key in held_back,
            ),
            [],
        ).append(pod)
    return tuple(
        Group(pod_class, policy, pods[0].signature, tuple(sorted(pods, key=lambda pod: pod.came)))
        for (pod_class, policy, *_), pods in groups.items()
    )


#: The term of a running or pending pod, or the pods that a pending pod's own term, spread constraint or limit counts.
_Reader = AffinityTerm | WeightedTerm | PodMatch


class _LabelReaders:
    """All rules that read the labels of pending pods: their own, and those of running pods, which PodIndex keeps."""

    def __init__(self, pending: Sequence[PendingPod], pod_index: PodIndex) -> None:
        self._pod_index, self._namespaces = pod_index, pod_index.namespaces
        self._index: ScopedIndex[AffinityTerm | PodMatch] = ScopedIndex()
        self._known: dict[PodSignature, frozenset[_Reader]] = {}
        readers: set[AffinityTerm | PodMatch] = set()
        for constraints, namespace in {(pod.signature.constraints, pod.signature.namespace) for pod in pending}:
            if constraints is not None:
                readers.update(constraints.anti_affinity)
                readers.update(AffinityMatch((term,)) for term in (*constraints.affinity, *constraints.anti_affinity))
                readers.update(weighted_term.term for weighted_term in constraints.preferred)
                readers.update(AffinityMatch((wish.term,)) for wish in constraints.preferred)
                readers.update(
                    SpreadMatch(namespace, spread.selector)
                    for spread in (*constraints.spread, *constraints.soft_spread)
                )
                readers.update(map(limit_match, constraints.limits))
                readers.update(map(limit_match, constraints.count_prices))
                readers.update(penalty_match(penalty) for penalty in constraints.penalties)
        for reader in readers:
            self._index.add(reader)
        self._any = bool(readers) or pod_index.has_terms

    def of(self, signature: PodSignature) -> frozenset[_Reader]:
        """The rules that match the signature."""
        if not self._any:
            return frozenset()
        known = self._known.get(signature)
        if known is None:
            namespace_labels = self._namespaces.get(signature.namespace, ())
            readers: list[_Reader] = [
                reader
                for reader in self._index.find(signature.namespace, namespace_labels, signature.labels)
                if isinstance(reader, AffinityTerm) or reader.includes(signature, self._namespaces)
            ]
            readers += [term for term, _ in self._pod_index.anti_affinity_terms_for(signature)]
            readers += [weighted_term for weighted_term, _ in self._pod_index.preferred_terms_for(signature)]
            known = self._known[signature] = frozenset(readers)
        return known
