"""Which class of ways pods take that have a choice, where that is decided before the plan.

A heuristic. All pods of a gang, and of all gangs that are placed with it, take ways of one class. The dearest gang
decides first, for the cheapest class in whose limits so many pods have room beside those that run and those of earlier
gangs. Where no class has, it takes the cheapest. Pods by themselves decide so as well where a round has no time for
their choices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, product

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.costs.network_prices import network_prices
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.networks import ONE_POD, TWINS, WAY, NetworkRules, NetworkUnit
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.planning.drawn_networks.ways.open_ways import NO_WAY, OpenPlace, OpenWays, PodsAlike
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.problem import Problem


class DecidedWays:
    """The classes of ways of pods that have no choice any more, by key of the pod.

    Attributes:
        chosen: the class of each.
        units: the classes whose pods go to nodes as units of several, by their value.
        slack: by how much a plan may cost more than one that decides otherwise.
        least: what the pods cost at least that this is about.
    """

    def __init__(self, problem: Problem, policies: Mapping[str, Policy], all_of: Collection[str] = ()) -> None:
        """The classes.

        Args:
            policies: those whose pods have a choice of ways.
            all_of: names of policies whose pods by themselves decide before the plan as well.
        """
        self._problem, self._open, self._all_of = problem, OpenWays(problem.snapshot, policies), all_of
        self.chosen: dict[str, str] = {}
        self.units: dict[str, NetworkUnit] = {}
        #: Pods that are in no unit, their classes in which they would be, and whether they have no other ones.
        self._odd: list[tuple[PendingPod, PodsAlike, bool]] = []
        #: Prices of classes that are those of all pods.
        self._known_prices: dict[str, Int64s] = {}
        alike = list[PodsAlike]()
        members: dict[int, list[tuple[PodsAlike, int]]] = {}
        groups = problem.atomic_groups
        for demand, group_of, needed in zip(problem.demands, groups.group_of, groups.needed, strict=True):
            rules = None if demand.policy.name not in policies else policies[demand.policy.name].network_rules
            if rules is None:
                continue
            self.units |= {value: ways[0].unit for value, ways in rules.classes if ways[0].unit.size > 1}
            for values, places in _by_classes(demand, rules).items():
                by_number: dict[int, list[int]] = {}
                for place, number in zip(places, group_of[places].tolist(), strict=True):
                    by_number.setdefault(number, []).append(place)
                decides = demand.policy.name in all_of or not self.units.keys().isdisjoint(values)
                if by_number.keys() == {-1} and not decides:
                    continue
                prices = {value: self._prices(demand, value) for value in values}
                some_room = demand.counts > 0 if demand.counts.any() else demand.allowed
                order = sorted(values, key=lambda value: prices[value].min(initial=NO_WAY, where=some_room))
                for number, own in by_number.items():
                    some = PodsAlike(
                        demand, demand.counts, tuple(order), [demand.group.pods[place] for place in own], prices
                    )
                    if number < 0:
                        alike.append(some)
                    else:
                        members.setdefault(number, []).append((some, int(needed[own].sum())))
        for number in sorted(members, key=lambda number: -groups.all[number].unscheduled_cost):
            keys = [gang.topology_key for gang in groups.all[number].gangs if gang.needs_domain]
            self._choose(members[number], next(iter(keys), ""))
        for some in sorted(alike, key=lambda some: -some.demand.dearest):
            self._pair(some)
        self._pair_odd()
        chosen = [*alike, *(some for unit in members.values() for some, _ in unit)]
        is_known = problem.snapshot.running is None  # else some may leave, by which ways are cheaper
        decided = {
            pod.key: self._least_price(some) if is_known else 0
            for some in chosen
            if len(some.values) > 1
            for pod in some.pods
        }
        self.slack, self.least = price_of_waiting(problem, decided, filter(self._is_no_bound_for, policies.values()))

    def _least_price(self, some: PodsAlike) -> int:
        """The least that each of some pods pays for any way that was not full before."""
        had_room = self._open.had_room
        return min(int(prices.min(initial=NO_WAY, where=had_room[value])) for value, prices in some.prices.items())

    def _is_no_bound_for(self, policy: Policy) -> bool:
        """Whether pods of a policy may go otherwise than a plan knows, which way each of them takes aside.

        In other units, or after running pods that leave, which count until the next round.
        """
        rules, runs = policy.network_rules, self._problem.snapshot.running is not None
        return rules is not None and (bool(rules.units) or (runs and any(arc.beside for arc in rules.arcs)))

    def _prices(self, demand: Demand, value: str) -> Int64s:
        """int64[N]: what the ways of a class cost a pod of a demand; NO_WAY where none leads."""
        if value in self._known_prices:
            return self._known_prices[value]
        snapshot, group = self._problem.snapshot, demand.group
        signature = on_way(group.signature, value, demand.policy, snapshot)
        load, cost = self._problem.load, demand.policy.cost
        prices = network_prices(signature.constraints, group.pod_class, snapshot, load, demand.passing, cost)
        of_class: Int64s = np.where(self._open.leads(value), prices, NO_WAY)
        rules = demand.policy.network_rules
        assert rules is not None  # noqa: S101 - its pods have a choice
        if all(way.part is None for way in dict(rules.classes)[value]):
            self._known_prices[value] = of_class
        return of_class

    def _choose(self, unit: Sequence[tuple[PodsAlike, int]], key: str) -> None:
        """Decides the ways of pods that are placed together, in one domain of a topology key if one is given.

        Where nodes have no room in the limits of any, others may leave: then limits alone decide.
        """
        chosen = 0
        empty = [(some.if_others_left, count) for some, count in unit]
        places = range(max(len(some.values) for some, _ in unit))
        for pods, place in product((unit, empty), places):
            taken = [
                self._open.take(_at(some.values, place), some, count, NetworkUnit(max(1, count), key))
                for some, count in pods
            ]
            if all(len(room) == count for room, (_, count) in zip(taken, unit, strict=True)):
                chosen = place
                break
            self._open.release(chain.from_iterable(taken))
        for some, _ in unit:
            self.chosen |= {pod.key: _at(some.values, chosen) for pod in some.pods}

    def _pair(self, some: PodsAlike) -> None:
        """Decides which pods by themselves take ways behind a gain, so many at once."""
        values = [value for value in some.values if value in self.units]
        decide_all = some.demand.policy.name in self._all_of or len(values) == len(some.values)
        others = [value for value in some.values if value not in self.units]
        last = others[0] if others else values[0]
        left, alone = some.pods, list[tuple[PendingPod, str, OpenPlace | None]]()
        for value in others if decide_all else ():
            places = self._open.take_lacking(value, some, len(left))
            alone += [(pod, value, place) for pod, place in zip(left, places, strict=False)]
            left = left[len(places) :]
        turns = product(
            (some, some.if_others_left) if decide_all else (some,), some.values if values or decide_all else ()
        )
        for pods, value in turns:
            places = self._open.take(value, pods, len(left), self.units.get(value, ONE_POD))
            if value in self.units:
                self.chosen |= {pod.key: value for pod in left[: len(places)]}
            else:
                alone += [(pod, value, place) for pod, place in zip(left, places, strict=False)]
            left = left[len(places) :]
        alone += ((pod, last, None) for pod in left)
        for value in values:
            # Pods that wait or pay much by themselves, and others that make up their number.
            unit, size = self.units[value], self.units[value].size
            while len(alone) >= size:
                members = alone[-size:]
                before = [place for *_, place in members if place is not None]
                paid = sum(place.price for place in before) + NO_WAY * (size - len(before))
                self._open.release(before)
                places = self._open.take(value, some, size, unit)
                if not places or sum(place.price for place in places) >= paid:
                    self._open.release(places)
                    self._open.claim(before)
                    break
                self.chosen |= {pod.key: value for pod, *_ in members}
                alone = alone[:-size]
        if decide_all:
            self.chosen |= {pod.key: value for pod, value, _ in alone}
        if values:
            self._odd += ((pod, some, decide_all and value in self.units) for pod, value, _ in alone)

    def _pair_odd(self) -> None:
        """Makes units of pods that are not alike, which are left of such as are: alone they wait.

        Where there are too few of them, of others too, if there is room for such a unit.
        """
        for unit in dict.fromkeys(self.units.values()):
            values = {value for value, of_class in self.units.items() if of_class == unit}
            able = [
                (pod, some, next((each for each in some.values if each in values), ""), must)
                for pod, some, must in self._odd
            ]
            waiting, others = ([each for each in able if each[2] and each[3] == must] for must in (True, False))
            while waiting and len(waiting) + len(others) >= unit.size:
                members, helping = waiting[: unit.size], others[: max(0, unit.size - len(waiting))]
                _, some, value, _ = members[0]
                if helping and not self._open.take(value, some, unit.size, unit):
                    break
                waiting, others = waiting[unit.size :], others[len(helping) :]
                paired = {pod.key: value for pod, _, value, _ in (*members, *helping)}
                self.chosen |= paired
                self._odd = [each for each in self._odd if each[0].key not in paired]


def price_of_waiting(problem: Problem, decided: Mapping[str, int], policies: Iterable[Policy]) -> tuple[int, int]:
    """By how much a plan may cost more than one that decides otherwise before it, and what they cost in each.

    So much more do all pods cost if they wait that depend on what was decided: those that it was decided for, with
    their gangs, and those of networks that must have some of them.

    Args:
        decided: what they cost at least that have a node, by their keys.
        policies: all of whose pods are such.
    """
    names, places = {each.name for each in policies}, list[tuple[PendingPod, int, int]]()
    for demand, group_of in zip(problem.demands, problem.atomic_groups.group_of, strict=True):
        rules, pods = demand.policy.network_rules, demand.group.pods
        asks = rules is not None and any(arc.minimum for arc in rules.arcs)
        if asks and any(pod.key in decided for pod in pods):
            names.add(demand.policy.name)
        places += zip(pods, group_of.tolist(), demand.prices.tolist(), strict=True)
    if not decided and not names:
        return 0, 0
    groups = {group for pod, group, _ in places if pod.key in decided or pod.policy in names} - {-1}
    concerned = [
        (price, min(price, decided.get(pod.key, 0)))
        for pod, group, price in places
        if pod.key in decided or pod.policy in names or group in groups
    ]
    least = sum(least for _, least in concerned)
    return sum(price for price, _ in concerned) - least, least


def _at(values: Sequence[str], place: int) -> str:
    return values[min(place, len(values) - 1)]


def _by_classes(demand: Demand, rules: NetworkRules) -> dict[tuple[str, ...], list[int]]:
    """Places of a demand's pods by their classes of ways."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, pod in enumerate(demand.group.pods):
        if values := rules.classes_of(pod.signature.labels):
            places.setdefault(values, []).append(place)
    return places


def on_way(signature: PodSignature, value: str, policy: Policy, snapshot: Snapshot, twins: str = "") -> PodSignature:
    """The signature of a pod that keeps to a class of ways; ``twins``: which ones it is of."""
    labels = sorted((*signature.labels, (WAY, value), *([(TWINS, twins)] if twins else [])))
    labelled = msgspec.structs.replace(signature, labels=tuple(labels))
    return with_policy_constraints(labelled, policy, snapshot.pod_index.services)
