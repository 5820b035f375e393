"""Pods that need one NUMA zone: nobody is sent where only the sum of the zones has room.

What may happen on a node is tried in full here: pods come in any order, and the kubelet takes any zone that has room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import GI, node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan, plan_and_check

from flowcore.cluster.arrays.numa_room import MANY, NumaRoom
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot, Victim
from flowcore.model.gangs import Gang
from flowcore.model.numa import NO_CLAIMS, NumaClaims, NumaNeeds, NumaNode, claims_of
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.round import RoundResult, run_one_by_one, run_round
from flowcore.rules.filters import node_resource_topology
from flowcore.rules.reasons.reasons import node_reasons

GPU = "nvidia.com/gpu"
#: Cpus and GPUs, of a zone or of a container.
Few = tuple[int, int]


def amounts(few: Few) -> Amounts:
    return tuple((name, amount) for name, amount in (("cpu", 1000 * few[0]), (GPU, few[1])) if amount)


def needs_of(*containers: Few, everywhere: bool = False) -> NumaNeeds:
    pod = tuple(map(sum, zip(*containers, strict=True)))
    return NumaNeeds(tuple(amounts(each) for each in containers if any(each)), amounts(pod), everywhere)


def reported(name: str, zones: Sequence[Few], *, single: bool = True, pod_scope: bool = False) -> NumaNode:
    whole = tuple((("cpu", 1000 * cpu), (GPU, gpu)) for cpu, gpu in zones)
    return NumaNode(name, whole, single, pod_scope)


def room_of(*nodes: NumaNode, claims: NumaClaims = NO_CLAIMS) -> NumaRoom:
    index = {each.name: at for at, each in enumerate(nodes)}
    return NumaRoom.of({each.name: (each, claims) for each in nodes}, index)


def count(room: NumaRoom, needs: NumaNeeds, at: int = 0) -> int:
    found = int(room.counts(needs)[at])
    assert found == int(room.counts(needs, np.array([at]))[0]) == int(room.of_nodes(np.array([at])).counts(needs)[0])
    return found


# --- what a kubelet may do ---


def choices(zones: tuple[Few, ...], items: tuple[Few, ...], *, first: bool) -> Iterator[tuple[Few, ...] | None]:
    """The zones after each choice for a pod's items; None where an item finds no zone. ``first``: the lowest one."""
    if not items:
        yield zones
        return
    (cpu, gpu), rest = items[0], items[1:]
    fitting = [at for at, zone in enumerate(zones) if zone[0] >= cpu and zone[1] >= gpu]
    if not fitting:
        yield None
    for at in fitting[:1] if first else fitting:
        after = (*zones[:at], (zones[at][0] - cpu, zones[at][1] - gpu), *zones[at + 1 :])
        yield from choices(after, rest, first=first)


@lru_cache(maxsize=100_000)
def everybody_fits(zones: tuple[Few, ...], pods: tuple[tuple[Few, ...], ...], *, first: bool = False) -> bool:
    """Whether all pods find their zones, in whatever order they come and whatever the kubelet chooses."""
    for at in range(len(pods)):
        if pods[at] in pods[:at]:
            continue
        rest = (*pods[:at], *pods[at + 1 :])
        for after in choices(zones, pods[at], first=first):
            if after is None or not everybody_fits(after, rest, first=first):
                return False
    return True


few = st.tuples(st.integers(0, 4), st.integers(0, 2))
some = few.filter(any)
containers_drawn = st.lists(few, min_size=1, max_size=3).filter(lambda each: any(map(any, each)))
zones_drawn = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=3)


@settings(max_examples=examples(150))
@given(zones=zones_drawn, pods=st.lists(some, min_size=1, max_size=5), pod_scope=st.booleans())
def test_whoever_is_counted_finds_a_zone(zones: list[Few], pods: list[Few], *, pod_scope: bool) -> None:
    """Pods of several sizes, taken as long as they are counted, fit in any order with any choice of zones."""
    room, taken = room_of(reported("n", zones, pod_scope=pod_scope)), []
    for each in pods:
        needs = needs_of(each)
        if count(room, needs):
            room.take(needs, np.array([0]), np.array([1]))
            taken.append((each,))
    assert everybody_fits(tuple(zones), tuple(taken))


