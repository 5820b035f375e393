"""Where the next pods of one demand go, and who leaves there for them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.evictions.eligibility import Eligibility, PossibleEviction
from flowcore.planning.evictions.fit_checks import FitCheck
from flowcore.planning.evictions.search.ladders import Bounds, BoundsOfDemand, Ladders
from flowcore.planning.evictions.search.victims import Victims, choose_victims, here_of
from flowcore.planning.plan_key import PlanKey
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters.node_resources_fit import count_fitting

#: Nodes of equal bounds that are looked at one by one.
_MAX_TIES = 128
#: The same for pods whose every verdict takes all filters: at least this, and a share of the nodes: as kube-scheduler
#: does (minCandidateNodesAbsolute and minCandidateNodesPercentage of DefaultPreemptionArgs).
_MIN_FILTERED_TIES, _FILTERED_TIES_OF_NODES = 100, 10


class NodeSearch:
    """Where the next pods of one demand go."""

    def __init__(
        self,
        state: Plan,
        number: int,
        fit_check: FitCheck,
        ladders: Ladders,
        nodes: Bools | None,
        lost_work: Int64s | None = None,
    ) -> None:
        """For one demand.

        Args:
            nodes: bool[N], nodes to choose from; None: all.
            lost_work: int64[V], what victims are to lose least of; None: kube-scheduler's order.
        """
        self._state, self.number, self.fit_check, self._lost_work = state, number, fit_check, lost_work
        self._demand: Demand = state.demands[number]
        self.priority = self._demand.group.pod_class.priority
        self._possible = fit_check.possible if nodes is None else fit_check.possible & nodes
        looked_at = None if nodes is None else self._possible
        self._bounds_of_all = BoundsOfDemand(state, ladders, self._demand.requests, lost_work, looked_at)
        self._ladders, self._nodes = ladders, nodes
        #: The same for pods that limits of queues keep out, and where others move for them; None: not asked for yet.
        self._beyond_limits: NodeSearch | None = None
        self._moving: NodeSearch | None = None
        self._heap: list[tuple[PlanKey, int, int, Victims]] = []
        self._version: dict[int, int] = {}
        self._stale: set[int] = set()
        self._looked_at: set[int] = set()
        #: Nodes that were not looked at yet, and the place among them; None: not computed.
        self._bounds: Bounds | None = None
        self._next = self._ties = 0
        #: How many sets were chosen so far.
        self._chosen = 0
        #: Decisions so far, where each concerns all nodes; and how many there were when all nodes were looked at again.
        self._decisions = self._judged_at = 0

    def with_room(self) -> int:
        """The cheapest node that takes the next pod without further evictions; -1: none.

        Room that is free now goes first: then the pod waits for no victim.
        """
        if not self.fit_check.limits.allow():
            return -1
        nodes = self.nodes_with_room
        if not len(nodes):
            return -1
        requests = self._demand.requests
        asked = requests > 0
        now = (self._state.free_now(nodes)[:, asked] >= requests[asked]).all(axis=1)
        cost = self._first_cost[nodes]
        return int(nodes[np.lexsort((cost, ~now))[0]])

    @property
    def nodes_with_room(self) -> Int64s:
        """Numbers of the nodes that have room for the next pod, whatever limits of queues leave."""
        return np.nonzero(self._possible & self.fit_check.fits_now())[0]

    @cached_property
    def _first_cost(self) -> Int64s:
        return self._state.priced(self.number).first_cost

    def bounds(self, may_leave: Bools, nodes: Bools | None = None) -> Bounds:
        """Nodes that may take a pod once residents have left, the most promising first.

        Args:
            may_leave: bool[V], those that may.
            nodes: bool[N], nodes to look at; None: all.
        """
        possible = self._possible if nodes is None else self._possible & nodes
        return self._bounds_of_all.best_first(possible, may_leave)

    def beyond_limits(self, nodes: Bools) -> NodeSearch:
        """The same for pods that limits of queues keep out, on the nodes of those that count for these, bool[N]."""
        if self._beyond_limits is None:
            self._beyond_limits = NodeSearch(
                self._state, self.number, self.fit_check, self._ladders, nodes & self._possible, self._lost_work
            )
        return self._beyond_limits

    @property
    def moving(self) -> NodeSearch:
        """The same where others move for the pods: they lose no work."""
        if self._moving is None:
            self._moving = NodeSearch(self._state, self.number, self.fit_check, self._ladders, self._nodes)
        return self._moving

    def changed(self, nodes: Collection[int]) -> None:
        """What was found on these nodes does not hold any more; where more than resources decides, nor on any other."""
        for search in (self._beyond_limits, self._moving):
            if search is not None:
                search.changed(nodes)
        if self.fit_check.by_node:
            for node in nodes:
                self._version[node] = self._version.get(node, 0) + 1
                self._stale.add(node)
        else:
            # What was found is judged again when it is chosen, the other nodes when nothing else is left.
            self._decisions += 1

    def best(self, eligibility: Eligibility, count: int) -> Victims | None:
        """The node and victims that cost least for each pod, for up to ``count`` pods; None: no eviction helps."""
        if self._bounds is None:
            mask = eligibility.mask(self.priority)
            self._bounds = self.bounds(mask, self.fit_check.possible_without(mask))
        for node in sorted(self._stale):
            # A gang that left, or a pod that moved, changed nodes that this demand may not use, too.
            if self._possible[node]:
                self._push(eligibility, node, count)
        self._stale.clear()
        while True:
            if self._should_look_further(eligibility, count):
                node = int(self._bounds.nodes[self._next])
                self._next += 1
                self._looked_at.add(node)
                self._push(eligibility, node, count)
                continue
            if not self._heap and not self._judge_anew(eligibility, count):
                return None
            if not self._heap:
                continue
            *_, version, victims = heapq.heappop(self._heap)
            if self.fit_check.by_node and version != self._version_of(victims.node):
                continue
            is_known = version == self._version_of(victims.node) and victims.count <= count
            within_limits = is_known and self.fit_check.limits.allow(victims.members, victims.count)
            if within_limits and eligibility.may_all_leave(victims.members, self.priority):
                self._chosen += 1
                return victims
            self._push(eligibility, victims.node, count)

    def _version_of(self, node: int) -> int:
        return self._version.get(node, 0) + self._decisions

    def _judge_anew(self, eligibility: Eligibility, count: int) -> bool:
        """Searches again the nodes that were searched before the last decision. Returns whether there are any."""
        if self.fit_check.by_node or self._judged_at == self._decisions:
            return False
        self._judged_at = self._decisions
        for node in sorted(self._looked_at):
            self._push(eligibility, node, count)
        return True

    def _should_look_further(self, eligibility: Eligibility, count: int) -> bool:
        """Whether the next node may be better than the best so far, with victims shared by ``count`` pods."""
        bounds = self._bounds
        if bounds is None or self._next >= len(bounds.nodes):
            return False
        if eligibility.most_nodes:
            fewer = self._heap and bounds.count[self._next] < self._heap[0][0].moves
            return bool(fewer) or self._next < eligibility.most_nodes + self._chosen
        if not self._heap:
            self._ties = 0
            return True
        known = self._heap[0][0].victims[:2]
        bound = (float(bounds.priority[self._next]), float(bounds.total[self._next]) / count)
        if bound[0] < known[0]:
            return True  # pods of lower priorities may suffice there
        if bound > known:
            return False
        self._ties += 1
        filtered_ties = max(_MIN_FILTERED_TIES, len(self._state.free) // _FILTERED_TIES_OF_NODES)
        return self._ties <= (_MAX_TIES if self.fit_check.by_node else filtered_ties)

    def _push(self, eligibility: Eligibility, node: int, count: int) -> None:
        residents = self._state.residents
        choices = eligibility.evictions(residents.on(node), self.priority)
        if not choices:
            return
        victims = choose_victims(residents, self.fit_check, node, choices, lost_work=self._lost_work)
        if victims is None:
            return
        options = [victims]
        if count > 1 and self.fit_check.by_node:
            most = self._most(node, choices[0], count)
            if most > 1:
                shared = choose_victims(residents, self.fit_check, node, choices, most, self._lost_work)
                if shared is not None:
                    options.append(shared)
        best = min(options)
        heapq.heappush(self._heap, (eligibility.rank(best.loss), node, self._version_of(node), best))

    def _most(self, node: int, evictions: Sequence[PossibleEviction], count: int) -> int:
        """How many pods fit on a node if all pods of a choice leave, ``count`` at most."""
        free = self._state.free[node] + self._state.residents.usage[here_of(evictions)].sum(axis=0)
        return min(count, int(count_fitting(self._demand.requests, free[np.newaxis])[0]))
