"""Rounds beside one-by-one placement with the same costs, and the methods that bring a plan below it."""

from collections.abc import Mapping
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.draw_policies import policies
from support.large_snapshots import large_snapshots
from support.model import GI, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.methods.constructive import fill, interleaved
from flowcore.methods.packing import pack, packable
from flowcore.methods.reinsertion import Reinsertion
from flowcore.model.policies import Policy
from flowcore.planning import run_one_by_one, run_round
from flowcore.planning.round import DEFAULT_POLICIES
from flowcore.problem.objective import unplaced_counts
from flowcore.problem.problem import Problem


@st.composite
def _mixed(draw: st.DrawFn) -> Snapshot:
    """Pods of mixed sizes and ages on unequal nodes, at a load between a quarter and one and a half."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    pods, classes, nodes = draw(st.integers(2, 150)), draw(st.integers(1, 10)), draw(st.integers(1, 12))
    load = draw(st.sampled_from((0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)))
    sizes = np.column_stack([random.choice((250, 500, 1000, 3000, 8000), classes), random.integers(1, 24, classes)])
    of = random.integers(0, classes, pods)
    shape = random.uniform(0.5, 1.5, (nodes, 2))
    capacity = np.maximum(shape / shape.sum(axis=0) * sizes[of].sum(axis=0) / load, 1).astype(np.int64)
    selects = random.random(classes) < 0.3
    ages = random.integers(0, 600, pods) if draw(st.booleans()) else np.zeros(pods)
    return snapshot(
        [node(f"n{at}", int(cpu), int(gi) * GI, labels=(("zone", "ab"[at % 2]),))
         for at, (cpu, gi) in enumerate(capacity.tolist())],
        [
            pod(f"p{at}", *(int(sizes[of[at], 0]), int(sizes[of[at], 1]) * GI), created=1000.0 - age,
                node_selector=(("zone", "a"),) if selects[of[at]] else ())
            for at, age in enumerate(ages.tolist())
        ],
        now=1000.0,
    )  # fmt: skip


@settings(max_examples=examples(60))
@given(_mixed(), st.integers(4, 12))
def test_no_plan_is_dearer_than_one_by_one(mixed: Snapshot, steps: int) -> None:
    """At any load, from the second step of each independent part on. The first is fill: any round has time for it."""
    assert run_round(mixed, steps=steps).cost <= run_one_by_one(mixed).cost


@settings(max_examples=examples(40))
@given(large_snapshots(), policies)
def test_no_plan_of_a_crowd_is_dearer_than_one_by_one(crowd: Snapshot, policies: Mapping[str, Policy]) -> None:
    """The same with priorities, GPUs and few slots for pods, whatever the policy says."""
    assert run_round(crowd, policies, steps=4).cost <= run_one_by_one(crowd, policies).cost


@settings(max_examples=examples(40))
@given(_mixed() | large_snapshots(), st.booleans())
def test_reinsertion_gains_what_it_says_and_leaves_nobody_out(mixed: Snapshot, by_turns: bool) -> None:  # noqa: FBT001
    """The cost falls by the gain, each demand keeps as many pods, and no node holds more than it has."""
    problem = Problem(mixed, DEFAULT_POLICIES, MODELS)
    first = interleaved(problem) if by_turns else fill(problem)
    search = Reinsertion(problem, first)
    while search.improve():
        pass
    found = search.candidate()
    assert found.cost == first.cost - search.gain
    assert unplaced_counts(found.commits, problem.demands) == unplaced_counts(first.commits, problem.demands)
    again = problem.start.copy()
    assert all(again.place(problem.demands[c.demand], c.node, c.count) == c.count for c in found.commits)
    assert (again.free == found.capacity.free).all()


def test_reinsertion_makes_up_for_the_order_of_fill() -> None:
    """Large pods come first and spread over all nodes; then the small ones find the nodes of their zone full."""
    nodes = [node(f"n{at}", 8000, labels=(("zone", "ab"[at % 2]),)) for at in range(4)]
    pending = [pod(f"large{at}", 2000) for at in range(4)] + [
        pod(f"small{at}", 1000, node_selector=(("zone", "a"),)) for at in range(8)
    ]
    problem = Problem(snapshot(nodes, pending), DEFAULT_POLICIES, MODELS)
    first = fill(problem)
    search = Reinsertion(problem, first)
    while search.improve():
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
