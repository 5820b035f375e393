"""Who leaves a full node where gangs leave whole and budgets let few go: beside every set that may leave."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

import pytest
from support.eviction_clusters import NOW, node, running, selects, waiting
from support.eviction_clusters import snapshot as snapshot_of
from support.eviction_safety import check_evictions
from support.levels import plan_of
from support.profiles import is_quick

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod
from flowcore.model.running_pods import GangDisruption, RunningPod
from flowcore.planning.plan_key import PRIORITY_OFFSET
from flowcore.planning.round import run_round
from flowcore.planning.round.round import DEFAULT_POLICIES

#: Each about 10 ms.
DRAWS = 60 if is_quick() else 2000
#: Each about 100 ms: with gangs that come.
COMING_DRAWS = DRAWS // 3


@pytest.mark.parametrize(
    ("name", "leaving"),
    [("gang-budget", ["train"]), ("gang-mixed-waits", ["g-1", "g-2", "h-1"]), ("gang-for-one", ["alone"])],
)
def test_a_gang_leaves_whole_where_that_is_the_lesser_loss(name: str, leaving: list[str]) -> None:
    """Beside single pods of other gangs, within a budget, and counted by its pods."""
    planned = plan_of(name)
    check_evictions(planned.before, planned.result, planned.policies)
    assert not planned.result.unplaced
    assert sorted(each.pod.key for each in planned.result.evictions) == [f"shop/{pod}" for pod in leaving]


def test_a_gang_that_comes_gives_way_to_a_pod_of_a_higher_priority() -> None:
    """Its room and that of a running pod make up what the urgent pod needs."""
    planned = plan_of("inversion-gang")
    assert [each.pod.key for each in planned.result.placements] == ["shop/high"]
    assert [each.pod.key for each in planned.result.evictions] == ["shop/runs"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_gang_whose_turn_has_come_gives_way_and_one_that_has_begun_does_not(begun: bool) -> None:  # noqa: FBT001
    """Both go before pods that cost as much. But the turn comes after higher priorities."""
    alike = [waiting(f"s-{number}", 2) for number in range(2)]
    gang = [waiting(f"g-{number}", 2, gangs=("g",)) for number in range(2)]
    drawn = partial(
        snapshot_of,
        [node("n1"), node("n2", 2)],
        [running("runs", "n1", 2)],
        gangs=[Gang("g", 2, partially_placed=begun)],
        now=2000.0,
    )
    assert {each.pod.key for each in run_round(drawn(pending=[*alike, *gang])).placements} == {
        each.key for each in gang
    }
    result = run_round(drawn(pending=[*alike, *gang, waiting("urgent", 4, priority=50)]))
    placed = {each.pod.key for each in result.placements}
    assert placed & {"default/urgent", *(each.key for each in gang)} == (
        {each.key for each in gang} if begun else {"default/urgent"}
    )


def test_a_pod_that_its_gang_does_not_need_comes_with_a_gang_that_got_its_room_last() -> None:
    """`second` gets the room that `first` gives up, and takes more of it than it needs."""
    drawn = snapshot_of(
        [node("n1", 7), node("n2", 4)],
        [running("runs", "n1", 4, priority=5), running("keeps", "n2", 1, priority=100)],
        [
            waiting("urgent", 7, priority=50),
            *(waiting(f"first-{number}", 3, priority=5, gangs=("first",)) for number in range(3)),
            *(waiting(f"second-{number}", 1, gangs=("second",)) for number in range(2)),
        ],
        gangs=[Gang("first", 1), Gang("second", 1)],
        now=20.0,
    )
    result = run_round(drawn)
    check_evictions(drawn, result, DEFAULT_POLICIES)
    placed = {each.pod.key.partition("/")[2]: each for each in result.placements}
    assert sorted(placed) == ["second-0", "second-1", "urgent"]
    assert placed["second-1"].optional
    assert placed["second-1"].atomic_group == placed["second-0"].atomic_group == "second"


def test_a_budget_that_lets_one_pod_go_lets_the_right_one_go_for_a_gang() -> None:
    """Pod by pod the lesser one leaves for the first pod of the gang, and then none may leave for the second."""
    drawn = snapshot_of(
        [node("n1"), node("n2")],
        [
            running("small", "n1", 2, labels=(("app", "a"),)),
            running("keep", "n1", 2, priority=100),
            running("large", "n2", 4, priority=5, labels=(("app", "a"),)),
        ],
        [waiting(f"w-{number}", 2, priority=50, gangs=("w",)) for number in range(2)],
        [DisruptionBudget("default", "one", selects("a"), 1)],
        gangs=[Gang("w", 2)],
        now=20.0,
    )
    result = run_round(drawn)
    check_evictions(drawn, result, DEFAULT_POLICIES)
    assert not result.unplaced
    assert [each.pod.key for each in result.evictions] == ["default/large"]


def test_no_set_that_may_leave_for_an_urgent_pod_is_better() -> None:
    """By the highest priority, then the sum of the priorities: with gangs, some of which leave whole, and budgets."""
    evicting = 0
    for seed in range(DRAWS):
        drawn = _drawn(random.Random(seed))
        result = run_round(drawn)
        check_evictions(drawn, result, DEFAULT_POLICIES)
        best = min((_key(pods) for pods in _that_make_room(drawn)), default=None)
        evicted = [each.pod for each in result.evictions]
        assert (None if result.unplaced else _key(evicted)) == best, seed
        evicting += len(evicted) > 1
    assert evicting > DRAWS / 10


def test_gangs_that_come_keep_no_urgent_pod_out() -> None:
    """They give way whole or not at all, and none waits that has room in the end."""
    giving_way = 0
    for seed in range(COMING_DRAWS):
        drawn = _with_gangs_that_come(random.Random(seed))
        result = run_round(drawn)
        check_evictions(drawn, result, DEFAULT_POLICIES)
        left_out = {each.pod.key: each.pod for each in result.unplaced}
        assert ("default/urgent" in left_out) != _could_hold_urgent(drawn), seed
        cpu = drawn.resources.index("cpu")
        left = result.after.free[:, cpu].tolist()
        placed = {name for each in result.placements for name in each.pod.gangs}
        for name, gang in drawn.gangs.items():
            asked = sorted(dict(pod.pod_class.requests)["cpu"] for pod in left_out.values() if name in pod.gangs)
            needed = 1 if name in placed else gang.min_placed
            assert len(asked) < needed or not _fit(asked[:needed], left), (seed, name)
        giving_way += any("its gang" in each.reason for each in result.unplaced)
    assert giving_way > COMING_DRAWS / 20


def _with_gangs_that_come(draw: random.Random) -> Snapshot:
    """Nodes with pods that may leave, gangs that have room there, and a pod that comes before these."""
    nodes = [node(f"n{number}", draw.randint(4, 8)) for number in range(draw.randint(1, 3))]
    pods = [
        running(f"r-{each.name}", each.name, draw.randint(1, 4), priority=draw.choice((0, 0, 5, 100))) for each in nodes
    ]
    gangs, pending = [], [waiting("urgent", draw.randint(4, 7), priority=50)]
    for name in "gh"[: draw.randint(1, 2)]:
        count, priority, cpu = draw.randint(1, 4), draw.choice((0, 0, 5)), draw.randint(1, 3)
        gangs.append(Gang(name, draw.randint(1, count)))
        pending += [waiting(f"{name}-{number}", cpu, priority=priority, gangs=(name,)) for number in range(count)]
    # Nobody has waited so long that room is held for it.
    return snapshot_of(nodes, pods, pending, gangs=gangs, now=20.0)


def _could_hold_urgent(drawn: Snapshot) -> bool:
    """Whether a node would have room for the first pod that waits without all of lower priorities."""
    assert drawn.running is not None
    urgent, cpu = drawn.pending[0].pod_class, drawn.resources.index("cpu")
    room = dict(zip(drawn.table.index, drawn.allocatable[:, cpu].tolist(), strict=True))
    for pod in drawn.running.pods:
        room[pod.node] -= dict(pod.usage)["cpu"] if pod.priority >= urgent.priority else 0
    return max(room.values()) >= dict(urgent.requests)["cpu"]


def _fit(asked: Sequence[int], left: Sequence[int]) -> bool:
    """Whether all of these have room together."""
    if not asked:
        return True
    return any(
        room >= asked[0] and _fit(asked[1:], [*left[:place], room - asked[0], *left[place + 1 :]])
        for place, room in enumerate(left)
    )


def _drawn(draw: random.Random) -> Snapshot:
    """Two or three nodes with pods, some of up to three gangs, which nobody makes again, and one that waits."""
    nodes = [node(f"n{number}", draw.randint(4, 8)) for number in range(draw.randint(2, 3))]
    specs = {name: GangSpec(draw.randint(1, 3), evicted_whole=draw.random() < 0.3) for name in "ghi"}
    pods: list[Pod] = []
    for each in nodes:
        free = dict(each.allocatable)["cpu"]
        while free and len(pods) < 11:
            cpu, gang = min(free, draw.randint(1, 3)), draw.choice(["", "", "g", "h", "i"])
            free -= cpu
            pods.append(
                running(
                    f"r{len(pods)}",
                    each.name,
                    cpu,
                    priority=draw.choice((0, 0, 0, 5, 100)),
                    labels=(("app", draw.choice("abc")),),
                    started=float(draw.randint(1, 50)),
                    owner="",
                    gang=GangRef(GangKey(GangSource.THALWEG, "default", gang), specs[gang]) if gang else None,
                )
            )
    budgets = [
        DisruptionBudget("default", f"b-{app}", selects(app), draw.randint(0, 3))
        for app in draw.sample("abc", draw.randint(0, 2))
    ]
    return snapshot_of(nodes, pods, [waiting("urgent", draw.randint(2, 7), priority=50)], budgets, now=NOW)


def _that_make_room(drawn: Snapshot) -> Iterator[Sequence[RunningPod]]:
    """All sets of running pods that may leave, and after which the waiting pod has room somewhere."""
    assert drawn.running is not None
    known, (urgent,) = drawn.running, drawn.pending
    cpu = drawn.resources.index("cpu")
    free = dict(zip(drawn.table.index, (drawn.allocatable - drawn.used)[:, cpu].tolist(), strict=True))
    asked = dict(urgent.pod_class.requests)["cpu"]
    lower = [pod for pod in known.pods if pod.priority < 50 and not pod.unevictable_reason]
    for count in range(len(lower) + 1):
        for chosen in combinations(lower, count):
            room = Counter(free)
            for pod in chosen:
                room[pod.node] += dict(pod.usage)["cpu"]
            lost = Counter(budget for pod in chosen for budget in pod.budgets)
            gone = Counter(pod.gang for pod in chosen if pod.gang)
            if (
                max(room.values()) >= asked
                and all(number <= known.budgets[budget] for budget, number in lost.items())
                and all(_may_lose(known.gangs[name], number) for name, number in gone.items())
            ):
                yield chosen


def _may_lose(gang: GangDisruption, count: int) -> bool:
    return count == gang.running or (not gang.whole and gang.running - count >= gang.min_member)


def _key(pods: Sequence[RunningPod]) -> tuple[float, int]:
    return max((pod.priority for pod in pods), default=-1), sum(pod.priority + PRIORITY_OFFSET for pod in pods)
