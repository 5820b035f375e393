"""Lower bounds where running pods leave or move hold against every plan there is, and certified plans are the cheapest."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import GI, amounts, node, pod, snapshot
from support.plans_with_leavers import cost_of, costs_of_all_plans
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, CostWeights, UnscheduledPrice
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.round import run_round

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
    st.tuples(st.integers(0, 1), st.sampled_from((500, 1000, 2000)), st.sampled_from((0, 2)), st.sampled_from((0, 0, 5))),
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
