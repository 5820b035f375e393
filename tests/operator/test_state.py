"""Usage is what a recount would find, whatever sequence of events led there."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_cluster.driven_ledger import DrivenLedger
from support.model import ports_clash
from support.profiles import examples
from support.recount import plain, recounted, recounted_pods

from flowcore.cluster.cluster import Population
from flowcore.cluster.indexes.gang_registry import GangRegistry
from flowcore.cluster.indexes.round_gangs import gangs_for
from flowcore.cluster.occupancy import NodeUsageSums
from flowcore.cluster.replaced_pod import victim_key
from flowcore.model.devices import DeviceClass, device_resources, with_devices
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.node_usage import NodeUsage
from flowcore.model.nodes import Node, Report
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.policies import Delivery
from flowcore.model.resource_claims import ExtendedRequest
from flowcore.model.selectors import Labels
from flowcore.model.volumes import (
    Capacity,
    Claim,
    ClaimVolume,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageKey,
    StorageObject,
    VolumeAttachment,
    key_of,
)

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - a value, not a bind
NODES = ("n0", "n1", "n2")
CLASSES = (
    PodClass(requests=(("cpu", 100), ("memory", 1000))),
    PodClass(requests=(("cpu", 900),), host_ports=(HostPort(EVERY_ADDRESS, "TCP", 80),)),
    PodClass(),
    PodClass(requests=(("cpu", 50),), volumes=(ClaimVolume("default", "a"), ClaimVolume("default", "b"))),
    PodClass(
        requests=(("example.com/gpu", 1),),
        host_ports=(HostPort("10.0.0.1", "TCP", 80), HostPort(EVERY_ADDRESS, "UDP", 53)),
    ),
)
TERM = AffinityTerm("zone", None, ("default",))
GANGS = [
    GangRef(GangKey(GangSource.THALWEG, "default", name), GangSpec(min_member=least, topology_key=topology))
    for name, least, topology in (("g", 2, ""), ("g", 3, "zone"), ("h", 1, ""))
]


@st.composite
def _pods(draw: st.DrawFn) -> Pod:
    pod_class = draw(st.sampled_from(CLASSES))
    return Pod(
        namespace="default",
        name=draw(st.sampled_from("abcde")),
        uid=draw(st.sampled_from(("u1", "u2"))),
        pod_class=pod_class,
        labels=draw(st.sampled_from(((), (("app", "x"),)))),
        scheduler_name="thalweg",
        node_name=draw(st.sampled_from(("", "", *NODES, "nowhere"))),
        terminal=draw(st.sampled_from((False, False, False, True))),
        deleting=draw(st.booleans()),
        usage=draw(st.sampled_from((pod_class.requests, (("cpu", 700),)))),
        blocked_reason=draw(st.sampled_from(("", "", "gated"))),
        unschedulable_message=draw(st.sampled_from(("", "why"))),
        constraints=draw(st.sampled_from((None, InterPodConstraints(anti_affinity=(TERM,))))),
        replaces=draw(st.sampled_from((None, "a", "b", "c", "No name"))),
        gang=draw(st.sampled_from((None, *GANGS))),
    )


@st.composite
def _nodes(draw: st.DrawFn) -> Node:
    cpu, pods = draw(st.sampled_from((500, 1000))), draw(st.sampled_from((1, 3)))
    return Node(
        draw(st.sampled_from(NODES)),
        uid=draw(st.sampled_from("xy")),
        labels=draw(st.sampled_from(((), (("zone", "a"),)))),
        allocatable=(("cpu", cpu), ("example.com/gpu", 1), ("memory", 10_000), ("pods", pods)),
        report=draw(st.sampled_from((Report(), Report(bandwidth=7), Report(images=(("web:v1", 9),))))),
    )


STORAGE: st.SearchStrategy[StorageObject] = st.one_of(
    st.builds(Claim, st.just("default"), st.sampled_from("ab"), st.sampled_from(("u1", "u2"))),
    st.builds(PersistentVolume, st.sampled_from("ab"), size=st.integers(0, 1)),
    st.builds(CsiNode, st.sampled_from(NODES)),
    st.builds(Capacity, st.just(("default", "a")), st.sampled_from("xy")),
)
EVENTS = st.one_of(
    st.tuples(st.just("storage"), STORAGE),
    st.tuples(st.just("storage"), STORAGE),
    st.tuples(st.just("delete storage"), STORAGE),
    st.tuples(
        st.just("device class"),
        st.tuples(st.sampled_from("xy"), st.sampled_from((None, "", "example.com/gpu", "other.com/gpu"))),
    ),
    st.tuples(st.just("pod"), _pods()),
    st.tuples(st.just("pod"), _pods()),
    st.tuples(st.just("delete pod"), st.sampled_from("abcde")),
    st.tuples(st.just("node"), _nodes()),
    st.tuples(st.just("delete node"), st.sampled_from(NODES)),
    st.tuples(st.just("reserve"), st.tuples(st.sampled_from("abcde"), st.sampled_from(NODES))),
    st.tuples(st.just("release"), st.tuples(st.sampled_from("abcde"), st.sampled_from(("u1", "u2")))),
    st.tuples(
        st.just("namespace"),
        st.tuples(st.sampled_from(("default", "other")), st.sampled_from(((), (("a", "b"),), None))),
    ),
    st.tuples(st.just("take"), st.none()),
    st.tuples(st.just("worker lost"), st.none()),
)


class Receiver:
    """What a worker would know from what it was told."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.reports: dict[str, Report] = {}
        self.uses: dict[str, NodeUsage] = {}
        self.namespaces: dict[str, Labels] = {}
        self.pod_index: Counter[tuple[PodSignature, str]] = Counter()
        self.storage: dict[StorageKey, StorageObject] = {}

    def take(self, state: DrivenLedger) -> None:
        changes = state.take_changes()
        for key in changes.removed_storage:
            self.storage.pop(key, None)
        self.storage.update((key_of(each), each) for each in changes.storage)
        for name in changes.removed_nodes:
            self.nodes.pop(name, None)
            self.uses.pop(name, None)
        self.nodes.update((node.name, node) for node in changes.nodes)
        for name in changes.removed_nodes:
            self.reports.pop(name, None)
        self.reports.update(changes.node_reports())
        self.uses.update((use.node, use) for use in changes.usage)
        self.pod_index.update({(kind, node): by for kind, on in changes.pod_deltas for node, by in on.items()})
        for name, labels in changes.namespaces.items():
            self.namespaces.pop(name, None)
            if labels is not None:
                self.namespaces[name] = labels


