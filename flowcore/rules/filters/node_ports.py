"""NodePorts: a host port is held once per node and address.

Source: kube-scheduler plugins/nodeports, framework/types.go HostPortInfo.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.pods import ANY_ADDRESS, HostPort, PodClass
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAME = "NodePorts"
REASON = "node(s) didn't have free ports for the requested pod ports"


class HeldPorts:
    """Host ports by number and protocol, to be compared with others in one pass."""

    def __init__(self, ports: Iterable[HostPort]) -> None:
        self._addresses: dict[tuple[str, int], set[str]] = {}
        for port in ports:
            self._addresses.setdefault((port.protocol, port.port), set()).add(port.ip)

    def clashes(self, others: Iterable[HostPort]) -> bool:
        """Whether any of the others is held already: at the same address, or one of the two at every address."""
        addresses = self._addresses
        for port in others:
            taken = addresses.get((port.protocol, port.port))
            if taken is not None and (port.ip in taken or port.ip == ANY_ADDRESS or ANY_ADDRESS in taken):
                return True
        return False


def clash(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Whether any wanted port is held already."""
    return HeldPorts(wanted).clashes(taken)


def reads(pod_class: PodClass) -> FilterInputs | None:
    """The class's host ports."""
    return FilterInputs(pod_class.host_ports) if pod_class.host_ports else None


def rejections(pod_class: PodClass, snapshot: Snapshot) -> tuple[Rejection, ...]:
    """Nodes on which one of the class's host ports is taken."""
    if not pod_class.host_ports or not snapshot.ports:
        return ()
    refused = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    wanted = HeldPorts(pod_class.host_ports)
    for node, taken in snapshot.ports.items():
        refused[node] = wanted.clashes(taken)
    return (Rejection(REASON, refused),)
