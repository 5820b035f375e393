"""Lower bounds where running pods leave or move: no plan beats them, and certified plans are the cheapest."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.model import GI, amounts, node, pod, snapshot
from support.plans_with_leavers import beside, cost_of, costs_of_all_plans, keeps_shares
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, CostWeights, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.queues import Queue, QueueState, QueueUsage
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.methods.resident_bound import resident_bound
from flowcore.planning.problem.bounds.bound_notes import BoundNote, sentence
from flowcore.planning.problem.bounds.bounds import first_bound, lower_bound
from flowcore.planning.problem.bounds.resident_room import NEVER, ResidentRoom, demands_beside
from flowcore.planning.problem.cost_matrix import CostMatrix
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_round
from flowcore.rules.reasons.codes import QUEUE_LIMIT

BOUNDS_PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "bounds.md"

_sizes = st.tuples(st.sampled_from((500, 1000, 2000, 4000)), st.sampled_from((0, 1, 3)))
SPREADING = Policy(BUILT_IN.name, cost=CostPolicy("CPUMemory", CostWeights(least_requested=3, balance=0)))
MOVING = Policy(BUILT_IN.name, rescheduling=ReschedulingPolicy(mode=ReschedulingMode.ACT, min_age=0))


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
    nodes: list[int],
    running: list[tuple[int, int, int, int]],
    waiting: list[tuple[int, int, int]],
    gang: int | None = None,
) -> Snapshot:
    """A cluster of nodes of so many millicores.

    Args:
        running: node, millicores, GiB and priority of each; those that do not fit are left out.
        waiting: millicores, GiB and priority of each.
        gang: priority of two more pods that are placed together or not at all; None: there are none.
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
    members = [pod(f"g{at}", 700, GI, priority=gang or 0) for at in range(0 if gang is None else 2)]
    pending += [msgspec.structs.replace(member, gangs=("g",)) for member in members]
    cluster = snapshot(table, pending, [(each.node, each.usage, ()) for each in pods])
    return replace(cluster, running=RunningPods(tuple(pods)), gangs={"g": Gang("g", 2)} if members else {})


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

_gangs = st.sampled_from((None, None, 0, 5))


@settings(max_examples=examples(25), deadline=None)
@given(_nodes, _running, _waiting, _gangs, _policies())
def test_no_plan_with_evictions_and_moves_beats_the_bound(
    nodes: list[int], running: list[tuple[int, int, int, int]], waiting: list[tuple[int, int, int]],
    gang: int | None, policy: Policy,
) -> None:  # fmt: skip
    """Against all plans of small clusters, whoever leaves or moves. And the cost is that of the plan."""
    cluster = crowded(nodes, running, waiting if gang is None else waiting[:2], gang)
    policies = {BUILT_IN.name: policy}
    result = run_round(cluster, policies)
    assert result.cost == cost_of(cluster, policies, result)
    assert result.cost == sum(each.price for each in (*result.placements, *result.unplaced, *result.evictions))
    assert cluster.running is not None
    moves = cluster.running.pods if policy.rescheduling.mode is ReschedulingMode.ACT else ()
    leave, move = (may_leave(cluster), moves) if result.evictions else ([], ())
    best = min(costs_of_all_plans(cluster, policies, leave, move))
    assert result.lower_bound <= best
    if result.certified:
        assert result.cost == best


@settings(max_examples=examples(25), deadline=None)
@given(
    _nodes, _running, _waiting, _gangs, _policies(), st.integers(0, 2**32), st.sampled_from((0, 500, 40_000)),
    st.sampled_from((0.0, 1.0, 50.0)),
)  # fmt: skip
# One node for both: whoever waits pays there as if the other had left.
@example([4000], [(0, 2000, 0, 0)], [(2000, 0, 5)], None, SPREADING, 0, 0, 0.0)
# The same where room has a price: the other one's room is worth it.
@example([2000], [(0, 2000, 0, 0)], [(2000, 0, 5)], None, SPREADING, 0, 0, 50.0)
# Two nodes full of pods that may only move: each could go where the other is, if nothing were paid for its room.
@example([2000, 2000], [(0, 2000, 0, 5), (1, 2000, 0, 5)], [(2000, 0, 5)], None, MOVING, 0, 0, 50.0)
def test_any_prices_of_pods_that_leave_give_a_bound(
    nodes: list[int], running: list[tuple[int, int, int, int]], waiting: list[tuple[int, int, int]],
    gang: int | None, policy: Policy, seed: int, dearest: int, highest: float,
) -> None:  # fmt: skip
    """Whatever leaving and moving cost, and whatever shadow prices are; whether or not the round has anybody leave."""
    cluster = crowded(nodes, running, waiting if gang is None else waiting[:2], gang)
    policies = {BUILT_IN.name: policy}
    assert cluster.running is not None
    pods, leave = cluster.running.pods, may_leave(cluster)
    move = pods if policy.rescheduling.mode is ReschedulingMode.ACT else ()
    chosen = [each for each in pods if each in leave or each in move]
    random = np.random.default_rng(seed)
    leave_prices = np.where([each in leave for each in chosen], random.integers(0, dearest + 1, len(chosen)), NEVER)
    move_prices = np.where([each in move for each in chosen], random.integers(0, dearest + 1, len(chosen)), NEVER)
    prices = {(each, False): int(price) for each, price in zip(chosen, leave_prices, strict=True)}
    prices |= {(each, True): int(price) for each, price in zip(chosen, move_prices, strict=True)}
    usage = np.array([cluster.vector(each.usage) for each in chosen], dtype=np.int64)
    room = ResidentRoom(
        np.array([cluster.table.index[each.node] for each in chosen], dtype=np.int64),
        usage.reshape(len(chosen), len(cluster.resources)),
        leave_prices.astype(np.int64),
        move_prices.astype(np.int64),
        Plan(cluster),
        Plan(beside(cluster, dict.fromkeys(chosen, ""))),
    )
    best = min(costs_of_all_plans(cluster, policies, leave, move, prices))
    problem = Problem(cluster, policies, MODELS)
    matrix = CostMatrix(demands_beside(problem, room), room.before)
    shadow_prices = random.random(room.before.free.shape) * highest / np.maximum(cluster.allocatable / 1000, 1)
    for groups in ((), problem.atomic_groups.all):
        assert lower_bound(matrix, shadow_prices=shadow_prices, atomic_groups=groups, residents=room) <= best
    assert resident_bound(problem, room) <= best
    staying = min(costs_of_all_plans(cluster, policies, (), ()))
    assert first_bound(problem.cost_matrix, problem.atomic_groups.all) <= staying


