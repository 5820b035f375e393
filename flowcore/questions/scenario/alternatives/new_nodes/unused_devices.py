"""Devices of new nodes, before anybody has any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.pods import PodClass
from flowcore.model.resource_slices import Device, ResourceSlice
from flowcore.questions.scenario.hypothetical.change_nodes import as_new_slice
from flowcore.rules.devices.columns.with_columns import with_columns

#: What a device is to its shape: its driver, and the attributes and capacities that it has in common with others.
_Look = tuple[str, frozenset[tuple[str, object]]]
#: By node: devices that it alone reaches, and how many are alike.
DeviceCounts = Mapping[str, frozenset[tuple[_Look, int]]]
#: An attribute with more values says which device it is (a serial number), and not what it is like.
_MOST_VALUES = 16
#: With more shapes than this nodes differ in the numbers of their devices alone: each shape is tried.
_MOST_SHAPES = 64


def device_counts(objects: DeviceObjects) -> DeviceCounts:
    """What each node has: nodes with other devices are of another shape."""
    own = [published for published in objects.slices.values() if published.reach.node_name]
    values: dict[tuple[str, str], set[object]] = {}
    for resource_slice in own:
        for device in resource_slice.devices:
            for name, value in _said(device):
                values.setdefault((resource_slice.driver, name), set()).add(value)
    telling = {key for key, of_key in values.items() if len(of_key) <= _MOST_VALUES}
    counts = _counts(own, telling)
    return counts if len(set(counts.values())) <= _MOST_SHAPES else _counts(own, set())


def _said(device: Device) -> Iterator[tuple[str, object]]:
    yield from device.attributes
    yield from device.capacity


def _counts(own: Iterable[ResourceSlice], telling: AbstractSet[tuple[str, str]]) -> DeviceCounts:
    """Counts devices that are alike in these attributes and capacities, each with its driver."""
    counts: dict[str, Counter[_Look]] = {}
    for resource_slice in own:
        driver, of_node = resource_slice.driver, counts.setdefault(resource_slice.reach.node_name, Counter())
        for device in resource_slice.devices:
            said = frozenset((name, value) for name, value in _said(device) if (driver, name) in telling)
            of_node[driver, said] += 1
    return {node: frozenset(of_node.items()) for node, of_node in counts.items()}


def with_unused_devices(
    snapshot: Snapshot, objects: DeviceObjects, likes: Mapping[str, str], classes: Sequence[PodClass]
) -> tuple[Snapshot, list[PodClass]]:
    """Empty nodes with their devices, and classes of pods as they ask for these.

    Args:
        likes: name of a node that is there -> name of the new node that is like it.
        classes: one for each pod.
    """
    if all(pod_class.devices is None for pod_class in classes):
        return snapshot, list(classes)
    unused = DeviceObjects()
    unused.classes = objects.classes
    unused.claims = {key: claim for key, claim in objects.claims.items() if claim.allocation is None}
    for resource_slice in objects.slices.values():
        if resource_slice.reach.node_name in likes:
            unused_slice = as_new_slice(resource_slice, likes[resource_slice.reach.node_name])
            unused.slices[unused_slice.name] = unused_slice
    pods = tuple(PendingPod(str(place), "", pod_class, "") for place, pod_class in enumerate(classes))
    empty = with_columns(replace(snapshot, devices=unused, pending=pods)).snapshot
    return empty, [pod.pod_class for pod in empty.pending]
