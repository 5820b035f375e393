"""From pending pods to groups of interchangeable ones.

Source: seeds "equivalence class"; the class is what scheduling reads (option 1 of that document), not the owner:
pods of one owner with different requests must not share a verdict (camsas/firmament, poseidon#171).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowcore.model.gangs import Gang
from flowcore.model.neighbours import (
    Alike,
    Described,
    Description,
    Kind,
    Neighbours,
    SelectorIndex,
    Together,
    term_matches,
)
from flowcore.model.pods import PodClass
from flowcore.model.rules import AffinityTerm, Rules, WeightedTerm
from flowcore.model.snapshot import PendingPod

_NO_CLASSES: Mapping[PodClass, PodClass] = {}
_NO_GANGS: Mapping[str, Gang] = {}


@dataclass(frozen=True, slots=True)
class Group:
    """Pods of one class under one policy, the longest waiting first.

    Within a group pods are interchangeable, so those that waited longest are placed first.

    Attributes:
        kind: of one of its pods; the others' differ from it in nothing that any rule reads.
    """

    pod_class: PodClass
    policy: str
    kind: Kind
    pods: tuple[PendingPod, ...]


def group(
    pending: Sequence[PendingPod],
    neighbours: Neighbours,
    classes: Mapping[PodClass, PodClass] = _NO_CLASSES,
    gangs: Mapping[str, Gang] = _NO_GANGS,
) -> tuple[Group, ...]:
    """Groups in the order of their first pod; the same pods always give the same groups.

    Pods whose labels differ are interchangeable all the same where their rules are equal and the same rules speak of
    them, those of running pods and those of the pending ones: where there is no rule at all, labels tell nothing apart.

    Args:
        classes: what to take for a class of which some part makes no difference here; itself where left out.
        gangs: by name. Pods of a gang that must be in one domain are interchangeable among each other only: where
            they may go is decided for them alone.
    """
    fenced = {name for name, gang in gangs.items() if gang.topology}
    readers = _Readers(pending, neighbours)
    found: dict[tuple[PodClass, str, Rules | None, str, frozenset[_Reader], tuple[str, ...]], list[PendingPod]] = {}
    for pod in pending:
        rules = pod.kind.rules
        # A spread constraint counts pods of the pod's own namespace.
        namespace = pod.kind.namespace if rules is not None and (rules.spread or rules.soft_spread) else ""
        pod_class = classes.get(pod.pod_class, pod.pod_class)
        fences = tuple(name for name in pod.gangs if name in fenced) if fenced else ()
        found.setdefault((pod_class, pod.policy, rules, namespace, readers.of(pod.kind), fences), []).append(pod)
    return tuple(
        Group(pod_class, policy, pods[0].kind, tuple(sorted(pods, key=lambda p: (p.waits_since, p.key))))
        for (pod_class, policy, *_), pods in found.items()
    )


#: The term of a pod that runs or will, a waiting pod's own term, or what a spread constraint or a policy counts.
_Reader = AffinityTerm | WeightedTerm | Description


class _Readers:
    """All that reads the labels of waiting pods."""

    def __init__(self, pending: Sequence[PendingPod], neighbours: Neighbours) -> None:
        self._neighbours, self._namespaces = neighbours, neighbours.namespaces
        self._index: SelectorIndex[AffinityTerm | Description] = SelectorIndex()
        self._known: dict[Kind, frozenset[_Reader]] = {}
        readers: set[AffinityTerm | Description] = set(neighbours.repelling)
        for rules, namespace in {(pod.kind.rules, pod.kind.namespace) for pod in pending}:
            if rules is not None:
                readers.update(rules.anti_affinity)
                readers.update(Together((term,)) for term in (*rules.affinity, *rules.anti_affinity))
                readers.update(wish.term for wish in rules.preferred)
                readers.update(Together((wish.term,)) for wish in rules.preferred)
                readers.update(Alike(namespace, each.selector) for each in (*rules.spread, *rules.soft_spread))
                readers.update(Described(limit.selectors, limit.namespaces) for limit in rules.limits)
        for reader in readers:
            self._index.add(reader, reader.selector)
        self._any = bool(readers) or neighbours.attracts

    def of(self, kind: Kind) -> frozenset[_Reader]:
        """Those that speak of the kind."""
        if not self._any:
            return frozenset()
        found = self._known.get(kind)
        if found is None:
            found = self._known[kind] = frozenset(
                reader for reader in self._index.find(kind.labels) if self._speaks_of(reader, kind)
            ).union(wish for wish, _ in self._neighbours.attracted(kind))
        return found

    def _speaks_of(self, reader: AffinityTerm | Description, kind: Kind) -> bool:
        if isinstance(reader, AffinityTerm):
            return term_matches(reader, kind.namespace, kind.labels, self._namespaces.get(kind.namespace, ()))
        return reader.includes(kind, self._namespaces)
