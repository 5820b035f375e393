"""Admission: which units a round places, decided together with the pods that are in none.

Units and ordinary pods compete by the same prices of waiting. They are taken in an order, in batches that are halved
where they do not fit as a whole; a unit is in only after all pods that it needs were really placed. Several orders are
tried, and the choice that makes the round cheapest is kept (engine.md section 3: a candidate set with bisection).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowcore.costs import BinPacking
from flowcore.costs.model import Float64s
from flowcore.filters.node_resources_fit import count_fitting
from flowcore.model.snapshot import Bools, Int64s, Snapshot
from flowcore.rounds.bounds import lower_bound
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.field import Field
from flowcore.rounds.fill import plan_by_filling
from flowcore.rounds.gangs.units import Unit, Units, narrowed
from flowcore.rounds.placing import Bundles
from flowcore.rounds.pricing import pod_prices
from flowcore.rounds.relaxation import guide, least_tolls
from flowcore.rounds.room import Room
from flowcore.rounds.topology import Domains

#: Domains that are really tried for a unit that must be in one.
_MOST_DOMAINS = 8
_PACKING = BinPacking()


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Units that are in, and a plan that places all pods that they need.

    Attributes:
        chosen: bool[U].
        demands: all of the round, kept to one domain where a chosen unit must be in one.
        commits, room: the plan, and the room that it leaves.
        cost: true cost of the plan with everything that it leaves out.
    """

    method: str
    chosen: Bools
    demands: tuple[Demand, ...]
    commits: tuple[Commit, ...]
    room: Room
    cost: int


