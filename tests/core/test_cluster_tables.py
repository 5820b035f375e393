"""The arrays of a snapshot, kept up to date by changes, are those made from scratch, after any history."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.cluster.arrays.tables import ChangedRows, ClusterTables
from flowcore.cluster.assembly import build_snapshot, to_snapshot
from flowcore.cluster.changes import ClusterChanges
from flowcore.cluster.cluster import Cluster
from flowcore.model.devices import DeviceClass
from flowcore.model.node_usage import NodeUsage
from flowcore.model.nodes import Node, Report, Taint
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.resource_claims import ResourceClaim
from flowcore.model.resource_slices import ResourceSlice
from flowcore.model.resources import BASE_RESOURCES, non_zero_requests
from flowcore.model.services import Service
from flowcore.model.volumes import ClaimVolume, StorageClass, key_of

NODES = ("n0", "n1", "n2", "n3")
PODS = ("a", "b", "c", "d", "e")
RESOURCES = ("cpu", "memory", "x.io/gpu", "y.io/nic")
NAMESPACES = ("ns", "other")

amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 5), max_size=3).map(
    lambda found: tuple(sorted(found.items()))
)
nodes = st.builds(
    Node,
    st.sampled_from(NODES),
    labels=st.sampled_from([(), (("zone", "a"),), (("zone", "b"),)]),
    taints=st.sampled_from([(), (Taint("t", "", "NoSchedule"),)]),
    unschedulable=st.booleans(),
    allocatable=amounts,
    report=st.builds(Report, st.sampled_from([(), (("image", 7),)]), st.sampled_from([None, 10])),
)
ports = st.sampled_from([(), (HostPort("", "TCP", 80),), (HostPort("", "TCP", 81),)])
volumes = st.sampled_from([(), (ClaimVolume("ns", "claim"),)])


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """A pod that runs, waits or has ended; on a node that may be unknown."""
    pod_class = PodClass(requests=draw(amounts), host_ports=draw(ports), volumes=draw(volumes))
    return Pod(
        draw(st.sampled_from(NAMESPACES)),
        draw(st.sampled_from(PODS)),
        "uid",
        pod_class,
        usage=pod_class.requests,
        node_name=draw(st.sampled_from(("", *NODES))),
        labels=draw(st.sampled_from([(), (("app", "web"),)])),
        terminal=draw(st.integers(0, 4)) == 0,
    )


slices = st.builds(ResourceSlice, st.just("s"), st.just("driver"), st.just("pool"), st.integers(0, 1))
claims = st.builds(ResourceClaim, st.just("ns"), st.just("c"), st.sampled_from(["", "uid"]))
device_classes = st.builds(DeviceClass, st.just("gpu"), st.sampled_from(["", "example.com/gpu"]))
storage_classes = st.builds(StorageClass, st.sampled_from(["fast", "slow"]))
services = st.builds(Service, st.just("ns"), st.just("s"), st.sampled_from([(), (("app", "web"),), (("app", "db"),)]))
events = st.one_of(
    st.tuples(st.just("set_service"), st.tuples(st.just("ns/s"), st.none() | services)),
    st.tuples(st.just("put_node"), nodes),
    st.tuples(st.just("remove_node"), st.sampled_from(NODES)),
    st.tuples(st.just("put_pod"), pods()),
    st.tuples(st.just("remove_pod"), st.builds("{}/{}".format, st.sampled_from(NAMESPACES), st.sampled_from(PODS))),
    st.tuples(st.just("set_namespace"), st.tuples(st.sampled_from(NAMESPACES), st.sampled_from([None, (("t", "1"),)]))),
    st.tuples(st.just("put_storage"), storage_classes),
    st.tuples(st.just("remove_storage"), storage_classes.map(key_of)),
    st.tuples(st.just("set_resource_slice"), st.tuples(st.just("s"), st.none() | slices)),
    st.tuples(st.just("set_resource_claim"), st.tuples(st.just(("ns", "c")), st.none() | claims)),
    st.tuples(st.just("set_device_class"), st.tuples(st.just("gpu"), st.none() | device_classes)),
    st.tuples(st.just("tell"), st.none()),
)


def happen(cluster: Cluster, what: str, value: Any) -> None:
    if what == "set_namespace":
        name, labels = value
        if labels is not None or name in cluster.namespaces:
            cluster.set_namespace(name, labels)
    elif what.startswith("set_"):
        getattr(cluster, what)(*value)
    elif what != "tell":
        getattr(cluster, what)(value)


def tell(cluster: Cluster, tables: ClusterTables) -> ChangedRows:
    """What the operator's worker is told, without the messages."""
    return tables.apply(cluster.take_changes().complete())


