"""A running pod whose node defers its resize waits with its node as the only place: others leave or move for it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import clusters, node, running, snapshot, waiting
from support.eviction_safety import check_evictions
from support.profiles import examples

from flowcore.api.base import Interner
from flowcore.api.pod_reader import PodReader
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.deferred_resizes import with_resizes
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.round_input import pending_pod

MOVES = msgspec.structs.replace(BUILT_IN, rescheduling=ReschedulingPolicy(mode=ReschedulingMode.ACT, min_age=0))


class _Facts:
    """Nothing is known of a pod but what it says."""

    def rejected_nodes(self, _pod: Pod) -> tuple[str, ...]:
        return ()

    def victim_of(self, _pod: Pod, _policy: Policy) -> None:
        return None

    def plannable_since(self, _pod: Pod) -> float:
        return 0.0

    def preempts(self, pod: Pod) -> bool:
        return pod.preempts

    def foreseen(self, _pod: Pod) -> None:
        return None


def resize(pod: Pod) -> PendingPod:
    """A deferred resize as a round plans it."""
    return pending_pod(pod.waiting_resize, BUILT_IN, _Facts(), Cluster())


def growing(name: str, on: str, cpu: int, by: int, priority: int = 5) -> Pod:
    """A running pod that asks for ``cpu``, and has ``by`` less."""
    return running(name, on, cpu, priority=priority, grows=(("cpu", by),))


def planned(drawn: Snapshot, policy: Policy = BUILT_IN) -> tuple[RoundResult, dict[str, str], list[str]]:
    """The plan, the node of each placement, and who leaves; the plan is legal and nobody leaves in vain."""
    policies = {policy.name: policy}
    result = run_round(drawn, policies)
    check_evictions(with_resizes(drawn), result, policies)
    places = {each.pod.key.partition("/")[2]: each.node for each in result.placements}
    return result, places, sorted(each.pod.key.partition("/")[2] for each in result.evictions)


def test_the_least_important_pods_of_its_node_leave() -> None:
    """Half of what it asks for is free: one of two pods leaves, and of another node nobody."""
    grows = growing("d", "n0", 5, 2)
    pods = [grows, running("low", "n0", 1), running("mid", "n0", 1, priority=1), running("other", "n1", 3)]
    result, places, leave = planned(snapshot([node("n0", 6), node("n1", 4)], pods, [resize(grows)]))
    assert (places, leave) == ({"d": "n0"}, ["low"])
    assert (result.after.used <= result.after.allocatable).all()


@pytest.mark.parametrize("beside", [{"priority": 5}, {"static": True}])
def test_where_nobody_may_leave_it_waits_and_nobody_gets_its_room(beside: dict[str, object]) -> None:
    """It says what its node lacks. A core is free there beside what it has, and counts as taken."""
    grows = growing("d", "n0", 5, 3)
    pods = [grows, running("stays", "n0", 1, **beside)]
    result, places, leave = planned(snapshot([node("n0", 5)], pods, [resize(grows), waiting("w", 1)]))
    assert (places, leave) == ({}, [])
    assert {each.pod.key: each.reason for each in result.unplaced} == dict.fromkeys(
        ("default/d", "default/w"), "0/1 nodes are available: 1 Insufficient cpu."
    )


def test_a_pod_that_may_move_moves_for_it() -> None:
    """A pod as important as itself has room on another node; itself it is not moved."""
    grows = growing("d", "n0", 4, 2)
    drawn = snapshot(
        [node("n0"), node("n1", 8)], [grows, running("mover", "n0", 1, priority=5)], [resize(grows)], policy=MOVES
    )
    result, places, leave = planned(drawn, MOVES)
    assert (places, leave) == ({"d": "n0"}, ["mover"])
    assert [(each.kind, each.to) for each in result.evictions] == [(EvictionKind.MIGRATION, "n1")]


def test_nobody_leaves_for_the_resize_of_a_pod_that_leaves() -> None:
    """An urgent pod takes the place of the pod that grows."""
    grows = growing("d", "n0", 4, 2)
    pods = [grows, running("low", "n0", 2)]
    _, places, leave = planned(snapshot([node("n0", 5)], pods, [resize(grows), waiting("urgent", 3, priority=9)]))
    assert (places, leave) == ({"urgent": "n0"}, ["d"])


def test_where_it_leaves_no_node_is_reserved_for_it() -> None:
    """It counts for one unit less than what its next pod asks for."""
    port = (HostPort(ANY_ADDRESS, "TCP", 80),)
    busy = running("busy", "n1", 1, priority=99, host_ports=port)
    for pod, to in ((growing("d", "n0", 4, 2), ""), (running("d", "n0", 3, priority=5), "n1")):
        waits = [waiting("urgent", 3, priority=9, host_ports=port), *([resize(pod)] if pod.grows else [])]
        result, places, _ = planned(snapshot([node("n0", 3), node("n1", 5)], [pod, busy], waits))
        assert places == {"urgent": "n0"}
        assert [(each.pod.key, each.to) for each in result.evictions] == [("default/d", to)]


def test_of_two_resizes_of_a_node_the_more_important_one_is_granted_first() -> None:
    """Where that is enough for it, nobody leaves for it. Else both count, as kube-scheduler counts them."""
    first, second = growing("first", "n0", 3000, 2000), growing("second", "n0", 3000, 2000, priority=1)
    drawn = [resize(second), resize(first)]
    result, places, leave = planned(snapshot([node("n0", 4000)], [first, second], drawn))
    assert ([each.pod.key for each in result.unplaced], places, leave) == (["default/second"], {}, [])
    pods = [first, second, running("low", "n0", 3000)]
    _, places, leave = planned(snapshot([node("n0", 5000)], pods, drawn))
    assert (places, leave) == ({"first": "n0"}, ["low", "second"])


def test_who_takes_room_beside_a_resize_that_waits_counts_what_it_asks_for() -> None:
    """Two leave for the urgent pod where one would do beside what the pod has. Then the resize has its room, too."""
    grows = msgspec.structs.replace(growing("d", "n0", 3000, 1000), static=True)
    pods = [grows, *(running(f"same{number}", "n0", 1000, priority=5) for number in range(2))]
    drawn = snapshot([node("n0", 4000)], pods, [resize(grows), waiting("urgent", 1000, priority=9)])
    _, places, leave = planned(drawn)
    assert (places, leave) == ({"urgent": "n0", "d": "n0"}, ["same0", "same1"])


@st.composite
def growing_clusters(draw: st.DrawFn, policy: Policy) -> Snapshot:
    """Drawn clusters in which some pods grow."""
    drawn = draw(clusters(policy))
    assert drawn.running is not None
    used, pods, pending = drawn.used.copy(), list(drawn.running.pods), list(drawn.pending)
    for place in draw(st.sets(st.sampled_from(range(len(pods))), max_size=3)) if pods else ():
        each, by = pods[place], draw(st.integers(1, 4))
        cpu = dict(each.usage)["cpu"] + by
        pods[place] = msgspec.structs.replace(each, usage=tuple((dict(each.usage) | {"cpu": cpu}).items()))
        used[drawn.table.index[each.node]] += drawn.vector((("cpu", by), ("pods", 0)))
        grown = growing(each.key.partition("/")[2], each.node, cpu, by, each.priority)
        pending.append(resize(grown))
    known = replace(drawn.running, pods=tuple(pods))
    return replace(drawn, used=used, pending=tuple(pending), running=known)


@pytest.mark.parametrize("policy", [BUILT_IN, MOVES], ids=["preemption", "moves"])
@given(data=st.data())
@settings(max_examples=examples(60))
def test_plans_with_resizes_are_legal_and_needed(policy: Policy, data: st.DataObject) -> None:
    """Filters, budgets, gangs and limits hold; who gets its room stays; no node is more overcommitted than before."""
    drawn = data.draw(growing_clusters(policy))
    result, places, leave = planned(drawn, policy)
    grown = {each.key.partition("/")[2] for each in drawn.pending if each.pod_class.node_name}
    assert not grown & places.keys() & set(leave)
    over = np.maximum(drawn.used - drawn.allocatable, 0)
    assert ((result.after.used - result.after.allocatable) <= over).all()


def test_a_pod_grows_while_its_resize_is_deferred() -> None:
    """By what it asks for beyond what it has; not where the node says that it never will, nor once it is deleted."""

    def read(reason: str, **metadata: str) -> tuple[tuple[str, int], ...]:
        status = {
            "phase": "Running",
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [
                {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
            ],
        }
        container = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
        pod = {"metadata": {"name": "p", **metadata}, "spec": {"nodeName": "n", "containers": [container]}}
        return PodReader(Interner())(msgspec.json.encode({**pod, "status": status})).grows

    assert read("Deferred") == (("cpu", 2000),)
    assert read("Infeasible") == ()
    assert read("Deferred", deletionTimestamp="2026-01-01T00:00:00Z") == ()