def without_reports(state: DrivenLedger) -> dict[str, Node]:
    return {name: node.without_report for name, node in state.nodes.items()}


def copied(use: NodeUsageSums) -> NodeUsageSums:
    return NodeUsageSums(Counter(use.amounts), use.pods, use.cpu, use.memory, Counter(use.ports), Counter(use.volumes))


def claims_of(pod: Pod) -> list[tuple[str, str]]:
    return [each.key for each in pod.pod_class.volumes if isinstance(each, ClaimVolume)]


def apply(state: DrivenLedger, receiver: Receiver, kind: str, what: Any) -> None:
    match kind:
        case "pod":
            state.upsert_pod(what)
        case "delete pod":
            state.delete_pod(f"default/{what}")
        case "node":
            state.upsert_node(what)
        case "delete node":
            state.delete_node(what)
        case "reserve":
            pod = state.waiting.get(f"default/{what[0]}")
            if pod is not None:
                state.reserve(pod, what[1])
        case "release":
            state.release(f"default/{what[0]}", what[1])
        case "namespace":
            state.set_namespace(*what)
        case "storage":
            state.upsert_storage(what)
        case "delete storage":
            state.delete_storage(key_of(what))
        case "device class":
            name, resource = what
            state.set_device_class(name, None if resource is None else DeviceClass(name, resource))
        case "take":
            receiver.take(state)
        case "worker lost":
            receiver.__init__()  # type: ignore[misc]
            state.mark_all_dirty()


def told(uses: Iterable[NodeUsage]) -> dict[str, tuple[Any, ...]]:
    """What a worker is told of nodes, as values that can be compared, without nodes on which nothing is taken."""
    return {
        use.node: (held, use.pods, use.cpu, use.memory, set(use.ports), set(use.volumes))
        for use in uses
        if (held := {name: amount for name, amount in use.amounts if amount}) or use.pods or use.ports or use.volumes
    }


