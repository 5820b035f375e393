"""The pods of one policy as its network sees them: interchangeable also by their labels and by their gangs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.costs.network_model import Pods
from flowcore.model.selectors import Labels
from flowcore.model.turns import begun_at, spread, turn_of
from flowcore.planning.declared_networks import Supply, SupplyGroup
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes import RestrictToGangDomains
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem, priced
from flowcore.rules.reasons.codes import GANG_INCOMPLETE, NETWORK_REFUSED

_Number = TypeVar("_Number", np.int64, np.float64)

#: Labels that controllers give each pod a value of its own of.
_LABELS_OF_ONE_POD = frozenset((
    "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index",
    "statefulset.kubernetes.io/pod-name",
))  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class NetworkClass:
    """Pods that are one start of arcs: a part of a demand, with equal labels and of the same gangs.

    Attributes:
        group: the number of the atomic group that needs them at once; -1: none does.
        gangs: the names of their gangs.
        foreign: their gangs need them only where there are too few others.
        required: how many of them their group needs, the first ones.
    """

    demand: Demand
    labels: Labels
    group: int = -1
    gangs: tuple[str, ...] = ()
    foreign: bool = False
    required: int = 0

    @property
    def name(self) -> str:
        """For sentences."""
        first, more = self.demand.group.pods[0].key, self.demand.count - 1
        return f"{first} and {more} more" if more else first

    def supply(self, capacity: Plan, *, alone: bool = False) -> Supply:
        """What the solver reads.

        Args:
            alone: without rules between pods: others may be there that they ask for.
        """
        demand = self.demand
        fits = capacity.fit_counts(demand) if alone else capacity.max_pods(demand)
        return Supply(
            self.name,
            demand.prices,
            demand.requests,
            fits.copy(),
            host_ports=demand.excludes_its_like,
        )

    def pods(self, supply: Supply) -> Pods:
        """What the model sees."""
        group = self.demand.group
        return Pods(
            name=self.name,
            namespace=group.signature.namespace,
            labels=dict(self.labels),
            priority=group.pod_class.priority,
            requests=dict(group.pod_class.requests),
            prices=read_only(supply.prices),
            costs=read_only(self.demand.arc),
            fits=read_only(supply.fits),
        )


@dataclass(frozen=True, slots=True, eq=False)
class KeptOut:
    """A pod that its gang keeps out of the network.

    Attributes:
        price: of leaving it.
        why: a clause.
        code: its code.
    """

    pod: PendingPod
    price: int
    why: str
    code: str


@dataclass(frozen=True, slots=True, eq=False)
class NetworkPods:
    """All pods of a policy.

    Attributes:
        classes: those that its network decides.
        groups: which of these are placed together or not at all.
        kept_out: pods that their gangs keep out.
        beyond: those of more kinds than a round has time for.
        late: those of gangs that choose more domains than a round has time for, with the name of what needs them.
    """

    classes: list[NetworkClass]
    groups: tuple[SupplyGroup, ...]
    kept_out: list[KeptOut]
    beyond: tuple[NetworkClass, ...] = ()
    late: tuple[tuple[str, NetworkClass], ...] = ()

    @property
    def choices(self) -> int:
        """How many domains its gangs and slices choose."""
        return sum(len(group.domains) for group in self.groups)

    def with_choices(self, most: int, capacity: Plan, now: float) -> NetworkPods:
        """The same pods with ``most`` domains to choose at most: groups take turns as in ``limited``.

        At half of the times the turns begin elsewhere, so that groups which the network never places keep no other
        waiting for ever. Groups that have no room even by themselves are the last.
        """
        group_of = {group.members: group for group in self.groups if group.domains}
        supplies = [each.supply(capacity) for each in self.classes]
        turns = [group_of[unit] for unit in self._by_turns() if unit in group_of]
        turn = turn_of(now)
        if turn >= 2**31:
            turns = begun_at(turns, spread(turn))
        turns.sort(key=lambda group: not group.may_fit(supplies))
        late, left = dict[int, str](), most
        for group in turns:
            if len(group.domains) <= left:
                left -= len(group.domains)
            else:
                late |= dict.fromkeys(group.members, group.name)
        of_group = tuple((late[place], each) for place, each in enumerate(self.classes) if place in late)
        return replace(self._of({*range(len(self.classes))} - late.keys()), late=(*self.late, *of_group))

    def limited(self, most: int) -> NetworkPods:
        """The pods of ``most`` classes at most: namespaces take turns, each with its dearest class first.

        A group has all of its classes among them, or none.

        Groups that are begun come before that. So nobody's labels take the network's time from the pods of others.
        """
        if len(self.classes) <= most:
            return self
        kept, left = set[int](), most
        for unit in self._by_turns():
            if len(unit) <= left:
                kept.update(unit)
                left -= len(unit)
        beyond = (each for place, each in enumerate(self.classes) if place not in kept)
        return replace(self._of(kept), beyond=(*self.beyond, *beyond))

    def _of(self, kept: Collection[int]) -> NetworkPods:
        """Some of the classes, by their places; of each group all or none."""
        number = {place: position for position, place in enumerate(sorted(kept))}
        return replace(
            self,
            classes=[self.classes[place] for place in number],
            groups=tuple(_renumbered(group, number) for group in self.groups if group.members[0] in number),
        )

    def _by_turns(self) -> list[tuple[int, ...]]:
        """Places of classes that stay together, one of each namespace after the other."""
        alone = set(range(len(self.classes))) - {member for group in self.groups for member in group.members}
        units = [*(group.members for group in self.groups), *((place,) for place in sorted(alone))]
        begun = {group.members for group in self.groups if group.is_begun}
        dearest = {unit: max(self.classes[place].demand.dearest for place in unit) for unit in units}
        units.sort(key=lambda unit: (unit not in begun, -dearest[unit], unit))
        turns: dict[str, int] = {}
        ranked = []
        for rank, unit in enumerate(units):
            namespace = self.classes[unit[0]].demand.group.signature.namespace
            turn = turns[namespace] = turns.get(namespace, 0) + 1
            ranked.append((turn, rank, unit))
        return [unit for _, _, unit in sorted(ranked)]


def _renumbered(group: SupplyGroup, number: Mapping[int, int]) -> SupplyGroup:
    """A group whose members have other places."""

    def places(members: Iterable[int]) -> tuple[int, ...]:
        return tuple(number[member] for member in members)

    return replace(
        group,
        members=places(group.members),
        needs=tuple((places(members), need) for members, need in group.needs),
        domains=tuple((places(members), domains) for members, domains in group.domains),
        required=tuple((number[member], count) for member, count in group.required),
    )


def network_pods(problem: Problem, policy: str, labels: Collection[str] | None = None) -> NetworkPods:
    """The pods of a policy by class, with the gangs that the network places whole.

    Args:
        labels: those that the model reads; None: all.
    """
    problem = RestrictToGangDomains().apply(problem)
    groups, group_of, needed = problem.atomic_groups.all, problem.atomic_groups.group_of, problem.atomic_groups.needed
    outside = [_why_outside(problem, group, policy) for group in groups]
    foreign = [frozenset(key for gang in group.gangs for key in gang.foreign_pods) for group in groups]
    classes, kept_out = list[NetworkClass](), list[KeptOut]()
    for index, demand in enumerate(problem.demands):
        if demand.policy.name != policy:
            continue
        places: dict[tuple[str, Labels, int, tuple[str, ...], bool], list[int]] = {}
        for place, (pod, group) in enumerate(zip(demand.group.pods, group_of[index].tolist(), strict=True)):
            if group >= 0 and outside[group] is not None:
                kept_out.append(KeptOut(pod, int(demand.prices[place]), *outside[group]))
                continue
            gangs = tuple(sorted(set(pod.gangs))) if group >= 0 else ()
            key = pod.signature.namespace, _read(pod.signature.labels, labels), group, gangs
            places.setdefault((*key, group >= 0 and pod.key in foreign[group]), []).append(place)
        whole = priced(problem, demand) if places else demand
        classes += [
            NetworkClass(
                _part(whole, places_of), read, group, gangs, is_foreign, int(needed[index][np.array(places_of)].sum())
            )
            for (_, read, group, gangs, is_foreign), places_of in places.items()
        ]
    wanted = dict.fromkeys(each.group for each in classes if each.group >= 0)
    return NetworkPods(classes, tuple(_supply_group(problem, classes, number) for number in wanted), kept_out)


def _read(labels: Labels, read: Collection[str] | None) -> Labels:
    """The labels that tell pods of a network apart."""
    if read is not None:
        return tuple(each for each in labels if each[0] in read)
    return tuple(each for each in labels if each[0] not in _LABELS_OF_ONE_POD)


def _why_outside(problem: Problem, group: AtomicGroup, policy: str) -> tuple[str, str] | None:
    """Why a network does not decide about a group, a clause and its code; None: it does."""
    if group.unschedulable_reason:
        return group.unschedulable_reason, GANG_INCOMPLETE
    if any(problem.demands[demand].policy.name != policy for demand in group.demands):
        return f"a network places pods of its own policy only, and {group.name} has others too", NETWORK_REFUSED
    return None


def _supply_group(problem: Problem, classes: Sequence[NetworkClass], number: int) -> SupplyGroup:
    atomic_group = problem.atomic_groups.all[number]
    needs, domains = [], []
    for gang in atomic_group.gangs:
        members = tuple(place for place, each in enumerate(classes) if each.group == number and gang.name in each.gangs)
        need = max(0, gang.min_placed)
        # Pods of other controllers count only where there are too few others that fit anywhere.
        own = tuple(place for place in members if not classes[place].foreign and classes[place].demand.counts.any())
        if own and any(classes[place].foreign for place in members):
            needs.append((own, min(need, sum(classes[place].demand.count for place in own))))
        needs.append((members, need))
        if gang.needs_domain:
            domains.append((members, problem.snapshot.table.column(gang.topology_key).codes.astype(np.int64)))
    everybody = tuple(place for place, each in enumerate(classes) if each.group == number)
    return SupplyGroup(
        atomic_group.name,
        everybody,
        tuple(needs),
        tuple(domains),
        tuple((place, classes[place].required) for place in everybody if classes[place].required),
        is_begun=atomic_group.goes_first,
    )


def _part(demand: Demand, places: Sequence[int]) -> Demand:
    """Some of a demand's pods."""
    pods = tuple(demand.group.pods[place] for place in places)
    group = replace(demand.group, pods=pods, signature=pods[0].signature)
    return replace(demand, group=group, prices=demand.prices[np.array(places)])


def read_only(array: NDArray[_Number]) -> NDArray[_Number]:
    """A read-only view: arrays of the round go to the code of plug-ins."""
    view = array.view()
    view.setflags(write=False)
    return view


def shares(cost: int, count: int) -> Iterator[int]:
    """Divides a cost into ``count`` parts that differ by one at most, the larger ones first."""
    for turn in range(count):
        yield cost // count + (turn < cost % count)
