"""Pools of nodes with devices: who asks for none of their devices is not let in by a fix."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import Pod
from flowcore.model.resource_slices import ResourceSlice

#: Stands for devices that claims get; no resource has such a name.
_CLAIMED = "(claimed)"


def devices(nodes: Iterable[Node], slices: Iterable[ResourceSlice]) -> set[str]:
    """Extended resources that nodes offer: their names have a domain. Devices that are claimed count as one more."""
    nodes = list(nodes)
    offered = {name for node in nodes for name, amount in node.allocatable if "/" in name and amount > 0}
    names = {node.name for node in nodes}
    return offered | {_CLAIMED} if any(each.reach.node_name in names for each in slices) else offered


def asked_devices(pods: Sequence[Pod]) -> set[str]:
    """The same that pods ask for, beside other resources."""
    asked = {name for pod in pods for name, _ in pod.pod_class.requests}
    return asked | {_CLAIMED} if any(pod.pod_class.devices is not None for pod in pods) else asked


def guards_devices(taint: Taint, asked: Collection[str], snapshot: Snapshot) -> bool:
    """Whether a taint keeps pods away from devices that they do not ask for.

    It has the name of a device, or each of its nodes has devices that some node without it lacks.

    Args:
        asked: see ``asked_devices``.
    """
    nodes, slices = snapshot.table.nodes, tuple(snapshot.devices.slices.values())
    if taint.key in devices(nodes, ()):
        return taint.key not in asked
    by_node = {node.name: devices([node], slices) for node in nodes}
    others = [by_node[node.name] for node in nodes if taint not in node.taints]
    everywhere = set.intersection(*others) if others else set[str]()
    apart = [by_node[node.name] - everywhere for node in nodes if taint in node.taints]
    return all(each and each.isdisjoint(asked) for each in apart)
