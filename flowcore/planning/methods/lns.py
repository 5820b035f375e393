"""Large neighbourhood search (Shaw 1998): the pods of a few nodes and some pending pods are decided again, exactly.

The demands of a handful of nodes are a small integer program that CP-SAT solves to the optimum or close to it. A new
arrangement is accepted if the cost of the round falls, so a plan never gets worse.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.methods.constructive import completed
from flowcore.planning.methods.packing import coarse_values, packing_program
from flowcore.planning.problem.objective import unplaced_counts
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.problem import Problem
from flowcore.planning.solvers import LinearProgram, solve_mip
from flowcore.rules.topology.round_constraints.constraints import UNCONSTRAINED

#: Nodes decided at once.
_NODES = 6
#: Demands with pending pods that compete for them.
_COMPETITORS = 8
#: CP-SAT's deterministic time for one neighbourhood: some ten milliseconds.
_WORK = 0.006
#: Neighbourhoods that are drawn before the first of them is decided.
DRAWN_AHEAD = 8
#: How often another neighbourhood is drawn if the nodes of one are in another already.
_DRAWS = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Pods of ``classes[i]`` on ``nodes[i]`` (places among the chosen): at most ``most[i]``, now ``current[i]``."""

    classes: Int64s
    nodes: Int64s
    most: Int64s
    current: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Neighbourhood:
    """Nodes that are decided again, the demands that compete for them, and the program that decides.

    Attributes:
        claimed: int64[len(classes)], pending pods of each that no other neighbourhood is to place meanwhile.
        hint: the plan as it was when the neighbourhood was drawn, a value for each column.
        work: CP-SAT's deterministic time.
    """

    nodes: Int64s
    classes: Int64s
    columns: _Columns
    claimed: Int64s
    program: LinearProgram
    hint: Float64s
    work: float
    seed: int

    def decide(self) -> Float64s | None:
        """A solution that costs less than the hint; None: none was found."""
        program = self.program
        solution = solve_mip(program, deterministic_time=self.work, seed=self.seed, hint=self.hint)
        if solution is None or program.costs @ solution.values >= program.costs @ self.hint:
            return None
        return solution.values


