"""The pods of one policy as its network sees them: alike also by the labels that it reads and by their gangs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.model.selectors import Labels
from flowcore.planning.drawn_networks.joint import Supply, SupplyGroup
from flowcore.planning.problem.demands.atomic_groups import AtomicGroup
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes import RestrictToGangDomains
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.problem.result import Unplaced
from flowcore.rules.reasons.codes import GANG_INCOMPLETE, NETWORK_REFUSED


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


@dataclass(frozen=True, slots=True, eq=False)
class NetworkPods:
    """All pods of a policy.

    Attributes:
        classes: those that its network decides.
        groups: which of these are placed together or not at all.
        kept_out: pods that their gangs keep out.
    """

    classes: list[NetworkClass]
    groups: tuple[SupplyGroup, ...]
    kept_out: list[Unplaced]


def network_pods(problem: Problem, policy: str, labels: Collection[str]) -> NetworkPods:
    """The pods of a policy by class, with the gangs that the network places whole.

    Args:
        labels: those that the network reads.
    """
    problem = RestrictToGangDomains().apply(problem)
    groups, group_of, needed = problem.atomic_groups.all, problem.atomic_groups.group_of, problem.atomic_groups.needed
    outside = [_why_outside(problem, group, policy) for group in groups]
    foreign = [frozenset(key for gang in group.gangs for key in gang.foreign_pods) for group in groups]
    classes, kept_out = list[NetworkClass](), list[Unplaced]()
    for index, demand in enumerate(problem.demands):
        if demand.policy.name != policy:
            continue
        places: dict[tuple[Labels, int, tuple[str, ...], bool], list[int]] = {}
        for place, (pod, group) in enumerate(zip(demand.group.pods, group_of[index].tolist(), strict=True)):
            if group >= 0 and outside[group] is not None:
                text, code = outside[group]
                kept_out.append(Unplaced(pod, text, int(demand.prices[place]), code, more_nodes_help=False))
                continue
            gangs = tuple(sorted(set(pod.gangs))) if group >= 0 else ()
            read = tuple(each for each in pod.signature.labels if each[0] in labels)
            is_foreign = group >= 0 and pod.key in foreign[group]
            places.setdefault((read, group, gangs, is_foreign), []).append(place)
        whole = priced(problem, demand) if places else demand
        classes += [
            NetworkClass(
                _part(whole, places_of), read, group, gangs, is_foreign, int(needed[index][np.array(places_of)].sum())
            )
            for (read, group, gangs, is_foreign), places_of in places.items()
        ]
    wanted = dict.fromkeys(each.group for each in classes if each.group >= 0)
    return NetworkPods(classes, tuple(_supply_group(problem, classes, number) for number in wanted), kept_out)


def _why_outside(problem: Problem, group: AtomicGroup, policy: str) -> tuple[str, str] | None:
    """Why a network does not decide about a group, a sentence and its code; None: it does."""
    if group.unschedulable_reason:
        return sentence(group.unschedulable_reason), GANG_INCOMPLETE
    if any(problem.demands[demand].policy.name != policy for demand in group.demands):
        clause = f"a network places pods of its own policy only, and {group.name} has others too"
        return sentence(clause), NETWORK_REFUSED
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


def sentence(clause: str) -> str:
    """A clause as a sentence of its own."""
    return f"{clause[:1].upper()}{clause[1:]}."


def shares(cost: int, count: int) -> Iterator[int]:
    """Divides a cost into ``count`` parts that differ by one at most, the larger ones first."""
    for turn in range(count):
        yield cost // count + (turn < cost % count)
