"""Making a plan better a few nodes at a time: what is on them and what is left out, decided anew and exactly.

A handful of nodes with their classes is a small integer program that CP-SAT solves to the end or nearly so. A new
arrangement is taken over when the round's true cost falls by it, so a plan never gets worse (large neighbourhood
search, Shaw 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Int64s
from flowcore.rounds.commits import Commit
from flowcore.rounds.field import Field
from flowcore.rounds.placing import Pairs, merged, placing_program
from flowcore.rounds.pricing import pod_prices, unplaced
from flowcore.rounds.room import Room
from flowcore.rounds.topology import FREE
from flowcore.solve import LinearProgram, solve_whole

#: Nodes decided at once.
_NODES = 6
#: Classes with pods left out that compete for them.
_COMPETITORS = 8
#: CP-SAT's deterministic time for one neighbourhood: some ten milliseconds.
_WORK = 0.006
#: Runs that a class's prices are merged into.
_STEPS = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Pods of ``classes[i]`` on ``nodes[i]`` (its place among the chosen), at most ``most[i]``, now ``now[i]``."""

    classes: Int64s
    nodes: Int64s
    most: Int64s
    now: Int64s


class Neighbourhoods:
    """A plan that is made better step by step. Pods that hold host ports or that rules speak of stay where they are.

    Attributes:
        gain: by how much the plan's cost fell so far.
    """

    def __init__(self, field: Field, commits: Sequence[Commit], room: Room, seed: int) -> None:
        """A plan's commits and the room that they leave."""
        demands = field.demands
        self._demands, self.field, self._load = demands, field, field.room.load()
        self._random = np.random.default_rng(seed)
        self._seed, self.gain = seed, 0
        self._free = room.free.copy()
        self._wanted = np.array([demand.wanted for demand in demands], dtype=np.int64)
        self._movable = field.placeable & np.array(
            [not demand.group.pod_class.host_ports and demand.ties is FREE for demand in demands], dtype=np.bool_
        )
        self._left = np.array(unplaced(commits, demands), dtype=np.int64)
        self._on: dict[int, dict[int, int]] = {}
        for commit in commits:
            there = self._on.setdefault(commit.node, {})
            there[commit.demand] = there.get(commit.demand, 0) + commit.count

    @property
    def commits(self) -> list[Commit]:
        """The plan as it is now."""
        return [Commit(at, node, count) for node, there in self._on.items() for at, count in there.items()]

    def improve(self, *, wider: bool = False) -> bool:
        """Decides one neighbourhood anew, or one twice as wide; False where no class is left out that fits anywhere."""
        scale = 2 if wider else 1
        waiting = np.nonzero((self._left > 0) & self._movable)[0]
        if not len(waiting):
            return False
        self._seed += 1
        weight = np.array([self._left[at] * float(self._demands[at].prices[-1]) for at in waiting.tolist()])
        wanted = int(self._random.choice(waiting, p=weight / weight.sum()))
        usable = np.nonzero(self.field.counts[wanted] > 0)[0]
        nodes = np.sort(self._random.choice(usable, size=min(scale * _NODES, len(usable)), replace=False))
        rivals = self._random.permutation(waiting)[: scale * _COMPETITORS]
        here = {at for node in nodes.tolist() for at in self._on.get(node, {})}
        classes = np.array(sorted(here.union(rivals.tolist(), (wanted,))), dtype=np.int64)
        self._decide(nodes, classes[self._movable[classes]], _WORK * scale * scale)
        return True

    def _decide(self, nodes: Int64s, classes: Int64s, work: float) -> None:
        now = np.array([[self._on.get(node, {}).get(at, 0) for node in nodes.tolist()] for at in classes.tolist()])
        wanted = self._wanted[classes]
        free = np.maximum(self._free[nodes] + np.einsum("cn,cr->nr", now, wanted), 0)
        pods = now.sum(axis=1) + self._left[classes]
        fitting = np.where(wanted[:, np.newaxis] > 0, free // np.maximum(wanted[:, np.newaxis], 1), 2**31)
        most = np.minimum(fitting.min(axis=2), pods[:, np.newaxis])
        most[self.field.counts[np.ix_(classes, nodes)] == 0] = 0
        at, node = np.nonzero(most > 0)
        if not len(at):
            return
        columns = _Columns(at, node, most[at, node], now[at, node])
        program, hint = self._program(nodes, classes, columns, free, pods)
        solution = solve_whole(program, work=work, seed=self._seed, hint=hint)
        if solution is None or program.costs @ solution.values >= program.costs @ hint:
            return
        chosen = solution.values[: len(at)].astype(np.int64)
        self._take_over(nodes, classes, columns, chosen)

    def _program(
        self, nodes: Int64s, classes: Int64s, columns: _Columns, free: Int64s, pods: Int64s
    ) -> tuple[LinearProgram, Float64s]:
        """Pods of a class on a node at what a first one pays there, or left at their price; and the plan as it is."""
        prices = [
            merged(self._demands[at].prices_of_last(count), _STEPS)
            for at, count in zip(classes.tolist(), pods.tolist(), strict=True)
        ]
        out: list[float] = []
        for runs, at in zip(prices, classes.tolist(), strict=True):
            rest, held = int(self._left[at]), []
            for run in reversed(runs):  # the last are the cheapest to leave
                held.append(min(rest, len(run)))
                rest -= held[-1]
            out += reversed(held)
        cost = self.field.opening[classes[columns.classes], nodes[columns.nodes]]
        pairs = Pairs(columns.classes, columns.nodes, cost, columns.most.astype(np.float64))
        program = placing_program(pairs, self._wanted[classes].astype(np.float64), free.astype(np.float64), prices)
        return program, np.concatenate([columns.now.astype(np.float64), np.array(out, dtype=np.float64)])

    def _take_over(self, nodes: Int64s, classes: Int64s, columns: _Columns, chosen: Int64s) -> None:
        """Takes the new arrangement over where it fits and the true cost falls."""
        change = np.zeros((len(nodes), self._wanted.shape[1]), dtype=np.int64)
        np.add.at(change, columns.nodes, self._wanted[classes[columns.classes]] * (chosen - columns.now)[:, np.newaxis])
        if ((self._free[nodes] < change) & (change > 0)).any():
            return
        arranged: dict[int, dict[int, int]] = {node: dict(self._on.get(node, {})) for node in nodes.tolist()}
        left = self._left.copy()
        for at, node, count, had in zip(
            classes[columns.classes].tolist(), nodes[columns.nodes].tolist(), chosen.tolist(), columns.now.tolist(),
            strict=True,
        ):  # fmt: skip
            left[at] += had - count
            arranged[node].pop(at, None)
            if count:
                arranged[node][at] = count
        standing = {node: self._on.get(node, {}) for node in nodes.tolist()}
        if (left < 0).any():
            return
        before, after = self._cost(standing, self._left), self._cost(arranged, left)
        if after >= before:
            return
        self.gain += before - after
        self._on.update(arranged)
        self._free[nodes] -= change
        self._left = left

    def _cost(self, arranged: dict[int, dict[int, int]], left: Int64s) -> int:
        commits = [Commit(at, node, count) for node, there in arranged.items() for at, count in there.items()]
        waiting = sum(
            int(demand.prices_of_last(count).sum()) for demand, count in zip(self._demands, left.tolist(), strict=True)
        )
        return int(pod_prices(commits, self._demands, self._load).sum()) + waiting
