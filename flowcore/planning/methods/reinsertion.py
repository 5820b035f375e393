"""All pods of a demand leave, and take the cheapest slots that there are beside the others: demand by demand.

Slots of a node rise in cost, so each turn is the optimum for its demand, the others being where they are (block
coordinate descent). Two passes make up for what fill loses by its order: the first pods do not know the others.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from flowcore.planning.methods.greedy import greedy
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit, pods_by_node
from flowcore.planning.problem.problem import Problem

#: Pairs of a demand and a node in one step.
_PAIRS = 20_000
#: A pass that lowers the cost by less than this part of it is the last.
_LEAST_GAIN = 3e-4


class Reinsertion:
    """Improves a plan step by step. Pods that rules count or bind, and those with host ports, stay where they are.

    Attributes:
        gain: by how much the cost of the plan has fallen.
    """

    def __init__(self, problem: Problem, candidate: Candidate) -> None:
        """Begins with a candidate of the problem."""
        self._problem, self._first = problem, candidate
        self._capacity = candidate.capacity.copy()
        placed = pods_by_node(candidate.commits)
        self._pods = {
            index: placed.get(index, {}) for index, demand in enumerate(problem.demands) if _may_leave(demand)
        }
        #: Demands whose turn in this pass is still to come.
        self._queue: deque[int] = deque()
        self.gain, self._gain_before_pass = 0, -candidate.cost

    def candidate(self) -> Candidate:
        """The plan as it is now."""
        # Rules hold in the order in which the pods were placed that they bind.
        commits = [commit for commit in self._first.commits if commit.demand not in self._pods]
        for demand, pods in self._pods.items():
            commits += [Commit(demand, node, count) for node, count in pods.items()]
        return self._problem.candidate("reinsertion", commits, self._capacity.copy())

    def improve(self) -> bool:
        """Lets some demands have their turn; False once a pass has brought next to nothing."""
        pairs = 0
        while pairs < _PAIRS:
            if not self._queue:
                if self.gain - self._gain_before_pass <= _LEAST_GAIN * self._first.cost:
                    return pairs > 0
                self._queue = deque(demand for demand in self._problem.by_size[::-1] if self._pods.get(demand))
                self._gain_before_pass = self.gain
                if not self._queue:
                    return False
            self._place_anew(self._queue.popleft())
            pairs += len(self._capacity.free)
        return True

    def _place_anew(self, index: int) -> None:
        demand, capacity, before = self._problem.demands[index], self._capacity, self._pods[index]
        checkpoint = capacity.checkpoint()
        nodes, counts = (np.array(list(each), dtype=np.int64) for each in (before, before.values()))
        capacity.release(demand, nodes, counts)
        commits = greedy(self._problem.cost_matrix, [(index, int(counts.sum()))], capacity)
        after = {commit.node: commit.count for commit in commits}
        saved = self._saved(demand, before, after)
        if saved > 0:
            self._pods[index] = after
            self.gain += saved
            return
        capacity.roll_back(checkpoint)

    def _saved(self, demand: Demand, before: dict[int, int], after: dict[int, int]) -> int:
        """By how much some pods of a demand, placed by ``after`` now, cost less than by ``before``."""
        nodes = np.array(sorted(before.keys() | after.keys()), dtype=np.int64)
        had, have = (
            np.array([placed.get(node, 0) for node in nodes.tolist()], dtype=np.int64) for placed in (before, after)
        )
        load = self._capacity.load_at(nodes, demand.potential)
        counted = demand.counted * (had - have)[:, np.newaxis]
        everywhere = np.arange(len(nodes))
        old = demand.potential.values(load.at(everywhere, counted[:, :3], counted[:, 3])) - demand.potential.values(
            load
        )
        return int(old.sum() + (demand.arc[nodes] * (had - have)).sum())


def _may_leave(demand: Demand) -> bool:
    return demand.takes_resources_only and not demand.waits
