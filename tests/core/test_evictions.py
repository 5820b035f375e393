"""Plans with evictions: legal in the order in which they are carried out, and nobody leaves in vain."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from support.eviction_clusters import clusters, node, running, selects, snapshot, waiting
from support.eviction_safety import check_evictions
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node, Taint
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import ANY_ADDRESS, HostPort, Toleration
from flowcore.model.policies import BUILT_IN, ReschedulingMode, ReschedulingPolicy
from flowcore.model.running_pods import RunningPod
from flowcore.planning.round import run_round
from flowcore.planning.round.round import DEFAULT_POLICIES

MOVES = msgspec.structs.replace(BUILT_IN, rescheduling=ReschedulingPolicy(mode=ReschedulingMode.ACT, min_age=0))


@given(clusters(BUILT_IN))
@settings(max_examples=examples(80))
def test_preemption_is_legal_and_needed(drawn: Snapshot) -> None:
    """Filters, priorities, budgets and gangs hold in the order of the plan; every victim is needed."""
    check_evictions(drawn, run_round(drawn), DEFAULT_POLICIES)


@given(clusters(MOVES))
@settings(max_examples=examples(80))
def test_moves_are_legal_and_needed(drawn: Snapshot) -> None:
    """The same with moves: each pod has room on its next node before it leaves."""
    policies = {MOVES.name: MOVES}
    check_evictions(drawn, run_round(drawn, policies), policies)


def test_a_pod_whose_room_a_spread_pod_counts_goes_elsewhere_for_a_higher_one() -> None:
    """The high pod wants no c in its zone. The low c has its room there, and a pod that counts c is placed beside."""
    apart = InterPodConstraints(anti_affinity=(AffinityTerm("zone", selects("c"), ("default",)),))
    counts = InterPodConstraints(spread=(SpreadConstraint("zone", 1, selects("c")),))
    pods = [
        running("leaves", "n1a", 1, labels=(("app", "c"),)),
        running("stays", "n2b", 1, priority=10, labels=(("app", "c"),), immovable_reason="x"),
    ]
    c = (("app", "c"),)
    pending = [
        waiting("high", 1, priority=10, signature=PodSignature("default", c, constraints=apart)),
        waiting("low", 1, signature=PodSignature("default", c)),
        waiting("counts", 1, priority=10, signature=PodSignature("default", constraints=counts)),
    ]
    drawn = snapshot([node("n1a", 4), node("n2b", 6)], pods, pending)
    result = run_round(drawn)
    check_evictions(drawn, result, DEFAULT_POLICIES)
    assert not result.unplaced
    assert [each.pod.key for each in result.evictions] == ["default/leaves"]


@pytest.mark.parametrize(("cpu", "runs"), [((8,), False), ((6, 8), False), ((8,), True)])
def test_no_move_relies_on_a_pod_that_comes_after_it(cpu: tuple[int, ...], runs: bool) -> None:  # noqa: FBT001
    """A pod that wants to be near another one does not move for its sake, or where that one still waits for victims."""
    near = InterPodConstraints(affinity=(AffinityTerm("zone", selects("big"), ("default",)),))
    nodes = [node("m1", 4), *(node(f"n{place}1", size) for place, size in enumerate(cpu))]
    pods = [running("mover", f"n{len(cpu) - 1}1", 4, priority=8, constraints=near)]
    pods += [running("lower", "n01", 6, priority=-1, immovable_reason="stays")] * (len(cpu) > 1)
    others = PodSignature("default", (("app", "big"),))
    pending = [
        waiting(f"w{place}", size, priority=7 + len(cpu) - place, signature=others) for place, size in enumerate(cpu)
    ]
    if runs:
        nodes.append(node("k1", 4))
        pods.append(running("there", "k1", 4, labels=others.labels, immovable_reason="stays"))
    result = run_round(snapshot(nodes, pods, pending, policy=MOVES), {MOVES.name: MOVES})
    assert [each.pod.key for each in result.evictions if each.to] == ["default/mover"] * runs
    assert len(result.placements) == len(cpu) - (not runs)


def _tainted(name: str, cpu: int) -> Node:
    return msgspec.structs.replace(node(name, cpu), taints=(Taint("t", "", "NoSchedule"),))


def test_a_gang_that_leaves_frees_no_node_that_the_pod_may_not_use() -> None:
    """Its other pod leaves a node whose taint the second waiting pod does not tolerate."""
    gang = GangRef(GangKey(GangSource.THALWEG, "default", "g"), GangSpec(min_member=2))
    runs = [running("r0", "n0", 3, gang=gang), running("r1", "n1", 1, gang=gang), running("r2", "n1", 2)]
    pending = [waiting("w0", 3, priority=10), waiting("w1", 3, priority=10)]
    drawn = snapshot([node("n0", 3), _tainted("n1", 3)], runs, pending)
    result = run_round(drawn)
    assert [placement.node for placement in result.placements] == ["n0"]
    assert {eviction.pod.key for eviction in result.evictions} == {"default/r0", "default/r1"}


def test_a_gang_of_two_priorities_comes_whole_or_not_at_all() -> None:
    """Room is left for its first pod only: it waits, whatever is decided again for others of that pod's priority."""
    runs = [running("r0", "n0", 1, priority=1), running("r1", "n0", 3, priority=1)]
    pending = [
        waiting("w", 1, priority=3),
        waiting("g0", 3, priority=3, gangs=("g",)),
        waiting("g1", 1, gangs=("g",)),
    ]
    drawn = snapshot([node("n0", 4)], runs, pending, gangs=[Gang("g", 2)])
    result = run_round(drawn)
    check_evictions(drawn, result, DEFAULT_POLICIES)
    assert [each.pod.key for each in result.placements] == ["default/w"]


