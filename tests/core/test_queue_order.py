"""Who goes first among pods of equal priority: how much room waits and for how long counts, not how many pods."""

import csv
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from harness.waiting_order import KubeSchedulerOrder, draw, rounds_by, simulate
from support.model import node, pod, snapshot
from support.repository import ROOT

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import RoundResult, run_round

NOW = 1e9
BY_POD = Policy("by-pod", unscheduled=UnscheduledPrice(per=PricedBy.POD))
POLICIES = {BUILT_IN.name: BUILT_IN, BY_POD.name: BY_POD}


def placed(result: RoundResult) -> set[str]:
    """Names of the pods that got a node."""
    return {each.pod.uid for each in result.placements}


@pytest.mark.parametrize("scale", [1, 10, 100])
@pytest.mark.parametrize(
    ("old", "seconds", "new"),
    [
        (4000, 60, [2000, 2000]),
        (4000, 5, [2000, 2000]),
        (4000, 60, [1000] * 4),
        (4000, 60, [3000, 1000]),
        (3000, 600, [2000, 2000]),
        (2000, 600, [4000]),
        (1000, 1200, [4000]),
        (2000, 600, [3000]),
    ],
)
def test_the_pod_that_came_first_gets_the_room(old: int, seconds: float, new: list[int], scale: int) -> None:
    """On a node of 4 cores, and for pods that are as small a part of a node as 1/100 of these."""
    nodes = [node("n", 4000), *(node(f"full-{number}", 4000 * scale) for number in range(scale - 1))]
    running = [(f"full-{number}", (("cpu", 4000 * scale),), ()) for number in range(scale - 1)]
    first = pod("first", old, created=NOW - seconds)
    others = [pod(f"new-{number}", cpu, created=NOW - 1) for number, cpu in enumerate(new)]
    result = run_round(snapshot(nodes, [*others, first], running, now=NOW))
    assert "first" in placed(result)


@pytest.mark.parametrize(("low", "high"), [(0, 1000), (-10, 0), (0, 1_000_000)])
@pytest.mark.parametrize(("old", "seconds"), [(2000, 900), (1000, 1800), (1000, 86_400)])
def test_the_age_of_lower_priorities_makes_no_new_pod_pass_an_older_one(
    low: int, high: int, old: int, seconds: float
) -> None:
    """Pods of a lower priority have waited for days: those above go in the order in which they came, as without them.

    On a node of 4 cores that the new pod would fill.
    """
    first, new = (
        pod(name, cpu, priority=high, created=NOW - age)
        for name, cpu, age in (("first", old, seconds), ("new", 4000, 1))
    )
    backlog = [pod(f"low-{number}", 3500, priority=low, created=NOW - 3 * 86_400) for number in range(3)]
    assert "first" in placed(run_round(snapshot([node("n", 4000)], [new, first, *backlog], now=NOW)))


@pytest.mark.parametrize(("seconds", "new", "nodes"), [(60, [2000] * 2, 1), (60, [1000] * 4, 1), (600, [1000] * 16, 2)])
def test_pods_leave_for_the_pod_that_came_first(seconds: float, new: list[int], nodes: int) -> None:
    """Where all nodes are full of pods of a lower priority, sizes and ages count as where there is room."""
    usage = (("cpu", 4000),)
    leavers = [
        RunningPod(f"d/r{at}", f"r{at}", f"n{at}", PodClass(requests=usage), usage, started=1.0, policy=BUILT_IN.name)
        for at in range(nodes)
    ]
    waiting = [pod(f"new-{number}", cpu, priority=10, created=NOW - 1) for number, cpu in enumerate(new)]
    waiting.append(pod("first", 4000, priority=10, created=NOW - seconds))
    cluster = snapshot(
        [node(each.node, 4000) for each in leavers], waiting, [(each.node, usage, ()) for each in leavers], now=NOW
    )
    assert "first" in placed(run_round(replace(cluster, running=RunningPods(tuple(leavers)))))


def test_a_policy_may_count_pods() -> None:
    """Two new pods come before an older one that is as large as both, as the policy says."""
    for policy, names in ((BUILT_IN, {"first"}), (BY_POD, {"new-0", "new-1"})):
        pods = [
            pod("first", 4000, created=NOW - 60, policy=policy.name),
            *(pod(f"new-{number}", 2000, created=NOW - 1, policy=policy.name) for number in range(2)),
        ]
        assert placed(run_round(snapshot([node("n", 4000)], pods, now=NOW), POLICIES)) == names


