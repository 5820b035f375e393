"""Rules of a group about its own pods as capacities of domains: all legal plans keep them, and flows and bounds do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.model import node, pod, snapshot
from support.networks import DrawnNetwork, networks_with_domains, trees
from support.profiles import examples
from support.safety import plan_and_check

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.model.cost_policy import UnscheduledPrice
from flowcore.model.inter_pod_constraints import (
    HOSTNAME,
    AffinityTerm,
    InterPodConstraints,
    MaxPerDomain,
    SpreadConstraint,
)
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.methods import flow
from flowcore.planning.methods.supplies import FlowSupply, supplies_of
from flowcore.planning.problem.bounds.least_cost import least_cost
from flowcore.planning.problem.demands.demands import Demand, demands_of
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import run_round
from flowcore.planning.round.round import DEFAULT_POLICIES
from flowcore.planning.solvers import LinearProgram, potentials, solve, solve_lp
from flowcore.planning.solvers.slots import decode_flows
from flowcore.rules.topology.round_constraints.capacities import DomainCapacities, capacities_of, pods_by_counter

ZONE, RACK = "zone", "rack"
DEAR = {BUILT_IN.name: Policy(BUILT_IN.name, unscheduled=UnscheduledPrice(base=10**6))}


def app(*names: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", names),))


def reachable(demands: tuple[Demand, ...], start: Plan) -> Iterator[dict[tuple[int, int], int]]:
    """All plans that placing pods one by one, in any order, can lead to: pods by demand and node."""
    seen: set[frozenset[tuple[tuple[int, int], int]]] = set()
    waiting: list[tuple[dict[tuple[int, int], int], Plan]] = [({}, start)]
    while waiting:
        plan, capacity = waiting.pop()
        yield plan
        for at, demand in enumerate(demands):
            if sum(count for (mine, _), count in plan.items() if mine == at) == demand.count:
                continue
            for where in range(len(start.free)):
                further = {**plan, (at, where): plan.get((at, where), 0) + 1}
                key = frozenset(further.items())
                if key not in seen:
                    after = capacity.copy()
                    if after.place(demand, where, 1):
                        seen.add(key)
                        waiting.append((further, after))


def cheapest(crowd: Snapshot, policies: dict[str, Policy]) -> int:
    """What the cheapest of all plans costs."""
    start = Plan(crowd)
    demands = demands_of(crowd, start.load(), policies)
    objective = Objective(demands, start)
    return min(
        objective.total([Commit(at, where, count) for (at, where), count in plan.items()])
        for plan in reachable(demands, start)
    )


# -- scenes of apps whose pods keep apart or spread --------------------------------------------------------------------

_keys = st.sampled_from((ZONE, RACK, HOSTNAME))


def _rules(name: str, others: tuple[str, ...]) -> st.SearchStrategy[InterPodConstraints | None]:
    """About pods of the app itself, in one rule of two with those of others too."""
    selectors = st.sampled_from((app(name), app(name), app(name, *others)))
    apart = st.builds(AffinityTerm, _keys, selectors, st.just(("default",)), st.none())
    caps = st.builds(
        MaxPerDomain, st.just("c"), st.sampled_from((ZONE, RACK, HOSTNAME, "")), selectors.map(lambda each: (each,)),
        st.none(), st.integers(1, 3),
    )  # fmt: skip
    spreads = st.builds(SpreadConstraint, _keys, st.integers(1, 3), selectors, st.sampled_from((1, 1, 2, 3)))
    return st.one_of(
        st.none(),
        st.builds(lambda each: InterPodConstraints(anti_affinity=(each,)), apart),
        st.lists(caps, min_size=1, max_size=2).map(lambda each: InterPodConstraints(limits=tuple(each))),
        st.lists(spreads, min_size=1, max_size=2).map(lambda each: InterPodConstraints(spread=tuple(each))),
        st.builds(lambda one, other: InterPodConstraints(anti_affinity=(one,), spread=(other,)), apart, spreads),
    )


@st.composite
def scenes(draw: st.DrawFn, *, alike: bool = False, alone: bool = False) -> Snapshot:
    """Few nodes with zones and racks in them, two apps, running pods of them.

    Args:
        alike: all pods ask for the same.
        alone: no app's rules speak of the other.
    """
    nodes = []
    for at in range(draw(st.integers(2, 4))):
        zone = draw(st.sampled_from(("a", "b", "c", "")))
        labels = {HOSTNAME: f"n{at}"} | ({ZONE: zone, RACK: zone + draw(st.sampled_from("xy"))} if zone else {})
        nodes.append(node(f"n{at}", draw(st.sampled_from((1000, 2000, 4000))), labels=tuple(sorted(labels.items()))))
    pending = []
    for name, other in (("web", "db"), ("db", "web")):
        rules = draw(_rules(name, () if alone else (other,)))
        kind = PodSignature("default", (("app", name),), constraints=rules)
        for at in range(draw(st.integers(1, 3))):
            asked = 500 if alike else draw(st.sampled_from((500, 500, 1000)))
            pending.append(pod(f"{name}{at}", asked, 2**28, kind=kind))
    running = draw(st.lists(st.tuples(st.sampled_from(("web", "db")), st.sampled_from(nodes)), max_size=2))
    pod_index = PodIndex.of((where.name, PodSignature("default", (("app", name),))) for name, where in running)
    return snapshot(nodes, pending, pod_index=pod_index)


@settings(max_examples=examples(50))
@given(scenes())
def test_no_plan_beats_the_bound(crowd: Snapshot) -> None:
    """Against all plans that any order of placements leads to, with rules that several groups share among them."""
    result = plan_and_check(crowd, DEAR)
    best = cheapest(crowd, DEAR)
    assert result.lower_bound <= best <= result.cost


@settings(max_examples=examples(50))
@given(scenes(alike=True, alone=True))
def test_apps_that_keep_their_own_pods_apart_are_planned_at_least_cost(crowd: Snapshot) -> None:
    """Pods of one size, and domains inside each other: the flow is exact."""
    assert plan_and_check(crowd, DEAR).cost == cheapest(crowd, DEAR)


@settings(max_examples=examples(50))
@given(constrained_snapshots())
def test_every_plan_keeps_the_capacities(crowd: Snapshot) -> None:
    """Whatever rules there are, of whichever pods: no legal plan gives a domain more of a group than they say."""
    result = run_round(crowd)
    start = Plan(crowd)
    demands = demands_of(crowd, start.load(), DEFAULT_POLICIES)
    raising = pods_by_counter([(demand.constraints, demand.count) for demand in demands])
    where = {each.pod.key: crowd.table.index[each.node] for each in result.placements}
    for demand in demands:
        found = capacities_of(demand.constraints, start.domain_counts.of, demand.counts, demand.count, raising)
        placed = np.zeros(len(start.free), dtype=np.int64)
        for each in demand.group.pods:
            if each.key in where:
                placed[where[each.key]] += 1
        assert (placed <= found.by_node).all()
        assert (inside(placed, found) <= found.capacities).all()


def inside(placed: Int64s, domains: DomainCapacities) -> Int64s:
    """int64[K]: pods in each domain and in those within it."""
    totals = np.zeros(len(domains.parents) + 1, dtype=np.int64)
    np.add.at(totals, domains.domain_of, placed)
    for domain in range(len(domains.parents) - 1, -1, -1):
        if domains.parents[domain] >= 0:
            totals[domains.parents[domain]] += totals[domain]
    return totals[:-1]


# -- the cheapest plan of one demand -----------------------------------------------------------------------------------


@settings(max_examples=examples(150))
@given(
    trees(), st.lists(st.integers(0, 20), min_size=4, max_size=4), st.lists(st.integers(0, 25), min_size=1, max_size=5)
)
def test_the_least_cost_is_that_of_the_best_of_all_plans(
    domains: DomainCapacities, costs: list[int], prices: list[int]
) -> None:
    """Domains inside each other, some of which need pods: against all numbers of pods on each node."""
    cost, falling = np.array(costs, dtype=np.float64), np.sort(np.array(prices, dtype=np.int64))[::-1]
    fits = np.full(4, 2, dtype=np.int64)
    best = np.inf
    for numbers in product(*(range(min(2, int(most)) + 1) for most in domains.by_node)):
        placed = np.array(numbers, dtype=np.int64)
        pods = inside(placed, domains)
        if placed.sum() <= len(falling) and ((domains.minimums <= pods) & (pods <= domains.capacities)).all():
            best = min(best, float(cost @ placed) + float(falling[int(placed.sum()) :].sum()))
    found, _ = least_cost(cost, fits, falling, lambda _: replace(domains, rise=0))
    assert found == best


# -- the network -------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(networks_with_domains())
def test_a_flow_keeps_the_capacities_of_domains_at_least_cost(case: DrawnNetwork) -> None:
    """Against the same as a linear program with a row for each domain; and potentials prove the flow optimal."""
    network = case.network()
    solution = solve(network)
    assert solution.flows is not None
    distance = potentials(network, solution.flows)
    assert distance is not None
    classes, nodes, counts = decode_flows(network, solution.flows)
    for at, domains in enumerate(case.domains):
        if domains is not None:
            placed = np.zeros(len(case.limits), dtype=np.int64)
            placed[nodes[classes == at]] = counts[classes == at]
            assert (inside(placed, domains) <= domains.capacities).all()
    found = solve_lp(_as_program(case))
    assert found is not None
    assert solution.cost == pytest.approx(float(_as_program(case).costs @ found.values))


def _as_program(case: DrawnNetwork) -> LinearProgram:
    """Columns: pods on nodes, slots, pods that stay, pods that domains need and do not get."""
    costs: list[float] = []
    upper: list[float] = []
    rows: list[tuple[dict[int, float], float, float]] = []

    def column(cost: float, most: float) -> int:
        costs.append(float(cost))
        upper.append(float(most))
        return len(costs) - 1

    pairs = [
        {int(where): column(cost, most) for where, cost, most in zip(*each, strict=True)}
        for each in zip(case.candidates, case.costs, case.capacities, strict=True)
    ]
    for where, limit in enumerate(case.limits.tolist()):
        row = {mine[where]: 1.0 for mine in pairs if where in mine}
        before = 0
        for cost, width in zip(case.slot_costs[where].tolist(), case.widths.tolist(), strict=True):
            row[column(cost, max(0, min(width, limit - before)))] = -1.0
            before += width
        rows.append((row, -np.inf, 0.0))
    for prices, domains, mine in zip(case.prices, case.domains, pairs, strict=True):
        needed = 0 if domains is None else int(domains.minimums.sum())
        row = dict.fromkeys((*mine.values(), *(column(price, 1) for price in prices[needed:])), 1.0)
        for domain in range(0 if domains is None else len(domains.parents)):
            there = {mine[where]: 1.0 for where in mine if domain in _around(domains, where)}
            rows.append((there, -np.inf, float(domains.capacities[domain])))
            missing = column(prices[0], domains.minimums[domain])
            row[missing] = 1.0
            rows.append(({**there, missing: 1.0}, float(domains.minimums[domain]), np.inf))
        rows.append((row, float(len(prices)), float(len(prices))))
    entries = [(at, *pair) for at, (row, _, _) in enumerate(rows) for pair in row.items()]
    return LinearProgram(
        np.array(costs), np.array(upper), np.array([low for _, low, _ in rows]), np.array([high for *_, high in rows]),
        *(np.array(each) for each in zip(*entries, strict=True)),
    )  # fmt: skip


def _around(domains: DomainCapacities, where: int) -> list[int]:
    found, domain = [], int(domains.domain_of[where])
    while domain >= 0:
        found.append(domain)
        domain = int(domains.parents[domain])
    return found


@st.composite
def zoned(draw: st.DrawFn, *, most_nodes: int = 14, most_pods: int = 9) -> Snapshot:
    """Many nodes of many sizes in few zones and racks; apps with at most so many pods each whose rules bind."""
    sizes = draw(st.lists(st.sampled_from((2000, 3000, 4000, 6000, 8000)), min_size=6, max_size=most_nodes))
    nodes = [
        node(f"n{at}", cpu, labels=((HOSTNAME, f"n{at}"), (RACK, f"r{at % 5}"), (ZONE, f"z{at % 5 % 3}")))
        for at, cpu in enumerate(sizes)
    ]
    pending = []
    for name in ("web", "db", "job"):
        kind = PodSignature("default", (("app", name),), constraints=draw(_rules(name, ())))
        pending += [pod(f"{name}{at}", 900, 2**28, kind=kind) for at in range(draw(st.integers(1, most_pods)))]
    return snapshot(nodes, pending)


def _flowing(crowd: Snapshot) -> tuple[list[FlowSupply], Plan]:
    """What takes part in a flow; there is something."""
    capacity = Plan(crowd)
    demands = demands_of(crowd, capacity.load(), DEFAULT_POLICIES)
    supplies = supplies_of(demands, [each.count if each.constraints.fits_flow else 0 for each in demands], capacity)
    assume(supplies)
    return supplies, capacity


@settings(max_examples=examples(80))
@given(zoned())
def test_column_generation_ends_at_the_optimum_of_the_full_network(crowd: Snapshot) -> None:
    """With rules: starting from a single arc a class costs no more than starting from all of them."""
    supplies, capacity = _flowing(crowd)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "_LEAST_GAIN", -1)
        patch.setattr(flow, "_MOST_PRICINGS", 1000)
        # How many pods the emptiest domain gets follows from the prices of the first, smaller network.
        patch.setattr(FlowSupply, "with_cheapest_minimum", lambda supply, _arc, _marginal_costs: supply)
        whole = _cost(supplies, capacity)
        patch.setattr(flow, "_cheapest_everywhere", lambda cost, _count, _domains: flow._cheapest(cost, 1))
        patch.setattr(flow, "_FEWEST", 1)
        assert _cost(supplies, capacity) == whole


@settings(max_examples=examples(80))
@given(zoned(most_nodes=40, most_pods=2))
def test_a_flow_over_the_nodes_that_it_may_need_costs_what_one_over_all_nodes_costs(crowd: Snapshot) -> None:
    """With few pods on many nodes, rules and domains included."""
    supplies, capacity = _flowing(crowd)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "_LEAST_GAIN", -1)
        patch.setattr(flow, "_MOST_PRICINGS", 1000)
        few = _cost(supplies, capacity)
        patch.setattr(flow, "_near", lambda _supplies, arcs, _batch, _known: np.arange(len(arcs[0])))
        assert _cost(supplies, capacity) == few


def _cost(supplies: list[FlowSupply], capacity: Plan) -> int:
    going = flow._propose(supplies, capacity, ())
    while True:
        try:
            next(going)
        except StopIteration as end:
            proposal, _ = end.value
            assert proposal is not None
            return int(proposal.cost)
