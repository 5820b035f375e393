"""Units: gangs that are placed all or none of them, as counts over the demands of a round.

Gangs that share pods, and gangs that were said to be one (``Gang.unit``), are a unit. What a unit needs is so many pods
of each demand: within a demand pods stay interchangeable whatever gang they are in, so a thousand gangs of ten shapes
are ten demands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.model.gangs import Gang
from flowcore.model.snapshot import Bools, Int64s, Snapshot
from flowcore.rounds.demands import Demand


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What is placed as a whole or not at all.

    Attributes:
        name: of its gangs, by which its placements know each other.
        gangs: those that pods wait for.
        members: demand -> places in that demand's group, for each of the ``gangs``.
        required: how many pods of each demand it needs; none where it has a flaw.
        value: what leaving the required ones costs.
        flaw: why it cannot be placed, "" where it can.
        since: since when its oldest pod waits, 0 unknown.
        started: some of what it needs has a node already, or its turn has come by waiting: it goes before others.
    """

    name: str
    gangs: tuple[Gang, ...]
    members: tuple[Mapping[int, tuple[int, ...]], ...]
    required: Mapping[int, int]
    value: int
    flaw: str
    since: float
    started: bool

    @property
    def size(self) -> int:
        """How many pods it needs."""
        return sum(self.required.values())

    @property
    def demands(self) -> frozenset[int]:
        """Demands with pods of it."""
        return frozenset(at for members in self.members for at in members)

    @property
    def anywhere(self) -> bool:
        """Whether each pod may go wherever it fits, whatever domain the others are in."""
        return not any(gang.topology and not gang.domain for gang in self.gangs)


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The units of a round.

    Attributes:
        all: each unit.
        owner: for each demand int64[pods], the unit of each pod of its group, -1 for pods of none.
        needed: for each demand bool[pods], those that their unit cannot do without.
    """

    all: tuple[Unit, ...]
    owner: tuple[Int64s, ...]
    needed: tuple[Bools, ...]

    def turns(self, at: int, chosen: Bools) -> Int64s:
        """int64[P]: places in a demand's group of the pods that may be placed, in the order in which they are.

        Args:
            chosen: bool[U], the units that are placed: first come the pods that they need.
        """
        owner, needed = self.owner[at], self.needed[at]
        if not len(chosen):
            return np.arange(len(owner), dtype=np.int64)
        places = np.nonzero((owner < 0) | chosen[owner])[0]
        return np.concatenate([places[needed[places]], places[~needed[places]]])

    def required(self, at: int, chosen: Bools) -> int:
        """How many pods of a demand the chosen units need."""
        needed = self.needed[at]
        return int((needed & chosen[self.owner[at]]).sum()) if len(chosen) else 0


def narrowed(demand: Demand, nodes: Bools) -> Demand:
    """The demand kept to some nodes, bool[N]."""
    return replace(demand, allowed=demand.allowed & nodes, counts=np.where(nodes, demand.counts, 0))


def kept_to_domains(demands: Sequence[Demand], snapshot: Snapshot) -> tuple[Demand, ...]:
    """Demands of gangs that must be in one domain, kept to the one that they are in, or to nodes that are in any."""
    if not any(gang.topology for gang in snapshot.gangs.values()):
        return tuple(demands)
    return tuple(_kept(demand, snapshot) for demand in demands)


def _kept(demand: Demand, snapshot: Snapshot) -> Demand:
    # Pods of a gang with a topology have demands of their own.
    for name in demand.group.pods[0].gangs:
        gang = snapshot.gangs.get(name)
        if gang is not None and gang.topology:
            column = snapshot.table.column(gang.topology)
            if gang.domain:
                code = column.values.index(gang.domain) if gang.domain in column.values else -2
                demand = narrowed(demand, column.codes == code)
            else:
                demand = narrowed(demand, column.codes >= 0)
    return demand


def no_units(demands: Sequence[Demand]) -> Units:
    """Of pods that all go by themselves."""
    return Units(
        (),
        tuple(np.full(demand.count, -1, dtype=np.int64) for demand in demands),
        tuple(np.zeros(demand.count, dtype=np.bool_) for demand in demands),
    )


def units_of(snapshot: Snapshot, demands: Sequence[Demand]) -> Units:
    """The units of all waiting pods that are in a gang that still needs some of them."""
    none = no_units(demands)
    if not any(pod.gangs for pod in snapshot.pending):
        return none
    owner, needed = none.owner, none.needed
    members: dict[str, list[tuple[int, int]]] = {}
    for at, demand in enumerate(demands):
        for place, pod in enumerate(demand.group.pods):
            for name in dict.fromkeys(pod.gangs):
                members.setdefault(name, []).append((at, place))
    gangs = {name: _known(name, snapshot) for name in members}
    gangs = {name: gang for name, gang in gangs.items() if _matters(gang)}
    # Of a unit that pods wait for, gangs of which none waits count too: they may lack some.
    wanted = {gang.unit for gang in gangs.values() if gang.unit}
    gangs |= {
        name: gang
        for name, gang in snapshot.gangs.items()
        if gang.unit in wanted and name not in gangs and _matters(gang)
    }
    found: list[Unit] = []
    for names in _components(gangs, members, demands):
        unit = _unit([gangs[name] for name in names], [members.get(name, []) for name in names], demands)
        for at, places in unit[1].items():
            needed[at][places] = True
        for name in names:
            for at, place in members.get(name, ()):
                owner[at][place] = len(found)
        found.append(unit[0])
    return Units(tuple(found), owner, needed)


def _known(name: str, snapshot: Snapshot) -> Gang:
    gang = snapshot.gangs.get(name)
    return Gang(name, 1, flaw=f"{name} is not known") if gang is None else gang


def _matters(gang: Gang) -> bool:
    """Whether it asks for anything that a pod by itself, kept to its domain, does not."""
    return gang.least > 0 or bool(gang.flaw) or bool(gang.topology and not gang.domain)


def _components(
    gangs: Mapping[str, Gang], members: Mapping[str, Sequence[tuple[int, int]]], demands: Sequence[Demand]
) -> Iterable[list[str]]:
    """Names of gangs by unit, in the order of their first."""
    leader = {name: name for name in gangs}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = name = leader[leader[name]]
        return name

    of_unit: dict[str, str] = {}
    for name, gang in gangs.items():
        if gang.unit:
            leader[find(name)] = find(of_unit.setdefault(gang.unit, name))
        for at, place in members.get(name, ()):
            for other in demands[at].group.pods[place].gangs:
                if other != name and other in gangs:
                    leader[find(name)] = find(other)
    found: dict[str, list[str]] = {}
    for name in gangs:
        found.setdefault(find(name), []).append(name)
    return (sorted(names) for names in found.values())


def _unit(
    gangs: Sequence[Gang], members: Sequence[Sequence[tuple[int, int]]], demands: Sequence[Demand]
) -> tuple[Unit, dict[int, list[int]]]:
    """A unit, and the pods that it needs: of each gang those that are dearest to leave, then those that wait longest.

    Pods that no node has room for come last, before them guests, and those that another gang of the unit needs first.
    """
    needed: set[tuple[int, int]] = set()
    flaw = next((gang.flaw for gang in gangs if gang.flaw), "")
    for gang, mine in zip(gangs, members, strict=True):
        least = max(1, gang.least) if gang.topology and not gang.domain else gang.least
        if not flaw and len(mine) < least:
            wait = "none waits" if not mine else f"{len(mine)} wait" if len(mine) > 1 else "1 waits"
            flaw = f"{gang.name} needs {pods(least)} at once, {wait}"
        guests = frozenset(gang.guests)
        order = sorted(mine, key=lambda each: (each not in needed, *_dearest_first(demands, guests, *each)))
        needed.update(order[: max(0, least)])
    places: dict[int, list[int]] = {}
    for at, place in sorted(needed) if not flaw else ():
        places.setdefault(at, []).append(place)
    by_demand = []
    for mine in members:
        found: dict[int, list[int]] = {}
        for at, place in mine:
            found.setdefault(at, []).append(place)
        by_demand.append({at: tuple(each) for at, each in found.items()})
    created = [demands[at].group.pods[place].waits_since for mine in members for at, place in mine]
    unit = Unit(
        name=next((gang.unit for gang in gangs if gang.unit), gangs[0].name),
        gangs=tuple(gangs),
        members=tuple(by_demand),
        required={at: len(found) for at, found in places.items()},
        value=sum(int(demands[at].prices[found].sum()) for at, found in places.items()),
        flaw=flaw,
        since=min((each for each in created if each), default=0.0),
        started=any(gang.started for gang in gangs),
    )
    return unit, places


def _dearest_first(
    demands: Sequence[Demand], guests: frozenset[str], at: int, place: int
) -> tuple[bool, bool, int, float, str]:
    pod = demands[at].group.pods[place]
    guest = pod.key in guests if guests else False
    return not demands[at].counts.any(), guest, -int(demands[at].prices[place]), pod.waits_since, pod.key


def pods(count: int) -> str:
    """A number of pods in words."""
    return "1 pod" if count == 1 else f"{count} pods"
