"""Planned pods that are not nominated yet: alike pods may swap their nodes.

kube-scheduler asks about a fresh pod with a sample of the nodes. The pod's own node is rarely in the sample, but the
node of a pod like it may be. The two pods then swap their nodes, and neither needs a nomination.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass


class SwapKey(msgspec.Struct, frozen=True, cache_hash=True):
    """What two pods must have in common to swap their nodes."""

    pod_class: PodClass
    signature: PodSignature
    policy: str

    def fits(self, pod: Pod) -> bool:
        """Whether a pod still has this class and signature."""
        return (self.pod_class, self.signature) == (pod.pod_class, pod.signature)


class SwapPool:
    """Pods in the order in which they came, by swap key and node."""

    def __init__(self) -> None:
        self._pools: dict[SwapKey, dict[str, set[str]]] = {}
        self._entries: dict[str, tuple[SwapKey, str]] = {}

    def oldest(self) -> Iterator[str]:
        """Keys of pods, the oldest first. The pool must not change meanwhile."""
        return iter(self._entries)

    def newest(self, limit: int) -> list[str]:
        """Keys of at most ``limit`` pods, the newest first."""
        return list(islice(reversed(self._entries), limit))

    def add(self, key: str, swap_key: SwapKey, node: str) -> None:
        """Adds a pod that is planned for this node."""
        self._entries[key] = (swap_key, node)
        self._pools.setdefault(swap_key, {}).setdefault(node, set()).add(key)

    def remove(self, key: str) -> None:
        """Removes a pod, if it is here."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._take(key, *entry)

    def _take(self, key: str, swap_key: SwapKey, node: str) -> None:
        pool = self._pools[swap_key]
        pool[node].discard(key)
        if not pool[node]:
            del pool[node]
        if not pool:
            del self._pools[swap_key]

    def swap_key(self, key: str) -> SwapKey | None:
        """The swap key of a pod; None: the pod is not here."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def partners(self, swap_key: SwapKey, nodes: Sequence[str]) -> Iterator[str]:
        """One pod with this swap key for each of these nodes that has one."""
        pool = self._pools.get(swap_key, {})
        return (next(iter(pool[node])) for node in nodes if node in pool)

    def move(self, key: str, node: str) -> None:
        """Moves a pod to another node, if it is here. It keeps its rank."""
        entry = self._entries.get(key)
        if entry is not None:
            self._take(key, *entry)
            self.add(key, entry[0], node)