def snapshot_of(tables: ClusterTables) -> Snapshot:
    return tables.to_snapshot(generation=0, now=0.0, pending=())


def contents(snapshot: Snapshot) -> dict[str, Any]:
    """All that a snapshot says, by node name."""
    table, index = snapshot.table, snapshot.table.index
    zones = table.column("zone")
    return {
        "nodes": {node.name: node.without_report for node in table.nodes},
        "unschedulable": {name: bool(table.unschedulable[row]) for name, row in index.items()},
        "taints": {name: table.taint_sets[table.taint_codes[row]] for name, row in index.items()},
        "zones": {name: zones.values[zones.codes[row]] for name, row in index.items() if zones.codes[row] >= 0},
        "resources": snapshot.resources,
        "allocatable": {name: snapshot.allocatable[row].tolist() for name, row in index.items()},
        "used": {name: snapshot.used[row].tolist() for name, row in index.items()},
        "non_zero_requested": {name: snapshot.non_zero_requested[row].tolist() for name, row in index.items()},
        "ports": {name: snapshot.ports.get(row, frozenset()) for name, row in index.items()},
        "mounted": {name: set(snapshot.storage.mounted.get(name, ())) for name in index},
        "storage": {key_of(each): each for each in snapshot.storage},
        "slices": dict(snapshot.devices.slices),
        "claims": dict(snapshot.devices.claims),
        "device classes": dict(snapshot.devices.classes),
        "pods": Counter({(signature, node): count for signature, node, count in snapshot.pod_index.counts()}),
        "namespaces": dict(snapshot.pod_index.namespaces),
        "services": {key: each for key, each in snapshot.pod_index.services.objects.items() if each.selector},
        "reports": dict(snapshot.reports.items()),
    }


def expected(cluster: Cluster) -> dict[str, Any]:
    """The same, from the objects alone."""
    known = cluster.nodes
    offered = {name for node in known.values() for name, _ in node.allocatable}
    resources = BASE_RESOURCES + tuple(sorted(offered - set(BASE_RESOURCES)))
    running = [pod for pod in cluster.pods.values() if pod.node_name and not pod.terminal]
    on = {name: [pod for pod in running if pod.node_name == name] for name in known}

    def used(name: str, resource: str) -> int:
        if resource == "pods":
            return len(on[name])
        return sum(dict(pod.usage).get(resource, 0) for pod in on[name])

    return {
        "nodes": {name: node.without_report for name, node in known.items()},
        "unschedulable": {name: node.unschedulable for name, node in known.items()},
        "taints": {name: node.taints for name, node in known.items()},
        "zones": {name: dict(node.labels)["zone"] for name, node in known.items() if node.labels},
        "resources": resources,
        "allocatable": {name: [dict(node.allocatable).get(r, 0) for r in resources] for name, node in known.items()},
        "used": {name: [used(name, resource) for resource in resources] for name in known},
        "non_zero_requested": {
            name: np.array([non_zero_requests(pod.usage, pod.pod_class.unrequested) for pod in on[name]])
            .reshape(-1, 2)
            .sum(axis=0)
            .tolist()
            for name in known
        },
        "ports": {name: frozenset(p for pod in on[name] for p in pod.pod_class.host_ports) for name in known},
        "mounted": {name: {each for pod in on[name] for each in pod.pod_class.volumes} for name in known},
        "storage": cluster.storage.objects,
        "slices": cluster.devices.slices,
        "claims": cluster.devices.claims,
        "device classes": cluster.devices.classes,
        "pods": Counter((pod.signature, pod.node_name) for pod in running),
        "namespaces": cluster.namespaces,
        "services": {key: each for key, each in cluster.services.objects.items() if each.selector},
        "reports": {name: node.report for name, node in known.items() if node.report != Report()},
    }


@settings(max_examples=examples(150))
@given(st.lists(events, max_size=25))
def test_incremental_arrays_are_those_from_scratch(history: list[tuple[str, Any]]) -> None:
    """Told bit by bit, told all at once, and told by tables that were told bit by bit: always what the objects say."""
    cluster, tables = Cluster(), ClusterTables()
    for what, value in [*history, ("tell", None)]:
        happen(cluster, what, value)
        if what == "tell":
            tell(cluster, tables)
            truth = expected(cluster)
            assert contents(snapshot_of(tables)) == truth
            assert contents(to_snapshot(cluster, now=0.0, pending=())) == truth
            copied = ClusterTables()
            copied.apply(tables.full_changes())
            assert contents(snapshot_of(copied)) == truth


