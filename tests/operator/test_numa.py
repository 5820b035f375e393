"""NUMA zones in the operator: what is on its way to a node counts until the node has reported it."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.fake_cluster.driven_ledger import DrivenLedger
from support.histories import send_changes
from support.profiles import examples
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.watches import sinks
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.worker.messages import join_request, request_decoder, request_encoder, split_request
from thalweg_operator.planning.worker.replica import Replica
from thalweg_operator.reservations.ledger.numa_zones import finds_zone, planned_needs

from flowcore.api import Interner
from flowcore.api.kinds import NODE_TOPOLOGY
from flowcore.cluster.indexes.numa_index import REPORTED_AFTER
from flowcore.cluster.kinds import NODE_TOPOLOGIES
from flowcore.model.errors import ModelError
from flowcore.model.nodes import Node
from flowcore.model.numa import NumaNeeds, NumaNode, sum_of
from flowcore.model.pods import Pod, PodClass
from flowcore.model.resources import Amounts

EIGHT: Amounts = (("cpu", 8000),)
#: When reports are written and pods start, in seconds since the epoch.
T = 1_000_000.0


def report(*free: int, written: float = T) -> NumaNode:
    """Zones of the node "n" with so many cpus."""
    return NumaNode("n", tuple((("cpu", 1000 * cpus),) for cpus in free), single=True, written=written)


def pod(name: str, cpus: int = 8) -> Pod:
    needs = NumaNeeds(((("cpu", 1000 * cpus),),), (("cpu", 1000 * cpus),))
    return Pod("ns", name, f"u-{name}", PodClass(requests=(("cpu", 1000 * cpus),), numa=needs))


def started(each: Pod, at: float = T) -> Pod:
    return msgspec.structs.replace(each, node_name="n", usage=each.pod_class.requests, started=at)


class ReportedNode:
    """A node with plenty of room, its report, and a worker that follows."""

    def __init__(self, *free: int) -> None:
        self.state, self.replica = DrivenLedger(), Replica()
        self.state.set_namespace("ns", ())
        self.state.upsert_node(Node("n", allocatable=(("cpu", 64_000), ("pods", 100))))
        self.state.set_numa_node("n", report(*free))

    def room(self, cpus: int = 8, now: float = T) -> int:
        """How many more pods the worker would place."""
        needs = pod("any", cpus).pod_class.numa
        room = send_changes(self.state, self.replica, [], now=now).numa
        assert room is not None
        assert needs is not None
        return int(room.counts(needs, np.array([0]))[0])

    def bind(self, each: Pod) -> Pod:
        """A pod gets a reservation, and is seen bound."""
        self.state.upsert_pod(each)
        assert self.state.reserve(each, "n")
        assert self.room() == self.room(), "the worker is told once"
        bound = started(each, 0.0)
        self.state.upsert_pod(bound)
        return bound


def test_a_pod_counts_from_its_reservation_to_the_report_after_its_start() -> None:
    """In both zones: nobody knows which one it takes."""
    world = ReportedNode(8, 8)
    assert world.room() == 2
    first = world.bind(pod("a"))
    assert (world.room(), world.room(4)) == (1, 1)
    world.state.set_numa_node("n", report(8, 8, written=T + 5))
    assert world.room() == 1, "it has not started: no report shows it"
    world.state.upsert_pod(started(first, T + 5))
    assert world.room() == 1, "it started after the report was written, or in the same second"
    world.state.set_numa_node("n", report(0, 8, written=T + 6))
    assert (world.room(), world.room(4)) == (1, 2)
    world.state.delete_pod("ns/a")
    assert world.room() == 1, "the report does not say yet that it is gone"


def test_a_report_that_stays_as_it_is_shows_pods_after_a_while() -> None:
    """Agents write what changes: with nothing new for two minutes after its start a pod is in the report."""
    world = ReportedNode(0, 8)
    world.state.upsert_pod(started(world.bind(pod("a")), T))
    assert world.room(now=T + 10) == 0
    assert world.room(now=T + REPORTED_AFTER + 1) == 1


def test_after_a_restart_running_pods_are_in_the_report() -> None:
    """Whether the watch shows pods or reports first."""
    for pods_first in (True, False):
        state, replica = DrivenLedger(), Replica()
        state.upsert_node(Node("n", allocatable=(("cpu", 64_000), ("pods", 100))))
        if pods_first:
            state.upsert_pod(started(pod("a"), T - 1))
        state.set_numa_node("n", report(0, 8))
        state.upsert_pod(started(pod("a"), T - 1))
        room = send_changes(state, replica, [], now=T).numa
        assert room is not None
        assert room.counts(pod("x").pod_class.numa or NumaNeeds()).tolist() == [1]


def test_a_reservation_finds_a_zone_or_is_not_made() -> None:
    """Others may have taken the zones since the plan: the third of three pods for two zones is not reserved."""
    world = ReportedNode(8, 8)
    for name in ("a", "b", "c"):
        world.state.upsert_pod(pod(name))
    assert [world.state.reserve(pod(name), "n") for name in ("a", "b", "c")] == [True, True, False]
    assert world.room() == 0
    world.state.set_numa_node("n", None)
    assert world.state.reserve(pod("c"), "n"), "a node without a report takes it as before"


def test_kube_scheduler_is_told_where_no_zone_has_room() -> None:
    """It knows nothing of zones. Pods that need none are not kept from anything."""
    world = ReportedNode(8, 4)
    big, small = pod("big"), pod("small", 4)
    assert world.state.infeasible_nodes(big, ["n"]) == []
    world.state.upsert_pod(small)
    assert world.state.reserve(small, "n")
    assert world.state.infeasible_nodes(big, ["n"]) == ["n"], "the small one may take four of the eight"
    plain = msgspec.structs.replace(big, pod_class=msgspec.structs.replace(big.pod_class, numa=None))
    assert world.state.infeasible_nodes(plain, ["n"]) == []


def test_a_round_is_asked_for_when_zones_change_and_a_pod_waits_for_one() -> None:
    """Reports change with every pod that starts: without such pods nothing is planned anew."""
    world = ReportedNode(0, 0)
    asked = world.state.rounds_requested
    world.state.set_numa_node("n", report(8, 0))
    assert world.state.rounds_requested == asked
    world.state.upsert_pod(pod("a"))
    asked = world.state.rounds_requested
    world.state.set_numa_node("n", report(8, 8))
    assert world.state.rounds_requested == asked + 1
    world.state.set_numa_node("n", report(8, 8))
    assert world.state.rounds_requested == asked + 1


def test_a_request_carries_zones_in_parts_and_anew() -> None:
    """Encoded and decoded, split and joined, and for a worker that knows nothing."""
    world = ReportedNode(8, 8)
    world.bind(pod("a"))
    seen: list[object] = []
    apply = world.replica.apply
    world.replica.apply = lambda request: (seen.append(request), apply(request))[1]  # type: ignore[assignment,method-assign]
    send_changes(world.state, world.replica, [], now=T)
    (request,) = seen
    encoded = [request_encoder.encode(part) for part in split_request(request)]  # type: ignore[arg-type]
    joined = join_request([request_decoder.decode(each) for each in encoded])
    anew = Replica()
    anew.apply(world.replica.full_request(joined))
    rooms = [each.to_snapshot(joined, ()).numa for each in (world.replica, anew)]
    needs = pod("x").pod_class.numa
    assert needs is not None
    assert [room.counts(needs).tolist() for room in rooms if room is not None] == [[1], [1]]
    world.state.set_numa_node("n", None)
    send_changes(world.state, world.replica, [], now=T)
    assert world.replica.to_snapshot(joined, ()).numa is None


@pytest.mark.parametrize("available", ["-1", "many"])
def test_a_report_that_cannot_be_read_is_refused_by_name(available: str) -> None:
    """Zone, resource and value are in the sentence; the reflector keeps the version before."""
    zone = {"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "available": available}]}
    raw = json.dumps({"metadata": {"name": "n"}, "zones": [zone]}).encode()
    with pytest.raises(ModelError, match=r"zones\[node-0\]\.resources\.cpu"):
        sinks.decoder(NODE_TOPOLOGY, Interner(), BadInput(Metrics()))(raw)
    state = DrivenLedger()
    state.set_numa_node("n", report(8))
    sinks.ObjectSink(state.shell, NODE_TOPOLOGY, NODE_TOPOLOGIES).unreadable("n")
    assert sinks.ObjectSink(state.shell, NODE_TOPOLOGY, NODE_TOPOLOGIES).keys() == ["n"]


NODES = ("n0", "n1", "without-report")
GPU = "nvidia.com/gpu"
_AMOUNTS = st.sampled_from([(), *((("cpu", cpu),) for cpu in (1, 2, 3)), ((GPU, 1),), (("cpu", 2), (GPU, 1))])
_NEEDS = st.lists(_AMOUNTS.filter(bool), min_size=1, max_size=2).flatmap(
    lambda each: st.builds(NumaNeeds, st.just(tuple(each)), st.just(sum_of(each)), st.booleans())
)
_REPORTS = st.builds(
    NumaNode,
    st.sampled_from(NODES[:2]),
    st.lists(_AMOUNTS, max_size=3).map(tuple),
    st.sampled_from([True, True, False]),
    st.booleans(),
    st.integers(0, 5).map(float),
)
_STEPS = st.one_of(
    st.tuples(st.just("report"), _REPORTS),
    st.tuples(st.just("gone"), st.sampled_from(NODES)),
    st.tuples(st.just("reserve"), st.sampled_from("abcd"), st.sampled_from(NODES), _NEEDS),
    st.tuples(st.just("bind"), st.sampled_from("abcd"), st.integers(0, 5).map(float)),
    st.tuples(st.sampled_from(["release", "delete"]), st.sampled_from("abcd")),
)


def take_step(state: DrivenLedger, step: tuple[object, ...]) -> None:
    """Reports come and go; pods are reserved, seen bound, released and deleted."""
    match step:
        case ("report", NumaNode() as found):
            state.set_numa_node(found.name, found)
        case ("gone", str(name)):
            state.set_numa_node(name, None)
        case ("reserve", str(name), str(node), NumaNeeds() as needs) if f"ns/{name}" not in state.pods:
            each = Pod("ns", name, f"u-{name}", PodClass(numa=needs))
            state.upsert_pod(each)
            state.reserve(each, node)
        case ("bind", str(name), float(at)) if f"ns/{name}" in state.reservations:
            held = state.reservations[f"ns/{name}"]
            state.upsert_pod(msgspec.structs.replace(held.pod, node_name=held.node, started=at))
        case ("release", str(name)) if f"ns/{name}" in state.reservations:
            state.release(f"ns/{name}", f"u-{name}")
        case ("delete", str(name)) if f"ns/{name}" in state.pods:
            state.delete_pod(f"ns/{name}")


_CPU, _TWO_CPUS, _A_GPU = (("cpu", 1),), (("cpu", 2),), ((GPU, 1),)


@settings(max_examples=examples(60))
@example(  # what n0 does not report takes nothing there, though n1 reports it
    reports=[NumaNode("n0", (_TWO_CPUS, _CPU), single=True), NumaNode("n1", (_A_GPU,), single=True)],
    steps=[("reserve", "a", "n0", NumaNeeds((_A_GPU,), _A_GPU))],
    asked=[NumaNeeds((_TWO_CPUS, _CPU), (("cpu", 3),))],
)
@given(
    reports=st.lists(_REPORTS, min_size=1, max_size=3),
    steps=st.lists(_STEPS, min_size=5, max_size=25),
    asked=st.lists(_NEEDS, min_size=2, max_size=2),
)
def test_what_is_kept_says_what_each_node_says_anew(
    reports: list[NumaNode], steps: list[tuple[object, ...]], asked: list[NumaNeeds]
) -> None:
    """The answer for many nodes is that of each node, and the worker has what a walk over all reports would send."""
    state = DrivenLedger()
    state.set_namespace("ns", ())
    for name in NODES:
        state.upsert_node(Node(name, allocatable=(("cpu", 64_000), ("pods", 100))))
    worker: dict[str, object] = {}
    numa = state.cluster.numa
    for now, step in enumerate([*(("report", each) for each in reports), *steps]):
        take_step(state, step)
        changed, removed = state.numa.update(float(now), fresh=False)
        worker.update((entry[0].name, entry) for entry in changed)
        for name in removed:
            del worker[name]
        assert worker == {
            name: (known, numa.claims(name, planned_needs(state.ledger, name), float(now)))
            for name, known in numa.reports.items()
        }
        new = [Pod("ns", "new", "u-new", PodClass(numa=needs)) for needs in asked]
        for each in (*new, *(reservation.pod for reservation in state.reservations.values())):
            refused = state.shell.state.numa_zones.nodes_without_zone(each, NODES)
            assert refused == {name for name in NODES if not finds_zone(state.cluster, state.ledger, each, name)}
