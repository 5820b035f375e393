"""A snapshot in which extended resources that a DeviceClass backs keep no pod from nodes that do not offer them.

Such a node serves the resource by devices, and these decide: NodeResourcesFit leaves it to DynamicResources. Queues
count what pods request of the resource, as ever. A running pod that has it from its node claims no devices, so it moves
only to nodes that offer the resource.

Source: kube-scheduler plugins/noderesources/fit.go (shouldDelegateResourceToDRA).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.device_columns import DeviceColumns
from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.model.pods import PodClass
from flowcore.model.running_pods import RunningPod

#: More than the devices of all pods of a node.
PLENTY = 2**20


@dataclass(frozen=True)
class WithExtendedResources:
    """A snapshot with plenty of some resources on each node that does not offer them.

    Attributes:
        offered: those of the resources that some node offers itself.
        running: running pods that are changed in the snapshot, as they were, by key.
    """

    snapshot: Snapshot
    offered: frozenset[str] = frozenset()
    running: Mapping[str, RunningPod] = field(default_factory=dict)


def with_extended_resources(snapshot: Snapshot, resources: AbstractSet[str]) -> WithExtendedResources:
    """The snapshot for pods that ask for these resources, by devices where nodes do not offer them."""
    if not resources:
        return WithExtendedResources(snapshot)
    by_devices = {name: _not_offering(snapshot, name) for name in sorted(resources)}
    running = () if snapshot.running is None else snapshot.running.pods
    kept = {pod.key: (pod, names) for pod in running if (names := _had_from_node(pod, snapshot, by_devices))}
    of_node = {name: f"{name}/of-node" for _, names in kept.values() for name in names}
    missing = [name for name in by_devices if name not in snapshot.resources]
    names = (*snapshot.resources, *missing, *of_node.values())
    nothing = np.zeros((len(snapshot.table.nodes), len(names) - len(snapshot.resources)), dtype=np.int64)
    allocatable = np.concatenate([snapshot.allocatable, nothing], axis=1)
    used = np.concatenate([snapshot.used, nothing], axis=1)
    for name, nodes in by_devices.items():
        allocatable[nodes, names.index(name)] = used[nodes, names.index(name)] + PLENTY
    for name, column in of_node.items():
        allocatable[~by_devices[name], names.index(column)] = PLENTY
    no_node = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    columns = DeviceColumns(tuple(of_node.values()), {}, no_node, object(), by_devices)
    changed = replace(snapshot, resources=names, allocatable=allocatable, used=used, columns=columns)
    if snapshot.running is not None and kept:
        pods = tuple(_asking(pod, of_node, kept[pod.key][1]) if pod.key in kept else pod for pod in running)
        changed = replace(changed, running=replace(snapshot.running, pods=pods))
    offered = frozenset(name for name, nodes in by_devices.items() if not nodes.all())
    return WithExtendedResources(changed, offered, {key: pod for key, (pod, _) in kept.items()})


def _not_offering(snapshot: Snapshot, resource: str) -> Bools:
    if resource not in snapshot.resources:
        return np.ones(len(snapshot.table.nodes), dtype=np.bool_)
    nodes: Bools = snapshot.allocatable[:, snapshot.resources.index(resource)] == 0
    return nodes


def _had_from_node(pod: RunningPod, snapshot: Snapshot, by_devices: Mapping[str, Bools]) -> tuple[str, ...]:
    """The resources that a running pod has from its node."""
    asked = tuple(name for name, _ in pod.pod_class.requests if name in by_devices)
    devices, row = pod.pod_class.devices, snapshot.table.index.get(pod.node)
    if not asked or row is None:
        return asked
    holds = devices is not None and devices.has_extended_claim
    return tuple(name for name in asked if not (holds and by_devices[name][row]))


def _asking(pod: RunningPod, of_node: Mapping[str, str], resources: tuple[str, ...]) -> RunningPod:
    """The pod asks for what only nodes have that offer some resources, and so does its replacement: by its usage."""
    of_nodes = tuple((of_node[name], 1) for name in resources)
    pod_class = msgspec.structs.replace(pod.pod_class, requests=(*pod.pod_class.requests, *of_nodes))
    return msgspec.structs.replace(pod, pod_class=pod_class, usage=(*pod.usage, *of_nodes))


def resources_by_devices(classes: Iterable[PodClass]) -> set[str]:
    """Extended resources of some classes that are devices on nodes which do not offer them."""
    claiming = (pod_class.devices for pod_class in classes)
    return {name for devices in claiming if devices is not None for name in devices.extended_resources}
