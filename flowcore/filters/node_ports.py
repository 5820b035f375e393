"""NodePorts: a host port is held once per node and address.

Source: kube-scheduler plugins/nodeports, framework/types.go HostPortInfo.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.pods import HostPort, PodClass
from flowcore.model.snapshot import Snapshot

NAME = "NodePorts"
REASON = "node(s) didn't have free ports for the requested pod ports"


def clash(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Whether any wanted port is held already."""
    held = tuple(taken)
    return any(want.clashes(other) for want in wanted for other in held)


def reads(pod_class: PodClass) -> Reads | None:
    """The class's host ports."""
    return Reads(pod_class.host_ports) if pod_class.host_ports else None


def rejections(pod_class: PodClass, snapshot: Snapshot) -> tuple[Rejection, ...]:
    """Nodes on which one of the class's host ports is taken."""
    if not pod_class.host_ports or not snapshot.ports:
        return ()
    refused = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    for at, taken in snapshot.ports.items():
        refused[at] = clash(pod_class.host_ports, taken)
    return (Rejection(REASON, refused),)
