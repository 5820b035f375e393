"""Lower bounds where running pods leave or move: no plan beats them, and certified plans are the cheapest."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import GI, amounts, node, pod, snapshot
from support.plans_with_leavers import cost_of, costs_of_all_plans
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, CostWeights, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.problem.bounds.bound_notes import BoundNote, sentence
from flowcore.planning.round import run_round

ENGINE_PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "engine.md"

_sizes = st.tuples(st.sampled_from((500, 1000, 2000, 4000)), st.sampled_from((0, 1, 3)))


@st.composite
def _policies(draw: st.DrawFn) -> Policy:
    weights = CostWeights(least_requested=draw(st.sampled_from((0, 1, 3))), balance=draw(st.sampled_from((0, 1, 5))))
    mode = draw(st.sampled_from((ReschedulingMode.OFF, ReschedulingMode.ACT)))
    return Policy(
        BUILT_IN.name,
        cost=CostPolicy(draw(st.sampled_from(sorted(MODELS))), weights),
        unscheduled=UnscheduledPrice(base=draw(st.sampled_from((0, 1_000, 100_000)))),
        rescheduling=ReschedulingPolicy(mode=mode, min_age=0),
    )


def crowded(
    nodes: list[int], running: list[tuple[int, int, int, int]], waiting: list[tuple[int, int, int]]
) -> Snapshot:
    """A cluster of nodes of so many millicores.

    Args:
        running: node, millicores, GiB and priority of each; those that do not fit are left out.
        waiting: millicores, GiB and priority of each.
    """
    table = [node(f"n{at}", cpu) for at, cpu in enumerate(nodes)]
    pods: list[RunningPod] = []
    free = {f"n{at}": [cpu, 16] for at, cpu in enumerate(nodes)}
    for number, (at, cpu, gi, priority) in enumerate(running):
        name = f"n{at % len(nodes)}"
        if cpu <= free[name][0] and gi <= free[name][1]:
            free[name] = [free[name][0] - cpu, free[name][1] - gi]
            pod_class = PodClass(requests=amounts(cpu, gi * GI), priority=priority)
            pods.append(
                RunningPod(f"default/r{number}", f"r{number}", name, pod_class, pod_class.requests, started=1.0,
                           policy=BUILT_IN.name, owner="" if number % 2 else "web")
            )  # fmt: skip
    pending = [pod(f"p{at}", cpu, gi * GI, priority=priority) for at, (cpu, gi, priority) in enumerate(waiting)]
    cluster = snapshot(table, pending, [(each.node, each.usage, ()) for each in pods])
    return replace(cluster, running=RunningPods(tuple(pods)))


def may_leave(cluster: Snapshot) -> list[RunningPod]:
    """Running pods of a lower priority than some waiting pod."""
    assert cluster.running is not None
    highest = max((each.pod_class.priority for each in cluster.pending), default=0)
    return [each for each in cluster.running.pods if each.priority < highest]


_nodes = st.lists(st.sampled_from((2000, 4000)), min_size=1, max_size=2)
_running = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from((500, 1000, 2000)), st.sampled_from((0, 2)), st.sampled_from((0, 5))),
    min_size=1, max_size=3,
)  # fmt: skip
_waiting = st.lists(
    st.tuples(st.sampled_from((500, 1000, 2000, 4000)), st.sampled_from((0, 1, 3)), st.sampled_from((0, 5, 10))),
    min_size=1, max_size=3,
)  # fmt: skip


@settings(max_examples=examples(25), deadline=None)
@given(_nodes, _running, _waiting, _policies())
def test_no_plan_with_evictions_and_moves_beats_the_bound(
    nodes: list[int], running: list[tuple[int, int, int, int]], waiting: list[tuple[int, int, int]], policy: Policy
) -> None:
    """Against all plans of small clusters, whoever leaves or moves. And the cost is that of the plan."""
    cluster, policies = crowded(nodes, running, waiting), {BUILT_IN.name: policy}
    result = run_round(cluster, policies)
    assert result.cost == cost_of(cluster, policies, result)
    assert result.cost == sum(each.price for each in (*result.placements, *result.unplaced))
    assert cluster.running is not None
    moves = cluster.running.pods if policy.rescheduling.mode is ReschedulingMode.ACT else ()
    leave, move = (may_leave(cluster), moves) if result.evictions else ([], ())
    best = min(costs_of_all_plans(cluster, policies, leave, move))
    assert result.lower_bound <= best
    if result.certified:
        assert result.cost == best


def test_the_page_has_each_note() -> None:
    """engine.md lists the codes of what bounds do not count in full, with the words that plans are shown with."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", ENGINE_PAGE.read_text(), re.MULTILINE)
    assert rows == [(note.value, note.clause) for note in BoundNote]


def test_a_plan_says_what_its_bound_does_not_count() -> None:
    """Of a plan in which a pod leaves, and of one with a gang that waits; a certified plan has nothing to explain."""
    urgent = crowded([4000], [(0, 4000, 0, 0)], [(3000, 0, 5), (3000, 0, 5)])
    result = run_round(urgent)
    assert result.evictions
    assert not result.certified
    assert result.bound_notes == (BoundNote.RUNNING_PODS,)
    assert "the bound counts running pods that may leave as gone" in sentence(
        [*result.bound_notes, "FromALaterVersion"]
    )
    gang = [msgspec.structs.replace(pod(f"p{at}", 1500), gangs=("g",)) for at in range(2)]
    waiting = replace(snapshot([node("n0", 2000), node("n1", 2200)], gang), gangs={"g": Gang("g", 2)})
    assert run_round(waiting).bound_notes == (() if run_round(waiting).certified else (BoundNote.GANGS,))
    assert run_round(snapshot([node("n0")], [pod("p0", 1000)])).bound_notes == ()
    assert not sentence([])