def taken(state: DrivenLedger) -> dict[str, tuple[Any, ...]]:
    """What is taken on each node, counted anew."""
    return plain(recounted(state.cluster, state.ledger))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_usage_equals_a_recount(events: list[tuple[str, Any]]) -> None:
    """Uses, neighbours, waiting pods and populations, reservations included, after every single event."""
    state, receiver = DrivenLedger(), Receiver()
    for kind, what in events:
        before = state.generation, taken(state), without_reports(state)
        apply(state, receiver, kind, what)
        assert plain(state.cluster.occupancy.usage) == taken(state)
        assert (taken(state), without_reports(state)) == before[1:] or state.generation > before[0]
        assert set(state.waiting) == {key for key, pod in state.pods.items() if not pod.node_name and not pod.terminal}
        backed = device_resources(state.devices.classes.values())
        assert all(state.waiting[key] == with_devices(state.pods[key], backed) for key in state.waiting)
        wanted = [
            each
            for pod in state.waiting.values()
            if not (pod.blocked_reason or pod.unsupported_reason)
            for each in claims_of(pod)
        ]
        assert state.storage._wanted_claims == Counter(wanted)
        # A reservation is held by a pod that still waits, and by that very pod.
        for key, reservation in state.reservations.items():
            assert state.waiting[key].uid == reservation.pod.uid
            # One that awaits another is the only one to do so, and that one is there.
            for victim in reservation.victims:
                record, there = state.victims[victim], state.pods[victim]
                assert record.for_pods == {key}
                assert (there.uid, there.node_name, there.terminal) == (record.pod.uid, reservation.node, False)
        assert state.held <= {key for key, each in state.reservations.items() if not each.victims}
        names = Counter(victim_key(pod) for pod in state.waiting.values())
        assert state.cluster._named_victims == +Counter({key: count for key, count in names.items() if key})
        populations: dict[Any, Population] = {}
        for pod in state.pods.values():
            if not pod.terminal:
                population = populations.setdefault((pod.namespace, pod.labels, pod.scheduler_name), Population())
                if pod.node_name:
                    population.placed += 1
                else:
                    population.waiting += 1
        assert state.populations == populations
        assert {(kind, node): count for kind, node, count in state.pod_index.counts()} == recounted_pods(
            state.cluster, state.ledger
        )
    asked = [(pod, Delivery.BINDER) for pod in state.plannable()]
    anew = GangRegistry()
    for pod in state.pods.values():
        anew.put(pod)
    labels = {name: dict(node.labels).get("zone", "") for name, node in state.nodes.items()}
    coming = {key: each.node for key, each in state.reservations.items()}
    assert state.gangs_of(asked) == gangs_for(anew, asked, coming, lambda node, _label: labels.get(node, ""))
    # And a worker that was told each change once knows the same.
    receiver.take(state)
    assert receiver.nodes == without_reports(state)
    assert receiver.reports == {name: node.report for name, node in state.nodes.items()}
    assert receiver.namespaces == state.namespaces
    assert receiver.storage == state.storage.objects
    assert {at: count for at, count in receiver.pod_index.items() if count} == recounted_pods(
        state.cluster, state.ledger
    )
    sums = recounted(state.cluster, state.ledger)
    assert told(receiver.uses.values()) == told(sums[name].to_usage(name) for name in sums if name in state.nodes)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EVENTS, max_size=25), _pods())
