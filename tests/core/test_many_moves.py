"""Rounds with many moves look again only at what each decision has changed, and decide as if they looked at all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import clusters, node, running, snapshot, waiting
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.policies import BUILT_IN, ReschedulingMode, ReschedulingPolicy
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.search import ladders, node_search
from flowcore.planning.evictions.search.ladders import Bounds, BoundsOfDemand, Ladders
from flowcore.planning.plan_key import PRIORITY_OFFSET
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import RoundResult, run_round

_MOST = 100_000
MOVES = msgspec.structs.replace(
    BUILT_IN, rescheduling=ReschedulingPolicy(ReschedulingMode.ACT, 0, _MOST, _MOST, _MOST, _MOST, _MOST)
)
POLICIES = {MOVES.name: MOVES}
_STEPS = ("leave", "replace", "arrive", "mark", "roll back", "stay")


@st.composite
def _crowded(draw: st.DrawFn) -> Snapshot:
    """Nodes of different sizes, most of them nearly full, and a pod that waits; no rules."""
    nodes = [node(f"n{number}", draw(st.integers(2, 9))) for number in range(draw(st.integers(1, 6)))]
    pods = []
    for each in nodes:
        free = dict(each.allocatable)["cpu"]
        while free and draw(st.integers(0, 5)):
            cpu = draw(st.integers(1, min(free, 4)))
            free -= cpu
            pods.append(running(f"p{len(pods)}", each.name, cpu, priority=draw(st.sampled_from((0, 0, 1, 5, 9)))))
    return snapshot(nodes, pods, [waiting("w", draw(st.integers(1, 6)), priority=5)], policy=MOVES)


def _state(drawn: Snapshot) -> tuple[Problem, Plan]:
    problem = Problem(drawn, POLICIES, MODELS)
    assert drawn.running is not None
    residents = Residents.of(drawn, drawn.running, ())
    return problem, Plan(drawn, residents, problem.demands)


def _decide(step: str, number: int, problem: Problem, state: Plan, marks: list[Any]) -> None:
    """Takes one step; one that cannot be taken is none."""
    pods, nodes = len(state.residents.pods), len(state.free)
    if step == "leave" and pods and number % pods not in state.leaving:
        state.let_leave(number % pods, EvictionKind.MIGRATION, ("default/w",))
    elif step == "replace":
        homeless = [resident for resident, leaving in state.leaving.items() if leaving.to < 0]
        if homeless:
            state.reserve_replacement(homeless[0], number % nodes, is_move=True)
    elif step == "arrive":
        state.arrive(problem.demands[0].group.pods[0], 0, number % nodes)
    elif step == "mark":
        marks.append(state.checkpoint())
    elif step == "roll back" and marks:
        state.roll_back(marks.pop())
    elif step == "stay" and state.leaving:
        state.stay(list(state.leaving)[number % len(state.leaving)])
        marks.clear()


@given(_crowded(), st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(0, 30)), max_size=12))
@settings(max_examples=examples(100))
def test_destinations_follow_every_decision(drawn: Snapshot, steps: Sequence[tuple[str, int]]) -> None:
    """A pod may go to other nodes with enough room, now and in the end, and goes where least is left to spare."""
    problem, state = _state(drawn)
    destinations = Movers(state, POLICIES, MODELS, problem.cache, (ReschedulingMode.ACT,)).destinations
    share = 1.0 / np.maximum(drawn.allocatable.astype(np.float64).sum(axis=0), 1.0)
    marks: list[Any] = []
    for step, number in (("mark", 0), *steps):
        _decide(step, number, problem, state, marks)
        among = np.arange(len(state.residents.usage)) % 3 != number % 3
        may_fit = destinations.may_fit(among)
        for resident, usage in enumerate(state.residents.usage):
            home = int(state.residents.nodes[resident])
            enough = [
                [bool(((room >= usage) | (usage == 0)).all()) for room in rooms]
                for rooms in (state.free, state.free_now())
            ]
            usable = [
                other for other in range(len(state.free)) if other != home and enough[0][other] and enough[1][other]
            ]
            spare = {other: float((state.free_now(other) * share).sum()) for other in usable}
            assert np.nonzero(destinations.usable(resident))[0].tolist() == usable
            assert destinations.has_any(resident) == bool(usable)
            assert destinations.find(resident) == min(usable, key=lambda other: (spare[other], other), default=-1)
            assert may_fit[resident] == (among[resident] and any(enough[1]))


@given(_crowded(), st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(0, 30)), max_size=12), st.booleans())
@settings(max_examples=examples(100))
def test_bounds_follow_every_decision(drawn: Snapshot, steps: Sequence[tuple[str, int]], by_node: bool) -> None:  # noqa: FBT001
    """Bounds are those of a first look, and none is above what the best pods of the node that suffice lose."""
    problem, state = _state(drawn)
    requests, possible = problem.demands[0].requests, np.ones(len(state.free), dtype=np.bool_)
    known = BoundsOfDemand(state, Ladders(state.residents), requests)
    marks: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        # All nodes of so few are found anew together, or each that has changed.
        patch.setattr(ladders, "_FEW_OF_NODES", 0 if by_node else _MOST)
        for step, number in (("mark", 0), *steps):
            _decide(step, number, problem, state, marks)
            may_leave = state.residents.priorities <= 5
            may_leave[list(state.leaving)] = False
            bounds = known.best_first(possible, may_leave)
            anew = BoundsOfDemand(state, Ladders(state.residents), requests).best_first(possible, may_leave)
            assert _listed(bounds) == _listed(anew)
            if may_leave.any():
                _check_bounds(bounds, state, requests, may_leave)


def _listed(bounds: Bounds) -> list[list[float]]:
    return [values.tolist() for values in (bounds.nodes, bounds.priority, bounds.total, bounds.count)]


def _check_bounds(bounds: Bounds, state: Plan, requests: Any, may_leave: Any) -> None:
    residents, asked = state.residents, requests > 0
    bound_of = dict(zip(bounds.nodes.tolist(), zip(*_listed(bounds)[1:], strict=True), strict=True))
    for number, free in enumerate(state.free):
        members = [resident for resident in residents.on(number) if may_leave[resident]]
        sufficient = [
            chosen
            for size in range(len(members) + 1)
            for chosen in combinations(members, size)
            if (free[asked] + residents.usage[list(chosen)].sum(axis=0)[asked] >= requests[asked]).all()
        ]
        assert (number in bound_of) == bool(sufficient)
        for chosen in sufficient:
            priorities = residents.priorities[list(chosen)]
            highest, total, least = bound_of[number]
            assert least <= len(chosen)
            assert total <= (priorities + PRIORITY_OFFSET).sum()
            assert not chosen or highest <= priorities.max()


@given(clusters(MOVES))
@settings(max_examples=examples(80))
def test_what_is_remembered_changes_no_plan(drawn: Snapshot) -> None:
    """A round that remembers nothing of any node, with rules, ports, gangs and budgets, has the same plan."""
    result = run_round(drawn, POLICIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "changed_since", lambda state, _: np.arange(len(state.free)))
        assert _plan(run_round(drawn, POLICIES)) == _plan(result)


def _plan(result: RoundResult) -> tuple[object, ...]:
    return (
        [(placement.pod.key, placement.node, placement.victims) for placement in result.placements],
        [(left.pod.key, left.reason) for left in result.unplaced],
        [(eviction.pod.key, eviction.kind, eviction.to, eviction.for_pods) for eviction in result.evictions],
        result.cost,
        result.lower_bound,
    )


def test_each_node_is_searched_once_but_for_those_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty pods each need one of sixty nodes, which one of its pods leaves for one of sixty others."""
    pods = [running(f"p{number}-{i}", f"n{number}", 4) for number in range(60) for i in range(2)]
    pods += [running(f"q{number}", f"n{number}", 6) for number in range(60, 120)]
    nodes = [node(f"n{number}", 10) for number in range(120)]
    pending = [waiting(f"w{number}", 5) for number in range(40)]
    searched: list[int] = []
    choose_victims = node_search.choose_victims

    def choose(residents: Any, fit_check: Any, on: int, *more: Any, **words: Any) -> Any:
        searched.append(on)
        return choose_victims(residents, fit_check, on, *more, **words)

    monkeypatch.setattr(node_search, "choose_victims", choose)
    result = run_round(snapshot(nodes, pods, pending, policy=MOVES), POLICIES)
    assert len(result.placements) == len(result.evictions) == 40
    assert {eviction.kind for eviction in result.evictions} == {EvictionKind.MIGRATION}
    assert len(searched) <= 60 + len(result.evictions)


def test_no_more_move_where_there_are_many_nodes() -> None:
    """Each of 140 pods needs a node of 150, which one of its pods leaves. None comes where two would have to leave."""
    pods = [running(f"p{number}-{i}", f"n{number}", 3) for number in range(150) for i in range(3)]
    pods += [running(f"q{number}", f"n{number}", 6) for number in range(150, 320)]
    nodes = [node(f"n{number}", 14 if number < 150 else 10) for number in range(320)]
    pending = [waiting(f"w{number}", 7) for number in range(140)]
    result = run_round(snapshot(nodes, pods, pending, policy=MOVES), POLICIES)
    assert len(result.placements) == len(result.evictions) == 140