class Contest:
    """What competes for room in a round: units, and pods one by one.

    Attributes:
        required: int64[U, C], how many pods of each demand a unit needs.
        load: of the nodes as the round begins.
        open: the field without what is kept; bounds hold for that.
        keeper: the unit that room is kept for, -1: none; kept: its pods that the room is for.
        packing: for each demand int64[N], nodes in the order in which pods are packed onto them.
    """

    def __init__(self, demands: tuple[Demand, ...], units: Units, start: Room, snapshot: Snapshot) -> None:
        self.demands, self.units, self.start = demands, units, start
        self.table, self._snapshot = snapshot.table, snapshot
        self.load = start.load()
        self.keeper, self.kept = -1, tuple[Commit, ...]()
        self.required = np.zeros((len(units.all), len(demands)), dtype=np.int64)
        for at, unit in enumerate(units.all):
            for demand, count in unit.required.items():
                self.required[at, demand] = count
        #: Required pods are placed in this order: large ones first, they need first choice.
        self.by_size = sorted(range(len(demands)), key=lambda at: (-demands[at].share, demands[at].turn))
        #: Pods that rules bind or that hold ports are not placed by counting room alone.
        self.awkward = np.array(
            [each.ties.bound or bool(each.group.pod_class.host_ports) for each in demands], dtype=np.bool_
        )
        self._packing: dict[int, Int64s] = {}
        self._domains: dict[str, Domains] = {}

    @cached_property
    def still(self) -> Bools:
        """bool[C]: pods that stay where they are when the rest is decided by a program in whole numbers.

        Those that hold ports, whose rules do more than forbid, or whose being somewhere allows others a node.
        """
        opening = {
            counter
            for demand in self.demands
            for counter in (*demand.ties.near, *(spread.counter for spread in demand.ties.spreads))
        }
        known = [each.ties.only_forbids and opening.isdisjoint(each.ties.feeds) for each in self.demands]
        ports = [bool(each.group.pod_class.host_ports) for each in self.demands]
        return self.awkward & (~np.array(known, dtype=np.bool_) | np.array(ports, dtype=np.bool_))

    @cached_property
    def field(self) -> Field:
        """Where all demands stand as the round begins."""
        return Field.of(self.demands, self.start)

    @cached_property
    def open(self) -> Field:
        """The field when nothing is kept."""
        return self.field

    def favouring(self, at: int) -> Contest:
        """The same where a unit goes before others."""
        found = copy(self)
        units = list(self.units.all)
        units[at] = replace(units[at], started=True)
        found.units = replace(self.units, all=tuple(units))
        return found

    def keeping(self, at: int, commits: tuple[Commit, ...]) -> Contest:
        """The same with room for some pods of a unit kept out."""
        start = self.start.copy()
        for commit in commits:
            start.hold(self.demands[commit.demand], commit.node, commit.count)
        found = Contest(self.demands, self.units, start, self._snapshot)
        found.load, found.open = self.load, self.field
        found.keeper, found.kept = at, commits
        return found

    def without_keeping(self) -> Contest:
        """The same with nothing kept out."""
        found = Contest(self.demands, self.units, self.given_back(self.start), self._snapshot)
        found.load = self.load
        return found

    def given_back(self, room: Room) -> Room:
        """A room with what was kept."""
        if not self.kept:
            return room
        found = room.copy()
        for commit in self.kept:
            found.hold(self.demands[commit.demand], commit.node, -commit.count)
        return found

    @cached_property
    def flawed(self) -> Bools:
        """bool[U]: units that cannot be placed, whatever room there is."""
        return np.array([bool(unit.flaw) for unit in self.units.all], dtype=np.bool_)

    def priority_of(self, unit: Unit) -> int:
        """The lowest priority of the pods that it needs."""
        return min((self.demands[at].group.pod_class.priority for at in unit.required), default=0)

    def domains(self, key: str) -> Domains:
        """The domains of a label."""
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains.of(key, self.table)
        return found

    @cached_property
    def pods(self) -> tuple[Int64s, Int64s, Int64s]:
        """int64[P] each, of pods that no unit needs: demand, the unit that it is nothing without or -1, price."""
        found = []
        for at, demand in enumerate(self.demands):
            owner, free = self.units.owner[at], ~self.units.needed[at]
            if len(self.flawed):
                free &= (owner < 0) | ~self.flawed[owner]
            if demand.counts.any():
                found.append((np.full(int(free.sum()), at, dtype=np.int64), owner[free], demand.prices[free]))
        if not found:
            return (np.zeros(0, dtype=np.int64),) * 3
        whose, owners, prices = (np.concatenate(each) for each in zip(*found, strict=True))
        return whose, owners, prices

    def fits_empty(self, unit: Unit) -> bool:
        """Whether some domain could hold a unit that must be in one, if nothing else ran there."""
        empty = np.maximum(self._snapshot.allocatable, 0)
        for gang, members in zip(unit.gangs, unit.members, strict=True):
            if not gang.topology or gang.domain:
                continue
            domains = self.domains(gang.topology)
            codes, inside = domains.codes, domains.labelled
            enough = np.ones(domains.count, dtype=np.bool_)
            asked = np.zeros((domains.count, empty.shape[1]))
            for at, places in members.items():
                demand, need = self.demands[at], min(unit.required.get(at, 0), len(places))
                space = np.where(demand.allowed, count_fitting(demand.wanted, empty), 0)
                room = np.bincount(codes[inside], np.minimum(space, need)[inside], domains.count)
                enough &= room >= need
                asked += need * demand.wanted.astype(np.float64)
            total = np.zeros(asked.shape)
            np.add.at(total, codes[inside], empty[inside].astype(np.float64))
            if not (enough & ((total >= asked) | (asked == 0)).all(axis=1)).any():
                return False
        return True

    def packing(self, at: int) -> Int64s:
        """int64[M]: nodes that a demand may use, the fullest first."""
        found = self._packing.get(at)
        if found is None:
            demand = self.demands[at]
            arc = _PACKING.arc_costs(demand.group.pod_class, demand.size, self.load, demand.policy.weights)
            nodes = np.nonzero(demand.counts)[0]
            found = self._packing[at] = nodes[np.argsort(arc[nodes], kind="stable")]
        return found

    def cost(self, commits: Sequence[Commit], chosen: Bools) -> int:
        """True cost of a plan and of all that it leaves out."""
        placed = [0] * len(self.demands)
        for commit in commits:
            placed[commit.demand] += commit.count
        waiting = sum(
            int(demand.prices.sum()) - int(demand.prices[self.units.turns(at, chosen)[:count]].sum())
            for at, (demand, count) in enumerate(zip(self.demands, placed, strict=True))
        )
        return int(pod_prices(commits, self.demands, self.load).sum()) + waiting


def completed(contest: Contest, choice: Choice, *, full: bool = False) -> tuple[Choice, dict[int, int]]:
    """A choice with the units that find room beside its plan after all; for each other unit, how many pods would.

    Args:
        full: fills in pods that stand for themselves too, where no unit is left.
    """
    left = np.nonzero(~choice.chosen)[0]
    left = left[[not contest.units.all[at].flaw for at in left.tolist()]]
    if not len(left) and not full:
        return choice, {}
    order = sorted(left.tolist(), key=lambda at: (-contest.units.all[at].value, at))
    run = _Run(contest, choice)
    for at in order:
        run.walk(np.array([at], dtype=np.int64), np.array([-1], dtype=np.int64))
    found = run.conclude(choice.method)
    return found, {at: run.room_for(contest.units.all[at]) for at in order if not found.chosen[at]}


