"""Planned pods that are alike: kube-scheduler may put any of them on any node that is planned for one of them.

kube-scheduler asks about a pod with a sample of the nodes. The pod's own node is rarely among them, but that of a pod
like it may well be; the two then change places, and neither needs a nomination.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Pods by what they are like and by node."""

    def __init__(self) -> None:
        self._pools: dict[Alike, dict[str, set[str]]] = {}
        self._places: dict[str, tuple[Alike, str]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def alike(self, key: str) -> Alike:
        """What a pod is like."""
        return self._places[key][0]

    def add(self, key: str, alike: Alike, node: str) -> None:
        """A pod that is planned for this node."""
        self.remove(key)
        self._places[key] = (alike, node)
        self._pools.setdefault(alike, {}).setdefault(node, set()).add(key)

    def remove(self, key: str) -> None:
        """It is not to change places any more."""
        place = self._places.pop(key, None)
        if place is None:
            return
        alike, node = place
        pool = self._pools[alike]
        pool[node].discard(key)
        if not pool[node]:
            del pool[node]
        if not pool:
            del self._pools[alike]

    def node_among(self, key: str, nodes: Sequence[str]) -> str:
        """One of these nodes that is planned for a pod like this one, its own if it can be; "" if there is none."""
        place = self._places.get(key)
        if place is None:
            return ""
        alike, own = place
        pool = self._pools[alike]
        return own if own in nodes else next((node for node in nodes if node in pool), "")

    def at(self, key: str, node: str) -> str:
        """A pod like this one that is planned for a node."""
        alike, _ = self._places[key]
        return next(iter(self._pools[alike][node]))
