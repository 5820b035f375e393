"""One by one over a table of classes and nodes: the same plan as pod after pod, looked up each time."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.draw_policies import policies
from support.large_snapshots import large_snapshots
from support.mixed_snapshots import mixed_snapshots
from support.model import node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, CostWeights, UnscheduledPrice
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.methods.constructive import kube_scheduler_order
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.methods.one_by_one import is_quick, place_one_by_one
from flowcore.planning.problem.passes import CompileConstraints, CompileWorkloadKinds, apply_all
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.waiting import wait_prices
from flowcore.planning.round.round import DEFAULT_POLICIES


def check(cluster: Snapshot, policies: Mapping[str, Policy] = DEFAULT_POLICIES) -> None:
    """The definition is greedy with one pod of each demand in turn."""
    problem = apply_all((CompileConstraints(), CompileWorkloadKinds()), Problem(cluster, policies, MODELS))
    order, quick, slow = kube_scheduler_order(problem), problem.start.copy(), problem.start.copy()
    waiting = wait_prices(problem, [0] * len(problem.demands), problem.unschedulable[:0])
    found = place_one_by_one(problem.cost_matrix, order, quick, waiting)
    assert found == greedy(problem.cost_matrix, [(at, 1) for at in order], slow, wait_prices=waiting)
    assert (quick.free == slow.free).all()
    assert quick.ports == slow.ports
    for demand in problem.demands:
        assert (quick.next_increase(demand) == slow.next_increase(demand)).all()
        assert (quick.max_pods(demand) == slow.max_pods(demand)).all()


@settings(max_examples=examples(100))
@given(mixed_snapshots())
def test_mixed_pods_go_where_they_would_go_one_after_the_other(mixed: Snapshot) -> None:
    """At any load, several pods at once or not."""
    check(mixed)


@settings(max_examples=examples(100))
@given(mixed_snapshots(rules=True))
def test_so_do_pods_with_rules_and_ports_among_them(mixed: Snapshot) -> None:
    """Spreads, affinity and anti-affinity to their own, and host ports."""
    check(mixed)


@settings(max_examples=examples(100))
@given(large_snapshots() | constrained_snapshots(), policies)
def test_whatever_the_policy_says(crowd: Snapshot, drawn: Mapping[str, Policy]) -> None:
    """Weights of any size, preferences among them."""
    check(crowd, drawn)


@settings(max_examples=examples(50))
@given(mixed_snapshots(), st.sampled_from((0, 1, 100)))
def test_where_costs_fall(mixed: Snapshot, weight: int) -> None:
    """With balance alone a pod of one shape makes a node cheaper for pods of the other."""
    weights = CostWeights(least_requested=weight, balance=5)
    check(mixed, {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(weights=weights))})


def test_two_policies_price_a_node_apart() -> None:
    """Pods of each pay for what their own kind adds, and all take room."""
    other = Policy("other", cost=CostPolicy(weights=CostWeights(least_requested=3, balance=0)))
    nodes = [node(f"n{at}", 4000 - 500 * at) for at in range(4)]
    pending = [pod(f"p{at}", 300 + 100 * (at % 3), policy=("", "other")[at % 2] or BUILT_IN.name) for at in range(40)]
    check(snapshot(nodes, pending), {BUILT_IN.name: BUILT_IN, "other": other})


@settings(max_examples=examples(50))
@given(mixed_snapshots(rules=True), st.sampled_from((0, 500, 900)))
def test_pods_that_wait_for_cheaper_nodes_do_so_at_each_turn(mixed: Snapshot, base: int) -> None:
    """Also where a later placement opens a node: the pods before it have used up the dearest prices."""
    price = UnscheduledPrice(base, 0, 1, wait_for_cheaper_node=True)
    policies = {BUILT_IN.name: BUILT_IN, "waits": Policy("waits", cost=BUILT_IN.cost, unscheduled=price)}
    pending = tuple(
        msgspec.structs.replace(each, policy=("waits", BUILT_IN.name)[at % 2]) for at, each in enumerate(mixed.pending)
    )
    check(replace(mixed, pending=pending), policies)


def test_what_is_quick_grows_with_pods_nodes_and_classes() -> None:
    """Ten thousand pods are, a hundred thousand are not."""

    def crowd(pods: int) -> Problem:
        return Problem(snapshot([node("n", 4000)], [pod(f"p{at}", 1) for at in range(pods)]), DEFAULT_POLICIES, MODELS)

    assert is_quick(crowd(10_000))
    assert not is_quick(crowd(100_000))
