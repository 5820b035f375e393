"""Local search for pods that cost something beside each other: single pods move, and pairs of pods change places.

What pods cost beside each other is a product of their numbers, which no flow and no linear program holds. Placed one
kind after the other, the first takes what would have been best for the second. Here each change that makes the plan
cheaper is made, until none is left: by the exact change of the plan's cost. Then a few pods are moved at random, and
the search goes on from there for as long as that brings a gain (iterated local search; Lourenço, Martin, Stützle 2003).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Load
from flowcore.planning.methods.constructive import completed
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.rules.topology.counters import DomainCounter

#: Problems with more pairs of a demand and a node take too much time and memory.
_MOST_PAIRS = 4_000_000
#: Pods whose exchanges are looked at in one step.
_EXCHANGES = 32
#: Moves in one step.
_MOVES = 64
#: Pods that are moved at random at once, and how often in a row that may bring no gain.
_PERTURBED, _PATIENCE = 3, 12
#: More than any pod costs on a node.
_NO_ROOM = 2**60


class LocalSearch:
    """Improves a plan step by step. Pods with host ports or for one NUMA node, and pods that rules bind, stay."""

    def __init__(self, problem: Problem, candidate: Candidate, seed: int) -> None:
        """Begins with a candidate of the problem."""
        self._problem, self._first = problem, candidate
        self._demands = problem.demands
        self._random = np.random.default_rng(seed)
        self._movable = _movable(self._demands)
        self._paid = _paid_between(self._demands)
        self._requests = np.array([demand.requests for demand in self._demands], dtype=np.int64)
        self._counted = np.array([demand.counted for demand in self._demands], dtype=np.int64)
        self._potentials = list(dict.fromkeys(demand.potential for demand in self._demands))
        self._alike = np.array([self._potentials.index(demand.potential) for demand in self._demands])
        self._arc = np.array([demand.arc for demand in self._demands], dtype=np.int64)
        self._allowed = np.array([demand.counts > 0 for demand in self._demands], dtype=np.bool_)
        self._free = candidate.capacity.free.copy()
        self._loads = [problem.start.load(potential.utilisation) for potential in self._potentials]
        nodes = len(self._free)
        #: Pods of each demand on each node, int64[C, N]; and what pods of each potential count for there.
        self._pods = np.zeros((len(self._demands), nodes), dtype=np.int64)
        self._planned = np.zeros((len(self._potentials), nodes, 4), dtype=np.int64)
        for commit in candidate.commits:
            self._pods[commit.demand, commit.node] += commit.count
            self._planned[self._alike[commit.demand], commit.node] += self._counted[commit.demand] * commit.count
        self._costs = np.full((len(self._demands), nodes), _NO_ROOM, dtype=np.int64)
        self._price(np.arange(nodes))
        #: By how much the cost has fallen; and as the last pass over the exchanges of all pods began.
        self._gain, self._gain_before_pass = 0, -1
        #: Demand and node of pods whose exchanges are still to be looked at.
        self._queue: list[tuple[int, int]] = []
        #: The best plan before pods were moved at random, with its gain; and how often in a row that brought none.
        self._best: tuple[int, tuple[Int64s, ...]] | None = None
        self._fruitless = 0

    @classmethod
    def worthwhile(cls, problem: Problem) -> bool:
        """Whether any pods cost something beside each other, and the problem is not too large."""
        demands = problem.demands
        return len(demands) * len(problem.start.free) <= _MOST_PAIRS and any(_penalties(demand) for demand in demands)

    @property
    def gain(self) -> int:
        """By how much the cost of the plan has fallen."""
        return self._gain if self._best is None else max(self._gain, self._best[0])

    def candidate(self) -> Candidate:
        """The best plan so far, placed again from an empty cluster and completed with what fits."""
        self._take_back()
        capacity, commits = self._problem.start.copy(), []
        # Rules hold in the order in which the pods were placed that they bind.
        for commit in self._first.commits:
            if not self._movable[commit.demand]:
                taken = capacity.place(self._demands[commit.demand], commit.node, commit.count)
                commits.append(Commit(commit.demand, commit.node, taken))
        for demand, node in zip(*(indices.tolist() for indices in np.nonzero(self._pods)), strict=True):
            if self._movable[demand]:
                taken = capacity.place(self._demands[demand], node, int(self._pods[demand, node]))
                commits.append(Commit(demand, node, taken))
        return completed(self._problem, "local search", [each for each in commits if each.count], capacity)

    def improve(self) -> bool:
        """Makes some changes, or looks for some; False when the search has ended."""
        if self._move():
            return True
        if not self._queue:
            if self._gain <= self._gain_before_pass:
                return self._perturb()
            self._gain_before_pass, self._queue = self._gain, self._by_cost()
        for _ in range(min(_EXCHANGES, len(self._queue))):
            self._exchange(*self._queue.pop())
        return True

    def _by_cost(self) -> list[tuple[int, int]]:
        """Demand and node of all placed pods that may move, the dearest last."""
        demand, node = self._placed
        order = np.argsort(self._leaving(demand, node), kind="stable")
        return list(zip(demand[order].tolist(), node[order].tolist(), strict=True))

    # --- from one local optimum to another ---

    def _perturb(self) -> bool:
        """Moves a few pods to any nodes with room; False when that has brought no gain for long."""
        if self._best is not None:
            self._fruitless = 0 if self._gain > self._best[0] else self._fruitless + 1
        self._take_back()
        pods = self._by_cost()
        if not pods or self._fruitless == _PATIENCE:
            return False
        self._best = self._gain, tuple(each.copy() for each in (self._pods, self._planned, self._free, self._costs))
        touched = set()
        for place in self._random.integers(len(pods), size=_PERTURBED).tolist():
            demand, node = pods[place]
            targets = np.nonzero(self._costs[demand] < _NO_ROOM)[0]
            if self._pods[demand, node] and len(targets):
                target = int(self._random.choice(targets))
                self._gain += int(self._leaving(np.array([demand]), np.array([node]))[0])
                self._change(demand, node, -1)
                self._price(np.array([node]))
                self._gain -= int(self._costs[demand, target])
                self._change(demand, target, 1)
                self._price(np.array([target]))
                touched |= {node, target}
        self._queue = [(demand, node) for demand, node in self._by_cost() if node in touched]
        return True

    def _take_back(self) -> None:
        """Back to the best plan if what followed did not become cheaper."""
        if self._best is not None and self._gain <= self._best[0]:
            self._gain, (self._pods, self._planned, self._free, self._costs) = self._best
            self._queue = []
            self.__dict__.pop("_placed", None)
        self._best = None

    # --- single pods ---

    def _move(self) -> bool:
        """Moves pods to cheaper nodes, for each demand the pods that gain most. Returns whether any was moved."""
        moved = 0
        for demand in np.nonzero(self._movable & self._pods.any(axis=1))[0].tolist():
            while moved < _MOVES:
                nodes = np.nonzero(self._pods[demand])[0]
                leaving = self._leaving(np.full(len(nodes), demand), nodes)
                source, target = int(leaving.argmax()), int(self._costs[demand].argmin())
                gain = int(leaving[source]) - int(self._costs[demand, target])
                if gain <= 0 or target == int(nodes[source]):  # a rounded potential may fall by one
                    break
                self._change(demand, int(nodes[source]), -1)
                self._change(demand, target, 1)
                self._price(np.array([nodes[source], target]))
                self._gain += gain
                moved += 1
        return moved > 0

    def _leaving(self, demands: Int64s, nodes: Int64s) -> Int64s:
        """int64[K]: by how much the plan's cost falls if a pod of demand ``at[k]`` leaves ``nodes[k]``."""
        beside = (self._paid[demands] * self._pods[:, nodes].T).sum(axis=1) - self._paid[demands, demands]
        prices: Int64s = self._arc[demands, nodes] + beside
        for which, potential in enumerate(self._potentials):
            alike = self._alike[demands] == which
            load = self._load_at(which, nodes[alike])
            prices[alike] += potential.values(load) - potential.values(
                self._load_at(which, nodes[alike], -self._counted[demands[alike]])
            )
        return prices

    def _price(self, nodes: Int64s) -> None:
        """Brings up to date what one more pod of each demand costs on these nodes."""
        loads = [self._load_at(which, nodes) for which in range(len(self._potentials))]
        values = [potential.values(load) for potential, load in zip(self._potentials, loads, strict=True)]
        beside = self._paid @ self._pods[:, nodes]
        for demand in np.nonzero(self._movable)[0].tolist():
            which = int(self._alike[demand])
            increase = self._potentials[which].increase(
                loads[which], self._counted[demand, :3].astype(np.float64), values[which]
            )
            fits = self._allowed[demand, nodes] & self._fits(self._free[nodes], self._requests[demand])
            self._costs[demand, nodes] = np.where(fits, self._arc[demand, nodes] + increase + beside[demand], _NO_ROOM)

    # --- pairs of pods ---

    def _exchange(self, demand: int, node: int) -> None:
        """Lets a pod of a demand on a node change places with the pod with which that gains most, if it gains."""
        others, nodes_of = self._placed
        if not self._pods[demand, node]:
            return  # it has gone meanwhile
        usable = (others != demand) & (nodes_of != node) & self._allowed[demand, nodes_of] & self._allowed[others, node]
        others, nodes_of = others[usable], nodes_of[usable]
        more = self._requests[demand] - self._requests[others]
        usable = self._fits(self._free[nodes_of], more) & self._fits(self._free[np.full(len(nodes_of), node)], -more)
        others, nodes_of = others[usable], nodes_of[usable]
        if not len(others):
            return
        own, here = np.full(len(others), demand), np.full(len(others), node)
        change = self._replacing(own, others, here) + self._replacing(others, own, nodes_of)
        best = int(change.argmin())
        if change[best] >= 0:
            return
        other_demand, to = int(others[best]), int(nodes_of[best])
        for row, place, count in ((demand, node, -1), (other_demand, to, -1), (demand, to, 1), (other_demand, node, 1)):
            self._change(row, place, count)
        self._price(np.array([node, to]))
        self._gain -= int(change[best])
        self._queue.append((other_demand, node))

    def _replacing(self, old: Int64s, new: Int64s, nodes: Int64s) -> Int64s:
        """int64[K]: by how much the cost rises if one pod of demand ``old[k]`` gives way to one of ``new[k]``."""
        pods = self._pods[:, nodes].T
        change: Int64s = self._arc[new, nodes] - self._arc[old, nodes]
        change += ((self._paid[new] - self._paid[old]) * pods).sum(axis=1)
        change += self._paid[old, old] - self._paid[new, old]
        for which, potential in enumerate(self._potentials):
            less = np.where(self._alike[old] == which, 1, 0)[:, np.newaxis] * self._counted[old]
            more = np.where(self._alike[new] == which, 1, 0)[:, np.newaxis] * self._counted[new]
            touched = (less.any(axis=1) | more.any(axis=1)) & (less != more).any(axis=1)
            after = self._load_at(which, nodes[touched], (more - less)[touched])
            change[touched] += potential.values(after) - potential.values(self._load_at(which, nodes[touched]))
        return change

    # --- state ---

    @cached_property
    def _placed(self) -> tuple[Int64s, Int64s]:
        """Demand and node of all placed pods that may move, those of one demand on one node once; int64[M] each."""
        demand, node = np.nonzero(self._pods * self._movable[:, np.newaxis])
        return demand, node

    def _change(self, demand: int, node: int, pods: int) -> None:
        if not self._pods[demand, node] or not self._pods[demand, node] + pods:
            self.__dict__.pop("_placed", None)
        self._pods[demand, node] += pods
        self._planned[self._alike[demand], node] += self._counted[demand] * pods
        self._free[node] -= self._requests[demand] * pods

    def _load_at(self, which: int, nodes: Int64s, more: Int64s | None = None) -> Load:
        planned = self._planned[which, nodes] if more is None else self._planned[which, nodes] + more
        return self._loads[which].at(nodes, planned[:, :3], planned[:, 3])

    @staticmethod
    def _fits(free: Int64s, requests: Int64s) -> Bools:
        """bool[K]: where free int64[K, R] holds requests int64[R] or int64[K, R]."""
        return np.asarray(((requests <= 0) | (requests <= free)).all(axis=1), dtype=np.bool_)


