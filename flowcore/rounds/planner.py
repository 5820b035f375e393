"""A round as a row of steps, each of which leaves the best plan so far at least as good.

Whoever runs a planner may stop after any step: the number of steps taken replays to the same plan. So a wall clock can
stop a round without making it irreproducible.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.model.snapshot import Bools, Int64s
from flowcore.rounds.bounds import lower_bound
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.exact import Part, decide, worth_deciding
from flowcore.rounds.field import Field
from flowcore.rounds.fill import plan_by_filling
from flowcore.rounds.flow import plan_by_flow
from flowcore.rounds.gangs.admission import Choice, Contest
from flowcore.rounds.gangs.units import no_units
from flowcore.rounds.neighbourhoods import Neighbourhoods
from flowcore.rounds.pricing import total_cost, unplaced
from flowcore.rounds.relaxation import guide, least_tolls
from flowcore.rounds.room import Room
from flowcore.rounds.topology import FREE

#: Where more than one in this many pods stays out although there was room for some of its kind, room is what
#: decides, not cost: a flow, which knows slots but no resources, would not help.
_SCARCE = 50
#: Interleavings of classes that are tried, in parts of each class. With many parts nodes get a mix of all classes, with
#: few the dear ones come first.
_PARTS = (4, 16)
#: So many neighbourhoods in a row that bring nothing end the search, or a tenth as many as there are nodes.
_PATIENCE = 6
#: One-by-one scheduling is tried up to so many pods.
_FEW = 3_000
#: CP-SAT's deterministic time for deciding pods that rules bind: some tenths of a second.
_EXACT_WORK = 0.1


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
        best: the best plan so far, less what the search for better neighbourhoods found (see ``conclude``).
        steps: steps taken.
        solves, arcs: min-cost flows solved, and arcs of the largest.
        bound: a cost that no plan goes below.
    """

    def __init__(
        self,
        demands: Sequence[Demand],
        start: Room,
        seed: int = 0,
        *,
        required: Sequence[int] | None = None,
        first: tuple[str, Sequence[Commit], Room] | None = None,
    ) -> None:
        """Begins with nothing placed.

        Args:
            required: how many pods of each demand every plan must place; their prices make them the first to go.
            first: a plan to begin with, by its method; there must be one where something is required.
        """
        self._demands, self._start, self._seed = demands, start, seed
        self._required = [0] * len(demands) if required is None else required
        self._load = start.load()
        self._queue = sorted(range(len(demands)), key=lambda at: demands[at].turn)
        self.steps = self.solves = self.arcs = self.bound = 0
        self.best = self._draft(*(first or ("nothing", [], start.copy())))
        self._searched: Neighbourhoods | None = None
        #: Commits of pods that rules bind, and the room that they leave, for steps that do not know rules.
        self._settled: list[Commit] = []
        self._base = start
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
        demands = self._demands
        if not demands or not len(self._start.free):
            self.bound = self.best.cost
            return
        field = Field.of(demands, self._start)
        self._fill(field)
        self.bound = lower_bound(field)
        yield
        placeable = field.placeable
        hopeful = sum(demand.count for demand, hope in zip(demands, placeable, strict=True) if hope)
        if not hopeful or self.best.cost == self.bound:
            return
        tied = np.array([demand.ties.in_turn for demand in demands], dtype=np.bool_)
        if self._left(placeable & tied) and hopeful <= _FEW:
            self._rules_first(field)
            yield
        if self._left(placeable) and hopeful <= _FEW:
            self._one_by_one(field)
            yield
        if self._left(placeable & tied) and not any(self._required):
            yield from self._rules_exactly()
        self._settle()
        free = placeable & ~tied
        hopeful = sum(demand.count for demand, hope in zip(demands, free, strict=True) if hope)
        if not hopeful:
            return
        if self._left(free) * _SCARCE <= hopeful:
            yield from self._flow(field)
        if not self._left(free):
            return
        yield from self._share_out(field)
        yield from self._search(field)

    def _fill(self, field: Field) -> None:
        """The floor: every class in turn takes the cheapest slots there are."""
        room = self._start.copy()
        self.offer("fill", self._filled([], field, room), room)

    def _rules_first(self, field: Field) -> None:
        """Those that rules bind go first, the others where there is room; who closes domains to others closes few."""
        room = self._start.copy()
        turns = sorted(self._queue, key=lambda at: not self._demands[at].ties.bound)
        commits = plan_by_filling(field, ((at, self._demands[at].count) for at in turns), room, packed=True)
        self.offer("rules first", commits, room)

    def _rules_exactly(self) -> Generator[None, None, None]:
        """Where they are few, pods whose rules only forbid are decided at once, with all others that want the room."""
        best, nothing = self.best, no_units(self._demands)
        contest = Contest(tuple(self._demands), nothing, self._start, self._start.snapshot)
        none = np.zeros(0, dtype=np.bool_)
        known = Choice(best.method, none, contest.demands, tuple(best.commits), best.room, best.cost)
        if worth_deciding(contest, known):
            found = decide(contest, known, Part.all(contest), work=_EXACT_WORK, seed=self._seed)
            if found is not None:
                self.offer(found.method, found.commits, found.room)
            yield

    def _settle(self) -> None:
        """Pods that rules bind stay where the best plan has them: the steps that follow do not know rules."""
        self._base = self._start.copy()
        for commit in self.best.commits:
            demand = self._demands[commit.demand]
            # What counted on a pod that is still to be placed does not hold yet: it is filled in last.
            taken = self._base.take(demand, commit.node, commit.count) if demand.ties.in_turn else 0
            if taken:
                self._settled.append(Commit(commit.demand, commit.node, taken))

    def _one_by_one(self, field: Field) -> None:
        """Pods in turn whatever their class, as kube-scheduler has it."""
        room = self._start.copy()
        everyone = by_price(self._demands, [demand.count for demand in self._demands])
        self.offer("one by one", plan_by_filling(field, ((at, 1) for at in everyone), room), room)

    def _flow(self, field: Field) -> Generator[None, None, None]:
        """Min-cost flows, and what they leave over filled in."""
        room = self._base.copy()
        plan = yield from plan_by_flow(self._demands, room, self.best.commits)
        self.solves, self.arcs = plan.solves, plan.arcs
        self.offer("flow", self._filled([*self._settled, *plan.commits], field, room), room)
        self.bound = max(self.bound, lower_bound(field, worth=plan.worth))
        yield

    def _share_out(self, field: Field) -> Generator[None, None, None]:
        """The linear program says how many of each class, and at what tolls; classes take turns in parts."""
        guided = guide(field)
        if guided is None:
            return
        self.bound = max(self.bound, lower_bound(field, tolls=guided.tolls))
        yield
        demands = self._demands
        worth = least_tolls(field, guided.tolls)
        order = sorted(range(len(demands)), key=lambda at: (-worth[at], -demands[at].share, at))
        everyone = np.array([0 if demand.ties.in_turn else demand.count for demand in demands], dtype=np.int64)
        chosen = np.minimum(np.floor(guided.placed + 1e-6).astype(np.int64), everyone)
        for parts in _PARTS:
            for counts in (chosen, everyone):
                for tolls in (None, guided.tolls):
                    room = self._base.copy()
                    commits = [*self._settled, *plan_by_filling(field, _in_parts(counts, order, parts), room, tolls)]
                    self.offer("shares", self._filled(commits, field, room), room)
                    yield

    def _search(self, field: Field) -> Generator[None, None, None]:
        """Neighbourhoods, for as long as they are asked for."""
        self._searched = search = Neighbourhoods(field, self.best.commits, self.best.room, self._seed)
        patience = max(_PATIENCE, len(self._start.free) // 10)
        fruitless = 0
        while fruitless < patience and self.best.cost - search.gain > self.bound:
            before = search.gain
            # What handfuls of nodes no longer bring, twice as many may.
            if not search.improve(wider=fruitless >= patience // 2):
                return
            fruitless = 0 if search.gain > before else fruitless + 1
            yield

    def conclude(self) -> Draft:
        """The best plan so far; what a search rearranged goes through an empty room once more."""
        search = self._searched
        if search is not None and search.gain:
            room, demands = self._start.copy(), self._demands
            # Those that rules speak of did not move, and come in the order in which the rules held.
            tied = [commit for commit in self.best.commits if demands[commit.demand].ties is not FREE]
            commits = [c for c in tied if room.take(demands[c.demand], c.node, c.count) == c.count]
            free = [commit for commit in search.commits if demands[commit.demand].ties is FREE]
            arcs = np.array([(c.demand, c.node, c.count) for c in free], dtype=np.int64).reshape(len(free), 3)
            fits = room.take_all(demands, *arcs.T).tolist()
            commits += [
                c
                for c, took in zip(free, fits, strict=True)
                if took or room.take(demands[c.demand], c.node, c.count) == c.count
            ]
            self.offer("neighbourhoods", self._filled(commits, search.field, room), room)
            self._searched = None
        return self.best

    def _filled(self, commits: Sequence[Commit], field: Field, room: Room) -> list[Commit]:
        """A plan with whatever else fits into the room that it leaves, the dearest first."""
        left = unplaced(commits, self._demands)
        lacking = self._lacking(left)
        first = [(at, lacking[at]) for at in self._queue if lacking[at]]
        return [
            *commits,
            *plan_by_filling(field, [*first, *((at, left[at] - lacking[at]) for at in self._queue)], room),
        ]

    def _lacking(self, left: Sequence[int]) -> list[int]:
        """How many pods of each demand must be placed still."""
        return [
            max(0, need - demand.count + count)
            for need, demand, count in zip(self._required, self._demands, left, strict=True)
        ]

    def _left(self, of: Bools) -> int:
        left = unplaced(self.best.commits, self._demands)
        return sum(count for count, hope in zip(left, of, strict=True) if hope)

    def _draft(self, method: str, commits: Sequence[Commit], room: Room) -> Draft:
        return Draft(method, commits, room, total_cost(commits, self._demands, self._load))

    def offer(self, method: str, commits: Sequence[Commit], room: Room) -> None:
        """Takes a plan over if it is cheaper than the best so far and leaves out nothing that is required."""
        if any(self._lacking(unplaced(commits, self._demands))):
            return
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


def _in_parts(counts: Int64s, order: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Each class's pods in so many parts, the classes taking turns in this order."""
    return [
        (at, int(counts[at]) * (part + 1) // parts - int(counts[at]) * part // parts)
        for part in range(parts)
        for at in order
    ]
