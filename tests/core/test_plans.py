"""Rounds on drawn clusters: every plan is safe, leaves out nothing that fits, and adds up."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.draw import Case, crowded_cases
from support.draw_policies import policies
from support.large_snapshots import large_snapshots
from support.model import node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan, plan_and_check
from support.verdicts import snapshot_of

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.policies import Policy
from flowcore.planning.methods.constructive import by_price
from flowcore.planning.methods.greedy import greedy
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.demands.demands import Demand, demands_of
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import run_one_by_one, run_round
from flowcore.rules.filters import run_filters

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


@settings(max_examples=examples(60))
@given(crowded_cases(), policies)
def test_any_cluster_gets_a_sound_plan(case: Case, policies: Mapping[str, Policy]) -> None:
    """All safety and liveness checks, on what was read from manifests of every kind."""
    plan_and_check(snapshot_of(case, now=NOW, place_blocked=False), policies)


@settings(max_examples=examples(60))
@given(large_snapshots(), policies)
def test_a_crowd_gets_a_sound_plan(crowd: Snapshot, policies: Mapping[str, Policy]) -> None:
    """The same where there are far more pods than room."""
    plan_and_check(crowd, policies)


@settings(max_examples=examples(20))
@given(large_snapshots())
def test_one_by_one_is_sound_too(crowd: Snapshot) -> None:
    """What rounds are compared with keeps the same rules."""
    check_plan(crowd, run_one_by_one(crowd))


@settings(max_examples=examples(40))
@given(large_snapshots())
def test_a_round_that_leaves_out_pods_that_had_room_is_no_dearer_than_one_by_one(crowd: Snapshot) -> None:
    """Stated for pods of one size, each class with its own priority: there the order of price is kube-scheduler's."""
    size, ranks = dict(crowd.pending[0].pod_class.requests), {}
    pending = []
    for each in crowd.pending:
        kind = each.pod_class.node_selector
        priority = 100 * ranks.setdefault(kind, len(ranks))
        pending.append(pod(each.uid, size.get("cpu", 0), size.get("memory", 0), node_selector=kind, priority=priority))
    same_size = snapshot(crowd.table.nodes, pending)
    result = plan_and_check(same_size)
    assume(result.unplaced)
    one_by_one = run_one_by_one(same_size)
    lost_out = any("There was room for some of these pods" in left.reason for left in result.unplaced)
    if lost_out:
        mine, others = (Counter(each.pod.pod_class.priority for each in plan.unplaced) for plan in (result, one_by_one))
        levels = sorted(ranks.values(), reverse=True)
        waiting = [[count[100 * level] for level in levels] for count in (mine, others)]
        assert (waiting[0], result.cost) <= (waiting[1], one_by_one.cost)


@settings(max_examples=examples(50))
@given(large_snapshots(), policies)
def test_no_round_that_leaves_out_pods_that_had_room_is_worse_than_the_floor(
    crowd: Snapshot, policies: Mapping[str, Policy]
) -> None:
    """By priorities, then by cost. The floor: the same pods one by one in the order of their price."""
    result = run_round(crowd, policies)
    before = {
        left.pod.pod_class: run_filters(left.pod.pod_class, crowd, left.pod.signature).fits.any()
        for left in result.unplaced
    }
    assume(any(before.values()))
    start = Plan(crowd)
    demands = demands_of(crowd, Plan(crowd).load(), policies)
    turns = by_price(demands, [demand.count for demand in demands])
    commits = greedy(CostMatrix(demands, start), ((at, 1) for at in turns), start.copy())
    placed = Counter[int]()
    for commit in commits:
        placed[commit.demand] += commit.count
    left = [
        (demand.group.pod_class.priority, price)
        for number, demand in enumerate(demands)
        for price in demand.prices[placed[number] :].tolist()
    ]
    floor = (_worth_by_priority(demands, left), Objective(demands, start).total(commits))
    left = [(each.pod.pod_class.priority, each.price) for each in result.unplaced]
    assert (_worth_by_priority(demands, left), result.cost) <= floor


def _worth_by_priority(demands: Sequence[Demand], left: Sequence[tuple[int, int]]) -> list[int]:
    """What waiting pods count for, from the highest priority: how often each is as dear as the cheapest of its own.

    Args:
        left: priority and price of each.
    """
    units = dict[int, int]()
    for demand in demands:
        priority, cheapest = demand.group.pod_class.priority, max(1, int(demand.prices.min()))
        units[priority] = min(cheapest, units.get(priority, cheapest))
    worth = Counter[int]()
    for priority, price in left:
        worth[priority] += price // units[priority]
    return [worth[priority] for priority in sorted(units, reverse=True)]


def test_pods_that_fit_only_if_planned_together_all_fit() -> None:
    """Placed one by one, the pods that can go anywhere take the only node that the others can use."""
    nodes = [node("plain"), node("gpu", gpu=1)]
    pending = [pod("any", 4000), pod("train", 4000, gpu=1)]
    cluster = snapshot(nodes, pending)
    assert {p.pod.key: p.node for p in plan_and_check(cluster).placements} == {
        "default/any": "plain",
        "default/train": "gpu",
    }


def test_the_method_is_named() -> None:
    """A plan says which way gave it, and what it took."""
    result = plan_and_check(snapshot([node("a"), node("b")], [pod(f"p{i}", 1000) for i in range(8)]))
    assert (result.method, len(result.placements)) == ("fill", 8)
    assert sorted(p.node for p in result.placements) == ["a"] * 4 + ["b"] * 4


@settings(max_examples=examples(20))
@given(large_snapshots(), st.integers(1, 30), st.integers(0, 3))
def test_steps_replay_to_the_same_plan_and_never_make_it_dearer(crowd: Snapshot, steps: int, seed: int) -> None:
    """So a clock may stop a round after any step."""
    first, again = (run_round(crowd, steps=steps, seed=seed) for _ in range(2))
    assert (first.placements, first.unplaced, first.cost) == (again.placements, again.unplaced, again.cost)
    assert first.steps <= steps
    more = run_round(crowd, steps=steps + 5, seed=seed)
    assert more.cost <= first.cost
    assert more.lower_bound >= first.lower_bound


def test_a_policy_that_is_not_there_is_the_callers_error() -> None:
    """Each pending pod's policy must be among those given."""
    with pytest.raises(KeyError, match="no-such-policy"):
        run_round(snapshot([node("a")], [pod("p", policy="no-such-policy")]))


@settings(max_examples=examples(30))
@given(large_snapshots(), st.integers(1, 10**6))
def test_time_alone_changes_no_plan(crowd: Snapshot, later: int) -> None:
    """Pods of unknown age do not age: the plan is the same at any moment."""
    moved = snapshot(crowd.table.nodes, crowd.pending, now=float(later))
    assert [(p.pod, p.node) for p in run_round(moved).placements] == [
        (p.pod, p.node) for p in run_round(crowd).placements
    ]
