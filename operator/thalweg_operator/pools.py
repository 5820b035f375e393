"""Planned pods in line for their nomination: kube-scheduler may come to them by itself before their turn.

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
    """Pods in line, in the order in which they came, by what they are like and by node."""

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

    def alike(self, key: str) -> Alike:
        """What a pod is like."""
        return self._places[key][0]

    def partner(self, key: str, nodes: Sequence[str]) -> str:
        """A pod like this one that is planned for one of these nodes, itself if it can be; "" if there is none."""
        alike, own = self._places[key]
        if own in nodes:
            return key
        pool = self._pools[alike]
        return next((next(iter(pool[node])) for node in nodes if node in pool), "")

    def swap(self, key: str, other: str) -> None:
        """Two that are alike change places; each keeps its turn."""
        (alike, node), (_, its) = self._places[key], self._places[other]
        for each, before, after in ((key, node, its), (other, its, node)):
            self._take(each, alike, before)
            self.add(each, alike, after)
