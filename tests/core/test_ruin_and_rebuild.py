"""Ruin and rebuild: every draw gains what it says, keeps rules and room, and never makes a plan worse."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.large_snapshots import large_snapshots
from support.mixed_snapshots import mixed_snapshots
from support.model import GI, node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.constraints import Conflict
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector
from flowcore.planning.methods import ruin_and_rebuild
from flowcore.planning.methods.constructive import fill
from flowcore.planning.methods.ruin_and_rebuild import RuinAndRebuild
from flowcore.planning.problem.levels import key_of
from flowcore.planning.problem.passes import CompileConstraints, apply_all
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_round
from flowcore.planning.round.round import DEFAULT_POLICIES
from flowcore.planning.solvers import LinearProgram

DRAWS = ("room", "exchange", "class", "nodes")


def crowded(nodes: int, pods: int) -> Problem:
    """More pods than fit, of twelve sizes."""
    draw = random.Random(1)
    sizes = [(draw.randrange(300, 3000, 100), draw.randrange(1, 9) * GI) for _ in range(12)]
    waiting = [pod(f"p{at}", *draw.choice(sizes), created=float(at)) for at in range(pods)]
    found = snapshot([node(f"n{at}", draw.choice((4000, 8000)), 24 * GI) for at in range(nodes)], waiting, now=pods)
    return Problem(found, {BUILT_IN.name: BUILT_IN}, MODELS)


def rebuilt(problem: Problem, first: Candidate, *draws: str) -> tuple[Candidate, int]:
    """The plan after some draws, and what the search says that it has gained."""
    search = RuinAndRebuild(problem, first, seed=0)
    for _ in search.run(*draws):
        pass
    return search.candidate(), search.gain


@settings(max_examples=examples(60), deadline=None)
@given(
    mixed_snapshots(rules=True) | large_snapshots() | constrained_snapshots(),
    st.lists(st.sampled_from(DRAWS), min_size=1, max_size=3),
)
def test_a_plan_is_sound_and_not_worse(cluster: Snapshot, draws: list[str]) -> None:
    """It can be placed from the start in its order, costs what it says, and gains at least what the search says."""
    problem = apply_all((CompileConstraints(),), Problem(cluster, DEFAULT_POLICIES, MODELS))
    first = fill(problem)
    found, gain = rebuilt(problem, first, *draws)
    capacity = problem.start.copy()
    for commit in found.commits:
        assert capacity.place(problem.demands[commit.demand], commit.node, commit.count) == commit.count
    assert (capacity.free == found.capacity.free).all()
    assert found.cost == problem.cost(found.commits, found.admitted) <= first.cost - gain
    assert key_of(problem, found) <= key_of(problem, first)


@pytest.mark.parametrize("draw", DRAWS)
def test_each_draw_makes_a_crowded_plan_better(draw: str) -> None:
    """From the plan that fill makes: no draw is there in vain."""
    problem = crowded(60, 400)
    first = fill(problem)
    found, gain = rebuilt(problem, first, draw)
    assert gain > 0
    assert found.cost <= first.cost - gain


def test_steps_are_of_about_equal_work() -> None:
    """Of the draws that look at pairs of class and node: twice the work of a pass takes twice as many steps."""
    steps = [
        len(list(RuinAndRebuild(each, fill(each), seed=0).run("class")))
        for each in (crowded(60, 400), crowded(6_000, 400))
    ]
    assert steps[0] == 0
    assert steps[1] >= 12 * 6_000 // ruin_and_rebuild._WORK


@pytest.mark.parametrize("seed", range(2))
def test_a_limit_that_no_plan_reaches_costs_next_to_nothing(seed: int) -> None:
    """Too many pods for sixty nodes: as good a plan as without the limit, though its pods are counted in domains."""
    draw = random.Random(seed)
    nodes = [
        node(f"n{at}", draw.choice((4000, 6000, 8000)), 32 * GI, labels=(("rack", f"r{at % 4}"),)) for at in range(60)
    ]
    sizes = [draw.choice((500, 700, 900, 1100, 1300, 1700, 2300, 3100)) for _ in range(12)]
    waiting = [pod(f"p{at}", draw.choice(sizes), GI // 4, policy="p") for at in range(450)]
    limited = Policy("p", constraints=(Conflict("limit", LabelSelector(), "rack", 200),))
    free, held = (run_round(snapshot(nodes, waiting), {"p": each}) for each in (Policy("p"), limited))
    assert held.cost <= 1.005 * free.cost


def test_the_same_seed_makes_the_same_plan() -> None:
    """So a round is replayed."""
    problem = crowded(20, 130)
    plans = [rebuilt(problem, fill(problem), "nodes")[0] for _ in range(2)]
    assert plans[0].commits == plans[1].commits


def test_a_solver_that_finds_nothing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods that left the nodes are where they were."""

    def nothing(program: LinearProgram, **_: object) -> None:
        assert len(program.costs)

    monkeypatch.setattr(ruin_and_rebuild, "solve_mip", nothing)
    problem = crowded(20, 130)
    first = fill(problem)
    found, gain = rebuilt(problem, first, "nodes")
    assert gain == 0
    assert sorted((c.demand, c.node, c.count) for c in found.commits) == sorted(
        (c.demand, c.node, c.count) for c in first.commits
    )
