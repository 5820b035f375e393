"""Atomic groups: gangs that are placed whole or not at all, as counts over the demands of a round.

Gangs that share pods, and gangs that say that they are one (``Gang.atomic_group``), are one atomic group. A group needs
a number of pods of each demand. Within a demand pods are interchangeable whatever their gang: a thousand gangs of ten
shapes are ten demands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.topology.connected_components import connected_components

#: Most gangs and slices of a group that choose a domain. The search for domains keeps what is placed before each of
#: them, and one that is much longer is deeper than Python goes.
MAX_CHOOSING = 256


@dataclass(frozen=True, slots=True, eq=False)
class AtomicGroup:
    """Pods that are placed as a whole or not at all.

    Attributes:
        name: of its gangs; its placements carry it.
        gangs: the gangs that have pending pods or need some.
        members: for each of ``gangs``: demand -> places in that demand's group.
        required: how many pods of each demand it needs; none if it is unschedulable.
        unscheduled_cost: sum of the prices of the required pods.
        unschedulable_reason: why it cannot be placed however much capacity is free, "" if it can.
        waiting_since: since when its oldest pod waits, 0 unknown.
        goes_first: some of what it needs has a node already, or it has waited for long and its turn has come.
        weight: how often the required pods count in their prices, together.
    """

    name: str
    gangs: tuple[Gang, ...]
    members: tuple[Mapping[int, tuple[int, ...]], ...]
    required: Mapping[int, int]
    unscheduled_cost: int
    unschedulable_reason: str
    waiting_since: float
    goes_first: bool
    weight: float

    @property
    def size(self) -> int:
        """How many pods it needs."""
        return sum(self.required.values())

    @property
    def mean_price(self) -> float:
        """Mean price of the pods that it needs."""
        return self.unscheduled_cost / max(1, self.size)

    @property
    def rank_price(self) -> float:
        """Its price for what it counts: says who comes first, as prices of pods over their weights do."""
        return self.unscheduled_cost / max(1.0, self.weight)

    @property
    def demands(self) -> frozenset[int]:
        """Demands with pods of it."""
        return frozenset(demand for members in self.members for demand in members)

    @property
    def any_domain(self) -> bool:
        """Whether no gang of it has yet to choose the domains that its pods are kept to."""
        return not any(gang.chooses_domain for gang in self.gangs)

    @property
    def is_certain(self) -> bool:
        """Whether every plan has it so: none of its gangs is one of several that may be made of its pods."""
        return not any(gang.is_one_of_several for gang in self.gangs)

    @property
    def needs_domain(self) -> bool:
        """Whether a gang of it must be in one domain and has yet to choose it."""
        return any(gang.needs_domain for gang in self.gangs)


@dataclass(frozen=True, slots=True, eq=False)
class AtomicGroups:
    """The atomic groups of a round.

    Attributes:
        all: U groups.
        group_of: for each demand int64[pods], the group of each pod, -1 for none.
        needed: for each demand bool[pods], pods that their group needs.
    """

    all: tuple[AtomicGroup, ...]
    group_of: tuple[Int64s, ...]
    needed: tuple[Bools, ...]

    @property
    def certain(self) -> tuple[AtomicGroup, ...]:
        """The groups that every plan has so: bounds know of no other ones."""
        return tuple(group for group in self.all if group.is_certain)

    def number_of(self, demands: Sequence[Demand], demand: int, pod: PendingPod) -> int:
        """Number of the group of a pod of a demand; -1: none."""
        return int(self.group_of[demand][demands[demand].group.pods.index(pod)]) if pod.gangs else -1

    def name_of(self, demands: Sequence[Demand], demand: int, pod: PendingPod) -> str:
        """Name of the group of a pod of a demand; "": none."""
        number = self.number_of(demands, demand, pod)
        return "" if number < 0 else self.all[number].name

    def placement_order(self, demand: int, admitted: Bools) -> Int64s:
        """int64[P]: places in a demand's group of the pods that may be placed, needed pods first.

        Args:
            admitted: bool[U], the groups that are placed.
        """
        group_of, needed = self.group_of[demand], self.needed[demand]
        if not len(admitted):
            return np.arange(len(group_of), dtype=np.int64)
        places = np.nonzero((group_of < 0) | admitted[group_of])[0]
        return np.concatenate([places[needed[places]], places[~needed[places]]])

    def required(self, demand: int, admitted: Bools) -> int:
        """How many pods of a demand the admitted groups need."""
        needed = self.needed[demand]
        return int((needed & admitted[self.group_of[demand]]).sum()) if len(admitted) else 0

    def made_up_of(self, chosen: Mapping[int, Sequence[tuple[int, int]]], demands: Sequence[Demand]) -> AtomicGroups:
        """The same groups, some of which need other ones of their pods.

        Args:
            chosen: by group the pods that it needs, as demand and place.
        """
        groups, needed = list(self.all), [each.copy() for each in self.needed]
        for number, pods_needed in chosen.items():
            for index in groups[number].demands:
                needed[index][self.group_of[index] == number] = False
            for index, place in pods_needed:
                needed[index][place] = True
            groups[number] = replace(groups[number], **_needs(_by_demand(pods_needed), demands))
        return AtomicGroups(tuple(groups), self.group_of, tuple(needed))


def no_atomic_groups(demands: Sequence[Demand]) -> AtomicGroups:
    """Every pod by itself."""
    return AtomicGroups(
        (),
        tuple(np.full(demand.count, -1, dtype=np.int64) for demand in demands),
        tuple(np.zeros(demand.count, dtype=np.bool_) for demand in demands),
    )


def atomic_groups_of(snapshot: Snapshot, demands: Sequence[Demand]) -> AtomicGroups:
    """The groups of all pending pods whose gangs still need some."""
    none = no_atomic_groups(demands)
    if not any(pod.gangs for pod in snapshot.pending):
        return none
    members = _pods_by_gang(demands)
    gangs = {name: _gang_named(name, snapshot) for name in members}
    gangs = {name: gang for name, gang in gangs.items() if _is_constrained(gang)}
    # Other gangs of the same groups count too, even without pending pods: they may lack some.
    group_names = {gang.atomic_group for gang in gangs.values() if gang.atomic_group}
    gangs |= {
        name: gang
        for name, gang in snapshot.gangs.items()
        if gang.atomic_group in group_names and name not in gangs and _is_constrained(gang)
    }
    group_of, needed = none.group_of, none.needed
    groups: list[AtomicGroup] = []
    for names in _gangs_by_group(gangs, members, demands):
        group, needed_places = _atomic_group_of(
            [gangs[name] for name in names], [members.get(name, []) for name in names], demands
        )
        for index, places in needed_places.items():
            needed[index][places] = True
        for name in names:
            for index, place in members.get(name, ()):
                group_of[index][place] = len(groups)
        groups.append(group)
    return AtomicGroups(tuple(groups), group_of, needed)


def _pods_by_gang(demands: Sequence[Demand]) -> dict[str, list[tuple[int, int]]]:
    """The pending pods of each gang, as demand and place."""
    members: dict[str, list[tuple[int, int]]] = {}
    for index, demand in enumerate(demands):
        for place, pod in enumerate(demand.group.pods):
            for name in dict.fromkeys(pod.gangs):
                members.setdefault(name, []).append((index, place))
    return members


def _gang_named(name: str, snapshot: Snapshot) -> Gang:
    gang = snapshot.gangs.get(name)
    return Gang(name, 1, unschedulable_reason=f"{name} is not known") if gang is None else gang


def _is_constrained(gang: Gang) -> bool:
    """Whether a gang asks for anything that its pods by themselves, kept to its domain, do not."""
    return gang.min_placed > 0 or bool(gang.unschedulable_reason) or gang.chooses_domain


def _gangs_by_group(
    gangs: Mapping[str, Gang], members: Mapping[str, Sequence[tuple[int, int]]], demands: Sequence[Demand]
) -> list[list[str]]:
    """Sorted names of the gangs of each group; groups in the order of their first gang."""
    keys: list[set[tuple[str, str]]] = []
    for name, gang in gangs.items():
        group_keys = {("gang", name)} | ({("group", gang.atomic_group)} if gang.atomic_group else set())
        for index, place in members.get(name, ()):
            group_keys.update(
                ("gang", gang_name) for gang_name in demands[index].group.pods[place].gangs if gang_name in gangs
            )
        keys.append(group_keys)
    names = list(gangs)
    return [sorted(names[gang] for gang in component) for component in connected_components(keys)]


def _atomic_group_of(
    gangs: Sequence[Gang], members: Sequence[Sequence[tuple[int, int]]], demands: Sequence[Demand]
) -> tuple[AtomicGroup, dict[int, list[int]]]:
    """A group, and the places of the pods that it needs by demand.

    Args:
        members: of each gang the pending pods, as demand and place.

    Of each gang it needs the smallest pods, of those the ones with the highest prices, then those that wait longest:
    where room is short, the members that fit make up the gang. Pods that another gang of the
    group needs come first; pods of others (``Gang.foreign_pods``) come late, and pods that fit no node last.
    """
    needed: set[tuple[int, int]] = set()
    unschedulable_reason = next((gang.unschedulable_reason for gang in gangs if gang.unschedulable_reason), "")
    without_domain = sum(gang.chooses_domain for gang in gangs)
    if not unschedulable_reason and without_domain > MAX_CHOOSING:
        number = f"{without_domain} gangs and slices that choose a domain"
        unschedulable_reason = f"{gangs[0].name} is placed together with {number}, {MAX_CHOOSING} are allowed"
    for gang, pending in zip(gangs, members, strict=True):
        least = max(1, gang.min_placed) if gang.needs_domain else gang.min_placed
        if not unschedulable_reason and len(pending) < least:
            wait = "none waits" if not pending else f"{len(pending)} wait" if len(pending) > 1 else "1 waits"
            unschedulable_reason = f"{gang.name} needs {pods(least)} at once, {wait}"
        foreign = frozenset(gang.foreign_pods)
        order = sorted(pending, key=lambda pod: (pod not in needed, *by_size_and_price(demands, foreign, *pod)))
        needed.update(order[: max(0, least)])
    needed_places = _by_demand(sorted(needed)) if not unschedulable_reason else {}
    waiting_since = [demands[index].group.pods[place].waiting_since for pending in members for index, place in pending]
    group = AtomicGroup(
        name=next((gang.atomic_group for gang in gangs if gang.atomic_group), gangs[0].name),
        gangs=tuple(gangs),
        members=tuple({index: tuple(places) for index, places in _by_demand(pending).items()} for pending in members),
        unschedulable_reason=unschedulable_reason,
        waiting_since=min((each for each in waiting_since if each), default=0.0),
        goes_first=any(gang.partially_placed for gang in gangs),
        **_needs(needed_places, demands),
    )
    return group, needed_places


class _Needs(TypedDict):
    """What an atomic group says of the pods that it needs."""

    required: Mapping[int, int]
    unscheduled_cost: int
    weight: float


def _needs(places: Mapping[int, Sequence[int]], demands: Sequence[Demand]) -> _Needs:
    """Of the pods at these places of demands."""
    return {
        "required": {index: len(of_demand) for index, of_demand in places.items()},
        "unscheduled_cost": sum(int(demands[index].prices[list(each)].sum()) for index, each in places.items()),
        "weight": sum(demands[index].weight * len(of_demand) for index, of_demand in places.items()),
    }


def _by_demand(pods: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """Places by demand, of pods given as demand and place."""
    places: dict[int, list[int]] = {}
    for demand, place in pods:
        places.setdefault(demand, []).append(place)
    return places


def by_size_and_price(
    demands: Sequence[Demand], foreign: frozenset[str], index: int, place: int
) -> tuple[bool, bool, float, int, tuple[float, float]]:
    """Sorts the pods of a gang by who is needed first."""
    demand, pod = demands[index], demands[index].group.pods[place]
    is_foreign = pod.key in foreign if foreign else False
    size, price = demand.dominant_share, int(demand.prices[place])
    return not demand.counts.any(), is_foreign, size, -price, pod.came


def pods(count: int) -> str:
    """A number of pods in words."""
    return "1 pod" if count == 1 else f"{count} pods"
