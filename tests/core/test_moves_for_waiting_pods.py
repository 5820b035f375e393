"""Pods move for waiting ones: each to a node that has room for it before anybody leaves."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
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
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents
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


def rungs(steps: int, copy: str = "") -> tuple[list[Node], list[Pod]]:
    """Nodes from large to small, each with a pod that fits the next one without its pod."""
    sizes = [2 * (steps + 1 - step) for step in range(steps + 1)]
    nodes = [node(f"n{step}{copy}", size) for step, size in enumerate(sizes)]
    return nodes, [running(f"p{step}{copy}", f"n{step}{copy}", size) for step, size in enumerate(sizes[1:])]


def ladder(steps: int, policy: Policy) -> Snapshot:
    """The same, and a pod waits that is as large as the largest node."""
    nodes, pods = rungs(steps)
    return snapshot(nodes, pods, [waiting("big", 2 * steps + 2)], policy=policy)


def placed(result: RoundResult) -> list[tuple[str, str]]:
    """Name and node of each pod that gets one, if nobody is preempted for it."""
    assert {each.kind for each in result.evictions} <= {EvictionKind.MIGRATION}
    return [(each.pod.key.partition("/")[2], each.node) for each in result.placements]


def test_a_pod_moves_where_there_is_room() -> None:
    """The smallest of a ladder of one step: its pod goes to the next node."""
    policy = moving()
    result = planned(ladder(1, policy), policy)
    assert [(each.pod.key, each.to) for each in result.evictions] == [("default/p0", "n1")]
    assert placed(result) == [("big", "n0")]


#: Rounds in which a pod that waits gets a node if others move one after the other, each to room that the one before it
#: has left: nodes and their cpu, pods with their node and cpu, and cpu of the pod that waits for n1.
ONE_AFTER_THE_OTHER = {
    "two": ({"n1": 8, "n2": 4, "n3": 2}, {"a": ("n1", 4), "b": ("n2", 2)}, 8),
    "to the node of the pod that waits": ({"n1": 12, "n2": 9}, {"a": ("n1", 5), "b": ("n2", 3), "c": ("n2", 2)}, 10),
    "three": ({"n1": 8, "n2": 6, "n3": 4, "n4": 2}, {"a": ("n1", 6), "b": ("n2", 4), "c": ("n3", 2)}, 8),
}


@pytest.mark.xfail(strict=True, reason="a later operator must win this round: no move uses room that another one frees")
@pytest.mark.parametrize("name", ONE_AFTER_THE_OTHER)
def test_rounds_to_win(name: str) -> None:
    """Nobody is lower than the pod that waits, and some order of moves has room for each."""
    rooms, pods, large = ONE_AFTER_THE_OTHER[name]
    policy = moving()
    nodes = [node(place, cpu) for place, cpu in rooms.items()]
    runs = [running(pod, place, cpu) for pod, (place, cpu) in pods.items()]
    assert placed(planned(snapshot(nodes, runs, [waiting("big", large)], policy=policy), policy)) == [("big", "n1")]


#: The same of drawn rounds, by their seeds: all that wait get a node.
DRAWN_ONE_AFTER_THE_OTHER = (14, 105, 430, 431, 581, 726, 798, 953, 966)


@pytest.mark.xfail(strict=True, reason="a later operator must win this round: no move uses room that another one frees")
@pytest.mark.parametrize("seed", DRAWN_ONE_AFTER_THE_OTHER)
def test_drawn_rounds_to_win(seed: int) -> None:
    """Two or three pods move for them, the first to room that is free."""
    result = plan_scenario(draw_moves(seed).scenario(), NOW, reschedule=True).result
    assert not result.unplaced


@pytest.mark.parametrize("name", ONE_AFTER_THE_OTHER)
def test_nobody_leaves_before_there_is_room(name: str) -> None:
    """In the same rounds nobody moves in vain, either."""
    rooms, pods, large = ONE_AFTER_THE_OTHER[name]
    policy = moving()
    nodes = [node(place, cpu) for place, cpu in rooms.items()]
    runs = [running(pod, place, cpu) for pod, (place, cpu) in pods.items()]
    assert not planned(snapshot(nodes, runs, [waiting("big", large)], policy=policy), policy).evictions


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


def test_no_move_ends_where_the_rule_of_the_pod_that_waits_for_it_holds() -> None:
    """The waiting pod wants no v in its zone: so the one that moves for it leaves the zone, though n2a has room."""
    policy = moving()
    apart = InterPodConstraints(anti_affinity=(AffinityTerm("zone", selects("v"), ("default",)),))
    signature = msgspec.structs.replace(running("any", "n1a", 1).signature, constraints=apart)
    pods = [
        running("moves", "n1a", 2, labels=(("app", "v"),)),
        running("stays", "n3b", 2, labels=(("app", "v"),), immovable_reason="x"),
    ]
    nodes = [node("n1a", 4), node("n2a", 2), node("n3b", 8)]
    waits = waiting("w", 3, signature=signature, preempts=False)
    result = planned(snapshot(nodes, pods, [waits], policy=policy), policy)
    assert placed(result) == [("w", "n1a")]
    assert [(each.pod.key, each.to) for each in result.evictions] == [("default/moves", "n3b")]


def near(app: str) -> InterPodConstraints:
    """Required affinity to an app, in its zone: the last letter of the node's name."""
    return InterPodConstraints(affinity=(AffinityTerm("zone", selects(app), ("default",)),))


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