def test_a_placement_that_stays_leaves_its_room_to_none_that_comes_at_once() -> None:
    """A pod of the gang takes its room, and for the other one a pod leaves: then there is room for it again, later."""
    pending = [
        waiting("g0", 1, priority=3, gangs=("g",)),
        waiting("g1", 3, priority=2, gangs=("g",)),
        waiting("w", 2, priority=1),
    ]
    drawn = snapshot([node("n0", 6)], [running("r0", "n0", 3, priority=1)], pending, gangs=[Gang("g", 2)])
    result = run_round(drawn)
    check_evictions(drawn, result, DEFAULT_POLICIES)
    assert len(result.placements) == 3


def test_a_pod_more_of_a_gang_stays_in_the_zone_that_the_plan_chose() -> None:
    """The gang needs two pods, which zone b has room for; nobody leaves zone a for its third."""
    gang = Gang("g", 2, topology_key="zone")
    pending = [waiting(f"w{number}", 1, priority=10, gangs=("g",)) for number in range(3)]
    result = run_round(snapshot([node("xb", 2), node("xa", 1)], [running("r0", "xa", 1)], pending, gangs=[gang]))
    assert [placement.node for placement in result.placements] == ["xb", "xb"]
    assert not result.evictions


def test_a_pod_with_a_port_stays_in_the_zone_of_its_gang() -> None:
    """The gang runs in zone b: nobody leaves zone a for it, also where every filter judges."""
    gang = Gang("g", 1, topology_key="zone", domain="b", partially_placed=True)
    runs = [running("r0", "xa", 2), running("r1", "xb", 1, priority=100)]
    port = HostPort(ANY_ADDRESS, "TCP", 80)
    pending = [waiting("w0", 1, priority=10, gangs=("g",), host_ports=(port,))]
    result = run_round(snapshot([node("xb", 1), node("xa", 2)], runs, pending, gangs=[gang]))
    assert not result.placements
    assert not result.evictions


def test_a_move_opens_no_node_that_the_pod_may_not_use() -> None:
    """The moved pod tolerates the taint of the node that it goes to; the waiting pods do not."""

    def tolerating(name: str, on: str, priority: int) -> RunningPod:
        pod = running(name, on, 1, priority=priority)
        tolerant = msgspec.structs.replace(pod.pod_class, tolerations=(Toleration("t", "Exists", "", ""),))
        return msgspec.structs.replace(pod, pod_class=tolerant)

    runs = [tolerating("r0", "n0", 10), tolerating("r1", "n1", 0)]
    pending = [waiting("w0", 1, priority=10), waiting("w1", 1, priority=10), waiting("other", 64, preempts=False)]
    drawn = snapshot([node("n0", 1), _tainted("n1", 2)], runs, pending, policy=MOVES)
    result = run_round(drawn, {MOVES.name: MOVES})
    assert [placement.node for placement in result.placements] == ["n0"]
