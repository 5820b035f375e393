"""How many waiting pods the limits of queues keep out of every plan, whichever of them a plan lets in.

A plan passes no limit. So of the waiting pods of a queue no more come than the smallest ones of them that its limit
leaves room for, with the room of its running pods that may leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs.shares.filling import Float64s
from flowcore.costs.shares.shares import Shares
from flowcore.model.running_pods import RunningPod

#: Sums of amounts are off by less than this part of them.
_FLOAT_ERROR = 1e-9


@dataclass(frozen=True, slots=True)
class LeftByLimits:
    """Pods that every plan leaves.

    Attributes:
        pods: how many.
        queues: names of the queues whose pods they are; of no others.
    """

    pods: int = 0
    queues: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class _Limited:
    """A queue with a limit.

    Attributes:
        room: float64[R], what its limit leaves at most; infinite where it has none.
        priorities: int64[P], requests: float64[P, R], of the waiting pods that count for it.
    """

    room: Float64s
    priorities: Int64s
    requests: Float64s

    def kept_out(self, lowest: int) -> int:
        """How many of its waiting pods of this priority or a higher one stay out at least."""
        requests = self.requests[self.priorities >= lowest]
        let_in = len(requests)
        for asked, room in zip(requests.T, self.room.tolist(), strict=True):
            # A pod that asks for nothing of a resource passes no limit of it.
            taken = np.cumsum(np.sort(asked[asked > 0]))
            let_in = min(let_in, len(asked) - int(np.count_nonzero(taken > room)))
        return len(requests) - let_in


class QueueLimits:
    """The limits of the queues of a snapshot."""

    def __init__(self, snapshot: Snapshot, leaving: Iterable[RunningPod]) -> None:
        """A snapshot as the round began.

        Args:
            leaving: running pods that may leave.
        """
        shares = Shares(snapshot)
        self._tree = shares.tree
        names = [name for name, queue in shares.tree.queues.items() if queue.limit]
        room = {name: shares.limit(name) - shares.held[name] for name in names}
        rows: dict[str, list[tuple[int, Float64s]]] = {name: [] for name in names}
        for pod in leaving:
            for name in self._above(pod.queue):
                if name in room:
                    room[name] = room[name] + shares.request(pod.usage)
        for waiting in snapshot.pending:
            for name in self._above(waiting.queue):
                if name in rows:
                    rows[name].append((waiting.pod_class.priority, shares.added_by(waiting)))
        self._limited = {
            name: _Limited(
                room[name] + _FLOAT_ERROR * np.abs(room[name]),
                np.array([priority for priority, _ in of], dtype=np.int64),
                np.array([request for _, request in of]),
            )
            for name, of in rows.items()
            if of
        }

    def kept_out(self, lowest: int) -> LeftByLimits:
        """The pods of a priority, or of a higher one, that limits keep out: of queues apart from each other."""
        parts = [self._below(name, lowest) for name in self._tree.children("")]
        return LeftByLimits(sum(part.pods for part in parts), frozenset().union(*(part.queues for part in parts)))

    def _below(self, name: str, lowest: int) -> LeftByLimits:
        parts = [self._below(child, lowest) for child in self._tree.children(name)]
        of_children = sum(part.pods for part in parts)
        own = self._limited[name].kept_out(lowest) if name in self._limited else 0
        if own > of_children:
            return LeftByLimits(own, frozenset(each for each in self._tree.queues if name in self._tree.path(each)))
        return LeftByLimits(of_children, frozenset().union(*(part.queues for part in parts)))

    def _above(self, queue: str) -> tuple[str, ...]:
        """The queues that a pod of a queue counts for."""
        return self._tree.path(queue) if queue in self._tree.queues else ()