@settings(max_examples=examples(100))
@given(st.lists(events, max_size=25))
def test_rows_that_changed_are_named(history: list[tuple[str, Any]]) -> None:
    """A node whose arrays changed is among those that ``apply`` returns: caches trust it."""
    cluster, tables = Cluster(), ClusterTables()
    before = contents(snapshot_of(tables))
    for what, value in [*history, ("tell", None)]:
        happen(cluster, what, value)
        if what != "tell":
            continue
        rows = tell(cluster, tables)
        after, table = contents(snapshot_of(tables)), tables.table
        changed = {table.nodes[row].name for row in (*rows.more_pods, *rows.fewer_pods, *rows.resized_pods)}
        new = table.index.keys() - rows.table_before.index.keys()
        for name in table.index.keys() - new:
            if after["nodes"][name] != before["nodes"][name]:
                assert name in rows.nodes
            columns = [resource for resource in before["resources"] if resource in after["resources"]]
            used_before, used_after = (
                [each["used"][name][each["resources"].index(column)] for column in columns] for each in (before, after)
            )
            same = all(before[part][name] == after[part][name] for part in ("non_zero_requested", "ports", "mounted"))
            if used_before != used_after or not same:
                assert name in changed
            if before["mounted"][name] != after["mounted"][name]:
                assert rows.mounts
            if before["reports"].get(name) != after["reports"].get(name):
                assert table.index[name] in rows.reports
        assert new <= set(rows.nodes)
        kinds = {key[0] for key in before["storage"].items() ^ after["storage"].items()}
        assert {kind for (kind, *_) in kinds} <= set(rows.storage_kinds)
        devices = {"ResourceSlice": "slices", "ResourceClaim": "claims", "DeviceClass": "device classes"}
        assert rows.device_kinds == sorted(kind for kind, part in devices.items() if after[part] != before[part])
        before = after


def test_sums_beyond_an_array_are_full_not_negative() -> None:
    """Pods that nobody checked may sum up to more than int64 holds."""
    huge = 2**63 - 1
    table = NodeTable.of([Node("n", allocatable=(("cpu", 1000), ("memory", huge), ("pods", 9)))])
    running = [("n", (("cpu", huge), ("memory", huge)), ())] * 3
    snapshot = build_snapshot(generation=1, now=0.0, table=table, running=running, pending=())
    column = snapshot.resources.index("cpu")
    assert snapshot.used[0, column] == huge
    assert snapshot.free[0, column] < 0


@pytest.mark.parametrize("order", [("b", "a", "c"), ("c", "b", "a")])
def test_nodes_stay_in_the_order_given(order: tuple[str, ...]) -> None:
    """A dump's nodes are shown as the files have them; names of nodes that are not in the table are passed over."""
    table = NodeTable.of(Node(name, allocatable=(("cpu", 5),)) for name in order)
    running = [("a", (("cpu", 2),), (HostPort("", "TCP", 80),)), ("elsewhere", (("cpu", 2),), ())]
    snapshot = build_snapshot(generation=1, now=0.0, table=table, running=running, pending=())
    assert [node.name for node in snapshot.table.nodes] == list(order)
    assert snapshot.used[:, snapshot.resources.index("cpu")].tolist() == [2 * (name == "a") for name in order]
    assert snapshot.ports == {order.index("a"): frozenset({HostPort("", "TCP", 80)})}


def test_usage_of_a_node_that_comes_later_is_kept() -> None:
    """The worker may hear of what is taken on a node in the same message as of the node, or never of a gone one."""
    tables = ClusterTables()
    usage = NodeUsage("n", (("x.io/gpu", 2),), 1, 100, 100, ())
    tables.apply(ClusterChanges(nodes=[Node("n", allocatable=(("pods", 5),))], usage=[usage]))
    assert "x.io/gpu" not in tables.resources
    tables.apply(ClusterChanges(nodes=[Node("n", allocatable=(("pods", 5), ("x.io/gpu", 4)))]))
    snapshot = snapshot_of(tables)
    assert snapshot.used[0, snapshot.resources.index("x.io/gpu")] == 2
