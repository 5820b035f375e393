"""What is remembered of devices is what a fresh look says, whatever happened in between."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_clusters import GPU, Manifest, allocated, claim, devices_of, naming, of_template, slice_of
from support.draw_devices import cel, read_claims, read_classes, read_slices
from support.model import node, snapshot
from support.profiles import examples
from support.work import lines_run

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.cluster.changes import ClusterChanges
from flowcore.model.pods import PodClass
from flowcore.model.resource_claims import DeviceTaker
from flowcore.rules.devices.node_reach import reached_node
from flowcore.rules.filters import dynamic_resources
from flowcore.rules.filters.rejection import Rejection

NODES, NAMES = ("n0", "n1"), ("a", "b", "c")
ZONED = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
SLICES: dict[str, Manifest] = {
    "n0": {},
    "n1": {},
    "both-0": {"nodeName": "n0"},
    "both-1": {"nodeName": "n1"},
    "fabric": {"allNodes": True},
    "zoned": {"nodeSelector": ZONED},
    "parted": {"perDeviceNodeSelection": True},
}
PODS = [*(of_template(name) for name in NAMES), naming("sharer", "a")]
BROKEN: Manifest = {"metadata": {"name": "gpu"}, "spec": {"selectors": cel("device.attributes['x'].y")}}

events = st.one_of(
    st.tuples(
        st.just("slice"), st.sampled_from(sorted(SLICES)), st.none() | st.tuples(st.integers(0, 2), st.integers(1, 2))
    ),
    st.tuples(st.just("node"), st.sampled_from(["a", "b"]), st.sampled_from(NODES)),
    st.tuples(st.just("claim"), st.sampled_from(NAMES), st.none() | st.integers(1, 2)),
    st.tuples(st.just("allocated"), st.sampled_from(NAMES), st.sampled_from(NODES)),
    st.tuples(st.just("class"), st.just("gpu"), st.sampled_from([None, GPU, BROKEN])),
    st.tuples(st.just("takers"), st.lists(st.sampled_from(NAMES), max_size=2, unique=True), st.sampled_from(NODES)),
)


def published(name: str, devices: int, generation: int) -> Manifest:
    """A slice of its own pool, or one of the two of a pool that is spread over the nodes."""
    manifest = slice_of(name, devices, **SLICES[name])
    spread = name.startswith("both")
    pool = {"name": "both" if spread else name, "generation": generation, "resourceSliceCount": 1 + spread}
    manifest["spec"]["pool"] = pool
    for number, device in enumerate(manifest["spec"]["devices"]):
        device["name"] = f"{name}-{number}"
        if "perDeviceNodeSelection" in SLICES[name]:
            device["nodeName"] = NODES[number]
    return manifest


def happen(objects: DeviceObjects, what: str, name: Any, value: Any) -> None:
    match what:
        case "slice":
            objects.set_slice(name, None if value is None else read_slices([published(name, *value)])[0])
        case "claim":
            made = None if value is None else read_claims([claim(name, value, owner=name)])[0]
            objects.set_claim(("default", name), made)
        case "allocated":
            manifest = allocated(claim(name, owner=name), value, "gpu-0")
            objects.set_claim(("default", name), read_claims([manifest])[0])
        case "class":
            objects.set_class(name, None if value is None else read_classes([value])["gpu"])
        case "takers":
            objects.apply(ClusterChanges(takers=[DeviceTaker(of_template(each), value) for each in name]))


def copied(objects: DeviceObjects) -> DeviceObjects:
    """The same objects, of which nobody remembers anything."""
    changes = ClusterChanges()
    objects.add_all(changes)
    fresh = DeviceObjects()
    fresh.apply(changes)
    return fresh


def verdicts(known: Snapshot) -> list[Any]:
    found = []
    for pod in PODS:
        asked = PodClass(devices=pod)
        before = dynamic_resources.prefilter_rejections(asked, known)
        rejected = dynamic_resources.rejections(asked, known)
        named = sorted((each.reason, each.nodes.tolist()) for each in rejected if each.nodes.any())
        found.append(([each[0].reason for _, each in before], named))
    return found


def in_zones(zones: dict[str, str]) -> Snapshot:
    """The nodes with their zones as labels."""
    return snapshot([node(name, labels=(("zone", zones[name]),) if name in zones else ()) for name in NODES], [])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(events, max_size=12), st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
def test_what_is_remembered_is_what_a_fresh_look_says(history: list[tuple[str, Any, Any]], planned: list[str]) -> None:
    """After every event; also beside pods that a round has placed."""
    objects = devices_of([slice_of("n0", 1)], [claim("a", owner="a")])
    zones: dict[str, str] = {}
    nodes = in_zones(zones)
    for event in [*history, None]:
        labels = {each.name: each.labels for each in nodes.table.nodes}
        takers = tuple(DeviceTaker(of_template(name), "n0", labels["n0"]) for name in planned)
        for known in (replace(nodes, devices=objects), replace(nodes, devices=objects, takers=takers)):
            assert verdicts(known) == verdicts(replace(known, devices=copied(objects)))
        if event is None:
            continue
        if event[0] == "node":
            zones[event[2]] = event[1]
            nodes = in_zones(zones)
        else:
            happen(objects, *event)


@pytest.mark.parametrize("by_label", [False, True], ids=["by its name", "by a label"])
def test_claims_that_have_their_devices_are_compared_with_all_nodes_at_once(*, by_label: bool) -> None:
    """A verdict costs the same with ten times as many nodes, and is that of each node by itself."""

    def asked(count: int) -> tuple[int, list[bool]]:
        nodes = snapshot([node(f"n{at}", labels=(("zone", "ab"[at % 2]),)) for at in range(count)], [])
        manifest = allocated(claim("p", owner="p"), "n3", "gpu-0")
        if by_label:
            manifest["status"]["allocation"]["nodeSelector"] = ZONED
        known = replace(nodes, devices=devices_of([slice_of("n3", 1)], [manifest]))
        known.table.column("zone")  # what a table remembers of a label is no verdict's cost
        rejected = list[Rejection]()
        of_pod = PodClass(devices=of_template("p"))
        lines = lines_run(lambda: rejected.extend(dynamic_resources.rejections(of_pod, known)))
        (elsewhere,) = rejected
        assert elsewhere.reason == dynamic_resources.REASON_ELSEWHERE
        devices = dynamic_resources.claimable_devices(known)
        by_themselves = devices.fitting(of_template("p"), [reached_node(each) for each in known.table.nodes])
        assert by_themselves == [not each for each in elsewhere.nodes.tolist()]
        return lines, by_themselves

    few, many = asked(20), asked(200)
    assert many[0] < few[0] + 50
    assert (sum(few[1]), sum(many[1])) == ((10, 100) if by_label else (1, 1))
