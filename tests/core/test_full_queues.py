"""Queues at their limits: others that count for the limit leave for a pod, by priority or for the share of a queue."""

import pytest
from support.eviction_safety import check_evictions
from support.limited_queues import asks, cluster, drawn_cluster, faults, runs
from support.model import amounts

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.queues import Queue
from flowcore.model.running_pods import RunningPod
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES


def plan(before: Snapshot) -> RoundResult:
    """The plan of a round, which keeps budgets, rules and limits at each step, and lets nobody leave in vain."""
    result = run_round(before)
    check_evictions(before, result, DEFAULT_POLICIES)
    return result


def leaving(result: RoundResult) -> list[str]:
    """Who leaves."""
    return sorted(each.pod.uid for each in result.evictions)


def placed(result: RoundResult) -> dict[str, str]:
    """The node of each pod that gets one."""
    return {each.pod.uid: each.node for each in result.placements}


FULL = Queue("q", limit=amounts(4000))


def test_an_urgent_pod_takes_the_place_of_a_lower_one_of_its_full_queue() -> None:
    """Nodes have room and the limit leaves none: the lower pod leaves, has no new node, and the urgent one waits."""
    result = plan(cluster([FULL], [runs("a", "q", 2000), runs("b", "q", 2000)], [asks("urgent", "q", 2000)]))
    assert (len(leaving(result)), placed(result)) == (1, {"urgent": "n0"})
    assert not result.evictions[0].to
    assert result.placements[0].victims == (result.evictions[0].pod.key,)


@pytest.mark.parametrize(
    ("queues", "running", "budgets"),
    [
        ([FULL], [runs("a", "q", 4000, priority=10)], {}),
        ([FULL], [runs("a", "q", 4000, unevictable_reason="it is a static pod")], {}),
        ([FULL], [runs("a", "q", 4000, budgets=("default/web",))], {"default/web": 0}),
        ([FULL, Queue("other")], [runs("a", "q", 4000, priority=10), runs("b", "other", 4000)], {}),
        ([FULL], [runs("a", "q", 4000, priority=10), runs("b", "", 4000)], {}),
    ],
    ids=["equal priority", "unevictable", "budget", "another queue", "no queue"],
)
def test_nobody_leaves_for_a_limit_who_may_not_or_does_not_help(
    queues: list[Queue], running: list[RunningPod], budgets: dict[str, int]
) -> None:
    """The urgent pod waits, and its reason names the limit."""
    result = plan(cluster(queues, running, [asks("urgent", "q", 2000)], budgets=budgets))
    assert not result.evictions
    assert [each.reason for each in result.unplaced] == ["The limit of FlowQueue q leaves too little cpu for it."]


def test_the_least_important_leave_and_no_more_than_are_needed() -> None:
    """Of three pods the one of the lowest priority leaves, though it runs for the longest and on another node."""
    running = [runs("low", "q", on=1), runs("mid", "q", priority=5), runs("large", "q", 2000, priority=5)]
    result = plan(cluster([FULL], running, [asks("urgent", "q")], cpus=(3000, 32_000)))
    assert leaving(result) == ["low"]


def test_one_large_pod_leaves_in_place_of_several_small_ones() -> None:
    """The youngest are small: fewer pods leave if the large one does."""
    running = [runs("large", "q", 2000), *(runs(f"small-{at}", "q", started=2000.0 + at) for at in range(2))]
    assert leaving(plan(cluster([FULL], running, [asks("urgent", "q", 2000)]))) == ["large"]


def test_who_leaves_for_the_limit_may_run_on_another_node() -> None:
    """The urgent pod fits on the empty node only, and who leaves for its limit runs on a small one."""
    result = plan(cluster([FULL], [runs("a", "q", 4000)], [asks("urgent", "q", 4000)], cpus=(4500, 8000)))
    assert leaving(result) == ["a"]
    small = plan(cluster([FULL], [runs("a", "q", 4000)], [asks("urgent", "q", 3000)], cpus=(4000, 3000)))
    assert (leaving(small), len(placed(small))) == (["a"], 1)


def test_on_full_nodes_one_victim_makes_room_and_keeps_the_limit() -> None:
    """Both are short: the pod of the queue leaves, not one of the same priority that is not in it, too."""
    running = [runs("mine", "q", 2000, started=10.0), runs("other", "", 2000), runs("mine-1", "q", 2000, priority=10)]
    result = plan(cluster([FULL], running, [asks("urgent", "q", 2000)], cpus=(6000,)))
    assert (leaving(result), placed(result)) == (["mine"], {"urgent": "n0"})


