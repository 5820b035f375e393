"""The cost of a plan: one function of what is placed where and of what stays pending, whichever method made the plan.

::

    cost = sum over placed pods of its arc to its node
         + sum over nodes of potential(load with the plan) - potential(load as the round begins)
         + sum over placed pods of what its preferences among the pods of the round add
         + sum over placed pods of how much dearer arcs of networks are, whose price rises with the pods in a domain
         + sum over placed pods of how much dearer is what its claims get than what its node had as the round begins
         + sum over pending pods of the price of leaving it
         + what each pod costs that a minimum of a network lacks: more than all else

The order of commits is no part of it, but for pods with claims: they get devices and volumes in this order. Pods are
priced alike if they share a cost model and its weights; each such set has its own potential, over what runs and its own
pods. A pod's preferences count all other pods of the plan as running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.potential import NodePotential
from flowcore.costs.soft_constraints import SoftConstraintCosts
from flowcore.model.networks import TWINS
from flowcore.model.selectors import value_of
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.decisions import Commit, placed_counts
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.round_constraints.domain_counts import DomainCounts
from flowcore.rules.topology.round_constraints.rising_price import LACK, MOST_LACKING, Minimum, RisingPrice


class Objective:
    """What plans for some demands cost."""

    def __init__(self, demands: Sequence[Demand], start: Plan) -> None:
        """Plans begin with the capacity that nothing was committed to yet."""
        self._demands, self._snapshot, self._start = demands, start.before, start
        self._are_scored = any(demand.claims.parts for demand in demands)
        #: Commits of pods with claims that were priced last, and what was added to the price of each pod.
        self._with_claims: tuple[tuple[Commit, ...], list[int]] = (), []
        self._counted = np.array([demand.counted for demand in demands], dtype=np.int64).reshape(-1, 4)
        self._soft: dict[int, SoftConstraintCosts | None] = {}
        #: Commits that were priced last, and what preferences add: a plan is compared, and then shown.
        self._with_preferences: tuple[tuple[Commit, ...], list[tuple[list[int], Int64s]]] = (), []
        self._rising: dict[RisingPrice, list[int]] = {}
        for index, demand in enumerate(demands):
            for rising in demand.constraints.rising:
                self._rising.setdefault(rising, []).append(index)
        self._minimums = [each for each in self._rising if isinstance(each, Minimum)]
        #: Demands whose pods these counters count.
        self._raising: dict[DomainCounter, list[int]] = {rising.counter: [] for rising in self._rising}
        for index, demand in enumerate(demands) if self._rising else ():
            for counter in demand.constraints.increments:
                if counter in self._raising:
                    self._raising[counter].append(index)
        self._alike: dict[NodePotential, list[int]] = {}
        for index, demand in enumerate(demands):
            self._alike.setdefault(demand.potential, []).append(index)
        self._loads = {potential: start.load(potential.utilisation) for potential in self._alike}

    @property
    def has_minimums(self) -> bool:
        """Whether an arc of a network must have units."""
        return bool(self._minimums)

    def total(self, commits: Sequence[Commit]) -> int:
        """Cost of a plan that leaves out the last pods of each demand."""
        remaining = unplaced_counts(commits, self._demands)
        waiting = sum(
            int(demand.prices_of_last(count).sum()) for demand, count in zip(self._demands, remaining, strict=True)
        )
        return self.placed(commits) + self.shortage(commits) + waiting

    def lacking(self, commits: Sequence[Commit]) -> list[tuple[Minimum, Int64s]]:
        """Minimums that a plan does not meet, and int64[D] how many pods their domains lack."""
        if not self._minimums:
            return []
        demand, node, count = _columns(commits)
        unmet = []
        for minimum in self._minimums:
            counter = minimum.counter
            rows = np.isin(demand, self._raising[counter]) & counter.counted_nodes[node]
            counts = counter.initial.copy()
            np.add.at(counts, counter.domains.codes[node[rows]], count[rows])
            lacking = minimum.lacking(counts)
            if lacking.any():
                unmet.append((minimum, lacking))
        return unmet

    def shortage(self, commits: Sequence[Commit]) -> int:
        """What the pods cost that minimums lack."""
        return LACK * min(MOST_LACKING, sum(int(lacking.sum()) for _, lacking in self.lacking(commits)))

    def placed(self, commits: Sequence[Commit]) -> int:
        """Cost of the placed pods."""
        if not commits:
            return 0
        soft = sum(
            int(prices @ np.array([commits[place].count for place in places]))
            for places, prices in self._soft_prices(commits)
        )
        rising = sum(int(rises.sum()) for _, rises in self._rises(commits))
        return self.without_preferences(commits) + soft + rising + self._claims_cost(commits)

    def without_preferences(self, commits: Sequence[Commit]) -> int:
        """Cost of the placed pods less what their preferences among each other add."""
        demand, node, count = _columns(commits)
        cost = sum(int(self._demands[commit.demand].arc[commit.node]) * commit.count for commit in commits)
        for potential, alike in self._alike.items():
            rows = self._are_of(demand, alike)
            nodes, place = np.unique(node[rows], return_inverse=True)
            planned = np.zeros((len(nodes), 4), dtype=np.int64)
            np.add.at(planned, place, self._counted[demand[rows]] * count[rows, np.newaxis])
            before = potential.values(self._loads[potential].at(nodes))
            after = potential.values(self._loads[potential].at(nodes, planned[:, :3], planned[:, 3]))
            cost += int((after - before).sum())
        return cost

    def pod_prices(self, commits: Sequence[Commit]) -> Int64s:
        """int64[P]: what each placed pod adds, in commit order; none negative, and their sum is ``placed``."""
        _, _, count = _columns(commits)
        demand, node, _ = (np.repeat(each, count) for each in _columns(commits))
        prices = np.zeros(len(node), dtype=np.int64)
        for index, priced_demand in enumerate(self._demands):
            rows = demand == index
            prices[rows] = priced_demand.arc[node[rows]]
        for potential, alike in self._alike.items():
            pods = np.nonzero(self._are_of(demand, alike))[0]
            pods = pods[np.argsort(node[pods], kind="stable")]
            where, planned = node[pods], np.cumsum(self._counted[demand[pods]], axis=0)
            first = np.concatenate([[True], where[1:] != where[:-1]]) if len(where) else np.zeros(0, dtype=np.bool_)
            starts = np.nonzero(first)[0]
            begun = np.cumsum(first) - 1
            planned -= (planned - self._counted[demand[pods]])[starts][begun]
            after = potential.values(self._loads[potential].at(where, planned[:, :3], planned[:, 3]))
            before = np.roll(after, 1)
            before[starts] = potential.values(self._loads[potential].at(where[starts]))
            prices[pods] += after - before
        begins = np.cumsum(count) - count
        for places, soft in self._soft_prices(commits):
            for place, price in zip(places, soft.tolist(), strict=True):
                prices[begins[place] : begins[place] + count[place]] += price
        for places, rises in self._rises(commits):
            pods = np.concatenate([np.arange(begins[place], begins[place] + count[place]) for place in places])
            prices[pods] += rises
        for place, price in self._claim_prices(commits).items():
            prices[begins[place] : begins[place] + count[place]] += price
        return prices

    def _rises(self, commits: Sequence[Commit]) -> Iterator[tuple[list[int], Int64s]]:
        """For each price that rises: commits that pay it, and by how much it is dearer for each of their pods.

        A pod pays beside those that run, those that do not pay, and those of commits before its own.
        """
        if not self._rising:
            return
        demand, node, count = _columns(commits)
        present = set(demand.tolist())
        for rising, payers in self._rising.items():
            counter = rising.counter
            if present.isdisjoint(payers) or isinstance(rising, Minimum):
                continue
            pays = np.isin(demand, payers) & counter.counted_nodes[node]
            if not pays.any():
                continue
            others = np.isin(demand, self._raising[counter]) & ~pays & counter.counted_nodes[node]
            before = counter.initial.copy()
            np.add.at(before, counter.domains.codes[node[others]], count[others])
            places = np.nonzero(pays)[0]
            domains = np.repeat(counter.domains.codes[node[places]], count[places])
            order = np.argsort(domains, kind="stable")
            turn = np.empty(len(domains), dtype=np.int64)
            starts = np.searchsorted(domains[order], domains[order])
            turn[order] = np.arange(len(domains)) - starts
            yield places.tolist(), rising.next_pod(before[domains] + turn) - rising.in_arcs[domains]

    def _claims_cost(self, commits: Sequence[Commit]) -> int:
        return sum(price * commits[place].count for place, price in self._claim_prices(commits).items())

    def _claim_prices(self, commits: Sequence[Commit]) -> dict[int, int]:
        """Place of a commit -> how much dearer is what its pods' claims get than as the round begins."""
        if not self._are_scored:
            return {}
        places = [place for place, each in enumerate(commits) if self._takes_claimed(each.demand)]
        taken = tuple(commits[place] for place in places)
        if self._with_claims[0] != taken:
            capacity, added = self._start.copy(), list[int]()
            for commit in taken:
                demand, node = self._demands[commit.demand], np.array([commit.node])
                cost = capacity.claims_cost_at(demand, node)
                added.append(0 if cost is None else int(cost[0]))
                capacity.take_claimed(demand, node, np.array([commit.count]))
            self._with_claims = taken, added
        return dict(zip(places, self._with_claims[1], strict=True))

    def _takes_claimed(self, number: int) -> bool:
        pod_class = self._demands[number].group.pod_class
        return pod_class.devices is not None or pod_class.contends_for_volumes

    def _are_of(self, demand: Int64s, alike: Sequence[int]) -> Bools:
        """bool[len(demand)]: which of the commits' demands are some that are priced alike."""
        member = np.zeros(len(self._demands), dtype=np.bool_)
        member[alike] = True
        return member[demand]

    def _soft_prices(self, commits: Sequence[Commit]) -> list[tuple[list[int], Int64s]]:
        """For each demand with preferences its commits, and what they add to the price of each of their pods."""
        if self._with_preferences[0] != (taken := tuple(commits)):
            self._with_preferences = taken, self._priced_preferences(taken)
        return self._with_preferences[1]

    def _priced_preferences(self, commits: Sequence[Commit]) -> list[tuple[list[int], Int64s]]:
        places: dict[int, list[int]] = {}
        for place, commit in enumerate(commits):
            if self._demands[commit.demand].constraints.soft_constraints is not None:
                places.setdefault(commit.demand, []).append(place)
        if not places:
            return []
        counts = DomainCounts()
        for commit in commits:
            counts.increment(self._demands[commit.demand].constraints, commit.node, commit.count)
        return [
            (
                positions,
                self._prices_of_preferences(index, counts, np.array([commits[place].node for place in positions])),
            )
            for index, positions in places.items()
        ]

    def _prices_of_preferences(self, index: int, counts: DomainCounts, nodes: Int64s) -> Int64s:
        demand = self._demands[index]
        if index not in self._soft:
            self._soft[index] = demand.soft_costs(self._snapshot)
        soft_costs = self._soft[index]
        if soft_costs is None:
            return np.zeros(len(nodes), dtype=np.int64)
        return soft_costs.added_by_others(counts, demand.constraints.increments, nodes)


