"""Chains of moves: a pod that makes room goes where another one has left first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from harness.move_rounds import NOW, best_standing, draw_moves, standing_of
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import keeps_apart, node, running, selects, snapshot, waiting
from support.eviction_safety import check_evictions
from support.profiles import examples, is_quick

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.costs import MODELS
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions import destinations
from flowcore.planning.evictions.residents import Residents
from flowcore.planning.evictions.state import EvictionState
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import RoundResult, run_round
from flowcore.questions.scenario import plan_scenario

#: Rounds that are drawn, and the share of them in which a plan may be better than ours.
DRAWS, ALLOWED = 100 if is_quick() else 1_000, 0.02


def moving(**limits: int) -> Policy:
    """The built-in policy, which moves pods for waiting ones within these limits."""
    return msgspec.structs.replace(BUILT_IN, rescheduling=ReschedulingPolicy(ReschedulingMode.ACT, 0, **limits))


def planned(drawn: Snapshot, policy: Policy) -> RoundResult:
    """The plan of a round, carried out step by step."""
    policies = {policy.name: policy}
    result = run_round(drawn, policies)
    check_evictions(drawn, result, policies)
    return result


def moves(result: RoundResult) -> list[tuple[str, str, tuple[str, ...]]]:
    """Name, new node and forerunners of each pod that moves, in their order."""
    return [
        (each.pod.key.partition("/")[2], each.to, tuple(key.partition("/")[2] for key in each.after))
        for each in result.evictions
    ]


def rungs(steps: int, copy: str = "") -> tuple[list[Node], list[Pod]]:
    """Nodes from large to small, each with a pod that fits the next one without its pod."""
    sizes = [2 * (steps + 1 - step) for step in range(steps + 1)]
    nodes = [node(f"n{step}{copy}", size) for step, size in enumerate(sizes)]
    return nodes, [running(f"p{step}{copy}", f"n{step}{copy}", size) for step, size in enumerate(sizes[1:])]


def ladder(steps: int, policy: Policy) -> Snapshot:
    """The same, and a pod waits that is as large as the largest node."""
    nodes, pods = rungs(steps)
    return snapshot(nodes, pods, [waiting("big", 2 * steps + 2)], policy=policy)


def test_a_pod_takes_the_room_that_another_one_left() -> None:
    """By hand: b goes to n3, then a to n2, where b was, and then the large pod comes to n1."""
    policy = moving()
    pods = [running("a", "n1", 4), running("b", "n2", 2)]
    result = planned(
        snapshot([node("n1", 8), node("n2", 4), node("n3", 2)], pods, [waiting("big", 8)], policy=policy), policy
    )
    assert [(each.pod.key, each.node) for each in result.placements] == [("default/big", "n1")]
    assert moves(result) == [("b", "n3", ()), ("a", "n2", ("b",))]
    assert set(result.placements[0].victims) == {"default/a", "default/b"}
    assert {each.for_pods for each in result.evictions} == {("default/big",)}


@pytest.mark.parametrize("priority", [0, 7])
def test_the_first_may_go_where_the_room_is_made(priority: int) -> None:
    """There is more room than the large pod needs. Nobody is preempted for it if it is urgent."""
    policy = moving()
    pods = [running("a", "n1", 5), running("b", "n2", 3), running("c", "n2", 2)]
    pending = [waiting("big", 10, priority=priority)]
    result = planned(snapshot([node("n1", 12), node("n2", 9)], pods, pending, policy=policy), policy)
    assert moves(result) == [("c", "n1", ()), ("a", "n2", ("c",))]
    assert [(each.pod.key, each.node) for each in result.placements] == [("default/big", "n1")]


def test_three_leave_one_after_the_other_and_not_four() -> None:
    """Each goes where the one before it was; longer chains are not looked for."""
    policy = moving()
    result = planned(ladder(3, policy), policy)
    assert moves(result) == [("p2", "n3", ()), ("p1", "n2", ("p2",)), ("p0", "n1", ("p1",))]
    assert not planned(ladder(4, policy), policy).evictions


@pytest.mark.parametrize(("spare", "moved"), [(1, 0), (2, 2)])
def test_pods_change_places_only_by_a_spare_one(spare: int, moved: int) -> None:
    """Once both have left, each fits where the other one was. That takes room for one of them elsewhere."""
    policy = moving()
    nodes = [node("n1", 4, gpu=1), node("n2", 4), node("n3", spare)]
    pods = [running("a", "n1", 4), running("b", "n2", 2)]
    result = planned(snapshot(nodes, pods, [waiting("big", 2, gpu=1)], policy=policy), policy)
    assert len(result.evictions) == moved
    assert bool(result.placements) == bool(moved)


@pytest.mark.parametrize("limit", ["per_round", "per_hour", "per_namespace", "per_owner"])
def test_each_move_of_a_chain_counts(limit: str) -> None:
    """Where one of them may move and not both, nobody does."""
    for most, expected in ((1, 0), (2, 2)):
        policy = moving(**{limit: most})
        assert len(planned(ladder(2, policy), policy).evictions) == expected


@pytest.mark.parametrize("gang", ["", "gang big"])
@pytest.mark.parametrize("preempts", [False, True])
@pytest.mark.parametrize("others", [3, 4])
@pytest.mark.parametrize("lower", [False, True])
def test_a_chain_takes_no_moves_that_others_of_the_level_need(
    others: int, gang: str, *, preempts: bool, lower: bool
) -> None:
    """A chain of three for the first pod would use up the limit; the others need one move each.

    Nobody is lower, or only a static pod, which cannot leave.
    """
    policy = moving(per_round=others)
    nodes, pods = rungs(3)
    wait = [waiting("big", 8, priority=5, preempts=preempts, gangs=(gang,) if gang else ())]
    for number in range(others):
        nodes += [node(f"e{number}", 3, gpu=1), node(f"f{number}", 1)]
        pods.append(running(f"q{number}", f"e{number}", 1))
        # A pod of a higher priority beside them: an integer program does not decide again for two levels.
        wait.append(waiting(f"easy{number}", 3, gpu=1, priority=9 if number == 3 else 5, preempts=preempts))
    pods = [msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, priority=5)) for pod in pods]
    if lower:
        nodes.append(node("z", 1))
        pods.append(running("static", "z", 1, priority=0, static=True, permanent=True, owner="ds"))
    gangs = [Gang(gang, 1)] if gang else []
    result = planned(snapshot(nodes, pods, wait, policy=policy, gangs=gangs), policy)
    assert {each.pod.key for each in result.unplaced} == {"default/big"}


def test_no_place_of_a_move_relies_on_a_pod_that_waits_for_it() -> None:
    """The moved pod wants to be near the waiting one, which keeps away from it: so it would have no place first."""
    policy = moving()
    near = InterPodConstraints(affinity=(AffinityTerm("zone", selects("w"), ("default",)),))
    signature = msgspec.structs.replace(
        running("any", "n1", 1).signature, labels=(("app", "w"),), constraints=keeps_apart("v")
    )
    result = planned(
        snapshot(
            [node("n1a", 8, gpu=1), node("n2a", 8), node("n3b", 8)],
            [running("v", "n1a", 2, labels=(("app", "v"),), constraints=near)],
            [waiting("w", 2, gpu=1, signature=signature, preempts=False)],
            policy=policy,
        ),
        policy,
    )
    assert not result.placements
    assert not result.evictions


def near(app: str) -> InterPodConstraints:
    """Required affinity to an app, in its zone: the last letter of the node's name."""
    return InterPodConstraints(affinity=(AffinityTerm("zone", selects(app), ("default",)),))


