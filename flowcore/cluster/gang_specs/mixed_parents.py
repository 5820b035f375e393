"""Parents whose pods cannot be placed all or none: some are in another gang, or they are delivered differently.

Without us their controller's pods would run. So such a parent makes no gang, rather than pods that wait for others
which never join them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from flowcore.model.gang_parents import GangParent, ParentKey
from flowcore.model.policies import Delivery

#: How a pod is delivered, and whether by the part of a Job that only Indexed ones make: both parts are of all pods.
_Delivered = tuple[Delivery, bool]
#: Uid of a pod's controller where that has the kind and the name of the parent, else ""; and how the pod is delivered,
#: None: it is in no gang of the parent, but in another one or in none.
Way = tuple[str, _Delivered | None]
#: Of a pod that is of no parent, or does not count.
NO_WAYS: Final[Mapping[ParentKey, Way]] = {}


class MixedParents:
    """How the pods of each parent are delivered. Pods that nobody governs do not matter."""

    def __init__(self) -> None:
        #: By uid of the controller; None: of all pods. So one question is short, however many controllers there are.
        self._ways: dict[tuple[ParentKey, str | None], Counter[_Delivered | None]] = {}
        self._of_pods: dict[str, Mapping[ParentKey, Way]] = {}

    def ways_of(self, pod: str) -> Mapping[ParentKey, Way]:
        """How a pod is delivered as a pod of its parents."""
        return self._of_pods.get(pod, NO_WAYS)

    def put(self, pod: str, ways: Mapping[ParentKey, Way]) -> None:
        """Takes how a pod is delivered as a pod of its parents.

        Args:
            ways: empty: the pod is gone, or has ended.
        """
        before = self.ways_of(pod)
        if ways:
            self._of_pods[pod] = ways
        else:
            self._of_pods.pop(pod, None)
        self._count(ways, 1)
        self._count(before, -1)

    def _count(self, ways: Mapping[ParentKey, Way], sign: int) -> None:
        """Counts a pod that came (1) or went (-1)."""
        for parent, (uid, delivered) in ways.items():
            for key in ((parent, uid), (parent, None)):
                counts = self._ways.get(key)
                if counts is None:
                    counts = self._ways[key] = Counter()
                counts[delivered] += sign
                if not counts[delivered]:
                    del counts[delivered]
                if not counts:
                    del self._ways[key]

    def is_mixed(self, parent: GangParent) -> bool:
        """Whether the pods of a parent are not all delivered the same way, in gangs of its own."""
        controllers = ("", parent.uid) if parent.owns_pods else (None,)
        own = [delivered for uid in controllers for delivered in self._ways.get((parent.key, uid), ())]
        return None in own or any(delivered != own[0] for delivered in own)