def before(contest: Contest, at: int) -> tuple[bool, tuple[Commit, ...]]:
    """A unit after what is dearer or of a higher priority: whether it fits as a whole, else where pods of it fit."""
    units = contest.units.all
    worth, priority = units[at].value / max(1, units[at].size), contest.priority_of(units[at])
    dearer = [
        other
        for other, unit in enumerate(units)
        if other != at
        and not unit.flaw
        and (unit.started or unit.value / max(1, unit.size) > worth or contest.priority_of(unit) > priority)
    ]
    dearer.sort(key=lambda other: (not units[other].started, -units[other].value / max(1, units[other].size), other))
    demand, owner, price = contest.pods
    above = np.array([each.group.pod_class.priority > priority for each in contest.demands], dtype=np.bool_)
    alone = np.nonzero(((price > worth) | above[demand]) & (owner < 0))[0]
    run = _Run(contest)
    # All of these are dearer than the unit: who of them goes first does not matter here.
    run.walk(np.full(len(alone), -1, dtype=np.int64), demand[alone])
    run.walk(np.array(dearer, dtype=np.int64), np.full(len(dearer), -1, dtype=np.int64))
    return run.fit_in(at)


def better(contest: Contest, one: Choice, other: Choice) -> bool:
    """Whether one choice is to be preferred: units that have begun come first, then the round is to be cheap."""

    def rank(choice: Choice) -> tuple[int, int]:
        units = zip(contest.units.all, choice.chosen.tolist(), strict=True)
        return sum(unit.value for unit, chosen in units if unit.started and not chosen), choice.cost

    return rank(one) < rank(other)


class Admission:
    """Decides which units are in, one way a step.

    Attributes:
        best: the choice to be preferred of all so far.
        bound: a cost that no plan of the round goes below.
    """

    def __init__(self, contest: Contest) -> None:
        self._contest, self.bound = contest, 0
        none = np.zeros(len(contest.units.all), dtype=np.bool_)
        self.best = Choice("nothing", none, contest.demands, (), contest.start.copy(), contest.cost((), none))

    def by_price(self) -> Choice:
        """What comes of the order of prices: the worth of a unit is that of its mean pod."""
        contest = self._contest
        value = np.array([unit.value for unit in contest.units.all], dtype=np.float64)
        size = np.array([max(1, unit.size) for unit in contest.units.all], dtype=np.float64)
        return self.admit("gangs by price", value / size, contest.pods[2].astype(np.float64))

    def run(self) -> Generator[None, None, None]:
        """Yields after each way."""
        contest = self._contest
        units, demands = contest.units.all, contest.demands
        value = np.array([unit.value for unit in units], dtype=np.float64)
        shares = np.array([max(demand.share, 1e-12) for demand in demands])
        of_pod = contest.pods[2].astype(np.float64)
        self.bound = lower_bound(contest.open, units=units) if demands else self.best.cost
        self.offer(self.by_price())
        yield
        if self.best.cost == self.bound:
            return
        by_share = value / np.maximum(contest.required @ shares, 1e-12)
        self.offer(self.admit("gangs by share", by_share, of_pod / shares[contest.pods[0]]))
        yield
        yield from self._by_tolls(value, of_pod)

    def _by_tolls(self, value: Float64s, of_pod: Float64s) -> Generator[None, None, None]:
        """The linear program with units says what room is worth, and with that what each unit is worth in it."""
        contest = self._contest
        sound = ~contest.flawed
        prices = [demand.prices[~needed] for demand, needed in zip(contest.demands, contest.units.needed, strict=True)]
        found = guide(contest.field, prices, Bundles(contest.required[sound].astype(np.float64), value[sound]))
        if found is None:
            return
        self.bound = max(self.bound, lower_bound(contest.open, tolls=found.tolls, units=contest.units.all))
        tolls = np.array(least_tolls(contest.field, found.tolls))
        tolls[~np.isfinite(tolls)] = 0.0
        tolls = np.maximum(tolls, 1e-9)
        self.offer(
            self.admit("gangs by toll", value / (contest.required @ tolls + 1e-9), of_pod / tolls[contest.pods[0]])
        )
        yield

    def admit(self, method: str, units: Float64s, pods: Float64s) -> Choice:
        """The choice that comes of an order.

        Args:
            units, pods: float64[U], float64[P]: worth of a unit, and of each pod that none needs; highest first.
        """
        run = _Run(self._contest)
        run.walk(*self._ordered(units, pods))
        return run.conclude(method)

    def offer(self, choice: Choice) -> None:
        """Takes a choice over if it is cheaper than the best so far."""
        if better(self._contest, choice, self.best):
            self.best = choice

    def _ordered(self, units: Float64s, pods: Float64s) -> tuple[Int64s, Int64s]:
        """Entries in turn: int64[E] a unit, or that of a pod that is nothing without it; int64[E] a demand or -1.

        Units that have begun come first; among equals those with few pods.
        """
        contest = self._contest
        all_units = contest.units.all
        pod_demand, pod_unit, _ = contest.pods
        whole = np.array([at for at, unit in enumerate(all_units) if not unit.flaw], dtype=np.int64)
        begun = np.array([all_units[at].started for at in whole.tolist()], dtype=np.bool_)
        size = np.array([all_units[at].size for at in whole.tolist()], dtype=np.int64)
        share = np.array([demand.share for demand in contest.demands])
        room = contest.required[whole] @ share
        unit = np.concatenate([whole, pod_unit])
        demand = np.concatenate([np.full(len(whole), -1, dtype=np.int64), pod_demand])
        order = np.lexsort(
            (
                np.arange(len(unit)),
                np.concatenate([room, share[pod_demand]]),
                np.concatenate([size, np.ones(len(pod_unit), dtype=np.int64)]),
                -np.concatenate([units[whole], pods]),
                np.concatenate([~begun, np.ones(len(pod_unit), dtype=np.bool_)]),
            )
        )
        return unit[order], demand[order]