def unplaced_counts(commits: Sequence[Commit], demands: Sequence[Demand]) -> list[int]:
    """How many pods of each demand the commits leave out."""
    placed = placed_counts(commits, len(demands))
    return [demand.count - count for demand, count in zip(demands, placed, strict=True)]


def open_counts(commits: Sequence[Commit], demands: Sequence[Demand]) -> list[int]:
    """The same, but of twins no more than there are pods without a node (drawn_networks/twins.py)."""
    unplaced, twins = unplaced_counts(commits, demands), [_twins_of(demand) for demand in demands]
    placed = Counter[str]()
    for demand, left, (name, _) in zip(demands, unplaced, twins, strict=True):
        placed[name] += demand.count - left
    return [
        min(left, most - placed[name]) if name else left for left, (name, most) in zip(unplaced, twins, strict=True)
    ]


def surplus_of(demands: Sequence[Demand]) -> int:
    """What waits of twins in every plan: all of some pods but as many as there are."""
    counts, prices, most = Counter[str](), Counter[str](), dict[str, int]()
    for demand in demands:
        name, number = _twins_of(demand)
        if name:
            counts[name] += demand.count
            prices[name] += int(demand.prices.sum())
            most[name] = number
    return sum(prices[name] * (count - most[name]) // count for name, count in counts.items())


def _twins_of(demand: Demand) -> tuple[str, int]:
    """Which twins the pods of a demand are, and how many of all of these are placed at most; "": none."""
    name, rules = value_of(demand.group.signature.labels, TWINS), demand.group.signature.constraints
    return (name, rules.limits[-1].max_pods) if name and rules is not None else ("", 0)


def _columns(commits: Sequence[Commit]) -> tuple[Int64s, Int64s, Int64s]:
    """Demand, node and count of each commit."""
    table = np.array([(commit.demand, commit.node, commit.count) for commit in commits], dtype=np.int64)
    demand, node, count = table.reshape(-1, 3).T
    return demand, node, count
