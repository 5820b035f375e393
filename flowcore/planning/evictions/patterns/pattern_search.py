"""Who leaves for many urgent pods of one priority, decided for all of them together.

One pod after the other takes the node where its victims are least, and so takes what others of the round need more:
the small pod goes where one victim would have done for a large one. Here the nodes' patterns are chosen together, so
that the same pods come and those that leave are less: fewer of the highest priority that leaves, then of the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod
from flowcore.planning.evictions.eligibility import Eligibility
from flowcore.planning.evictions.fit_checks import FitCheck
from flowcore.planning.evictions.patterns.master_program import choose_patterns
from flowcore.planning.evictions.patterns.node_patterns import LeavingKind, NodePatterns, Patterns
from flowcore.planning.plan_key import AtLevel, PlanKey
from flowcore.planning.problem.placements.decisions import Checkpoint
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import losses_by_priority
from flowcore.planning.solvers.linear import Float64s

#: Demands, nodes and patterns that are decided together.
_MOST_DEMANDS, _MOST_NODES, _MOST_COLUMNS = 8, 2_000, 12_000
#: Limits that are looked at: pods that count for others stay.
_MOST_LIMITS = 64
#: Numbers that are compared for all patterns of a round, and what a node costs beside them: a second of work or so.
_MOST_WORK, _NODE_WORK = 60_000_000, 20_000
#: Sums of amounts stay below this.
_LARGEST = 2.0**62
#: Beside the nodes of the plan so far, promising nodes: so many, and so many for each pod.
_MORE_NODES, _MORE_FOR_A_POD = 64, 2
#: Losses of neighbouring priorities differ by this factor at most: a linear program in floats knows no more.
_MOST_FACTOR = 1_000


class PatternSearch:
    """Decides again what a search decided for the pods of one priority."""

    def __init__(
        self,
        state: Plan,
        eligibility: Eligibility,
        check_of: Callable[[int], FitCheck],
        node_order: Callable[[int, Bools], Int64s],
        place: Callable[[int, Sequence[PendingPod]], object],
    ) -> None:
        """Changes the state.

        Args:
            check_of: the fit check of a demand, by number.
            node_order: nodes for a demand where some residents may leave, bool[V], the cheapest first.
            place: places pods of a demand one after the other, with victims.
        """
        self._state, self._residents, self._eligibility = state, state.residents, eligibility
        self._check_of, self._node_order, self._place = check_of, node_order, place
        self._work_left = _MOST_WORK

    def improve(self, checkpoint: Checkpoint, priority: int) -> None:
        """Decides otherwise what was decided since a checkpoint, where fewer pods leave then.

        Only preemptions and arrivals may have been decided, for pods of this priority that preempt.
        """
        state = self._state
        pods: dict[int, list[PendingPod]] = {}
        for arrival in state.arrivals[checkpoint.arrivals :]:
            pods.setdefault(arrival.demand, []).append(arrival.pod)
        arrived = sum(map(len, pods.values()))
        if arrived < 2 or len(pods) > _MOST_DEMANDS or len(state.leaving) <= checkpoint.leaving:
            return
        if not all(self._check_of(demand).by_node for demand in pods) or self._work_left <= 0:
            return
        if self._may_overflow(pods):
            return
        decisions = state.since(checkpoint)
        before = self._lost(checkpoint)
        used = {arrival.node for arrival in decisions.arrivals}
        state.roll_back(checkpoint)
        self._decide(pods, used, priority, before)
        lost = self._lost(checkpoint)
        priorities = sorted(before | lost, reverse=True)
        # The pods that come are the same. Who leaves waits at the level of its priority.
        known, key = (PlanKey(levels=tuple(AtLevel(each[level]) for level in priorities)) for each in (before, lost))
        if len(state.arrivals) - checkpoint.arrivals == arrived and key < known:
            return
        state.roll_back(checkpoint)
        state.redo(decisions)

    def _may_overflow(self, pods: dict[int, list[PendingPod]]) -> bool:
        """Whether amounts are so large that a sum of them may be no 64-bit number."""
        state = self._state
        room = np.abs(state.free).max(axis=0, initial=0).astype(np.float64)
        room += self._residents.usage.sum(axis=0, dtype=np.float64)
        asked = sum(state.demands[demand].requests.astype(np.float64) * len(each) for demand, each in pods.items())
        return bool((room + asked >= _LARGEST).any())

    def _lost(self, checkpoint: Checkpoint) -> Counter[int]:
        """How many leave of each priority."""
        leaving = list(self._state.leaving)[checkpoint.leaving :]
        return Counter(self._residents.priorities[leaving].tolist())

    def _decide(self, pods: dict[int, list[PendingPod]], used: set[int], priority: int, before: Counter[int]) -> None:
        state, demands = self._state, list(pods)
        may_leave = self._eligibility.mask(priority)
        may_leave[self._residents.running_count :] = False  # no placement is taken back
        wanted = np.array([len(pods[demand]) for demand in demands], dtype=np.int64)
        requests = np.array([state.demands[demand].requests for demand in demands])
        limits: dict[str, int] = {}
        losses = self._losses(may_leave, before)
        nodes = self._nodes(demands, used, may_leave, int(wanted.sum()))
        choices: dict[int, NodePatterns] = {}
        patterns: list[Patterns] = []
        columns = 0
        for node in nodes:
            choice = NodePatterns(state.free[node], self._kinds(node, may_leave, losses, limits), limits)
            most = np.array([self._check_of(demand).possible[node] for demand in demands]) * wanted
            of_node = choice.patterns(requests, most)
            if len(of_node.losses):
                choices[node] = choice
                patterns.append(of_node)
                columns += len(of_node.losses)
            self._work_left -= _NODE_WORK + choice.work(requests)
            if columns > _MOST_COLUMNS or self._work_left <= 0:
                break
        if not patterns:
            return
        kept = list(choices)
        left = {demand: list(pods[demand]) for demand in demands}
        for number, place in choose_patterns(patterns, self._prices(demands, kept, patterns), wanted, limits):
            self._take(kept[number], choices[kept[number]], patterns[number].counts[place], left)
        # Where the program splits a node, and where no pattern was found, pods come one after the other.
        for demand, waiting in sorted(left.items(), key=lambda entry: -state.demands[entry[0]].dominant_share):
            self._place(demand, waiting)

    def _losses(self, may_leave: Bools, before: Counter[int]) -> dict[int, int]:
        """What it is to lose a pod of each priority: more than all that a plan loses of the priorities below it.

        Numbers allow that for the highest priorities only. Pods above all that the plan loses stay.

        Args:
            before: how many a plan loses of each priority.
        """
        priorities = self._residents.priorities[may_leave]
        factor = min(_MOST_FACTOR, 1 + before.total())
        return losses_by_priority(priorities[priorities <= max(before)].tolist(), factor)

    def _nodes(self, demands: Sequence[int], used: set[int], may_leave: Bools, count: int) -> list[int]:
        """The nodes of the plan so far, then the most promising ones of each demand."""
        more = _MORE_NODES + _MORE_FOR_A_POD * count
        nodes = dict.fromkeys(sorted(used))
        for demand in demands:
            nodes |= dict.fromkeys(self._node_order(demand, may_leave)[:more].tolist())
        return list(nodes)[:_MOST_NODES]

    def _kinds(
        self, node: int, may_leave: Bools, losses: dict[int, int], limits: dict[str, int]
    ) -> Sequence[LeavingKind]:
        """The pods that may leave a node; adds the limits that they count for."""
        residents = self._residents
        alike: dict[tuple[bytes, int, tuple[str, ...]], list[int]] = {}
        for resident in reversed(residents.on(node)):
            pod = residents.pods[resident]
            loss = losses.get(pod.priority)
            if loss is None or not may_leave[resident]:
                continue
            known = self._eligibility.limits_of(resident)
            if len(limits.keys() | known.keys()) > _MOST_LIMITS:
                continue
            if all(left > 0 for left in known.values()):
                limits |= known
                alike.setdefault((residents.usage[resident].tobytes(), loss, tuple(known)), []).append(resident)
        return [
            LeavingKind(tuple(members), residents.usage[members[0]], loss, names)
            for (_, loss, names), members in alike.items()
        ]

    def _prices(self, demands: Sequence[int], nodes: Sequence[int], patterns: Sequence[Patterns]) -> list[Float64s]:
        """Of equal losses the plan takes what costs less; all of it together counts for less than one loss."""
        costs = np.array([self._state.priced(demand).first_cost[nodes] for demand in demands], dtype=np.float64)
        prices = [each.counts @ costs[:, number] for number, each in enumerate(patterns)]
        total = sum(float(np.abs(price).max()) for price in prices)
        return [price / max(1.0, 2.0 * total) for price in prices]

    def _take(self, node: int, choice: NodePatterns, counts: Int64s, left: dict[int, list[PendingPod]]) -> None:
        """Lets pods come to a node, as many of the pattern's as are left, and others leave for them."""
        state = self._state
        coming = [
            (demand, pod)
            for (demand, pods), count in zip(left.items(), counts.tolist(), strict=True)
            for pod in pods[:count]
        ]
        if not coming:
            return
        members = choice.members(np.sum([state.demands[demand].requests for demand, _ in coming], axis=0))
        if members is None:
            return
        limits: dict[str, int] = {}
        counted = Counter[str]()
        for member in members:
            known = self._eligibility.limits_of(member)
            limits |= known
            counted.update(known.keys())
        if any(limits[name] < count for name, count in counted.items()):
            return
        for member in members:
            state.let_leave(member, self._eligibility.kind, [pod.key for _, pod in coming])
        for demand, pod in coming:
            state.arrive(pod, demand, node)
        for pods, count in zip(left.values(), counts.tolist(), strict=True):
            del pods[:count]