class _Run:
    """One way through the entries of an order, from nothing or from another plan."""

    def __init__(self, contest: Contest, begun: Choice | None = None) -> None:
        self._contest = contest
        self._demands = list(contest.demands if begun is None else begun.demands)
        self._room = (contest.start if begun is None else begun.room).copy()
        self._commits: list[Commit] = [] if begun is None else list(begun.commits)
        self._chosen = np.zeros(len(contest.units.all), dtype=np.bool_) if begun is None else begun.chosen.copy()
        self._narrowed: Field | None = contest.field
        if begun is not None and begun.demands is not contest.demands:
            self._narrowed = None
            for unit, chosen in zip(contest.units.all, begun.chosen.tolist(), strict=True):
                # One that is out may choose its domain again.
                for at in unit.demands if not (chosen or unit.anywhere) else ():
                    self._demands[at] = contest.demands[at]
        #: Demands of which no further pod fits.
        self._closed = ~contest.field.placeable
        self._anywhere = np.array([unit.anywhere for unit in contest.units.all], dtype=np.bool_)
        #: For demands that were asked about: room on each node, and how much of the room's log is in there.
        self._space: dict[int, tuple[Int64s, int]] = {}
        self._log: list[Int64s] = []

    def _field(self) -> Field:
        """The field with demands kept to the domains that were found for them."""
        if self._narrowed is None:
            self._narrowed = Field.of(tuple(self._demands), self._contest.start)
        return self._narrowed

    def walk(self, unit: Int64s, demand: Int64s) -> None:
        """Takes in what fits: all entries at once, else one half after the other."""
        unit, demand = self._alive(unit, demand)
        if not len(unit):
            return
        units = unit[demand < 0]
        # A unit that must be in one domain gets it by itself.
        if self._anywhere[units].all() and self._place(self._counts(units, demand)):
            self._chosen[units] = True
            return
        if not len(units) and (demand == demand[0]).all():
            self._take_what_fits(int(demand[0]), len(demand))
            return
        if len(unit) == 1:
            if not self._anywhere[units[0]]:
                self._place_together(int(units[0]))
            return
        half = len(unit) // 2
        self.walk(unit[:half], demand[:half])
        self.walk(unit[half:], demand[half:])

    def fit_in(self, at: int) -> tuple[bool, tuple[Commit, ...]]:
        """Whether a unit has room beside what is placed, else where so many of its pods that have go."""
        unit = self._contest.units.all[at]
        order = [(each, unit.required[each]) for each in self._contest.by_size if each in unit.required]
        found = plan_by_filling(self._field(), order, self._room.copy())
        whole = sum(commit.count for commit in found) == unit.size
        return whole, () if whole else tuple(found)

    def room_for(self, unit: Unit) -> int:
        """How many of the pods that a unit needs find room beside what is placed."""
        order = [(at, unit.required[at]) for at in self._contest.by_size if at in unit.required]
        return sum(commit.count for commit in plan_by_filling(self._field(), order, self._room.copy()))

    def conclude(self, method: str) -> Choice:
        """The choice, with all pods that still fit beside."""
        contest, units = self._contest, self._contest.units
        placed = [0] * len(self._demands)
        for commit in self._commits:
            placed[commit.demand] += commit.count
        queue = sorted(range(len(placed)), key=lambda at: contest.demands[at].turn)
        rest = [(at, len(units.turns(at, self._chosen)) - placed[at]) for at in queue]
        demands = tuple(self._demands)
        self._commits += plan_by_filling(self._field(), rest, self._room)
        commits = tuple(self._commits)
        return Choice(method, self._chosen, demands, commits, self._room, contest.cost(commits, self._chosen))

    def _alive(self, unit: Int64s, demand: Int64s) -> tuple[Int64s, Int64s]:
        """Entries without those that certainly find no room any more."""
        whole = demand < 0
        units = unit[whole]
        fine = np.zeros(len(unit), dtype=np.bool_)
        required = self._contest.required[units]
        asked = np.nonzero(required.any(axis=0))[0]
        total = np.array([int(np.minimum(self._space_of(at), 2**31).sum()) for at in asked.tolist()], dtype=np.int64)
        fine[whole] = (required[:, asked] <= total).all(axis=1)
        coming = self._chosen.copy()
        coming[unit[whole & fine]] = True
        pods = unit[~whole]
        mine = np.ones(len(pods), dtype=np.bool_) if not len(coming) else (pods < 0) | coming[pods]
        fine[~whole] = mine & ~self._closed[demand[~whole]]
        return unit[fine], demand[fine]

    def _counts(self, units: Int64s, demand: Int64s) -> Int64s:
        """int64[C]: how many pods of each demand the entries come to."""
        pods = np.bincount(demand[demand >= 0], minlength=len(self._demands))
        counts: Int64s = self._contest.required[units].sum(axis=0) + pods
        return counts

    def _place(self, counts: Int64s) -> bool:
        """Places so many pods of each demand, or none."""
        asked = np.nonzero(counts)[0]
        if not self._may_fit(asked, counts[asked]):
            return False
        if self._contest.awkward[asked].any():
            order = [(at, int(counts[at])) for at in self._contest.by_size if counts[at]]
            return self._adopt(self._field(), order)
        taken: list[tuple[int, Int64s, Int64s]] = []
        for at in self._contest.by_size:
            if not counts[at]:
                continue
            nodes, pods = self._packed(at, int(counts[at]))
            if int(pods.sum()) < counts[at]:
                for other, there, many in taken:
                    self._room.give_back(self._demands[other], there, many)
                    self._log.append(there)
                return False
            self._room.take_many(self._demands[at], nodes, pods)
            self._log.append(nodes)
            taken.append((at, nodes, pods))
        for at, nodes, pods in taken:
            self._commits += [Commit(at, node, n) for node, n in zip(nodes.tolist(), pods.tolist(), strict=True)]
        return True

    def _may_fit(self, asked: Int64s, counts: Int64s) -> bool:
        """Whether there is as much room in all as they ask for."""
        if any(
            int(self._space_of(at).sum()) < count for at, count in zip(asked.tolist(), counts.tolist(), strict=True)
        ):
            return False
        wanted = np.array([self._demands[at].wanted for at in asked.tolist()], dtype=np.float64)
        free = np.maximum(self._room.free, 0).astype(np.float64).sum(axis=0)
        total = counts @ wanted
        return bool(((total <= free * (1 + 1e-9)) | (total == 0)).all())

    def _packed(self, at: int, count: int) -> tuple[Int64s, Int64s]:
        """Nodes and pods of each, the first that have room."""
        nodes = self._contest.packing(at)
        space = self._space_of(at)[nodes]
        before = np.cumsum(np.minimum(space, count))
        last = int(np.searchsorted(before, count)) + 1
        pods = np.minimum(space[:last], count)
        if last <= len(before):
            pods[-1] -= before[last - 1] - count
        used = pods > 0
        return nodes[:last][used], pods[used]

    def _take_what_fits(self, at: int, count: int) -> None:
        """Ordinary pods of one demand, as many as there is room for."""
        if self._contest.awkward[at]:
            room = self._room
            self._log.append(np.arange(len(room.free)))
            self._commits += plan_by_filling(self._field(), [(at, count)], room)
        else:
            nodes, pods = self._packed(at, count)
            self._room.take_many(self._demands[at], nodes, pods)
            self._log.append(nodes)
            self._commits += [Commit(at, node, n) for node, n in zip(nodes.tolist(), pods.tolist(), strict=True)]
        self._closed[at] = True

    def _adopt(self, field: Field, order: Sequence[tuple[int, int]], names: Sequence[int] | None = None) -> bool:
        """Fills in pods, or none where not all of them find a node.

        Args:
            names: numbers of the field's demands in the round; None: the same.
        """
        room = self._room.copy()
        commits = plan_by_filling(field, order, room)
        if sum(commit.count for commit in commits) < sum(count for _, count in order):
            return False
        if names is not None:
            commits = [Commit(names[commit.demand], commit.node, commit.count) for commit in commits]
        self._room = room
        self._commits += commits
        self._log.append(np.array([commit.node for commit in commits], dtype=np.int64))
        return True

    def _place_together(self, at: int) -> None:
        """Finds a unit domains in which it really has room."""
        unit = self._contest.units.all[at]
        for tries, fences in enumerate(self._domains(unit, 0, {})):
            if tries == _MOST_DOMAINS:
                return
            names = sorted(unit.demands)
            kept = [
                narrowed(self._demands[each], fences[each]) if each in fences else self._demands[each] for each in names
            ]
            order = [(place, unit.required[each]) for place, each in enumerate(names) if each in unit.required]
            order.sort(key=lambda entry: -kept[entry[0]].share)
            if self._adopt(Field.of(kept, self._contest.start), order, names):
                for each, demand in zip(names, kept, strict=True):
                    if each in fences:
                        self._demands[each], self._narrowed = demand, None
                        self._space.pop(each, None)
                        self._closed[each] = not demand.counts.any()
                self._chosen[at] = True
                return

    def _domains(self, unit: Unit, number: int, fences: dict[int, Bools]) -> Iterator[dict[int, Bools]]:
        """Nodes that each demand is kept to, bool[N], for one choice of domains after the other.

        Domains with room, those with room for all its pods first, among equals the cheapest.
        """
        if number == len(unit.gangs):
            yield fences
            return
        gang, members = unit.gangs[number], unit.members[number]
        if not gang.topology or gang.domain:
            yield from self._domains(unit, number + 1, fences)
            return
        domains = self._contest.domains(gang.topology)
        codes, inside, count = domains.codes, domains.labelled, domains.count
        enough, spacious = np.ones(count, dtype=np.bool_), np.ones(count, dtype=np.bool_)
        cost = np.zeros(count)
        for at, places in members.items():
            usable = inside & fences[at] if at in fences else inside
            ties = self._demands[at].ties
            if ties.apart or ties.caps:
                usable = usable & ~self._room.together.closed(ties)
            space = np.where(usable, self._space_of(at), 0)
            room = np.bincount(codes[inside], np.minimum(space, len(places))[inside], count)
            # Of a demand that several gangs share each may need only some.
            need = min(unit.required.get(at, 0), len(places))
            enough &= room >= need
            spacious &= room >= len(places)
            cheapest = np.full(count, np.inf)
            fitting = usable & (space > 0)
            np.minimum.at(cheapest, codes[fitting], self._contest.field.opening[at][fitting])
            cost += need * np.where(np.isfinite(cheapest), cheapest, 0.0)
        for code in np.lexsort((np.arange(count), cost, ~spacious)).tolist():
            if enough[code]:
                here = codes == code
                yield from self._domains(
                    unit, number + 1, fences | {at: fences[at] & here if at in fences else here for at in members}
                )

    def _space_of(self, at: int) -> Int64s:
        """int64[N]: how many pods of a demand each node has room for now. Not to be written to."""
        demand = self._demands[at]
        space, seen = self._space.get(at, (None, 0))
        if space is None:
            space = np.array(self._room.space(demand))
        elif seen < len(self._log):
            nodes = np.unique(np.concatenate(self._log[seen:]))
            nodes = nodes[demand.counts[nodes] > 0]
            space[nodes] = self._room.space_at(demand, nodes)
        self._space[at] = space, len(self._log)
        return space