def test_a_gang_counts_as_its_pods_together() -> None:
    """An older gang before new pods of the same size, and an older pod before a new gang."""
    for gang_age, pod_age, names in ((60, 1, {"g-0", "g-1"}), (1, 60, {"large"})):
        members = [
            msgspec.structs.replace(pod(f"g-{number}", 2000, created=NOW - gang_age), gangs=("g",))
            for number in range(2)
        ]
        cluster = snapshot([node("n", 4000)], [*members, pod("large", 4000, created=NOW - pod_age)], now=NOW)
        assert placed(run_round(replace(cluster, gangs={"g": Gang("g", 2)}))) == names


def test_pods_that_count_alike_count_as_the_mean_of_them_beside_others() -> None:
    """Who counts pods gains nothing on who counts sizes, and loses nothing, by that alone."""
    alike = [pod(f"alike-{number}", cpu, created=NOW, policy=BY_POD.name) for number, cpu in enumerate((1000, 3000))]
    cluster = snapshot([node("n", 4000)], [*alike, pod("large", 4000, created=NOW)], now=NOW)
    demands = demands_of(cluster, Plan(cluster).load(), POLICIES)
    price = {each.group.pods[0].uid: int(each.prices[0]) for each in demands}
    assert price["alike-0"] == price["alike-1"]
    assert price["alike-0"] + price["alike-1"] == price["large"]


def test_a_stream_of_small_pods_does_not_pass_a_large_one_for_ever() -> None:
    """Pods that ask for more than there is come at random: large ones wait as long as in kube-scheduler's order.

    Where pods count, they wait nearly twice as long.
    """
    arrivals = [
        replace(each, runs_for=55.0)
        for each in draw(1, 2, 1.3, 1800.0, {1 / 8: 0.5, 1 / 4: 0.3, 1.0: 0.2}, mean_seconds=60.0)
    ]
    placers = {"order": KubeSchedulerOrder(), "size": rounds_by(BUILT_IN, 40)}
    waits = {name: simulate(2, arrivals, placer, every=60.0, until=1800.0) for name, placer in placers.items()}
    longest = {name: float(np.percentile(large(each.seconds_waited, each.shares), 90)) for name, each in waits.items()}
    assert not any(each.overcommitted for each in waits.values())
    assert waits["size"].used >= 0.99 * waits["order"].used
    assert longest["size"] <= 1.2 * longest["order"]


def large(seconds: Sequence[float], shares: Sequence[float]) -> list[float]:
    """How long the large pods waited."""
    return [each for each, share in zip(seconds, shares, strict=True) if share >= 1 / 2]


def test_a_backlog_places_as_many_pods_of_several_gpus_as_kube_schedulers_order() -> None:
    """A small part of the openb trace: its pods ask for 120 % of the GPUs, and all came at once."""
    nodes = [
        node(f"n{shape}-{number}", int(cpu), int(mib) * 2**20, gpu=int(gpu))
        for shape, (cpu, mib, gpu, _, count) in enumerate(_rows("openb_shapes.csv"))
        for number in range(round(int(count) / 40))
    ]
    waiting = [
        pod(f"p{size}-{number}", int(cpu), int(mib) * 2**20, gpu=int(gpu))
        for size, (cpu, mib, gpu, count) in enumerate(_rows("openb_sizes.csv"))
        for number in range(-(-int(count) // 40))
    ]
    order = np.random.default_rng(5).permutation(len(waiting)).tolist()
    cluster = snapshot(nodes, [waiting[place] for place in order], now=NOW)
    by_size, in_order = (
        [each.pod for each in run_round(cluster).placements],
        [each for each, _ in KubeSchedulerOrder()(cluster)],
    )
    assert several(by_size) >= several(in_order) > 0
    assert gpus(by_size) >= gpus(in_order)


def several(pods: Sequence[PendingPod]) -> int:
    """Pods that ask for several GPUs."""
    return sum(dict(each.pod_class.requests).get("nvidia.com/gpu", 0) > 1 for each in pods)


def gpus(pods: Sequence[PendingPod]) -> int:
    """GPUs of pods."""
    return sum(dict(each.pod_class.requests).get("nvidia.com/gpu", 0) for each in pods)


def _rows(name: str) -> list[list[str]]:
    return list(csv.reader((ROOT / "bench" / "harness" / name).read_text().splitlines()))[1:]
