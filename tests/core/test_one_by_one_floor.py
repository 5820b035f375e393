"""Rounds beside one-by-one placement with the same costs, and the methods that bring a plan below it."""

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draw_policies import policies
from support.large_snapshots import large_snapshots
from support.mixed_snapshots import mixed_snapshots
from support.model import GI, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.workload_kinds import Interference, WorkloadKind
from flowcore.planning.methods.constructive import fill, interleaved
from flowcore.planning.methods.packing import pack, packable
from flowcore.planning.methods.ruin_and_rebuild import RuinAndRebuild
from flowcore.planning.problem.objective import unplaced_counts
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_one_by_one, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES


@settings(max_examples=examples(60))
@given(mixed_snapshots(), st.integers(4, 12))
def test_no_plan_is_dearer_than_one_by_one(mixed: Snapshot, steps: int) -> None:
    """At any load, from the second step of each independent part on. The first is fill: any round has time for it."""
    assert run_round(mixed, steps=steps).cost <= run_one_by_one(mixed).cost


@settings(max_examples=examples(40))
@given(large_snapshots(), policies)
def test_no_plan_of_a_crowd_is_dearer_than_one_by_one(crowd: Snapshot, policies: Mapping[str, Policy]) -> None:
    """The same with priorities, GPUs and few slots for pods, whatever the policy says."""
    assert run_round(crowd, policies, steps=4).cost <= run_one_by_one(crowd, policies).cost


