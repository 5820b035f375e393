"""A round as a row of steps, each of which leaves the best plan so far at least as good.

Whoever runs a planner may stop after any step: the number of steps taken replays to the same plan. So a wall clock can
stop a round without making it irreproducible.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Int64s
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.fill import Taste, plan_by_filling
from flowcore.rounds.flow import plan_by_flow
from flowcore.rounds.neighbourhoods import Neighbourhoods
from flowcore.rounds.one_by_one import plan_one_by_one
from flowcore.rounds.pricing import total_cost, unplaced
from flowcore.rounds.relaxation import Field, guide, lower_bound
from flowcore.rounds.room import Room

#: Where more than one in this many pods stays out although there was room for some of its kind, room is what
#: decides, not cost: a flow, which knows slots but no resources, would not help.
_SCARCE = 50
#: Interleavings of classes that are tried, in parts of each class. With many parts nodes get a mix of all classes, with
#: few the dear ones come first.
_PARTS = (4, 16)
#: One-by-one scheduling is tried up to so many pods.
_FEW = 3_000


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A plan that one method made, with the room it leaves and its true cost."""

    method: str
    commits: Sequence[Commit]
    room: Room
    cost: int


class Planner:
    """Plans a round step by step.

    Attributes:
        best: the best plan so far.
        steps: steps taken.
        solves, arcs: min-cost flows solved, and arcs of the largest.
        bound: a cost that no plan goes below.
    """

    def __init__(self, demands: Sequence[Demand], start: Room, seed: int = 0) -> None:
        self._demands, self._start, self._seed = demands, start, seed
        self._load = start.load()
        self.steps = self.solves = self.arcs = 0
        self.best = self._draft("nothing", [], start.copy())
        self.bound = 0
        self._going = self._run()

    def step(self) -> bool:
        """Takes the next step; False when there is none."""
        try:
            next(self._going)
        except StopIteration:
            return False
        self.steps += 1
        return True

    def _run(self) -> Generator[None, None, None]:
        demands, start = self._demands, self._start
        if not demands or not len(start.free):
            self.bound = self.best.cost
            return
        everyone = [demand.count for demand in demands]
        dearest = sorted(range(len(demands)), key=lambda at: (-int(demands[at].prices[0]), -demands[at].share, at))
        room = start.copy()
        commits = plan_by_filling(demands, [(at, everyone[at]) for at in dearest], room)
        self.offer("fill", commits, room)
        yield
        field = Field.of(demands, start)
        placeable = (field.counts > 0).any(axis=1)
        hopeful = sum(demand.count for demand, hope in zip(demands, placeable, strict=True) if hope)
        self.bound = lower_bound(field)
        if not hopeful:
            return
        if self._left(placeable) * _SCARCE <= hopeful:
            yield from self._flow(field, dearest)
        if not self._left(placeable):
            return
        yield from self._share_out(field, dearest)
        if sum(everyone) <= _FEW:
            room = start.copy()
            commits = plan_one_by_one(demands, by_price(demands, everyone), room)
            self.offer("one by one", commits, room)
            yield
        yield from self._search(field, dearest)

    def _flow(self, field: Field, dearest: Sequence[int]) -> Generator[None, None, None]:
        """Min-cost flows, and what they leave over filled in."""
        room = self._start.copy()
        plan = yield from plan_by_flow(self._demands, room, self.best.commits)
        self.solves, self.arcs = plan.solves, plan.arcs
        self.offer("flow", self._filled(plan.commits, dearest, room), room)
        self.bound = max(self.bound, lower_bound(field, worth=plan.worth))
        yield

    def _share_out(self, field: Field, dearest: Sequence[int]) -> Generator[None, None, None]:
        """The linear program says how many of each class, and at what tolls; classes take turns in parts."""
        guided = guide(field)
        if guided is None:
            return
        self.bound = max(self.bound, lower_bound(field, guided.tolls))
        yield
        demands = self._demands
        worth = _least_tolls(field, guided.tolls)
        order = sorted(range(len(demands)), key=lambda at: (-worth[at], -demands[at].share, at))
        everyone = np.array([demand.count for demand in demands], dtype=np.int64)
        chosen = np.minimum(np.floor(guided.placed + 1e-6).astype(np.int64), everyone)
        for parts in _PARTS:
            for counts in (chosen, everyone):
                for tolls in (None, guided.tolls):
                    room = self._start.copy()
                    turns = _in_parts(counts, order, parts)
                    commits = plan_by_filling(demands, turns, room, Taste.CHEAPEST, tolls)
                    self.offer("shares", self._filled(commits, dearest, room), room)
                    yield

    def _search(self, field: Field, dearest: Sequence[int]) -> Generator[None, None, None]:
        """Neighbourhoods, for as long as they are asked for."""
        search = Neighbourhoods(self._demands, self.best.commits, self._start, self.best.room, field, self._seed)
        while self.best.cost > self.bound and search.improve():
            if search.improved:
                room = self._start.copy()
                commits = [c for c in search.commits if room.take(self._demands[c.demand], c.node, c.count) == c.count]
                self.offer("neighbourhoods", self._filled(commits, dearest, room), room)
            yield

    def _filled(self, commits: Sequence[Commit], order: Sequence[int], room: Room) -> list[Commit]:
        """A plan with whatever else fits into the room that it leaves."""
        left = unplaced(commits, self._demands)
        return [*commits, *plan_by_filling(self._demands, [(at, left[at]) for at in order if left[at]], room)]

    def _left(self, placeable: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
        left = unplaced(self.best.commits, self._demands)
        return sum(count for count, hope in zip(left, placeable, strict=True) if hope)

    def _draft(self, method: str, commits: Sequence[Commit], room: Room) -> Draft:
        return Draft(method, commits, room, total_cost(commits, self._demands, self._load))

    def offer(self, method: str, commits: Sequence[Commit], room: Room) -> None:
        """Takes a plan over if it is cheaper than the best so far."""
        draft = self._draft(method, commits, room)
        if draft.cost < self.best.cost:
            self.best = draft


def by_price(demands: Sequence[Demand], left: Sequence[int]) -> list[int]:
    """Demand of each pod that is left, dearest to leave first, among equals the largest: big pods need first choice."""
    entries = [
        (-int(price), -demand.share, at)
        for at, (demand, count) in enumerate(zip(demands, left, strict=True))
        for price in demand.prices_of_last(count)
    ]
    return [at for *_, at in sorted(entries)]


def _least_tolls(field: Field, tolls: Float64s) -> list[float]:
    """What each demand's pod pays in tolls where it pays the least."""
    return [
        float((tolls[counts > 0] @ demand.wanted).min(initial=np.inf))
        for demand, counts in zip(field.demands, field.counts, strict=True)
    ]


def _in_parts(counts: Int64s, order: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Each class's pods in so many parts, the classes taking turns in this order."""
    return [
        (at, int(counts[at]) * (part + 1) // parts - int(counts[at]) * part // parts)
        for part in range(parts)
        for at in order
    ]
