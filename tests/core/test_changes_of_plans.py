"""Changes of a plan are taken back and made again: placements, held room, pods that leave, stay, move and come."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import clusters, node, snapshot, waiting
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.policies import BUILT_IN
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents
from flowcore.planning.problem.problem import Problem

WHATS = ("place", "place", "place all", "place one each", "hold", "leave", "leave", "replace", "come", "stay", "drop")


def plan_of(drawn: Snapshot) -> Plan:
    problem = Problem(drawn, {BUILT_IN.name: BUILT_IN}, MODELS)
    assert drawn.running is not None
    return Plan(drawn, Residents.of(drawn, drawn.running, ()), problem.demands)


def change(plan: Plan, what: str, number: int) -> None:
    """One change of a kind, where there is any."""
    nodes = len(plan.free)
    demand, node = number % len(plan.demands), number // 2 % nodes
    this = plan.demands[demand]
    if what == "place":
        plan.place(this, node, 1 + number % 2)
    elif what == "place all":
        plan.place_all(plan.demands, np.array([demand, demand]), np.array([node, (node + 1) % nodes]), np.array([1, 1]))
    elif what == "place one each" and this.group.pod_class.fits_by_amounts and plan.max_pods_at(this, node):
        plan.place_one_each([this], np.array([node]))
    elif what == "hold":
        plan.hold(plan.demands, [Commit(demand, node, 1)])
    elif what == "leave":
        stay = [resident for resident in range(len(plan.residents.pods)) if resident not in plan.leaving]
        for resident in stay[number % 3 :: 3]:
            plan.let_leave(resident, EvictionKind.MIGRATION, [this.group.pods[0].key])
    elif what == "replace":
        for resident in [each for each, leaving in plan.leaving.items() if leaving.to < 0][:1]:
            plan.reserve_replacement(resident, node, is_move=True)
    elif what == "come":
        waiting = [pod for pod in this.group.pods if pod.key not in plan.arrived]
        for pod in waiting[:1]:
            plan.arrive(pod, demand, node)
    elif what == "stay":
        for resident in list(plan.leaving)[:1]:
            plan.stay(resident)
    elif what == "drop":
        plan.drop_arrivals({arrival.pod.key for arrival in plan.arrivals[number % 2 :: 2]})


def seen(plan: Plan) -> dict[str, Any]:
    """All that the two parts of a round read of a plan."""
    after, placed = plan.snapshot(), plan.to_snapshot(())
    return {
        "free": plan.free.tolist(),
        "free now": plan.free_now().tolist(),
        "fitting": [plan.max_pods(demand).tolist() for demand in plan.demands],
        "costs": [plan.next_increase(demand).tolist() for demand in plan.demands],
        "leaving": dict(plan.leaving),
        "arrivals": list(plan.arrivals),
        "limits": [+plan.budgets, +plan.leaving_by_gang, +plan.moves],
        "after": (after.used.tolist(), after.non_zero_requested.tolist(), sorted(map(repr, after.pod_index.counts()))),
        "placed": (placed.used.tolist(), placed.non_zero_requested.tolist()),
        "ports": {node: ports for node, ports in placed.ports.items() if ports},
    }


@pytest.mark.hypothesis
@given(
    clusters(BUILT_IN),
    st.lists(st.tuples(st.sampled_from(WHATS), st.integers(0, 30)), max_size=6),
    st.lists(st.tuples(st.sampled_from(WHATS), st.integers(0, 30)), min_size=1, max_size=8),
)
@settings(max_examples=examples(60), deadline=None)
def test_what_is_taken_back_has_not_been(
    drawn: Snapshot, first: Sequence[tuple[str, int]], then: Sequence[tuple[str, int]]
) -> None:
    """Beside what was decided before, and made again it is as it was."""
    plan = plan_of(drawn)
    if not plan.demands:
        return
    for what, number in first:
        change(plan, what, number)
    before, checkpoint = seen(plan), plan.checkpoint()
    for what, number in then:
        change(plan, what, number)
    after, decisions = seen(plan), plan.since(checkpoint)
    plan.roll_back(checkpoint)
    assert seen(plan) == before
    plan.redo(decisions)
    assert seen(plan) == after


def test_pods_that_come_between_others_that_do_not_come_after_all() -> None:
    """Made again, who does not come gives the same room back."""
    plan = plan_of(snapshot([node("n0a", cpu=4)], [], [waiting("w", 1)]))
    pod, before = plan.demands[0].group.pods[0], plan.checkpoint()
    plan.drop_arrivals(set())
    plan.arrive(pod, 0, 0)
    plan.drop_arrivals({pod.key})
    after, decisions = seen(plan), plan.since(before)
    plan.roll_back(before)
    plan.redo(decisions)
    assert seen(plan) == after