@pytest.mark.parametrize("cores", [2_000, 3_500])
def test_no_plan_of_some_thousand_pods_is_dearer_either(cores: int) -> None:
    """Pods of four sizes, with room for all or not; the order in which they come mixes the sizes."""
    sizes = ((250, 4), (500, 1), (1000, 2), (3000, 1))
    nodes = [node(f"n{at}", cores * (30 + at % 5), 4 * cores * GI // 70) for at in range(40)]
    waiting = [pod(f"p{at}", sizes[at % 7 % 4][0], sizes[at % 7 % 4][1] * GI, created=float(at)) for at in range(3_200)]
    crowd = snapshot(nodes, waiting)
    assert run_round(crowd, steps=8).cost <= run_one_by_one(crowd).cost


@pytest.mark.parametrize("steps", [2, 12])
def test_no_plan_of_some_thousand_pods_is_dearer_beside_penalties(steps: int) -> None:
    """Short of room; a few pods cost something beside each other. Large pods are urgent, others are old."""
    kinds = (WorkloadKind("noisy", LabelSelector((Requirement("kind", "In", ("noisy",)),))),)
    costs = CostPolicy(kinds=kinds, interference=Interference(((500,),)))
    noisy, sizes = PodSignature("default", (("kind", "noisy"),)), (250, 500, 1000, 3000)
    waiting = [
        pod(f"p{at}", sizes[at % 7 % 4], created=300.0 * at, kind=noisy if at % 40 == 0 else None,
            priority=10**6 * (at % 7 == 3))
        for at in range(3_200)
    ]  # fmt: skip
    crowd = snapshot([node(f"n{at}", 50_000 + 1000 * (at % 5)) for at in range(40)], waiting, now=10.0**6)
    policies = {BUILT_IN.name: Policy(BUILT_IN.name, cost=costs)}
    assert run_round(crowd, policies, steps=steps).cost <= run_one_by_one(crowd, policies).cost


def test_a_small_round_ends_when_no_plan_is_much_cheaper() -> None:
    """Fill and one by one are enough where the first bound is within 3 %; nothing else is tried."""
    waiting = [pod(f"p{at}", (100, 200)[at % 2]) for at in range(40)]
    result = run_round(snapshot([node(f"n{at}", 64_000) for at in range(20)], waiting))
    assert (result.cost - result.lower_bound) * 33 <= result.cost
    assert result.cost > result.lower_bound
    assert len(result.placements) == 40
    assert (result.steps, result.solves) == (2, 0)


def test_a_small_round_goes_on_while_the_gap_is_wide_or_pods_stay_out() -> None:
    """The same pods on small nodes, and more of them than fit."""
    waiting = [pod(f"p{at}", (900, 1700)[at % 2]) for at in range(40)]
    for count in (20, 8):
        result = run_round(snapshot([node(f"n{at}", 4_000) for at in range(count)], waiting))
        assert result.steps > 2


def test_a_pod_that_no_node_has_room_for_ends_no_round() -> None:
    """However dear it is to leave, it says nothing of what the others could save."""
    waiting = [pod(f"p{at}", (900, 1700)[at % 2]) for at in range(40)]
    nodes = [node(f"n{at}", 4_000) for at in range(20)]
    found = [run_round(snapshot(nodes, pods)) for pods in (waiting, [*waiting, pod("huge", 64_000, priority=10**6)])]
    assert found[1].steps == found[0].steps > 2


@settings(max_examples=examples(40))
@given(mixed_snapshots() | large_snapshots(), st.booleans())
def test_classes_built_again_gain_what_is_said_and_leave_nobody_out(mixed: Snapshot, by_turns: bool) -> None:  # noqa: FBT001
    """The cost falls by the gain or more, each demand keeps its pods, and no node holds more than it has."""
    problem = Problem(mixed, DEFAULT_POLICIES, MODELS)
    first = interleaved(problem) if by_turns else fill(problem)
    search = RuinAndRebuild(problem, first, seed=0)
    for _ in search.run("class"):
        pass
    found = search.candidate()
    assert found.cost <= first.cost - search.gain
    left = [unplaced_counts(each.commits, problem.demands) for each in (found, first)]
    assert all(now <= before for now, before in zip(*left, strict=True))
    again = problem.start.copy()
    assert all(again.place(problem.demands[c.demand], c.node, c.count) == c.count for c in found.commits)
    assert (again.free == found.capacity.free).all()


def test_classes_built_again_make_up_for_the_order_of_fill() -> None:
    """Large pods come first and spread over all nodes; then the small ones find the nodes of their zone full."""
    nodes = [node(f"n{at}", 8000, labels=(("zone", "ab"[at % 2]),)) for at in range(4)]
    pending = [pod(f"large{at}", 2000) for at in range(4)] + [
        pod(f"small{at}", 1000, node_selector=(("zone", "a"),)) for at in range(8)
    ]
    problem = Problem(snapshot(nodes, pending), DEFAULT_POLICIES, MODELS)
    first = fill(problem)
    search = RuinAndRebuild(problem, first, seed=0)
    for _ in search.run("class"):
        pass
    large = [commit.node for commit in search.candidate().commits if problem.demands[commit.demand].count == 4]
    assert search.gain > 0
    assert large == [1, 3]


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3),
)
def test_what_packing_proves_no_plan_beats(rooms: list[tuple[int, int]], wishes: list[tuple[int, int, int]]) -> None:
    """Where CP-SAT ends in time, as many pods are placed as in the best of all plans."""
    nodes = [node(f"n{at}", cores * 1000, gi * GI) for at, (cores, gi) in enumerate(rooms)]
    pending = [pod(f"p{at}-{i}", c * 1000, g * GI) for at, (c, g, count) in enumerate(wishes) for i in range(count)]
    problem = Problem(snapshot(nodes, pending), DEFAULT_POLICIES, MODELS)
    first = fill(problem)
    packing = pack(problem, first, packable(problem), work=0.05, seed=0)
    assert packing.proven
    found = first if packing.candidate is None else packing.candidate
    sizes = [(cores, gi) for cores, gi, count in wishes for _ in range(count)]
    assert len(pending) - sum(unplaced_counts(found.commits, problem.demands)) == _most(sizes, rooms)


def _most(sizes: list[tuple[int, int]], rooms: list[tuple[int, int]]) -> int:
    """The most pods that fit, by trying all plans."""
    states = {tuple(rooms): 0}
    for cores, gi in sizes:
        after = dict(states)
        for (state, placed), at in product(states.items(), range(len(rooms))):
            left = (state[at][0] - cores, state[at][1] - gi)
            if min(left) >= 0:
                key = (*state[:at], left, *state[at + 1 :])
                after[key] = max(after.get(key, 0), placed + 1)
        states = after
    return max(states.values())
