"""States of nodes in the round in fractions: where there are too many, nodes with about the same room share one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.all_plans import all_plans
from support.model import GI, amounts, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs import MODELS
from flowcore.planning.methods.node_states import NodeStates
from flowcore.planning.methods.pod_kinds import PodKind
from flowcore.planning.methods.relaxation import relax
from flowcore.planning.problem.bounds.bounds import lower_bound
from flowcore.planning.problem.objective import Objective
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round.round import DEFAULT_POLICIES


def _problem(cluster: Snapshot) -> Problem:
    return Problem(cluster, DEFAULT_POLICIES, MODELS)


def _states(problem: Problem, most: int) -> Int64s:
    matrix = problem.cost_matrix
    kinds = [PodKind.of_demand(matrix, at, float(demand.count)) for at, demand in enumerate(problem.demands)]
    return NodeStates.by_room(kinds, matrix.spare, matrix.spare / np.maximum(matrix.spare.mean(axis=0), 1.0), most).of


def _short_of_room(pods: int) -> Snapshot:
    """Nodes that all have different room: a third nearly full of cpu, a third of memory, a third of neither."""
    taken = {0: (7000, 4), 1: (1000, 56), 2: (1000, 4)}
    nodes = [node(f"n{at:02}", 8000, 64 * GI) for at in range(60)]
    used = [(taken[at % 3][0] + at + 1, taken[at % 3][1] * GI + at + 1) for at in range(60)]
    running = [(f"n{at:02}", amounts(*each), ()) for at, each in enumerate(used)]
    waiting = [pod(f"p{at}", (500, 1000, 2000)[at % 3], (8, 4, 2)[at % 3] * GI) for at in range(pods)]
    return snapshot(nodes, waiting, running)


def test_nodes_with_about_the_same_room_share_a_state() -> None:
    """Three kinds of room, no two nodes alike: with as many states as kinds, each kind is one."""
    states = _states(_problem(_short_of_room(400)), 3)
    assert {tuple(np.nonzero(states == state)[0] % 3) for state in range(3)} == {(kind,) * 20 for kind in range(3)}


def test_there_are_no_more_states_than_may_be() -> None:
    """As many as there may be where all nodes differ; all of them have a node."""
    for most in (1, 2, 7, 30, 60, 100):
        states = _states(_problem(_short_of_room(400)), most)
        assert set(states.tolist()) == set(range(int(states.max()) + 1))
        assert int(states.max()) + 1 <= max(most, 1)


def test_states_tell_room_apart_in_the_bound() -> None:
    """Nodes without memory left do not lend their cpu to nodes without cpu: more pods are proved to stay out."""
    matrix = _problem(_short_of_room(400)).cost_matrix
    bounds = []
    for states in (1, 5):
        relaxed = relax(matrix, most_pairs=states * len(matrix.demands))
        assert relaxed is not None
        bounds.append(lower_bound(matrix, shadow_prices=relaxed.shadow_prices, loads=relaxed.loads))
    assert bounds[1] > 1.05 * bounds[0]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from((1000, 2000, 4000, 6000)), st.integers(1, 4)), min_size=2, max_size=4),
    st.lists(
        st.tuples(st.sampled_from((500, 1000, 1500, 3500)), st.sampled_from((0, 1, 3)), st.sampled_from("ab ")),
        min_size=3, max_size=6,
    ),
    st.integers(1, 3),
)  # fmt: skip
def test_no_plan_beats_the_bound_of_few_states(
    nodes: list[tuple[int, int]], pods: list[tuple[int, int, str]], states: int
) -> None:
    """Against all plans of small clusters, however few states there are, with prices of single nodes."""
    cluster = snapshot(
        [node(f"n{at}", cpu, gi * GI, labels=(("zone", "ab"[at % 2]),)) for at, (cpu, gi) in enumerate(nodes)],
        [
            pod(f"p{at}", cpu, gi * GI, node_selector=(("zone", zone),) if zone != " " else ())
            for at, (cpu, gi, zone) in enumerate(pods)
        ],
    )
    problem = _problem(cluster)
    matrix, demands, start = problem.cost_matrix, problem.demands, problem.start
    relaxed = relax(matrix, most_pairs=states * len(demands))
    if relaxed is not None:
        best = min(Objective(demands, start).total(commits) for commits in all_plans(demands, start))
        assert lower_bound(matrix, shadow_prices=relaxed.shadow_prices, loads=relaxed.loads) <= best
