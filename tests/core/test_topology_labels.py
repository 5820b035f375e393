"""A topology of several labels: all pods of the gang are on nodes with one value of each."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import node, plan_of, pod

from flowcore.api import Interner, WirePod, WirePodGroup, to_pod, to_pod_group
from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.model.gang_spec import GANG, GANG_MIN_MEMBER, GANG_TOPOLOGY, MAX_TOPOLOGY_LABELS, GangSource
from flowcore.model.nodes import Node
from flowcore.model.selectors import TOPOLOGY_SEPARATOR, domain_value

ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"
BOTH = f"{ZONE}{TOPOLOGY_SEPARATOR}{RACK}"


def topology_of(*keys: str) -> str:
    """The topology of a native PodGroup with these keys."""
    constraints = {"topology": [{"key": key} for key in keys]}
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": constraints}
    raw = {"metadata": {"name": "train", "namespace": "ml"}, "spec": spec}
    return to_pod_group(msgspec.convert(raw, WirePodGroup), GangSource.NATIVE, Interner()).spec.topology_key


def annotated(topology: str) -> Any:
    """A pod of a gang with this annotation."""
    said = {GANG: "train", GANG_MIN_MEMBER: "2", GANG_TOPOLOGY: topology}
    raw = {"metadata": {"name": "p", "namespace": "ml", "annotations": said}, "spec": {}}
    return to_pod(msgspec.convert(raw, WirePod), Interner())


def test_what_is_read() -> None:
    """One label is as it was; several come in their order, each once."""
    assert topology_of(ZONE) == ZONE
    assert topology_of(ZONE, RACK, ZONE) == BOTH
    assert annotated(f"{ZONE},{RACK}").gang.spec.topology_key == BOTH
    assert annotated(RACK).gang.spec.topology_key == RACK


@pytest.mark.parametrize("bad", [f"{ZONE},", f"{ZONE},,{RACK}", f"{ZONE};{RACK}", ",".join([RACK] * 1000)])
def test_what_cannot_be_read(bad: str) -> None:
    """What the pod says while it waits names the annotation."""
    assert annotated(bad).gang_topology.bad_annotation == f"annotation {GANG_TOPOLOGY}"


def test_how_many_labels() -> None:
    """Each of them is looked at on each node, by every round, so that their number is limited."""
    labels = [f"example.com/{number}" for number in range(MAX_TOPOLOGY_LABELS + 1)]
    assert annotated(",".join(labels[1:])).gang_topology.bad_annotation == ""
    assert "the topology has 9 labels, 8 are allowed" in annotated(",".join(labels)).gang_topology.problem


LABELS = st.dictionaries(st.sampled_from([ZONE, RACK]), st.sampled_from(["", "a", "b"]))


@given(st.lists(LABELS, max_size=6), st.lists(LABELS, max_size=6))
def test_columns_of_tables_that_change(before: list[dict[str, str]], after: list[dict[str, str]]) -> None:
    """Each node is in the domain of its values, as long as it has all labels; also where its labels change."""
    nodes = [
        [Node(f"n{at}", labels=tuple(sorted(each.items()))) for at, each in enumerate(of)] for of in (before, after)
    ]
    table = NodeTable.of(nodes[0])
    table.column(BOTH)
    table = table.updated(nodes[1])
    column = table.column(BOTH)
    for each, code in zip(table.nodes, column.codes.tolist(), strict=True):
        value = domain_value(each.labels, BOTH)
        labels = dict(each.labels)
        assert (value is None) == (len(labels) < 2)
        assert (code < 0) == (value is None)
        if value is not None:
            assert column.values[code] == value == f"{labels[ZONE]}, {labels[RACK]}"


def place(name: str, zone: str, rack: str, cpu: str = "1") -> dict[str, Any]:
    """A node in a rack of a zone."""
    made = node(name, cpu)
    made["metadata"]["labels"] |= {ZONE: zone, RACK: rack}
    return made


def gang(count: int, *keys: str) -> list[dict[str, Any]]:
    """A PodGroup and its pods, of one core each."""
    constraints = {"topology": [{"key": key} for key in keys]}
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}, "schedulingConstraints": constraints}
    meta = {"name": "train", "namespace": "default"}
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": meta, "spec": spec}
    return [group, *(pod(f"p{n}", "1", schedulingGroup={"podGroupName": "train"}) for n in range(count))]


#: Rack r1 of two zones has two nodes, as any zone has; one rack has room for two pods.
NODES = [place("a1", "a", "r1"), place("b1", "b", "r1"), place("a2", "a", "r2"), place("b2", "b", "r2", "2")]


def test_racks_of_one_name_in_two_zones_are_two() -> None:
    """Either label alone lets the gang be where both together do not."""
    answer = plan_of(*NODES, *gang(2, ZONE, RACK))
    assert set(answer["placements"].values()) == {"b2"}
    assert len(plan_of(*NODES[:3], *gang(2, RACK))["placements"]) == 2
    assert len(plan_of(*NODES[:3], *gang(2, ZONE))["placements"]) == 2
    answer = plan_of(*NODES[:3], *gang(2, ZONE, RACK))
    assert answer["placements"] == {}
    (reason,) = {each["reason"] for each in answer["pending"].values()}
    assert f"needs 2 pods at once in one domain of {BOTH}" in reason


def test_pods_that_run_bind_the_others_to_their_domain() -> None:
    """A pod that is to join them goes to their rack, and waits while it is full."""
    running = pod("running", "1", nodeName="a1", schedulingGroup={"podGroupName": "train"})
    answer = plan_of(*NODES, place("a3", "a", "r1"), *gang(2, ZONE, RACK), running)
    assert set(answer["placements"].values()) == {"a3"}
    answer = plan_of(*NODES, *gang(2, ZONE, RACK), running)
    assert answer["placements"] == {}
    assert all("PodGroup default/train" in each["reason"] for each in answer["pending"].values())


def test_a_label_that_no_node_has() -> None:
    """The reason names the topology."""
    answer = plan_of(node("n"), *gang(2, ZONE, RACK))
    text = f"PodGroup default/train keeps to one domain of {BOTH}, and no node has all of these labels"
    assert all(text in each["reason"] for each in answer["pending"].values())
