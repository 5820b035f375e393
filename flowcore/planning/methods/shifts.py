"""Shifts: a placed pod takes another node with room for it, and a pod that waits takes its place.

A plan that is built in one go leaves room that no waiting pod fits, while some placed pods would. One look at all of
them finds, for a class that waits, pods whose room is enough for it together with what is free beside them.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.constructive import completed
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.objective import unplaced_counts
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit, pods_by_node
from flowcore.planning.problem.problem import Problem

#: How many nodes are looked at for room at most, over all looks.
_MOST_NODES = 10_000_000
#: A pod gives way to others only if these are dearer to leave by more than this part of one: nodes cost something too.
_LEAST_GAIN = 0.1


def shifted(problem: Problem, candidate: Candidate, shadow_prices: Float64s | None = None) -> Candidate | None:
    """A candidate that places more pods than another one; None: no shift makes room for any.

    Pods that rules count or bind, with host ports, for one NUMA zone, or that wait for cheaper nodes stay where they
    are. Room is made for pods with rules too, but not for those that must be near others.

    Args:
        shadow_prices: float64[N, R], what a unit of each resource of a node is worth to others; None: nothing.
    """
    shifts = _Shifts(problem, candidate, shadow_prices)
    return shifts.candidate() if shifts.run() else None


class _Shifts:
    """A plan that changes."""

    def __init__(self, problem: Problem, candidate: Candidate, shadow_prices: Float64s | None) -> None:
        self._problem, self._first, self._demands = problem, candidate, problem.demands
        self._capacity = candidate.capacity.copy()
        self._shadow_prices = np.zeros(self._capacity.free.shape) if shadow_prices is None else shadow_prices
        self._movable = np.array(
            [demand.takes_resources_only and not demand.waits for demand in self._demands], dtype=np.bool_
        )
        self._requests = np.array([demand.requests for demand in self._demands], dtype=np.int64)
        self._priorities = np.array([demand.group.pod_class.priority for demand in self._demands], dtype=np.int64)
        pods = pods_by_node(commit for commit in candidate.commits if self._movable[commit.demand])
        rows = [(demand, node, count) for demand, on in pods.items() for node, count in on.items()]
        #: Demand, node and number of placed pods that may move; a pair of demand and node may come several times.
        self._of, self._nodes, self._counts = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
        #: Pods with rules that were placed, in their order.
        self._bound_commits: list[Commit] = []
        #: Demands of which no further pod fits anywhere.
        self._full = np.zeros(len(self._demands), dtype=np.bool_)
        self._looks = _MOST_NODES // max(1, len(self._capacity.free))
        self._left = unplaced_counts(candidate.commits, self._demands)

    def run(self) -> int:
        """Makes room for one class after the other, small pods first: most places will do for them.

        Returns:
            How many pods were placed beyond those that gave way.
        """
        before = sum(self._left)
        for step in (self._replace, self._place_by_shift):
            for index in self._problem.by_size[::-1]:
                if self._problem.cost_matrix.placeable[index] and _may_come(self._demands[index]):
                    while self._left[index] and step(index):
                        pass
        return before - sum(self._left)

    def candidate(self) -> Candidate:
        """The plan as it is now, completed with what fits."""
        # No rule counts pods that moved.
        commits = [commit for commit in self._first.commits if not self._movable[commit.demand]] + self._bound_commits
        placed: dict[tuple[int, int], int] = {}
        for demand, node, count in zip(self._of.tolist(), self._nodes.tolist(), self._counts.tolist(), strict=True):
            placed[demand, node] = placed.get((demand, node), 0) + count
        commits += [Commit(demand, node, count) for (demand, node), count in placed.items() if count]
        return completed(self._problem, "shifts", commits, self._capacity)

    def _place_by_shift(self, index: int) -> bool:
        """Places some pods of a demand where pods of another one leave for other nodes; False if there is no place."""
        demand, free = self._demands[index], self._capacity.free
        allowed = demand.allowed
        if demand.constraints.constrained:
            allowed = allowed & self._capacity.domain_counts.allowed(demand.constraints)
        enough = (self._counts > 0) & allowed[self._nodes] & ~self._full[self._of] & (self._of != index)
        for resource in np.nonzero(demand.requests > 0)[0].tolist():
            column = free[:, resource][self._nodes] + self._requests[:, resource][self._of]
            enough &= column >= demand.requests[resource]
        rows = np.nonzero(enough)[0]
        others = set(self._of[rows].tolist())
        for leaving in (number for number in self._problem.by_size[::-1] if number in others):
            targets = self._targets(leaving)
            own = rows[self._of[rows] == leaving]
            sources, first = np.unique(self._nodes[own], return_index=True)
            targets = targets[~np.isin(targets, sources)]
            count = min(self._left[index], len(sources), len(targets))
            if count:
                chosen = own[first[self._cheapest(demand, sources)[:count]]]
                targets = targets[self._cheapest(self._demands[leaving], targets)[:count]]
                if self._shift(index, chosen, targets):
                    return True
        return False

    def _replace(self, index: int) -> bool:
        """Places several pods of a demand where one pod of another one is left in turn, if that costs less.

        Returns:
            Whether any gave way: all those of one demand that are worth it have, each on a node of its own.
        """
        if not self._movable[index] or self._looks <= 0:
            return False
        self._looks -= 1
        demand, free = self._demands[index], self._capacity.free
        may_leave = self._movable & (self._priorities <= self._priorities[index])
        may_leave[index] = False
        rows = np.nonzero((self._counts > 0) & may_leave[self._of] & demand.allowed[self._nodes])[0]
        come = np.full(len(rows), self._left[index])
        for resource in np.nonzero(demand.requests > 0)[0].tolist():
            column = free[:, resource][self._nodes[rows]] + self._requests[:, resource][self._of[rows]]
            come = np.minimum(come, np.maximum(column, 0) // demand.requests[resource])
        worth = np.array([self._worth_of_last(number) for number in range(len(self._demands))])
        prices = demand.prices_of_last(self._left[index])
        paid = np.concatenate([[0.0], np.cumsum(prices, dtype=np.float64)])
        gains = np.where(come > 1, paid[come] - worth[self._of[rows]], 0.0)
        least = _LEAST_GAIN * float(prices[0])
        if gains.max(initial=0.0) <= least:
            return False
        leaving = int(self._of[rows[gains.argmax()]])
        chosen, nodes, placed = list[int](), set[int](), 0
        of_other = np.nonzero((self._of[rows] == leaving) & (gains > least))[0]
        for place in of_other[np.argsort(-gains[of_other], kind="stable")].tolist():
            node, count = int(self._nodes[rows[place]]), int(come[place])
            if node in nodes or placed + count > self._left[index]:
                continue
            if paid[placed + count] - paid[placed] - self._worth_of_last(leaving, len(chosen)) <= least:
                break
            chosen.append(place)
            nodes.add(node)
            placed += count
        gone, counts = rows[chosen], come[chosen]
        self._capacity.release(self._demands[leaving], self._nodes[gone], np.ones_like(counts))
        self._capacity.place_many(demand, self._nodes[gone], counts)
        self._counts[gone] -= 1
        self._add(index, self._nodes[gone], counts)
        self._left[index] -= placed
        self._left[leaving] += len(chosen)
        return bool(chosen)

    def _worth_of_last(self, index: int, after: int = 0) -> float:
        """What it costs to leave the last pod that is placed of a demand, after some others; infinite: it must stay."""
        placed = self._demands[index].count - self._left[index] - after
        return float(self._demands[index].prices[placed - 1]) if placed > self._problem.must_place[index] else np.inf

    def _add(self, index: int, nodes: Int64s, counts: Int64s) -> None:
        self._of = np.concatenate([self._of, np.full(len(nodes), index)])
        self._nodes = np.concatenate([self._nodes, nodes])
        self._counts = np.concatenate([self._counts, counts])

    def _targets(self, index: int) -> Int64s:
        """Nodes that have room for a pod of a demand."""
        if self._full[index] or self._looks <= 0:
            return np.zeros(0, dtype=np.int64)
        self._looks -= 1
        everywhere = np.arange(len(self._capacity.free))
        fits: Bools = self._capacity.has_room_at(self._demands[index], everywhere)
        nodes: Int64s = np.nonzero(fits)[0]
        self._full[index] = not len(nodes)
        return nodes

    def _cheapest(self, demand: Demand, nodes: Int64s) -> Int64s:
        """Places among some nodes in the order of what a pod takes from others there."""
        order: Int64s = np.argsort(self._shadow_prices[nodes] @ demand.requests, kind="stable")
        return order

    def _shift(self, index: int, rows: Int64s, targets: Int64s) -> bool:
        """Moves a pod of each of some rows to a node of its own, and places pods of a demand where they were.

        Returns:
            Whether any pod of the demand was placed: rules may forbid it.
        """
        demand, sources, leaving = self._demands[index], self._nodes[rows], int(self._of[rows[0]])
        ones = np.ones(len(rows), dtype=np.int64)
        self._capacity.release(self._demands[leaving], sources, ones)
        if self._movable[index]:
            self._capacity.place_many(demand, sources, ones)
            came = np.ones(len(rows), dtype=np.bool_)
        else:
            came = np.array([self._capacity.place(demand, node, 1) for node in sources.tolist()], dtype=np.bool_)
            self._bound_commits += [Commit(index, node, 1) for node in sources[came].tolist()]
            self._capacity.place_many(self._demands[leaving], sources[~came], ones[~came])
        rows, sources, targets, ones = rows[came], sources[came], targets[came], ones[came]
        self._capacity.place_many(self._demands[leaving], targets, ones)
        self._counts[rows] -= 1
        self._add(leaving, targets, ones)
        if self._movable[index]:
            self._add(index, sources, ones)
        self._left[index] -= len(rows)
        return bool(len(rows))


def _may_come(demand: Demand) -> bool:
    """Whether room is made for pods of a demand: amounts and rules that forbid say whether they fit."""
    return not demand.waits and demand.group.pod_class.fits_by_amounts and not demand.constraints.affinity
