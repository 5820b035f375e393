"""Whether a pod fits a node, by amounts and host ports alone."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.cluster.occupancy import NodeUsageSums
from flowcore.filters.node_ports import clash
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.resources import PODS


def fits(
    node: Node | None, usage: NodeUsageSums, pod: Pod, more: Sequence[Pod] = (), fewer: Sequence[Pod] = ()
) -> bool:
    """Whether a pod fits a node with this usage, some more pods and some fewer.

    Args:
        node: None: it is gone, and nothing fits.
        fewer: pods that ``usage`` counts: bound ones by what they use, others by what they request.
    """
    if node is None:
        return False
    allocatable = dict(node.allocatable)
    if usage.pods + 1 + len(more) - len(fewer) > allocatable.get(PODS, 0):
        return False
    amounts = usage.amounts
    if more or fewer:
        amounts = amounts.copy()
        for other in more:
            amounts.update(dict(other.pod_class.requests))
        for other in fewer:
            amounts.subtract(dict(other.usage if other.node_name else other.pod_class.requests))
    for name, amount in pod.pod_class.requests:
        if amount > allocatable.get(name, 0) - amounts[name]:
            return False
    if not pod.pod_class.host_ports:
        return True
    ports = usage.ports.copy()
    ports.update(port for other in more for port in other.pod_class.host_ports)
    ports.subtract(port for other in fewer for port in other.pod_class.host_ports)
    return not clash(pod.pod_class.host_ports, [port for port, count in ports.items() if count > 0])
