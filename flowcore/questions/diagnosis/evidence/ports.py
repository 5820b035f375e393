"""Host ports that are held: number, protocol, node and holder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flowcore.model.pods import ANY_ADDRESS, HostPort
from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.questions.diagnosis.lists import listed, listed_pods
from flowcore.rules.filters import node_ports


def ports(pod: UnplacedCase) -> Iterator[str]:
    """A sentence for each host port of a pod that is held on nodes which matter."""
    nodes = pod.most_open_nodes(node_ports.NAME)
    for port in pod.unplaced.pod.pod_class.host_ports:
        holders = defaultdict[str, list[str]](list)
        for occupant in pod.occupants:
            if occupant.node in nodes and node_ports.clash((port,), occupant.pod_class.host_ports):
                holders[occupant.node].append(occupant.key)
        if len(holders) == 1:
            ((node, keys),) = holders.items()
            yield f"Port {_text(port)} of {node} is held by {listed_pods(keys, pod.context)}."
        elif holders:
            held = [f"by {listed_pods(keys, pod.context)} on {node}" for node, keys in holders.items()]
            yield f"Port {_text(port)} is held {listed(held)}."


def _text(port: HostPort) -> str:
    number = f"{port.port}/{port.protocol}"
    return number if port.ip == ANY_ADDRESS else f"{number} at {port.ip}"