def test_a_reservation_never_overcommits(events: list[tuple[str, Any]], pod: Pod) -> None:
    """Room is reserved only where it is: amounts, pod places and ports, with all that is reserved already counted."""
    state, receiver = DrivenLedger(), Receiver()
    for kind, what in events:
        apply(state, receiver, kind, what)
    for waiting in state.plannable():
        for name in NODES:
            kept = state.reservations.get(waiting.key)
            before = recounted(state.cluster, state.ledger).get(name, NodeUsageSums())
            if not state.reserve(waiting, name):
                continue
            use, allocatable = recounted(state.cluster, state.ledger)[name], dict(state.nodes[name].allocatable)
            leaving = [state.pods[key] for key in state.reservations[waiting.key].victims]
            if leaving:
                # Once they have left, which is when it comes.
                use = state.ledger.usage_without_awaiting(name)
                for old in leaving:
                    use.change(old.usage, old.pod_class, -1)
                before = copied(use)
                use.change(waiting.pod_class.requests, waiting.pod_class, 1)
            elif kept is not None:
                before.change(kept.pod.pod_class.requests, kept.pod.pod_class, -1)
            assert use.pods <= allocatable["pods"]
            for resource, _ in waiting.pod_class.requests:
                assert use.amounts[resource] <= allocatable.get(resource, 0)
            for port in waiting.pod_class.host_ports:
                assert not any(ports_clash(port, other) for other in +before.ports)
            assert not waiting.blocked_reason
            assert waiting.key in state.reservations
            assert waiting not in state.plannable()
            break


def test_a_pod_that_begins_to_wait_hurries_the_round() -> None:
    """So does a pod whose gate opens. Room that comes free, and nodes that come, wait for a pause of the changes."""
    state, hurried = DrivenLedger(), list[bool]()
    state.request_round = lambda effect: hurried.append(effect.at_once)
    pod = Pod("default", "a", "u", CLASSES[0], scheduler_name="thalweg", gated=True)
    state.upsert_pod(pod)
    state.upsert_node(Node("n", allocatable=(("cpu", 8000), ("pods", 110))))
    state.upsert_pod(msgspec.structs.replace(pod, gated=False))
    state.upsert_pod(msgspec.structs.replace(pod, name="b", uid="v", node_name="n"))
    state.delete_pod("default/b")
    assert hurried == [True, False, True, False]


def test_our_own_condition_starts_no_round() -> None:
    """What we tell a pod comes back as a change of it; that must not be news."""
    state, changes = DrivenLedger(), []
    state.request_round = lambda _: changes.append(1)
    pod = Pod("default", "a", "u", CLASSES[0], scheduler_name="thalweg")
    state.upsert_pod(pod)
    assert len(changes) == 1
    state.upsert_pod(msgspec.structs.replace(pod, unschedulable_message="0/1 nodes"))
    assert len(changes) == 1
    assert state.waiting[pod.key].unschedulable_message == "0/1 nodes"
    state.upsert_pod(msgspec.structs.replace(pod, blocked_reason="gated", unschedulable_message="0/1 nodes"))
    assert len(changes) == 2


def test_heartbeats_are_no_news() -> None:
    """A node that comes again as it was changes nothing; one that differs does."""
    state = DrivenLedger()
    node = Node("n", allocatable=(("pods", 1),))
    state.upsert_node(node)
    before = state.generation
    state.upsert_node(msgspec.structs.replace(node))
    assert state.generation == before
    assert not state.node_changed_since("n", before)
    state.upsert_node(msgspec.structs.replace(node, unschedulable=True))
    assert state.node_changed_since("n", before)


def test_a_report_starts_no_round_and_voids_no_plan() -> None:
    """Kubelets pull images all the time; what that changes is a matter of the next round's costs."""
    state, changes = DrivenLedger(), []
    state.upsert_node(Node("n"))
    state.take_changes()
    state.request_round = lambda _: changes.append(1)
    before = state.generation
    state.upsert_node(Node("n", report=Report(images=(("web:v1", 9),), bandwidth=7)))
    assert (state.generation, changes, state.node_changed_since("n", before)) == (before, [], False)
    told = state.take_changes()
    assert (told.nodes, dict(told.node_reports())) == ([], {"n": Report((("web:v1", 9),), 7)})


def test_a_node_that_comes_back() -> None:
    """Deleted and made again under its name, it is another node for a plan that was made before."""
    state = DrivenLedger()
    state.upsert_node(Node("n", uid="1"))
    before = state.generation
    state.delete_node("n")
    assert state.node_changed_since("n", before)
    state.upsert_node(Node("n", uid="1"))
    assert state.node_changed_since("n", before)


