"""Devices of new nodes, before anybody has any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.pods import PodClass
from flowcore.questions.scenario.hypothetical.change_nodes import as_new_slice
from flowcore.rules.devices.columns.with_columns import with_columns

#: By node: drivers with devices that it alone reaches, and how many.
DeviceCounts = Mapping[str, tuple[tuple[str, int], ...]]


def device_counts(objects: DeviceObjects) -> DeviceCounts:
    """What each node has: nodes with other devices are of another shape."""
    counts: dict[str, dict[str, int]] = {}
    for resource_slice in objects.slices.values():
        if resource_slice.reach.node_name:
            of_node, driver = counts.setdefault(resource_slice.reach.node_name, {}), resource_slice.driver
            of_node[driver] = of_node.get(driver, 0) + len(resource_slice.devices)
    return {node: tuple(sorted(of_node.items())) for node, of_node in counts.items()}


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