@settings(max_examples=examples(150))
@given(zones_drawn, some)
def test_pods_of_one_size_are_counted_exactly(zones: list[Few], each: Few) -> None:
    """As many as the zones hold, and not one more or less."""
    room, needs = room_of(reported("n", zones)), needs_of(each)
    most = sum(min([have // want for have, want in zip(zone, each, strict=True) if want]) for zone in zones)
    for there in range(most + 1):
        assert count(room, needs) == most - there
        room.take(needs, np.array([0]), np.array([1]))


@settings(max_examples=examples(150))
@given(zones_drawn, st.lists(containers_drawn, max_size=3))
def test_each_container_finds_a_zone(zones: list[Few], pods: list[list[Few]]) -> None:
    """Where the kubelet keeps containers in one zone each, and takes the first with room, no container is refused."""
    room, taken = room_of(reported("n", zones)), []
    for each in pods:
        needs = needs_of(*each)
        alone = tuple(item for item in each if any(item))
        if not taken:
            assert bool(count(room, needs)) == everybody_fits(tuple(zones), (alone,), first=True), "one pod is exact"
        if count(room, needs):
            room.take(needs, np.array([0]), np.array([1]))
            taken.append(alone)
    assert everybody_fits(tuple(zones), tuple(taken), first=True)


@settings(max_examples=examples(100))
@given(zones_drawn, st.lists(some, min_size=1, max_size=4), some)
def test_what_was_taken_comes_back(zones: list[Few], pods: list[Few], last: Few) -> None:
    """After all that was taken is given back the room is as before; in between it is never overestimated."""
    fresh, room = room_of(reported("n", zones)), room_of(reported("n", zones))
    for each in pods:
        room.take(needs_of(each), np.array([0]), np.array([1]))
    for at, each in enumerate(pods):
        rest = room_of(reported("n", zones))
        for other in pods[at:]:
            rest.take(needs_of(other), np.array([0]), np.array([1]))
        assert count(room, needs_of(last)) <= count(rest, needs_of(last))
        room.take(needs_of(each), np.array([0]), np.array([-1]))
    assert count(room, needs_of(last)) == count(fresh, needs_of(last))


@settings(max_examples=examples(100))
@given(zones=zones_drawn, pods=st.lists(some, min_size=1, max_size=4), last=some, pod_scope=st.booleans())
def test_claims_count_like_what_is_taken(zones: list[Few], pods: list[Few], last: Few, *, pod_scope: bool) -> None:
    """Pods that a report may not show count as if a round had placed them."""
    report = reported("n", zones, pod_scope=pod_scope)
    room, claims = room_of(report), claims_of([needs_of(each) for each in pods], report)
    for each in pods:
        room.take(needs_of(each), np.array([0]), np.array([1]))
    assert count(room, needs_of(last)) == count(room_of(report, claims=claims), needs_of(last))


# --- corners ---


def test_a_node_without_the_policy_refuses_nobody() -> None:
    """Only kubelets with single-numa-node refuse pods; a pod that asks for one zone itself is kept to one anyway."""
    room = room_of(reported("n", [(4, 0), (4, 0)], single=False))
    assert count(room, needs_of((6, 0))) == MANY
    assert count(room, needs_of((6, 0), everywhere=True)) == 0
    assert count(room, needs_of((3, 0), everywhere=True)) == 1, "nobody knows which zones the first one takes"


def test_a_resource_that_no_zone_reports_has_no_zone() -> None:
    """Memory is not kept in a zone where the kubelet does not report it; a zone without a device has none of it."""
    room = room_of(NumaNode("n", ((("cpu", 4000), (GPU, 2)), (("cpu", 4000),)), single=True))
    memory = NumaNeeds(((("cpu", 4000), ("memory", 2**45)),), (("cpu", 4000), ("memory", 2**45)))
    assert count(room, memory) == 2
    assert count(room, needs_of((1, 1))) == 2, "both GPUs are in the first zone"
    assert count(room, NumaNeeds(((("memory", 1),),), (("memory", 1),))) == MANY


def test_a_pod_whose_containers_may_be_torn_apart_counts_in_all_zones() -> None:
    """It asks for one zone, its kubelet keeps each container in one: after it nobody knows what is left where."""
    room = room_of(reported("n", [(8, 0), (8, 0)]))
    both = needs_of((2, 0), (2, 0), everywhere=True)
    assert count(room, both) == 2
    room.take(both, np.array([0]), np.array([1]))
    assert count(room, needs_of((5, 0))) == 0
    assert count(room, needs_of((4, 0))) == 2, "four of eight may be gone in each"


def test_huge_amounts_do_not_overflow() -> None:
    """Amounts near 2^63 fit nowhere, and many of them still count as positive."""
    room = room_of(reported("n", [(4, 0)]))
    huge = NumaNeeds(((("cpu", 2**63 - 1),),), (("cpu", 2**63 - 1),))
    assert count(room, huge) == 0
    for _ in range(100):
        room.take(huge, np.array([0]), np.array([1]))
    assert count(room, needs_of((1, 0))) == 0


# --- rounds ---


def with_zones(nodes: Sequence[NumaNode], pending: Sequence[PendingPod]) -> Snapshot:
    """Nodes that have the sum of their zones, and memory."""
    table = [
        node(
            each.name, sum(dict(zone)["cpu"] for zone in each.zones), 64 * GI, gpu=sum(dict(z)[GPU] for z in each.zones)
        )
        for each in nodes
    ]
    return replace(snapshot(table, pending), numa=room_of(*nodes))


def task(name: str, *containers: Few, everywhere: bool = False) -> PendingPod:
    needs = needs_of(*containers, everywhere=everywhere)
    return pod(name, dict(needs.pod).get("cpu", 0), GI, gpu=dict(needs.pod).get(GPU, 0), numa=needs)


@settings(max_examples=examples(25))
@given(
    st.lists(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=2), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=8),
)
def test_no_plan_breaks_a_zone(nodes: list[list[Few]], pods: list[Few]) -> None:
    """Of a round, and of one pod after the other: everybody finds a zone, and whom a node still takes is not left."""
    found = [reported(f"n{at}", zones) for at, zones in enumerate(nodes)]
    state = with_zones(found, [task(f"p{at}", each) for at, each in enumerate(pods)])
    results = plan_and_check(state), run_one_by_one(state)
    check_plan(state, results[1])
    for result in results:
        for each, zones in zip(found, nodes, strict=True):
            here = [(pods[int(p.pod.uid[1:])],) for p in result.placements if p.node == each.name]
            assert everybody_fits(tuple(zones), tuple(here))


def test_only_the_sum_fits() -> None:
    """Six of eight free cpus are no room where they are in two zones; the code and the sentence say so."""
    split, whole = reported("split", [(4, 0), (4, 0)]), reported("whole", [(6, 0), (2, 0)])
    assert not plan_and_check(with_zones([split], [task("p", (6, 0))])).placements
    result = plan_and_check(with_zones([split, whole], [task("p", (6, 0)), task("q", (6, 0))]))
    assert [each.node for each in result.placements] == ["whole"]
    (left,) = result.unplaced
    assert left.code == node_resource_topology.NAME
    assert f"1 {node_resource_topology.REASON}" in left.reason


def test_zones_that_nobody_asks_for_change_nothing() -> None:
    """Where no kubelet refuses pods, pods that differ in what they need of zones are alike, as before."""
    nodes = [reported("a", [(4, 0), (4, 0)], single=False), reported("b", [(4, 0), (4, 0)], single=False)]
    pending = [task("p", (6, 0)), task("q", (3, 0), (3, 0)), pod("r", 6000, GI)]
    plain = [pod(each.uid, 6000, GI) for each in pending]
    result, before = (run_round(with_zones(nodes, each)) for each in (pending, plain))
    assert [(p.pod.key, p.node, p.price) for p in result.placements] == [
        (p.pod.key, p.node, p.price) for p in before.placements
    ]
    assert (result.cost, result.lower_bound) == (before.cost, before.lower_bound)


@pytest.mark.parametrize("known", [None, (), (NumaNode("silent"),), (NumaNode("silent", single=True),)])
def test_a_pod_that_asks_for_one_zone_goes_to_reporting_nodes_only(known: tuple[NumaNode, ...] | None) -> None:
    """On a node without a report, or with one that names no zones, nobody knows whether one zone has room."""
    state = with_zones([reported("a", [(4, 0)], single=False)], [task("p", (2, 0), everywhere=True)])
    silent = snapshot([node("silent", 8000, 64 * GI)], state.pending)
    if known is not None:
        reports = {each.name: (each, NO_CLAIMS) for each in known}
        silent = replace(silent, numa=NumaRoom.of(reports, silent.table.index))
    assert [each.node for each in plan_and_check(state).placements] == ["a"]
    (left,) = plan_and_check(silent).unplaced
    assert node_resource_topology.REASON_UNREPORTED in left.reason
    assert node_reasons(PodClass(numa=needs_of((1, 0), everywhere=True)), silent) == {
        "silent": node_resource_topology.REASON_UNREPORTED
    }


def test_a_pod_that_replaces_another_takes_a_zone() -> None:
    """A free one, since nobody knows when the old pod's comes free; others of the round do not get it."""
    old = Victim("default/old", "n", (("cpu", 6000), ("memory", GI)))
    for zones, placed in (([(6, 0), (6, 0)], {"new", "other"}), ([(6, 0), (5, 0)], {"new"}), ([(5, 0), (5, 0)], set())):
        state = with_zones([reported("n", zones)], [])
        used = state.used.copy()
        used[0, state.resources.index("cpu")] = 6000
        allocatable = state.allocatable.copy()
        allocatable[0, state.resources.index("cpu")] += 6000
        pending = (msgspec.structs.replace(task("new", (6, 0)), victim=old), task("other", (6, 0)))
        result = run_round(replace(state, used=used, allocatable=allocatable, pending=pending))
        assert {each.pod.uid for each in result.placements} == placed


# --- gangs and evictions ---


def in_place(result: RoundResult, names: Sequence[str], sizes: dict[str, Few]) -> list[tuple[tuple[Few, ...], ...]]:
    """The pods that a plan sends to each node, as ``everybody_fits`` takes them."""
    return [tuple((sizes[p.pod.uid],) for p in result.placements if p.node == name) for name in names]


@settings(max_examples=examples(25))
@given(
    st.lists(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_gangs_find_zones_as_a_whole(nodes: list[list[Few]], gangs: list[list[Few]]) -> None:
    """Pods of a gang are tried, taken back and placed again: what is left of zones stays right."""
    found = [reported(f"n{at}", zones) for at, zones in enumerate(nodes)]
    sizes = {f"g{at}-{place}": each for at, pods in enumerate(gangs) for place, each in enumerate(pods)}
    pending = [
        msgspec.structs.replace(task(name, each), gangs=(name.partition("-")[0],)) for name, each in sizes.items()
    ]
    known = {f"g{at}": Gang(f"g{at}", len(pods)) for at, pods in enumerate(gangs)}
    result = run_round(replace(with_zones(found, pending), gangs=known))
    placed = Counter(name for each in result.placements for name in each.pod.gangs)
    assert all(count == known[name].min_placed for name, count in placed.items())
    for zones, here in zip(nodes, in_place(result, [each.name for each in found], sizes), strict=True):
        assert everybody_fits(tuple(zones), here)


def resident(at: int, cpus: int) -> RunningPod:
    """A pod of priority 0 that takes shared cpus of its node."""
    pod_class = PodClass(requests=(("cpu", 1000 * cpus),))
    signature = PodSignature("default")
    return RunningPod(f"default/r{at}", f"r{at}", "n", pod_class, pod_class.requests, signature, 1.0, owner="web")


@settings(max_examples=examples(40))
@given(
    zones_drawn.filter(lambda zones: any(cpus for cpus, _ in zones)),
    st.lists(st.integers(1, 4), max_size=4),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1)), min_size=1, max_size=4),
)
def test_nobody_leaves_for_a_pod_without_a_zone(zones: list[Few], there: list[int], pods: list[Few]) -> None:
    """Urgent pods that evict others find zones like all pods; whoever leaves, leaves for a pod that comes."""
    state = with_zones([reported("n", zones)], [])
    used = state.used.copy()
    used[0, state.resources.index("cpu")] = 1000 * sum(there)
    sizes = {f"p{at}": each for at, each in enumerate(pods)}
    tasks = [msgspec.structs.replace(each, pod_class=msgspec.structs.replace(each.pod_class, priority=9)) for each in
             (task(name, size) for name, size in sizes.items())]  # fmt: skip
    running = RunningPods(tuple(resident(at, cpus) for at, cpus in enumerate(there)))
    result = run_round(replace(state, used=used, pending=tuple(tasks), running=running))
    (here,) = in_place(result, ["n"], sizes)
    assert everybody_fits(tuple(zones), here)
    placed = {each.pod.key for each in result.placements}
    assert all(set(each.for_pods) & placed for each in result.evictions)


def test_an_urgent_pod_evicts_where_a_zone_is_free() -> None:
    """Shared cpus are taken, whole ones are free in one zone: somebody leaves. In a full zone nobody does."""
    for zones, leave in (([(6, 0), (2, 0)], 1), ([(4, 0), (4, 0)], 0)):
        state = with_zones([reported("n", zones)], [])
        used = state.used.copy()
        used[0, state.resources.index("cpu")] = 8000
        urgent = task("p", (6, 0))
        urgent = msgspec.structs.replace(urgent, pod_class=msgspec.structs.replace(urgent.pod_class, priority=9))
        running = RunningPods((resident(0, 6), resident(1, 2)))
        result = run_round(replace(state, used=used, pending=(urgent,), running=running))
        assert (len(result.evictions), len(result.placements)) == (leave, leave)