def test_limits_of_two_levels_may_lack_at_once() -> None:
    """The parent lacks more than the child: a pod of each leaves."""
    queues = [Queue("x", limit=amounts(4000)), Queue("x1", parent="x", limit=amounts(2000)), Queue("x2", parent="x")]
    running = [runs("own", "x1"), runs("own-1", "x1", priority=10), runs("sister", "x2", 2000)]
    result = plan(cluster(queues, running, [asks("urgent", "x1")]))
    assert leaving(result) == ["own"]
    queues[1] = Queue("x1", parent="x", limit=amounts(3000))
    result = plan(cluster(queues, running, [asks("urgent", "x1", 2000)]))
    assert (leaving(result), placed(result)) == (["own", "sister"], {"urgent": "n0"})


def test_a_gang_beyond_the_limit_comes_whole_or_nobody_leaves() -> None:
    """Three of four pods may leave for the gang: it gets three nodes, and four are too many."""
    for size, count in ((3, 3), (4, 0)):
        running = [*(runs(f"low-{at}", "q") for at in range(3)), runs("high", "q", priority=10)]
        gang = [asks(f"g-{at}", "q", gangs=("g",)) for at in range(size)]
        result = plan(cluster([FULL], running, gang, gangs={"g": Gang("g", size)}))
        assert (len(placed(result)), len(leaving(result))) == (count, count)


def test_a_gang_beyond_the_limit_keeps_to_one_zone() -> None:
    """Full nodes: for the second pod one leaves the other zone for the limit, and one of no queue for the room."""
    running = [runs(f"q-{at}", "q", 2000, on=at) for at in range(2)]
    running += [runs("leaves", "", 2000), runs("stays", "", 2000, on=1, unevictable_reason="it is a static pod")]
    gang = [asks(f"g-{at}", "q", 2000, gangs=("g",)) for at in range(2)]
    gangs = {"g": Gang("g", 2, topology_key="zone")}
    result = plan(cluster([FULL], running, gang, cpus=(4000, 4000), gangs=gangs))
    assert placed(result) == {"g-0": "n0", "g-1": "n0"}
    assert leaving(result) == ["leaves", "q-0", "q-1"]


def test_what_a_limit_has_left_is_used_before_anybody_leaves() -> None:
    """Of four urgent pods two are within the limit, and one leaves for each of the others."""
    running = [runs(f"low-{at}", "q") for at in range(2)]
    result = plan(cluster([FULL], running, [asks(f"urgent-{at}", "q") for at in range(4)]))
    assert (len(placed(result)), len(leaving(result))) == (4, 2)
    assert sorted(len(each.victims) for each in result.placements) == [0, 0, 1, 1]


def test_what_leaves_for_others_is_left_for_pods_below_its_limit() -> None:
    """A pod of no queue takes the room of the one that filled the limit: a pod that preempts nobody has the rest."""
    running = [runs("low", "q", 4000)]
    pending = [asks("urgent", "", 3000), asks("next", "q", priority=0)]
    result = plan(cluster([FULL], running, pending, cpus=(4000,)))
    assert set(placed(result)) == {"urgent", "next"}


def test_a_share_is_taken_back_below_the_limit_of_a_parent() -> None:
    """Nodes have room: one child has all of what the parent may have, and gives back half, no more."""
    queues = [Queue("x", limit=amounts(4000)), Queue("x1", parent="x"), Queue("x2", parent="x")]
    running = [runs(f"one-{at}", "x1") for at in range(4)]
    result = plan(cluster(queues, running, [asks(f"two-{at}", "x2", priority=0) for at in range(4)]))
    assert (len(placed(result)), len(leaving(result))) == (2, 2)


@pytest.mark.parametrize(
    ("first", "count"), [(0, 60), pytest.param(60, 900, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_no_plan_of_a_drawn_cluster_is_unsafe_or_an_inversion(first: int, count: int) -> None:
    """No limit is passed whoever leaves first, nobody leaves in vain, and none waits beside lower ones of its limit."""
    for seed in range(first, first + count):
        before = drawn_cluster(seed)
        assert not faults(before, plan(before)), f"seed {seed}"
