"""Planned pods that are not nominated yet: kube-scheduler may come to them by itself before their turn.

kube-scheduler asks about a fresh pod with a sample of the nodes. The pod's own node is rarely among them, but that of a
pod like it may well be; the two then change places, and neither needs a nomination.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from flowcore.model.neighbours import Kind
from flowcore.model.pods import Pod, PodClass


class Alike(msgspec.Struct, frozen=True, cache_hash=True):
    """What two pods must have in common to change places."""

    pod_class: PodClass
    kind: Kind
    policy: str

    def fits(self, pod: Pod) -> bool:
        """Whether a pod is still like that."""
        return (self.pod_class, self.kind) == (pod.pod_class, pod.kind)


class Pools:
    """Such pods, in the order in which they came, by what they are like and by node."""

    def __init__(self) -> None:
        self._pools: dict[Alike, dict[str, set[str]]] = {}
        self._places: dict[str, tuple[Alike, str]] = {}

    def oldest(self) -> Iterator[str]:
        """Keys, those first that came first; the line must not change meanwhile."""
        return iter(self._places)

    def newest(self, most: int) -> list[str]:
        """At most so many keys, those first that came last."""
        return list(islice(reversed(self._places), most))

    def add(self, key: str, alike: Alike, node: str) -> None:
        """A pod that is planned for this node."""
        self._places[key] = (alike, node)
        self._pools.setdefault(alike, {}).setdefault(node, set()).add(key)

    def remove(self, key: str) -> None:
        """It does not stand in line any more."""
        place = self._places.pop(key, None)
        if place is not None:
            self._take(key, *place)

    def _take(self, key: str, alike: Alike, node: str) -> None:
        pool = self._pools[alike]
        pool[node].discard(key)
        if not pool[node]:
            del pool[node]
        if not pool:
            del self._pools[alike]

    def alike(self, key: str) -> Alike | None:
        """What a pod is like; None: it is not here."""
        place = self._places.get(key)
        return None if place is None else place[0]

    def partners(self, alike: Alike, nodes: Sequence[str]) -> Iterator[str]:
        """For each of these nodes that is planned for pods like that, one of them."""
        pool = self._pools.get(alike, {})
        return (next(iter(pool[node])) for node in nodes if node in pool)

    def move(self, key: str, node: str) -> None:
        """It is planned for another node now, and keeps its turn; one that is not here is passed over."""
        place = self._places.get(key)
        if place is not None:
            self._take(key, *place)
            self.add(key, place[0], node)
