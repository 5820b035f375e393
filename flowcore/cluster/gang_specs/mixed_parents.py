"""Parents whose pods cannot be placed all or none: some are in another gang, or they are delivered differently.

Without us their controller's pods would run. So such a parent makes no gang, rather than pods that wait for others
which never join them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from flowcore.model.gang_parents import GangParent, ParentKey
from flowcore.model.policies import Delivery

#: Uid of a pod's controller where that has the kind and the name of the parent, else ""; and how the pod is delivered,
#: None: it is in no gang of the parent, but in another one or in none.
Way = tuple[str, Delivery | None]


class MixedParents:
    """How the pods of each parent are delivered. Pods that nobody governs do not matter."""

    def __init__(self) -> None:
        self._ways: dict[ParentKey, Counter[Way]] = {}
        self._of_pods: dict[str, Mapping[ParentKey, Way]] = {}

    def put(self, pod: str, ways: Mapping[ParentKey, Way]) -> Collection[ParentKey]:
        """Takes how a pod is delivered as a pod of its parents; returns the parents with other ways now.

        Args:
            ways: empty: the pod is gone, or has ended.
        """
        before = self._of_pods.get(pod, {})
        if before == ways:
            return ()
        if ways:
            self._of_pods[pod] = ways
        else:
            del self._of_pods[pod]
        return {*self._count(ways.items(), 1), *self._count(before.items(), -1)}

    def _count(self, ways: Iterable[tuple[ParentKey, Way]], sign: int) -> list[ParentKey]:
        """Counts a pod that came (1) or went (-1); returns the parents of which it is the first or was the last."""
        changed = []
        for parent, way in ways:
            counts = self._ways.setdefault(parent, Counter())
            counts[way] += sign
            if counts[way] == max(0, sign):
                changed.append(parent)
            if not counts[way]:
                del counts[way]
            if not counts:
                del self._ways[parent]
        return changed

    def is_mixed(self, parent: GangParent) -> bool:
        """Whether the pods of a parent are not all delivered the same way, in gangs of its own."""
        own = {
            delivery
            for uid, delivery in self._ways.get(parent.key, ())
            if not (uid and parent.owns_pods) or uid == parent.uid
        }
        return None in own or len(own) > 1
