"""``victims: LeastLostWork``: of equal highest priorities those leave that lose the least work."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import combinations

import msgspec
import pytest
from support.eviction_clusters import NOW, node, snapshot, waiting
from support.eviction_clusters import running as running_pod
from support.eviction_safety import check_evictions
from support.profiles import is_quick

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.pods import Pod
from flowcore.model.policies import (
    BUILT_IN,
    LostWork,
    Policy,
    PreemptionPolicy,
    ReschedulingPolicy,
    VictimOrder,
)
from flowcore.planning.round import RoundResult, run_round

running = partial(running_pod, finite=True)
LEAST = PreemptionPolicy(victims=VictimOrder.LEAST_LOST_WORK)
POLICY = msgspec.structs.replace(BUILT_IN, preemption=LEAST)


def _planned(drawn: Snapshot, policy: Policy = POLICY) -> RoundResult:
    policies = {policy.name: policy}
    result = run_round(drawn, policies)
    check_evictions(drawn, result, policies)
    return result


def _leaving(pods: Sequence[Pod], pending: Sequence[PendingPod], policy: Policy = POLICY) -> list[str]:
    names = sorted({pod.node_name for pod in pods})
    drawn = snapshot([node(name) for name in names], pods, pending, policy=policy)
    result = _planned(drawn, policy)
    assert len(result.placements) == len(pending)
    return sorted(each.pod.key for each in result.evictions)


def _ages(pod: Pod) -> float:
    """Seconds times cores that a pod loses, its start of 30 seconds included."""
    cpu = dict(pod.usage)["cpu"]
    return (NOW - max(pod.started, pod.checkpointed) + 30) * cpu


def test_two_that_have_just_begun_leave_before_one_that_is_old() -> None:
    """kube-scheduler's order would evict the one: its sum of priorities is lower."""
    pods = [running("old", "n0", 4, started=1.0)]
    pods += [running(f"new{number}", "n1", 2, started=NOW - 60) for number in range(2)]
    pending = [waiting("urgent", 4, priority=10)]
    assert _leaving(pods, pending) == ["default/new0", "default/new1"]
    assert _leaving(pods, pending, BUILT_IN) == ["default/old"]


def test_a_checkpoint_lowers_what_is_lost() -> None:
    """The old pod saved its work a moment ago."""
    pods = [running("old", "n0", 4, started=1.0, checkpointed=NOW - 10), running("new", "n1", 4, started=NOW - 600)]
    assert _leaving(pods, [waiting("urgent", 4, priority=10)]) == ["default/old"]


def test_a_replica_of_a_service_loses_no_work() -> None:
    """It leaves before a job that has just begun, however old it is."""
    pods = [running("old", "n0", 4, started=1.0, finite=False), running("new", "n1", 4, started=NOW - 60)]
    assert _leaving(pods, [waiting("urgent", 4, priority=10)]) == ["default/old"]


def test_a_lower_priority_leaves_however_much_it_loses() -> None:
    """The highest priority comes first."""
    pods = [running("low", "n0", 4, started=1.0), running("high", "n1", 4, priority=5, started=NOW)]
    assert _leaving(pods, [waiting("urgent", 4, priority=10)]) == ["default/low"]


def test_a_policy_that_ignores_lost_work() -> None:
    """Only the start counts then, by what a pod holds: the smaller pod leaves though it is older."""
    ignores = msgspec.structs.replace(POLICY, rescheduling=ReschedulingPolicy(lost_work=LostWork.IGNORE))
    pods = [running("old", "n0", 2, started=1.0), running("new", "n1", 4, started=NOW - 60)]
    pods += [running("beside", "n0", 2, priority=99)]
    assert _leaving(pods, [waiting("urgent", 2, priority=10)], ignores) == ["default/old"]


@pytest.mark.parametrize("seed", range(40 if is_quick() else 1_000))
def test_nobody_else_loses_less(seed: int) -> None:
    """One urgent pod, beside all sets of pods of all nodes."""
    draw = random.Random(seed)
    pods = [
        running(
            f"r{place}-{number}",
            f"n{place}",
            draw.choice((1, 1, 2)),
            priority=draw.choice((0, 0, 5)),
            started=NOW - draw.randint(1, 5_000),
            checkpointed=draw.choice((0.0, NOW - draw.randint(1, 500))),
        )
        for place in range(draw.randint(2, 4))
        for number in range(2)
    ]
    wanted = draw.choice((2, 3, 4))
    nodes = [node(f"n{place}") for place in range(len(pods) // 2)]
    drawn = snapshot(nodes, pods, [waiting("urgent", wanted, priority=10)], policy=POLICY)
    result = _planned(drawn)
    plans = []
    for place in range(len(pods) // 2):
        here = [pod for pod in pods if pod.node_name == f"n{place}"]
        room = 4 - sum(dict(pod.usage)["cpu"] for pod in here)
        for size in range(len(here) + 1):
            for chosen in combinations(here, size):
                if room + sum(dict(pod.usage)["cpu"] for pod in chosen) >= wanted:
                    highest = max((pod.pod_class.priority for pod in chosen), default=-1)
                    plans.append((highest, sum(map(_ages, chosen))))
    gone = {each.pod.key for each in result.evictions}
    ours = [pod for pod in pods if pod.key in gone]
    highest = max((pod.pod_class.priority for pod in ours), default=-1)
    least = min(plans)
    assert highest == least[0]
    assert sum(map(_ages, ours)) == pytest.approx(least[1], rel=0.01)


@pytest.mark.parametrize("small", [8, 40, 100])
def test_one_large_pod_leaves_before_many_small_ones_that_lose_more(small: int) -> None:
    """However many pods a node has: the large one alone loses less than all the small ones."""
    nodes = [node("n0", 2 * small)]
    pods = [running("large", "n0", small, started=NOW - 1_000)]
    pods += [running(f"small{number}", "n0", 1, started=NOW - 990) for number in range(small)]
    pods = [msgspec.structs.replace(pod, checkpointed=0.0) for pod in pods]
    result = _planned(snapshot(nodes, pods, [waiting("urgent", small, priority=10)], policy=POLICY))
    lost = {pod.key: _ages(pod) for pod in pods}
    ours = sum(lost[each.pod.key] for each in result.evictions)
    assert ours <= 1.02 * min(lost["default/large"], sum(lost.values()) - lost["default/large"])