def test_what_ran_on_a_deleted_node_counts_when_it_comes_back() -> None:
    """Its pods are still there: the node is not empty."""
    state = DrivenLedger()
    node = Node("n", allocatable=(("cpu", 1000), ("pods", 10)))
    state.upsert_node(node)
    running = Pod("default", "a", "u", CLASSES[1], node_name="n", usage=CLASSES[1].requests)
    state.upsert_pod(running)
    state.delete_node("n")
    state.upsert_node(node)
    state.upsert_pod(waiting := Pod("default", "b", "v", CLASSES[1], scheduler_name="thalweg"))
    assert not state.reserve(waiting, "n")


def waits(claim: str) -> Pod:
    """A pod that waits with a claim."""
    return Pod("default", f"with-{claim}", "u", PodClass(volumes=(ClaimVolume("default", claim),)))


@pytest.mark.parametrize(
    ("before", "after", "asks"),
    [
        (None, Claim("default", "data"), True),
        (Claim("default", "data"), Claim("default", "data", bound=True), True),
        (Claim("default", "data"), None, False),
        (Claim("default", "other"), Claim("default", "other", bound=True), False),
        (None, PersistentVolume("v"), True),
        (PersistentVolume("v"), None, False),
        (None, VolumeAttachment("x", "csi", "n0", "v"), False),
        (VolumeAttachment("x", "csi", "n0", "v"), None, True),
        (CsiNode("n0", (("csi", 1),)), CsiNode("n0", (("csi", 2),)), True),
        (CsiNode("n0"), CsiNode("n0"), False),
        (CsiDriver("csi", tracks_capacity=True), None, True),
        (None, Capacity(("default", "x")), True),
    ],
)
def test_a_storage_event_asks_for_a_round_where_a_waiting_pod_may_be_placed(
    *, before: StorageObject | None, after: StorageObject | None, asks: bool
) -> None:
    """And never where no pod waits with a claim: such events are many, and mostly about pods that run."""
    waiting = waits("data")
    placed = msgspec.structs.replace(waiting, node_name="n0")
    for pods, expected in (([waiting], asks), ([], False), ([waiting, placed], False)):
        state, changes = DrivenLedger(), []
        for pod in pods:
            state.upsert_pod(pod)
        if before is not None:
            state.upsert_storage(before)
        state.request_round = lambda _: changes.append(1)  # noqa: B023 - called before the next turn
        if after is not None:
            state.upsert_storage(after)
        elif before is not None:
            state.delete_storage(key_of(before))
        assert bool(changes) is expected


def test_pods_follow_the_device_classes() -> None:
    """One that waits needs devices for as long as its resource is known to be backed, and has its room anyway."""
    state, changes = DrivenLedger(), []
    state.upsert_node(Node("n0", allocatable=(("example.com/gpu", 1), ("pods", 9))))
    pod = Pod("default", "a", "u", PodClass(requests=(("example.com/gpu", 1),)))
    pod = msgspec.structs.replace(pod, extended=(ExtendedRequest("example.com/gpu", (("container-0-request-0", 1),)),))
    state.upsert_pod(pod)
    state.request_round = lambda _: changes.append(1)
    state.set_device_class("other", DeviceClass("other"))
    assert not changes
    state.set_device_class("gpu", DeviceClass("gpu", "example.com/gpu"))
    assert state.waiting[pod.key].pod_class.devices is not None
    assert changes
    state.upsert_pod(msgspec.structs.replace(pod, unschedulable_message="why"))
    assert state.waiting[pod.key].pod_class.devices is not None
    state.set_device_class("gpu", None)
    assert state.waiting[pod.key].pod_class.devices is None
    assert state.reserve(pod, "n0")


def test_a_gate_that_opens() -> None:
    """Without a reservation it starts a round; with one it was opened for that."""
    state, rounds = DrivenLedger(), list[str]()
    state.upsert_node(Node("n0", allocatable=(("cpu", 1000), ("memory", 10_000), ("pods", 3))))
    for name in ("planned", "unplanned"):
        state.upsert_pod(Pod("default", name, name, CLASSES[0], gated=True))
    assert state.reserve(state.pods["default/planned"], "n0")
    for name in ("planned", "unplanned"):
        state.request_round = lambda _, name=name: rounds.append(name)
        state.upsert_pod(Pod("default", name, name, CLASSES[0]))
    assert rounds == ["unplanned"]
