"""Who may leave so that a queue takes back what it lent (flowcore/costs/shares/reclaim.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, PendingPod
from flowcore.costs.shares.reclaim import Reclaim
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.eligibility import Eligibility, PossibleEviction
from flowcore.planning.evictions.search.node_search import NodeSearch
from flowcore.planning.evictions.search.victims import Victims, choose_victims
from flowcore.planning.problem.bounds.leaving_limits import LeavingLimit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.result import Placement

#: Nodes that are looked at for one pod, and of these those where enough pods may leave.
_MAX_NODES, _MAX_FOUND = 256, 16


class ReclaimEligibility(Eligibility):
    """Who may leave for the share of a queue: budgets and gangs are kept as in preemption."""

    kind = EvictionKind.RECLAIM

    def __init__(self, state: Plan, reclaim: Reclaim, placements: Sequence[Placement]) -> None:
        """``placements``: those of the first part of the round."""
        super().__init__(state)
        self._begun, self._placements = reclaim, placements
        self._first = reclaim.fork()
        for placement in placements:
            self._first.place(placement.pod)
        self._known: tuple[tuple[tuple[str, ...], frozenset[int]], Reclaim] = (((), frozenset()), self._first)
        #: bool[V] and str[V]: ``reclaimable``, and the queues of residents.
        self._reclaimable: Bools = self._residents.evictable & np.array(
            [
                self._residents.is_running(resident) and reclaim.is_reclaimable(pod)
                for resident, pod in enumerate(self._residents.pods)
            ],
            dtype=np.bool_,
        )
        self._queues = np.array([pod.queue for pod in self._residents.pods], dtype=object)
        self._pod: PendingPod | None = None
        self._allowed: frozenset[int] = frozenset()

    @property
    def reclaimable(self) -> Bools:
        """bool[V]: residents that may be evicted for a share at all."""
        return self._reclaimable

    def limits(self, members: Bools, comers: Iterable[PendingPod]) -> list[LeavingLimit]:
        """What each queue gives back at most: before the last pod leaves it has more than its fair share.

        Args:
            members: bool[V], residents that leave for a share only.
            comers: pods that may come; with them and the placements of the first part a queue has most.
        """
        pods = {pod.key: pod for pod in (*comers, *(placement.pod for placement in self._placements))}
        rows = []
        for queue in sorted(set(self._queues[members].tolist())):
            numbers = np.nonzero(members & (self._queues == queue))[0]
            usages = [self._residents.pods[number].usage for number in numbers.tolist()]
            rows_of = {usage: self._begun.request(usage) for usage in dict.fromkeys(usages)}
            surplus = self._begun.surplus(queue, pods.values())
            counted = np.nonzero(surplus > 0)[0]
            amounts = np.array([rows_of[usage] for usage in usages]).T[counted]
            rows.append(LeavingLimit(numbers, amounts, surplus[counted]))
        return rows

    def _reclaim(self) -> Reclaim:
        """The shares with all decisions so far."""
        state = self._state
        made = tuple(arrival.pod.key for arrival in state.arrivals), frozenset(state.leaving)
        if self._known[0] != made:
            reclaim = self._first.fork()
            for arrival in state.arrivals:
                reclaim.place(arrival.pod)
            for resident in state.leaving:
                reclaim.leave(self._residents.pods[resident])
            self._known = made, reclaim
        return self._known[1]

    def begin(self, pod: PendingPod) -> bool:
        """Turns to a waiting pod. Whether its queue takes back what it lent."""
        self._pod = pod
        return self._reclaim().may_reclaim(pod)

    def mask(self, priority: int) -> Bools:
        """bool[V]: residents that may leave for the pod in hand as far as shares, budgets and gangs do not matter."""
        queue = "" if self._pod is None else self._pod.queue
        reclaimable: Bools = self._reclaimable & (self._residents.priorities <= priority) & (self._queues != queue)
        reclaimable[list(self._state.leaving)] = False
        return reclaimable

    def may_leave(self, resident: int, priority: int) -> bool:  # noqa: ARG002 - the shares have seen it
        """Whether a resident may leave for the pod in hand, but for budgets and gangs."""
        return resident in self._allowed

    def evictions(self, here: Sequence[int], priority: int) -> list[list[PossibleEviction]]:
        """Evictions of some residents in the orders to try; the least important pods may leave first."""
        residents, pod, mask = self._residents, self._pod, self.mask(priority)
        if pod is None:
            return []
        gangs = {residents.pods[resident].gang for resident in here} - {""}
        others = (resident for gang in sorted(gangs) for resident in residents.by_gang[gang])
        candidates = [resident for resident in dict.fromkeys([*here[::-1], *others]) if mask[resident]]
        allowed = self._reclaim().allowed(pod, [residents.pods[resident] for resident in candidates])
        self._allowed = frozenset(resident for resident, may in zip(candidates, allowed.tolist(), strict=True) if may)
        return super().evictions(here, priority)

    def best(self, this: NodeSearch, pod: PendingPod) -> Victims | None:
        """Where pods leave for one that its queue's share is due to; None: nowhere."""
        if not self.begin(pod):
            return None
        bests = (
            victims
            for node in this.bounds(self.mask(this.priority)).nodes[:_MAX_NODES].tolist()
            if (choices := self.evictions(self._residents.on(node), this.priority))
            and (victims := choose_victims(self._residents, this.fit_check, node, choices)) is not None
        )
        return min(islice(bests, _MAX_FOUND), default=None)