@pytest.mark.parametrize("partners", [["v"], ["v", "v"], ["k", "v"]])
def test_others_move_and_the_partner_stays(partners: list[str]) -> None:
    """All pods of a node may move and a pod wants to be near one of them: that one stays, and another goes."""
    policy = moving()
    pods = [running(f"{app}{at}", "n1a", 1, labels=(("app", app),)) for at, app in enumerate([*partners, "x"])]
    signature = msgspec.structs.replace(pods[0].signature, labels=(("app", "w"),), constraints=near("v"))
    nodes = [node("n1a", len(pods)), node("n2b", 8)]
    result = planned(
        snapshot(nodes, pods, [waiting("w", 1, signature=signature, preempts=False)], policy=policy), policy
    )
    assert placed(result) == [("w", "n1a")]
    assert len(result.evictions) == 1


def test_nobody_moves_where_the_partner_would_have_to_go() -> None:
    """The node has room for the partner or for the pod that wants to be near it."""
    policy = moving()
    pods = [running("v", "n1a", 4, labels=(("app", "v"),)), running("x", "n1a", 1)]
    signature = msgspec.structs.replace(pods[0].signature, labels=(("app", "w"),), constraints=near("v"))
    waits = waiting("w", 4, signature=signature, preempts=False)
    result = planned(snapshot([node("n1a", 5), node("n2b", 8)], pods, [waits], policy=policy), policy)
    assert (result.placements, result.evictions) == ((), ())


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
    """Each replacement has its room before anybody leaves, and every move is needed."""
    planned(drawn, moving())


@given(crowded(moving()), st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=10), st.booleans())
@settings(max_examples=examples(100))
def test_what_is_free_now_follows_each_decision(
    drawn: Snapshot,
    steps: Sequence[tuple[bool, int]],
    by_staying: bool,  # noqa: FBT001
) -> None:
    """A replacement takes its room at once; when all is taken back, all is as before."""
    problem = Problem(drawn, {BUILT_IN.name: moving()}, MODELS)
    assert drawn.running is not None
    residents = Residents.of(drawn, drawn.running, ())
    state = Plan(drawn, residents, problem.demands)
    before, start = state.free.copy(), state.checkpoint()
    for leaves, number in steps:
        staying = [resident for resident in range(len(residents.pods)) if resident not in state.leaving]
        homeless = [resident for resident, leaving in state.leaving.items() if leaving.to < 0]
        if leaves and staying:
            state.let_leave(staying[number % len(staying)], EvictionKind.MIGRATION, ("default/w",))
        elif homeless:
            state.reserve_replacement(homeless[number % len(homeless)], number % len(before), is_move=True)
    expected = before.copy()
    for resident, leaving in state.leaving.items():
        if leaving.to >= 0:
            expected[leaving.to] -= residents.usage[resident]
    assert (state.free_now() == expected).all()
    if by_staying:
        for resident in list(state.leaving):
            state.stay(resident)
    else:
        state.roll_back(start)
    assert (state.free == before).all()
    assert (state.free_now() == before).all()


def test_seldom_is_there_a_better_plan() -> None:
    """Beside every plan of small rounds in which each moved pod has room before any pod leaves."""
    worse = moved = 0
    for seed in range(DRAWS):
        drawn = draw_moves(seed)
        simulated = plan_scenario(drawn.scenario(), NOW, reschedule=True)
        check_evictions(simulated.before, simulated.result, simulated.policies)
        worse += best_standing(drawn) < standing_of(drawn, simulated.result)
        moved += bool(simulated.result.evictions)
    assert moved
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
