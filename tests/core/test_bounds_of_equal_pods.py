"""Bounds of pods that count for the same, as they are before a result says no more than the cost of its plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.model import GI, amounts, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.costs.model import Float64s
from flowcore.model.cost_policy import CostPolicy, CostWeights
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.pod_index import CONTROLLER, PodIndex, PodSignature
from flowcore.model.pods import ANY_ADDRESS, HostPort
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.volumes import ZONE
from flowcore.planning.problem.bounds.bounds import first_bound, lower_bound
from flowcore.planning.problem.bounds.tangents import Tangents
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.passes import CompileConstraints, apply_all
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_round
from flowcore.planning.round.parts import solver_of


def _apart(name: str) -> InterPodConstraints:
    """No two pods of an app on a node."""
    selector = LabelSelector((Requirement("app", "In", (name,)),))
    return InterPodConstraints(anti_affinity=(AffinityTerm("host", selector, ("default",)),))


_FIELDS: tuple[dict[str, object], ...] = (
    {},
    {"host_ports": (HostPort(ANY_ADDRESS, "TCP", 80),)},
    {"host_ports": (HostPort(ANY_ADDRESS, "TCP", 81),)},
    {"gpu": 1},
    {"node_selector": (("zone", "a"),)},
    {"kind": PodSignature("default", (("app", "a"),), constraints=_apart("a"))},
)


def two_policies(model: str = "CPUMemory", weights: CostWeights = BUILT_IN.cost.weights) -> dict[str, Policy]:
    """One that says nothing, and another."""
    return {BUILT_IN.name: BUILT_IN, "other": Policy("other", cost=CostPolicy(model, weights))}


def problem_of(cluster: Snapshot, policies: dict[str, Policy]) -> Problem:
    return apply_all((CompileConstraints(),), Problem(cluster, policies, MODELS))


def cheapest(problem: Problem) -> int:
    return min(problem.objective.total(commits) for commits in all_plans(problem.demands, problem.start))


@st.composite
def equal_pods(draw: st.DrawFn) -> Snapshot:
    """Pods of one size that are kept apart by GPUs, ports, rules and selectors, on nodes that may lack cpu."""
    nodes = [
        node(f"n{at}", cpu, pods=draw(st.sampled_from((110, 2))), gpu=draw(st.integers(0, 2)),
             labels=(("host", f"n{at}"), ("zone", "ab"[at % 2])))
        for at, cpu in enumerate(draw(st.lists(st.sampled_from((0, 500, 1000, 2000)), min_size=1, max_size=3)))
    ]  # fmt: skip
    cpu, pending = draw(st.sampled_from((0, 500))), []
    for at in range(draw(st.integers(1, 4))):
        fields = draw(st.sampled_from(_FIELDS))
        pending.append(pod(f"p{at}", cpu, policy=draw(st.sampled_from((BUILT_IN.name, "other"))), **fields))
    running = [(each.name, amounts(draw(st.sampled_from((0, 500)))), ()) for each in nodes]
    return snapshot(nodes, pending, running)


@settings(max_examples=examples(150))
@given(
    equal_pods(),
    st.sampled_from(sorted(MODELS)),
    st.sampled_from((0, 1, 4)),
    st.lists(st.sampled_from((0, 1, 700)), min_size=3, max_size=3),
)
def test_no_plan_beats_a_bound(crowd: Snapshot, model: str, weight: int, costs: list[int]) -> None:
    """From any price of nodes, and after each step of a solver."""
    weights = CostWeights(**dict.fromkeys(CostWeights.__struct_fields__, 0) | {"least_requested": weight})
    problem = problem_of(crowd, two_policies(model, weights))
    best, matrix = cheapest(problem), problem.cost_matrix
    assert lower_bound(matrix, marginal_costs=np.array(costs[: len(problem.start.free)])) <= best
    solver = solver_of(problem, 0)
    for _ in solver.run():
        assert solver.bound <= best <= solver.conclude().cost


def test_nodes_without_a_potential_give_prices_back() -> None:
    """What pods pay for a node beyond its arc is no cost where a node's load has none."""
    crowd = snapshot([node(f"n{at}", 2000) for at in range(2)], [pod(f"p{at}", 1000) for at in range(3)])
    free = Policy(BUILT_IN.name, cost=CostPolicy(weights=CostWeights(0, 0)))
    problem = problem_of(crowd, {BUILT_IN.name: free})
    assert lower_bound(problem.cost_matrix, marginal_costs=np.array([700, 700])) <= cheapest(problem) == 3000