class LargeNeighbourhoodSearch:
    """Improves a plan step by step. Pods with host ports, and pods that constraints count or bind, stay where they are.

    Several neighbourhoods are drawn ahead. They have no node in common, and each claims the pending pods that it is
    about, so what they gain adds up. Pods that are pending beside those are placed by the first that wants them.

    Attributes:
        gain: by how much the cost of the plan has fallen.
    """

    def __init__(self, problem: Problem, candidate: Candidate, seed: int) -> None:
        """Begins with a candidate of the problem."""
        demands, cost_matrix, commits = problem.demands, problem.cost_matrix, candidate.commits
        self._problem, self._first, self._demands, self._cost_matrix = problem, candidate, demands, cost_matrix
        self._random = np.random.default_rng(seed)
        self._seed, self.gain = seed, 0
        self._free = candidate.capacity.free.copy()
        self._requests = np.array([demand.requests for demand in demands], dtype=np.int64)
        self._movable = cost_matrix.placeable & np.array(
            [not demand.is_more_than_amounts and demand.constraints is UNCONSTRAINED for demand in demands],
            dtype=np.bool_,
        )
        self._least_prices = np.array([max(1.0, float(demand.prices[-1])) for demand in demands])
        self._unplaced = np.array(unplaced_counts(commits, demands), dtype=np.int64)
        self._placed: dict[int, dict[int, int]] = {}
        for commit in commits:
            pods_of = self._placed.setdefault(commit.node, {})
            pods_of[commit.demand] = pods_of.get(commit.demand, 0) + commit.count
        #: Neighbourhoods that are still to be decided, the oldest first; their nodes, and the pods that they claim.
        self._drawn: deque[_Neighbourhood] = deque()
        self._busy = np.zeros(len(self._free), dtype=np.bool_)
        self._claimed = np.zeros(len(demands), dtype=np.int64)

    def candidate(self) -> Candidate:
        """The plan as it is now, placed again from an empty cluster and completed with what fits."""
        capacity, demands = self._problem.start.copy(), self._demands
        # Pods with constraints did not move. They come in the order in which their constraints held.
        constrained = [c for c in self._first.commits if demands[c.demand].constraints is not UNCONSTRAINED]
        commits = [c for c in constrained if capacity.place(demands[c.demand], c.node, c.count) == c.count]
        free = [c for c in self._commits() if demands[c.demand].constraints is UNCONSTRAINED]
        arcs = np.array([(c.demand, c.node, c.count) for c in free], dtype=np.int64).reshape(len(free), 3)
        fits = capacity.place_all(demands, *arcs.T).tolist()
        commits += [
            c
            for c, took in zip(free, fits, strict=True)
            if took or capacity.place(demands[c.demand], c.node, c.count) == c.count
        ]
        return completed(self._problem, "neighbourhoods", commits, capacity)

    def _commits(self) -> list[Commit]:
        return [Commit(demand, node, count) for node, pods in self._placed.items() for demand, count in pods.items()]

    def improve(self, *, wider: bool = False, more: int = DRAWN_AHEAD) -> bool:
        """Decides one neighbourhood, and takes over what was decided.

        Args:
            wider: neighbourhoods drawn now are twice as wide.
            more: how often this will be called again at most: no more neighbourhoods are drawn.

        Returns:
            False if no demand with pending pods fits any node.
        """
        while len(self._drawn) < min(DRAWN_AHEAD, more + 1) and self._draw(wider=wider):
            pass
        if not self._drawn:
            return False
        neighbourhood = self._drawn.popleft()
        values = neighbourhood.decide()
        self._busy[neighbourhood.nodes] = False
        self._claimed[neighbourhood.classes] -= neighbourhood.claimed
        if values is not None:
            chosen = values[: len(neighbourhood.columns.nodes)].astype(np.int64)
            self._accept(neighbourhood.nodes, neighbourhood.classes, neighbourhood.columns, chosen)
        return True

    def _draw(self, *, wider: bool) -> bool:
        """Draws one more neighbourhood; False if there is none beside those that are drawn."""
        scale = 2 if wider else 1
        pending = np.maximum(self._unplaced - self._claimed, 0)
        waiting = np.nonzero((pending > 0) & self._movable)[0]
        if not len(waiting):
            return False
        weight = pending[waiting] * self._least_prices[waiting]
        for wanted in self._random.choice(waiting, size=_DRAWS, p=weight / weight.sum()).tolist():
            usable = self._cost_matrix.counts[wanted] > 0
            idle = np.nonzero(usable & ~self._busy)[0]
            size = min(scale * _NODES, int(usable.sum()))
            # At most half of the nodes are taken, so that others are drawn again and again.
            if len(idle) < size or size + int(usable.sum()) - len(idle) > max(size, int(usable.sum()) // 2):
                continue
            nodes = np.sort(self._random.choice(idle, size=size, replace=False))
            rivals = self._random.permutation(waiting)[: scale * _COMPETITORS]
            here = {demand for node in nodes.tolist() for demand in self._placed.get(node, {})}
            classes = np.array(sorted(here.union(rivals.tolist(), (wanted,))), dtype=np.int64)
            classes = classes[self._movable[classes]]
            claims = np.isin(classes, [*rivals.tolist(), wanted])
            self._seed += 1
            self._put(nodes, classes, pending[classes], claims, _WORK * scale * scale)
            return True
        return False

    def _put(self, nodes: Int64s, classes: Int64s, pending: Int64s, claims: Bools, work: float) -> None:
        """Adds a neighbourhood to those that are drawn.

        Args:
            pending: int64[len(classes)], pods that it may place beside those that are there.
            claims: bool[len(classes)], whether no other neighbourhood is to place them meanwhile.
        """
        current = np.array(
            [[self._placed.get(node, {}).get(demand, 0) for node in nodes.tolist()] for demand in classes.tolist()]
        )
        requests = self._requests[classes]
        free = np.maximum(self._free[nodes] + np.einsum("cn,cr->nr", current, requests), 0)
        pods = current.sum(axis=1) + pending
        fitting = np.where(requests[:, np.newaxis] > 0, free // np.maximum(requests[:, np.newaxis], 1), 2**31)
        most = np.minimum(fitting.min(axis=2), pods[:, np.newaxis])
        most[self._cost_matrix.counts[np.ix_(classes, nodes)] == 0] = 0
        demand, node = np.nonzero(most > 0)
        columns = _Columns(demand, node, most[demand, node], current[demand, node])
        program, hint = self._program(classes, columns, most, free, pods)
        claimed = np.where(claims, np.minimum(pending, np.maximum((most - current).sum(axis=1), 0)), 0)
        self._claimed[classes] += claimed
        self._drawn.append(_Neighbourhood(nodes, classes, columns, claimed, program, hint, work, self._seed))
        self._busy[nodes] = True

    def _program(
        self, classes: Int64s, columns: _Columns, most: Int64s, free: Int64s, pods: Int64s
    ) -> tuple[LinearProgram, Float64s]:
        """What the last pods of each class are worth decides; the hint is the plan as it is."""
        prices = [
            self._demands[demand].prices_of_last(n).mean()
            for demand, n in zip(classes.tolist(), pods.tolist(), strict=True)
        ]
        program, _, _ = packing_program(
            requests=self._requests[classes],
            free=free,
            most=most,
            counts=pods,
            least=np.zeros_like(pods),
            values=coarse_values(np.array(prices)),
        )
        return program, columns.current.astype(np.float64)

    def _accept(self, nodes: Int64s, classes: Int64s, columns: _Columns, chosen: Int64s) -> None:
        """Accepts the new arrangement, of the pods that are still pending, if it fits and the cost falls."""
        self._leave_out_taken(classes, columns, chosen)
        change = np.zeros((len(nodes), self._requests.shape[1]), dtype=np.int64)
        np.add.at(
            change, columns.nodes, self._requests[classes[columns.classes]] * (chosen - columns.current)[:, np.newaxis]
        )
        if ((self._free[nodes] < change) & (change > 0)).any():
            return
        arranged: dict[int, dict[int, int]] = {node: dict(self._placed.get(node, {})) for node in nodes.tolist()}
        unplaced_after = self._unplaced.copy()
        for demand, node, count, had in zip(
            classes[columns.classes].tolist(), nodes[columns.nodes].tolist(), chosen.tolist(), columns.current.tolist(),
            strict=True,
        ):  # fmt: skip
            unplaced_after[demand] += had - count
            arranged[node].pop(demand, None)
            if count:
                arranged[node][demand] = count
        current = {node: self._placed.get(node, {}) for node in nodes.tolist()}
        before = self._cost(current, classes, self._unplaced)
        after = self._cost(arranged, classes, unplaced_after)
        if after >= before:
            return
        self.gain += before - after
        self._placed.update(arranged)
        self._free[nodes] -= change
        self._unplaced = unplaced_after

    def _leave_out_taken(self, classes: Int64s, columns: _Columns, chosen: Int64s) -> None:
        """Takes pods out of the new arrangement that another neighbourhood has placed meanwhile: changes ``chosen``."""
        added = np.zeros(len(classes), dtype=np.int64)
        np.add.at(added, columns.classes, chosen - columns.current)
        for number in np.nonzero(added > self._unplaced[classes])[0].tolist():
            excess = int(added[number] - self._unplaced[classes[number]])
            # First where there are more than before.
            columns_of = np.nonzero(columns.classes == number)[0]
            for column in columns_of[
                np.argsort(columns.current[columns_of] - chosen[columns_of], kind="stable")
            ].tolist():
                fewer = min(excess, int(chosen[column]))
                chosen[column] -= fewer
                excess -= fewer

    def _cost(self, arranged: dict[int, dict[int, int]], classes: Int64s, unplaced: Int64s) -> int:
        """Cost of the pods on some nodes, and of the pending pods of some demands."""
        commits = [Commit(demand, node, count) for node, pods in arranged.items() for demand, count in pods.items()]
        waiting = sum(
            int(self._demands[demand].prices_of_last(count).sum())
            for demand, count in zip(classes.tolist(), unplaced[classes].tolist(), strict=True)
        )
        # Pods that preferences speak of do not move.
        return self._problem.objective.without_preferences(commits) + waiting