def test_the_first_of_a_chain_does_not_rely_on_the_next_one() -> None:
    """By hand: b wants to be near a, whose replacement would come to the zone x only once b has left its node there."""
    policy = moving()
    pods = [
        running("a", "n1y", 4, labels=(("app", "a"),)),
        running("b", "n2x", 2, labels=(("app", "b"),), constraints=near("a")),
    ]
    nodes = [node("n1y", 8, gpu=1), node("n2x", 4), node("n3x", 2)]
    planned(snapshot(nodes, pods, [waiting("big", 8, gpu=1, preempts=False)], policy=policy), policy)


def test_no_pod_that_comes_at_once_relies_on_a_replacement() -> None:
    """By hand: w wants to be near v, which has room in its zone and is still elsewhere."""
    policy = moving()
    pods = [running("v", "n1a", 2, labels=(("app", "v"),)), running("k", "n3b", 1, immovable_reason="x")]
    signature = msgspec.structs.replace(pods[1].signature, labels=(("app", "w"),), constraints=near("v"))
    wait = [
        waiting("big", 8, gpu=1, priority=3, preempts=False),
        waiting("w", 3, signature=signature, preempts=False),
    ]
    nodes = [node("n1a", 8, gpu=1), node("n2b", 2), node("n3b", 4), node("n4a", 1)]
    planned(snapshot(nodes, pods, wait, policy=policy), policy)


