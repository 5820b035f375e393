"""The simulated nodes of ``thalweg up``: made up, or those of a dump."""

from __future__ import annotations

import math
from typing import Any, Final

from thalweg_controlplane.client.objects import node

from flowcore.model.nodes import Node
from flowcore.model.resources import CPU, MEMORY, PODS
from thalweg.dumps.files import DumpError
from thalweg.dumps.reader import read_dump

#: More simulated nodes than this are too much for one machine.
MOST_NODES: Final = 5000
_ZONE, _RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"
_ZONES: Final = ("a", "b")
_NODES_IN_RACK: Final = 20
#: Every fifth node has GPUs, at least one has.
_ONE_IN, _GPUS = 5, {"nvidia.com/gpu": "4"}
#: Taints with this prefix follow from a node's condition and its field spec.unschedulable. Simulated nodes are ready.
_OF_CONDITIONS: Final = "node.kubernetes.io/"


def made_up_nodes(count: int) -> list[dict[str, Any]]:
    """Nodes of 4 CPUs and 16 GiB in two zones, each with two racks or more. Every fifth, and the last, has 4 GPUs."""
    racks = max(2, math.ceil(count / len(_ZONES) / _NODES_IN_RACK))
    return [_made_up(number, racks, gpus=_has_gpus(number, count)) for number in range(count)]


def _has_gpus(number: int, count: int) -> bool:
    return number % _ONE_IN == _ONE_IN - 1 or (count < _ONE_IN and number == count - 1)


def _made_up(number: int, racks: int, *, gpus: bool) -> dict[str, Any]:
    in_zone, place = divmod(number, len(_ZONES))
    zone = _ZONES[place]
    labels = {_ZONE: zone, _RACK: f"{zone}{in_zone % racks + 1}", **({"gpu": "true"} if gpus else {})}
    return node(f"node-{number}", labels=labels, extended=_GPUS if gpus else None)


def nodes_of_dump(files: tuple[str, ...]) -> list[dict[str, Any]]:
    """Nodes with the names, labels, taints and allocatable resources of those in a dump.

    Taints that follow from conditions are left out: the simulated nodes are ready.

    Raises:
        DumpError: a file cannot be read, contains too many nodes, or a node that is not sound.
    """
    nodes = list(read_dump(files).cluster.nodes.values())
    if len(nodes) > MOST_NODES:
        raise DumpError(f"the dump contains {len(nodes):,} nodes: at most {MOST_NODES:,} are simulated")
    for dumped in nodes:
        if dumped.problem:
            raise DumpError(f"Node {dumped.name}: {dumped.problem}")
    return [_simulated(each) for each in nodes]


def _simulated(like: Node) -> dict[str, Any]:
    amounts = dict(like.allocatable)
    cpu, memory, pods = amounts.pop(CPU, 0), amounts.pop(MEMORY, 0), amounts.pop(PODS, 0)
    made = node(
        like.name,
        f"{cpu}m",
        str(memory),
        pods,
        labels=dict(like.labels),
        taints=[
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in like.taints
            if not taint.key.startswith(_OF_CONDITIONS)
        ],
        extended={name: str(amount) for name, amount in amounts.items()},
    )
    if like.unschedulable:
        made["spec"]["unschedulable"] = True
    return made
