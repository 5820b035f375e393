"""Lower bounds hold against every plan there is, and a certified plan is the cheapest of them."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.large_snapshots import large_snapshots
from support.model import amounts, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, CostWeights, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import BANDWIDTH
from flowcore.planning.problem.bounds.bounds import first_bound, lower_bound
from flowcore.planning.problem.bounds.tangents import Mixture
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import run_round

_small_pods = st.lists(
    st.tuples(st.sampled_from((500, 1000, 1500, 4000)), st.sampled_from((0, 2**30, 3 * 2**30))), min_size=1, max_size=5
)
_small_nodes = st.lists(st.sampled_from((2000, 4000, 8000)), min_size=1, max_size=3)
_policies = st.builds(
    lambda model, requested, balance, base: Policy(
        BUILT_IN.name,
        cost=CostPolicy(model, CostWeights(least_requested=requested, balance=balance)),
        unscheduled=UnscheduledPrice(base=base),
    ),
    st.sampled_from(sorted(MODELS)),
    st.sampled_from((0, 1, 3)),
    st.sampled_from((0, 1, 5)),
    st.sampled_from((0, 1_000, 100_000)),
)


def _with(plain: Node, bandwidth: int) -> Node:
    offered = (*plain.allocatable, *(((BANDWIDTH, bandwidth),) if bandwidth else ()))
    return msgspec.structs.replace(plain, allocatable=tuple(sorted(offered)))


def _asking(name: str, cpu: int, memory: int, bandwidth: int) -> PendingPod:
    return PendingPod(name, name, PodClass(requests=amounts(cpu, memory, **{BANDWIDTH: bandwidth})), BUILT_IN.name)


@settings(max_examples=examples(60), deadline=None)
@given(_small_nodes, _small_pods, _policies)
@example([4000, 4000], [(500, 2**30)] * 4, BUILT_IN)
@example([64000, 64000], [(40000, 2**28), (100, 10 * 2**30)], BUILT_IN)
def test_no_plan_beats_the_bound(nodes: list[int], pods: list[tuple[int, int]], policy: Policy) -> None:
    """Against all plans of small clusters, priced one by one."""
    cluster = snapshot(
        # A network for each node but every third, and of it a share for each pod but every third.
        [_with(node(f"n{at}", cpu), cpu if at % 3 else 0) for at, cpu in enumerate(nodes)],
        [_asking(f"p{at}", cpu, memory, cpu // 4 if at % 3 else 0) for at, (cpu, memory) in enumerate(pods)],
    )
    policies = {BUILT_IN.name: policy}
    start = Plan(cluster)
    demands = demands_of(cluster, Plan(cluster).load(), policies)
    best = min(Objective(demands, start).total(commits) for commits in all_plans(demands, start))
    result = run_round(cluster, policies)
    assert result.lower_bound <= best <= result.cost
    if result.certified:
        assert result.cost == best


@settings(max_examples=examples(100))
@given(
    large_snapshots(), st.integers(0, 2**32), st.sampled_from((0.0, 1e-6, 1.0, 1e4)), st.sampled_from((0, 10, 10_000))
)
def test_a_bound_from_any_prices_holds(crowd: Snapshot, seed: int, highest: float, worth: int) -> None:
    """Whatever prices and expected loads come from a solver, right or wrong."""
    result = run_round(crowd)
    start = Plan(crowd)
    demands = demands_of(crowd, Plan(crowd).load(), {BUILT_IN.name: BUILT_IN})
    if not demands:
        return
    random = np.random.default_rng(seed)
    shadow_prices = random.random(start.free.shape) * highest
    slots = random.integers(0, worth + 1, len(start.free))
    potential = demands[0].potential
    nodes = np.nonzero(random.random(len(start.free)) < 0.7)[0]
    own = start.load(potential.utilisation).at(nodes)
    loads = tuple(replace(own, taken=random.random(own.taken.shape) * own.capacity * 1.5) for _ in range(3))
    expected = Mixture(nodes, loads, tuple(random.random(len(nodes)) for _ in loads))
    field = CostMatrix(demands, start)
    for bound in (
        lower_bound(field, shadow_prices=shadow_prices),
        lower_bound(field, marginal_costs=slots),
        lower_bound(field, loads={potential: expected}, shadow_prices=shadow_prices),
        lower_bound(field),
        first_bound(field),
    ):
        assert bound <= result.cost


def test_prices_beyond_all_sums_prove_nothing() -> None:
    """What is free is worth more than 64 bits hold then, and the bound is no larger for it."""
    crowd = snapshot([node(f"n{at}", 1000, 2**33) for at in range(8)], [pod("p", 0), pod("q", 0, 2**31)])
    prices = np.full((8, len(crowd.resources)), 1e4)
    demands = demands_of(crowd, Plan(crowd).load(), {BUILT_IN.name: BUILT_IN})
    assert lower_bound(CostMatrix(demands, Plan(crowd)), shadow_prices=prices) <= run_round(crowd).cost


def test_equal_pods_with_room_are_certified() -> None:
    """One class, one size: the flow's slots are what pods truly pay, and the bound meets the cost."""
    cluster = snapshot([node(f"n{at}") for at in range(4)], [pod(f"p{at}", 1000, 2**31) for at in range(8)])
    result = run_round(cluster)
    assert result.certified
    assert result.gap == 0.0


