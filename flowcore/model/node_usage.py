"""What is taken on one node."""

from __future__ import annotations

import msgspec

from flowcore.model.pods import HostPort
from flowcore.model.resources import Amounts
from flowcore.model.volumes import Volumes


class NodeUsage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Sums over all pods that hold room on a node.

    Attributes:
        amounts: what they request, without the number of pods.
        cpu, memory: milli-cores and bytes as the cost model counts them (resources.py ``non_zero_requests``).
        ports, volumes: host ports and volumes that any of them holds.
    """

    node: str
    amounts: Amounts
    pods: int
    cpu: int
    memory: int
    ports: tuple[HostPort, ...]
    volumes: Volumes = ()
