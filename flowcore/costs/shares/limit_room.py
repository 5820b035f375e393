"""What the limits of queues leave, as pods come and leave: a test at each pod that comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod
from flowcore.costs.shares.filling import Float64s
from flowcore.costs.shares.shares import Shares
from flowcore.model.resources import Amounts

_NO_ROWS = np.zeros(0, dtype=np.int64)


class LimitRoom:
    """What is left below each of L limits. A pod counts for those of its queue and of the queues above it.

    Attributes:
        left: float64[L, R], once all that leave have left and all that come have come; infinite where there is no
            limit, below zero where one is passed already.
        awaited: float64[L, R], the part of it that running pods hold which leave, without what comes only after them.
    """

    def __init__(self, shares: Shares | None = None) -> None:
        """What pods of the snapshot of these shares leave, those that are leaving too; None: there is no queue."""
        limited = [] if shares is None else [name for name, queue in shares.tree.queues.items() if queue.limit]
        self._shares, self.names = shares, tuple(limited)
        width = 0 if shares is None else len(shares.resources)
        left = [] if shares is None else [shares.limit(name) - shares.held[name] for name in limited]
        self.left = np.array(left, dtype=np.float64).reshape(len(limited), width)
        self.awaited = np.zeros_like(self.left)
        self._rows: dict[str, Int64s] = {}

    def rows(self, queue: str) -> Int64s:
        """Numbers of the limits that pods of a queue count for."""
        if not self.names or self._shares is None or queue not in self._shares.tree.queues:
            return _NO_ROWS
        if queue not in self._rows:
            path = set(self._shares.tree.path(queue))
            self._rows[queue] = np.array([row for row, name in enumerate(self.names) if name in path], dtype=np.int64)
        return self._rows[queue]

    def below(self, rows: Int64s, queues: Iterable[str]) -> Bools:
        """bool[queues]: which of these queues count for one of some limits."""
        known = {queue: bool(np.isin(self.rows(queue), rows).any()) for queue in dict.fromkeys(queues)}
        return np.array([known[queue] for queue in queues], dtype=np.bool_)

    def of_running(self, usage: Amounts) -> Float64s:
        """float64[R]: what a running pod counts for."""
        return np.zeros(0) if self._shares is None else self._shares.request(usage)

    def of_waiting(self, pod: PendingPod) -> Float64s:
        """float64[R]: what a waiting pod adds."""
        return np.zeros(0) if self._shares is None else self._shares.added_by(pod)

    def change(self, queue: str, amounts: Float64s, *, now: bool = True) -> None:
        """Room below limits comes free, or is taken where amounts are below zero; ``now``: before any pod leaves."""
        rows = self.rows(queue)
        if not len(rows):
            return
        self.left[rows] += amounts
        if not now:
            self.awaited[rows] += amounts

    def allows(self, queue: str, amounts: Float64s, *, now: bool = False) -> bool:
        """Whether so much more may come; ``now``: before any pod leaves."""
        return not self._over(self.rows(queue), amounts, now=now).any()

    def _over(self, rows: Int64s, amounts: Float64s, *, now: bool = False) -> Bools:
        """bool[rows, R]: where a limit would be passed; a pod that asks for nothing of a resource passes no limit."""
        left = self.left[rows] - self.awaited[rows] if now else self.left[rows]
        over: Bools = (amounts > 0) & (amounts > left)
        return over

    def lacking(self, pods: Sequence[PendingPod]) -> tuple[str, str] | None:
        """The queue whose limit waiting pods would pass together, and the resource; None: they pass none."""
        asked: dict[int, Float64s] = {}
        for pod in pods:
            added = self.of_waiting(pod)
            for row in self.rows(pod.queue).tolist():
                asked[row] = asked.get(row, 0.0) + added
        for row, amounts in asked.items():
            over = self._over(np.array([row]), amounts)[0]
            if over.any() and self._shares is not None:
                return self.names[row], self._shares.resources[int(over.argmax())]
        return None

    def take(self, pods: Iterable[PendingPod]) -> None:
        """Waiting pods come."""
        for pod in pods if self.names else ():
            self.change(pod.queue, -self.of_waiting(pod))
