"""Nodes that no fix opens: those of the control plane, and those with devices to who asks for none of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from flowcore.cluster.arrays.node_matching import tolerates
from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import Pod, PodClass
from flowcore.model.resource_slices import ResourceSlice

#: Stands for devices that claims get; no resource has such a name.
_CLAIMED = "(claimed)"
#: Taints of nodes that run the control plane.
_CONTROL_PLANE = frozenset(
    f"node-role.kubernetes.io/{role}" for role in ("control-plane", "controlplane", "master", "etcd")
)


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


def is_closed(taint: Taint, asked: Collection[str], snapshot: Snapshot) -> bool:
    """Whether a taint is one that no fix tolerates or removes.

    Args:
        asked: see ``asked_devices``.
    """
    return taint.key in _CONTROL_PLANE or _guards_devices(taint, asked, snapshot)


def closed_nodes(pod_class: PodClass, asked: Collection[str], snapshot: Snapshot) -> Bools:
    """bool[N]: nodes with such a taint that a pod does not tolerate."""
    table = snapshot.table
    hard = {each for taints in table.taint_sets for each in taints if each.keeps_out}
    closed = {each for each in hard if not tolerates(pod_class.tolerations, each) and is_closed(each, asked, snapshot)}
    is_of_set = np.array([not closed.isdisjoint(taints) for taints in table.taint_sets], dtype=np.bool_)
    nodes: Bools = is_of_set[table.taint_codes]
    return nodes


def _guards_devices(taint: Taint, asked: Collection[str], snapshot: Snapshot) -> bool:
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