def test_pods_with_other_ports_share_a_node() -> None:
    """Of each demand one fits, and together they are two."""
    fields = (_FIELDS[1], _FIELDS[2])
    crowd = snapshot([node("n", 4000)], [pod(f"p{at}", 1000, GI, **each) for at, each in enumerate(fields)])
    problem = problem_of(crowd, {BUILT_IN.name: BUILT_IN})
    assert lower_bound(problem.cost_matrix, marginal_costs=np.array([2_000])) <= cheapest(problem)


def test_rounding_takes_at_most_one_of_each_pod_that_shares_a_node() -> None:
    """A part of a unit is rounded up in what each pod pays by itself, and down in what both pay together."""
    weights = CostWeights(least_requested=4, balance=0)
    # A node so large that a pod of mean size counts for more than these.
    nodes = [node("n", 0, 0), node("huge", 0, 2**50, pods=0)]
    crowd = snapshot(nodes, [pod(f"p{at}") for at in range(2)], [("n", amounts(20, GI // 4), ())])
    problem = problem_of(crowd, {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(weights=weights))})
    assert problem.cost_matrix.first_pod_cost[0, 0] == 3391
    assert first_bound(problem.cost_matrix) <= cheapest(problem) == 6781


def test_sets_of_equal_pods_that_keep_apart_are_certified_at_once() -> None:
    """Several sets on the same nodes are of one size. No later step can gain anything, so none delays a binding."""
    nodes = [node(f"n{at}", 16_000, labels=(("host", f"n{at}"),)) for at in range(8)]
    pending = [
        pod(f"{name}{at}", 1000, 2 * GI, kind=PodSignature("default", (("app", name),), constraints=_apart(name)))
        for name in "abc"
        for at in range(6)
    ]
    result = run_round(snapshot(nodes, pending), steps=1)
    assert len(result.placements) == len(pending)
    assert result.cost > 1000 * len(pending), "pods that share a node pay for that, which no pod would alone"
    assert result.certified


def test_replicas_that_are_even_are_certified_at_once() -> None:
    """Spread costs nothing, and pods share nodes: the first plan is the cheapest, and a second would take long."""
    nodes = [node(f"n{at}", 16_000, labels=(("topology.kubernetes.io/zone", f"z{at % 3}"),)) for at in range(30)]
    pending = [pod(f"p{at}", 100, kind=PodSignature("default", ((CONTROLLER, f"r{at // 3}"),))) for at in range(90)]
    result = run_round(snapshot(nodes, pending), steps=1)
    assert len(result.placements) == len(pending)
    assert result.certified


def test_replica_sets_whose_pods_take_and_pay_the_same_are_bounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which pods a spread counts is all that tells most of them apart, also where some of those run."""
    nodes = [node(f"n{at}", labels=((ZONE, f"z{at % 3}"),)) for at in range(9)]
    kinds = [PodSignature("default", ((CONTROLLER, f"r{at}"),)) for at in range(40)]
    crowd = [pod(f"p{at}", 500 + at // 60 * 100, kind=kinds[at // 3]) for at in range(120)]
    problem = problem_of(
        snapshot(nodes, crowd, pod_index=PodIndex.of([("n0", kinds[0]), ("n1", kinds[39])])), two_policies()
    )
    assert len(problem.demands) == 40
    paid: list[Demand] = []
    before = Tangents.paid_by

    def paid_by(tangents: Tangents, demand: Demand) -> Float64s:
        paid.append(demand)
        return before(tangents, demand)

    monkeypatch.setattr(Tangents, "paid_by", paid_by)
    bound = lower_bound(problem.cost_matrix)
    assert len(paid) == 2
    monkeypatch.setattr(CostMatrix, "kinds", property(lambda matrix: range(len(matrix.demands))))
    assert 0 < lower_bound(CostMatrix(problem.demands, problem.start)) == bound
    assert len(paid) == 42