def test_equal_pods_that_do_not_all_fit_are_certified() -> None:
    """One 4-CPU node and three pods with 2 CPUs each: two of them are all that any plan places."""
    result = run_round(snapshot([node("n", 4000)], [pod(f"p{at}", 2000, 2**30) for at in range(3)]))
    assert result.certified
    assert len(result.placements) == 2


@pytest.mark.parametrize(("pods", "widest"), [(120, 0.05), (200, 0.10)])
def test_pods_of_many_sizes_have_a_narrow_gap(pods: int, widest: float) -> None:
    """Most of what a plan costs is proved to be needed: a node's load has a cost, and so has room where it is short."""
    sizes = [(300 + 230 * (at % 7), 2**28 * (1 + at % 5)) for at in range(pods)]
    cluster = snapshot(
        [node(f"n{at}", 16_000) for at in range(10)], [pod(f"p{at}", *size) for at, size in enumerate(sizes)]
    )
    assert run_round(cluster).gap <= widest


@pytest.mark.parametrize(("pods", "widest"), [(120, 0.01), (200, 0.14)])
def test_gangs_of_many_sizes_have_a_narrow_gap(pods: int, widest: float) -> None:
    """The bound of a round with gangs knows how full nodes get, and comes before the orders for what stays out."""
    pending = [
        msgspec.structs.replace(
            pod(f"p{at}", 300 + 230 * (at // 4 % 7), 2**28 * (1 + at // 4 % 5)), gangs=(f"g{at // 4}",)
        )
        for at in range(pods)
    ]
    cluster = snapshot([node(f"n{at}", 16_000) for at in range(10)], pending)
    cluster = replace(cluster, gangs={f"g{at}": Gang(f"g{at}", 4) for at in range(pods // 4)})
    assert run_round(cluster, steps=5).gap <= widest


@settings(max_examples=examples(60), deadline=None)
@given(
    _small_nodes,
    st.lists(
        st.tuples(st.sampled_from((500, 1000, 1500, 4000)), st.integers(1, 2)), max_size=3, unique_by=lambda g: g[0]
    ),
    _policies,
)
def test_no_plan_of_gangs_beats_the_bound(nodes: list[int], gangs: list[tuple[int, int]], policy: Policy) -> None:
    """All plans in which each gang is whole or absent; every gang has a size of pods of its own."""
    pending = [
        msgspec.structs.replace(pod(f"g{cpu}-{at}", cpu, 2**30), gangs=(f"g{cpu}",))
        for cpu, count in gangs
        for at in range(count)
    ]
    cluster = snapshot([node(f"n{at}", cpu) for at, cpu in enumerate(nodes)], pending)
    cluster = replace(cluster, gangs={f"g{cpu}": Gang(f"g{cpu}", count) for cpu, count in gangs})
    policies = {BUILT_IN.name: policy}
    start = Plan(cluster)
    demands = demands_of(cluster, Plan(cluster).load(), policies)
    best = None
    for commits in all_plans(demands, start):
        placed = [sum(commit.count for commit in commits if commit.demand == at) for at in range(len(demands))]
        if all(count in (0, demand.count) for count, demand in zip(placed, demands, strict=True)):
            cost = Objective(demands, start).total(commits)
            best = cost if best is None else min(best, cost)
    assert best is not None
    result = run_round(cluster, policies)
    assert result.lower_bound <= best <= result.cost
    if result.certified:
        assert result.cost == best


def test_a_plan_that_is_not_proved_cheapest_says_so() -> None:
    """Pods of several sizes: the bound stays below the cost."""
    cluster = snapshot(
        [node(f"n{at}") for at in range(3)],
        [pod(f"p{at}", 700 + 400 * (at % 3), 2**30 * (1 + at % 2)) for at in range(11)],
    )
    result = run_round(cluster)
    assert not result.certified
    assert 0 < result.gap < 1