@settings(max_examples=examples(25), deadline=None)
@given(_nodes, _running, _waiting, st.lists(st.sampled_from("ab"), min_size=6, max_size=6), st.sampled_from((1, 2, 4)))
# A queue that has all room gives some back, and a limit keeps a pod of the other queue out.
@example([4000], [(0, 2000, 0, 0), (0, 2000, 0, 0)], [(2000, 0, 0), (2000, 0, 0)], list("aabbbb"), 2)
def test_no_plan_within_the_order_of_queues_beats_the_bound(
    nodes: list[int], running: list[tuple[int, int, int, int]], waiting: list[tuple[int, int, int]],
    queue_of: list[str], limit: int,
) -> None:  # fmt: skip
    """Against all plans for the pods that the limits let in, whoever leaves for a share or for a higher priority."""
    cluster = crowded(nodes, running, waiting)
    assert cluster.running is not None
    pods = tuple(
        msgspec.structs.replace(each, queue=queue) for each, queue in zip(cluster.running.pods, queue_of, strict=False)
    )
    pending = tuple(
        msgspec.structs.replace(each, queue=queue) for each, queue in zip(cluster.pending, queue_of[3:], strict=False)
    )
    usage = {
        name: QueueUsage(amounts(sum(dict(each.usage)["cpu"] for each in pods if each.queue == name)))
        for name in {each.queue for each in pods}
    }
    queues = QueueState((Queue("a"), Queue("b", limit=amounts(1000 * limit))), usage)
    cluster = replace(cluster, pending=pending, queues=queues, running=RunningPods(pods), now=10_000.0)
    policies = {BUILT_IN.name: BUILT_IN}
    result = run_round(cluster, policies)
    held = {each.pod.key: each.price for each in result.unplaced if each.code == QUEUE_LIMIT}
    let_in = replace(cluster, pending=tuple(each for each in pending if each.key not in held))
    highest = max(each.pod_class.priority for each in let_in.pending) if let_in.pending else 0

    def keeps(leavers: Collection[RunningPod], come: Collection[PendingPod]) -> bool:
        return keeps_shares(let_in, [each for each in leavers if each.priority >= highest], come)

    some = pods if result.evictions else ()
    best = min(costs_of_all_plans(let_in, policies, some, (), keeps=keeps)) + sum(held.values())
    assert 0 < result.lower_bound <= best
    if result.certified:
        assert result.cost == best


def test_the_page_has_each_note() -> None:
    """bounds.md lists the codes of what bounds do not count in full, with the words that plans are shown with."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", BOUNDS_PAGE.read_text(), re.MULTILINE)
    assert rows == [(note.value, note.clause) for note in BoundNote]


def test_a_plan_says_what_its_bound_does_not_count() -> None:
    """Of a plan in which a pod leaves, and of one with a gang that waits; a certified plan has nothing to explain."""
    urgent = crowded([4000], [(0, 4000, 0, 0)], [(3000, 0, 5), (3000, 0, 5)])
    result = run_round(urgent)
    assert result.evictions
    assert not result.certified
    assert result.bound_notes == (BoundNote.RUNNING_PODS, BoundNote.FRACTIONS)
    assert "the bound counts running pods that may leave as gone" in sentence(
        [*result.bound_notes, "FromALaterVersion"]
    )
    assert run_round(snapshot([node("n0")], [pod("p0", 1000)])).bound_notes == ()
    sizes = [pod(f"p{at}", 700 + 400 * (at % 3), 2**30 * (1 + at % 2)) for at in range(11)]
    nodes = [node(f"n{at}") for at in range(3)]
    short, full = (run_round(snapshot(nodes, sizes), steps=steps) for steps in (1, 40))
    assert short.bound_notes == (BoundNote.ALONE,), "the round in fractions comes later"
    assert full.bound_notes == (BoundNote.FRACTIONS,)
    gangs = [msgspec.structs.replace(each, gangs=(f"g{at // 2}",)) for at, each in enumerate(sizes[:10])]
    whole = run_round(replace(snapshot(nodes, gangs), gangs={f"g{at}": Gang(f"g{at}", 2) for at in range(5)}))
    assert whole.bound_notes == (BoundNote.FRACTIONS, BoundNote.GANGS)
    assert not sentence([])