def _movable(demands: Sequence[Demand]) -> Bools:
    """bool[C]: demands whose pods may go wherever there is room, at a cost that their own node decides."""
    penalties = {counter for demand in demands for counter, _ in _penalties(demand)}

    def is_movable(demand: Demand) -> bool:
        constraints, pod_class = demand.constraints, demand.group.pod_class
        if not pod_class.fits_by_amounts or constraints.constrained:
            return False
        compared = constraints.soft_constraints is not None and constraints.soft_constraints.compared
        return not compared and penalties.issuperset(constraints.increments)

    return np.array([is_movable(demand) for demand in demands], dtype=np.bool_)


def _penalties(demand: Demand) -> tuple[tuple[DomainCounter, int], ...]:
    soft_constraints = demand.constraints.soft_constraints
    return () if soft_constraints is None else soft_constraints.penalties


def _paid_between(demands: Sequence[Demand]) -> Int64s:
    """int64[C, C], symmetric: what one pod of a demand and one of another on the same node add to the plan's cost."""
    paid = np.zeros((len(demands), len(demands)), dtype=np.int64)
    raised = [frozenset(demand.constraints.increments) for demand in demands]
    for index, demand in enumerate(demands):
        soft_constraints = demand.constraints.soft_constraints
        for counter, cost in soft_constraints.suffered if soft_constraints is not None else ():
            paid[index] += cost * np.array([counter in counters for counters in raised], dtype=np.int64)
    total: Int64s = paid + paid.T
    return total