def test_a_chain_of_three_is_found_behind_a_pod_that_nothing_helps() -> None:
    """Looks that one pod has used up leave enough for the next one of its namespace."""
    policy = moving()
    nodes, pods = rungs(3)
    for copy in range(12):
        more_nodes, more_pods = rungs(5, f"-{copy}")
        nodes, pods = nodes + more_nodes, pods + more_pods
    nodes[0] = node("n0", 8, gpu=1)
    wait = [waiting("hopeless", 12, priority=50, preempts=False), waiting("last", 8, gpu=1, preempts=False)]
    result = planned(snapshot(nodes, pods, wait, policy=policy), policy)
    assert "default/last" in {placement.pod.key for placement in result.placements}


def test_filters_are_not_asked_for_chains_of_many_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters decide where the pods of the large nodes may go: nowhere. Eight times the pods wait."""
    asked = Counter[int]()
    policy, original = moving(), destinations.run_filters
    nodes, pods = [], [running("plain", "big0", 1)]
    for number in range(6):
        nodes.append(node(f"big{number}", 14))
        pods += [
            running(f"v{number}-{pod}", f"big{number}", 1, labels=(("app", "a"),), constraints=keeps_apart("b"))
            for pod in range(13)
        ]
    for number in range(40):
        nodes.append(node(f"small{number}", 4))
        pods.append(running(f"b{number}", f"small{number}", 2, labels=(("app", "b"),), immovable_reason="x"))

    for count in (2, 16):

        def counted(*arguments: Any, count: int = count) -> Any:
            asked[count] += 1
            return original(*arguments)

        monkeypatch.setattr(destinations, "run_filters", counted)
        wait = [waiting(f"w{number}", 10, priority=number, preempts=False) for number in range(count)]
        run_round(snapshot(nodes, pods, wait, policy=policy), {policy.name: policy})
    assert asked[16] <= 5 * asked[2]


@pytest.mark.parametrize(("hopeless", "namespace"), [(1, "default"), (12, "other")])
def test_pods_that_nothing_helps_leave_looks_for_others(hopeless: int, namespace: str) -> None:
    """Pods for which four would have to leave in a row come first. One such pod, or such a namespace, stops nobody."""
    policy = moving()
    nodes, pods = [node("g", 6, gpu=1)], [running("a", "g", 4)]
    for copy in range(12):
        more_nodes, more_pods = rungs(4, f"-{copy}")
        nodes += more_nodes
        pods += more_pods
    first = [waiting(f"w{place}", 10, priority=50 - place, preempts=False) for place in range(hopeless)]
    last = msgspec.structs.replace(waiting("last", 6, gpu=1), key=f"{namespace}/last")
    result = planned(snapshot(nodes, pods, [*first, last], policy=policy), policy)
    assert [(each.pod.key, each.node) for each in result.placements] == [(last.key, "g")]
    assert [len(each.after) for each in result.evictions] == [0, 1]


STAYING: dict[str, dict[str, object]] = {
    "its budget lets nobody go": {"labels": (("app", "a"),)},
    "it is of a higher priority": {"priority": 1},
    "it is not to be moved": {"immovable_reason": "its annotation says so"},
}


@pytest.mark.parametrize("fields", STAYING.values(), ids=list(STAYING))
def test_nobody_moves_where_the_first_may_not(fields: dict[str, object]) -> None:
    """The last pod of the ladder stays, so all do."""
    policy = moving()
    nodes = [node("n1", 8), node("n2", 4), node("n3", 2)]
    pods = [running("a", "n1", 4), running("b", "n2", 2, **fields)]
    budget = DisruptionBudget("default", "a", selects("a"), 0)
    result = planned(snapshot(nodes, pods, [waiting("big", 8)], [budget], policy), policy)
    assert not result.evictions
    assert not result.placements


@st.composite
def crowded(draw: st.DrawFn, policy: Policy) -> Snapshot:
    """Nodes of different sizes, most of them nearly full, with budgets, and a few pods that wait."""
    nodes = [node(f"n{number}", draw(st.integers(2, 10))) for number in range(draw(st.integers(2, 6)))]
    pods: list[Pod] = []
    for each in nodes:
        free = dict(each.allocatable)["cpu"]
        while free and draw(st.integers(0, 6)):
            cpu = draw(st.integers(1, min(free, 5)))
            free -= cpu
            labels = (("app", draw(st.sampled_from("abc"))),)
            priority = draw(st.sampled_from((0, 0, 0, 3)))
            pods.append(running(f"p{len(pods)}", each.name, cpu, priority=priority, labels=labels))
    budgets = [DisruptionBudget("default", app, selects(app), 1) for app in draw(st.sets(st.sampled_from("abc")))]
    pending = [
        waiting(f"w{number}", draw(st.integers(2, 9)), priority=draw(st.sampled_from((0, 0, 7))))
        for number in range(draw(st.integers(1, 3)))
    ]
    return snapshot(nodes, pods, pending, budgets, policy)


@given(crowded(moving()))
@settings(max_examples=examples(150))
def test_no_node_is_overcommitted_at_any_step(drawn: Snapshot) -> None:
    """Each wave has its room once those have left that the plan names, and no sooner; every move is needed."""
    planned(drawn, moving())


@given(crowded(moving()), st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=10), st.booleans())
@settings(max_examples=examples(100))
def test_what_is_free_now_follows_each_decision(
    drawn: Snapshot,
    steps: Sequence[tuple[bool, int]],
    by_staying: bool,  # noqa: FBT001
) -> None:
    """A replacement takes what those before it do not leave; when all is taken back, all is as before."""
    problem = Problem(drawn, {BUILT_IN.name: moving()}, MODELS)
    assert drawn.running is not None
    residents = Residents.of(drawn, drawn.running, ())
    state = EvictionState(drawn, problem.start.free, residents, problem.demands)
    before, start = state.free.copy(), state.checkpoint()
    for leaves, number in steps:
        staying = [resident for resident in range(len(residents.pods)) if resident not in state.leaving]
        homeless = [resident for resident, leaving in state.leaving.items() if leaving.to < 0]
        if leaves and staying:
            frees = [-1, *state.leaving][number % (len(state.leaving) + 1)]
            state.let_leave(staying[number % len(staying)], EvictionKind.MIGRATION, ("default/w",), frees=frees)
        elif homeless:
            state.reserve_replacement(homeless[number % len(homeless)], number % len(before), is_move=True)
    expected = before.copy()
    for resident, leaving in state.leaving.items():
        if leaving.to >= 0:
            left = sum(residents.usage[other] for other, each in state.leaving.items() if each.frees == resident)
            expected[leaving.to] -= np.maximum(residents.usage[resident] - left, 0)
    assert (state.free_now == expected).all()
    if by_staying:
        for resident in list(state.leaving):
            state.stay(resident)
    else:
        state.roll_back(start)
    assert not any(state.before_place.values())
    assert (state.free == before).all()
    assert (state.free_now == before).all()


def test_seldom_is_there_a_better_plan_with_chains() -> None:
    """Beside every plan of small rounds, in which moved pods may take room that others have left."""
    worse = in_chains = 0
    for seed in range(DRAWS):
        drawn = draw_moves(seed)
        simulated = plan_scenario(drawn.scenario(), NOW, reschedule=True)
        check_evictions(simulated.before, simulated.result, simulated.policies)
        worse += best_standing(drawn, chains=True) < standing_of(drawn, simulated.result)
        in_chains += any(each.after for each in simulated.result.evictions)
    assert in_chains
    assert worse <= max(1, ALLOWED * DRAWS)


def test_a_gang_of_several_priorities_preempts_for_its_highest() -> None:
    """What runs is as important as its lowest pod, and less important than its highest."""
    policy = moving()
    nodes, pods = [node("n1", 4), node("n2", 4)], [running("v", "n1", 4, priority=5), running("k", "n2", 2, priority=5)]
    gang = ("gang g",)
    wait = [
        waiting("hi", 4, priority=10, preempts=True, gangs=gang),
        waiting("lo", 2, priority=5, preempts=True, gangs=gang),
    ]
    result = planned(snapshot(nodes, pods, wait, policy=policy, gangs=[Gang("gang g", 2)]), policy)
    assert {(each.pod.key, each.node) for each in result.placements} == {("default/hi", "n1"), ("default/lo", "n2")}
    assert [each.pod.key for each in result.evictions] == ["default/v"]


def test_no_move_relies_on_a_pod_that_moves_later() -> None:
    """R must be near a, which moves for b1: so r may not move for b2 to where a was near."""
    policy = moving()
    pods = [
        running("a", "n1x", 4, labels=(("app", "a"),)),
        running("r", "n5x", 2, labels=(("app", "r"),), constraints=near("a")),
    ]
    wait = [waiting("b2", 8, gpu=2, priority=3), waiting("b1", 8, gpu=1)]
    nodes = [node("n1x", 8, gpu=1), node("n5x", 8, gpu=2), node("n2y", 4), node("n3x", 2)]
    result = planned(snapshot(nodes, pods, wait, policy=policy), policy)
    assert [each.pod.key for each in result.evictions] == ["default/a"]
    assert [each.pod.key for each in result.placements] == ["default/b1"]
