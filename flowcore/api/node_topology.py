"""NodeResourceTopology objects: what is available in each NUMA zone of a node.

Source: github.com/k8stopologyawareschedwg/noderesourcetopology-api (v1alpha2; v1alpha1 has the kubelet's policy in
``topologyPolicies`` alone).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from flowcore.api.base import Interner, Quantity, Wire, WireMeta, to_seconds
from flowcore.model.numa import NumaNode
from flowcore.model.resources import Amounts, read_list, to_amounts

#: Zones of this type are NUMA nodes; others are caches or sockets.
_NUMA_TYPE: Final = "Node"
#: Topology managers refuse machines with more zones unless told otherwise. Each zone is a row of the arrays.
MAX_ZONES: Final = 64
_NUMBER: Final = re.compile(r"(\d+)$")
_SINGLE: Final = "single-numa-node"
#: The older field's words: policy and scope in one.
_OLDER: Final = {
    "SingleNUMANodePodLevel": (True, True),
    "SingleNUMANodeContainerLevel": (True, False),
}


class WireZoneResource(Wire):
    name: str = ""
    available: Quantity | None = None
    allocatable: Quantity | None = None


class WireZone(Wire):
    name: str = ""
    type: str = ""
    resources: list[WireZoneResource] | None = None


class WireAttribute(Wire):
    name: str = ""
    value: str = ""


class WireManagedField(Wire):
    time: datetime | None = None


class WireNodeTopologyMeta(WireMeta):
    managed_fields: list[WireManagedField] | None = None


class WireNodeTopology(Wire):
    metadata: WireNodeTopologyMeta
    topology_policies: list[str] | None = None
    attributes: list[WireAttribute] | None = None
    zones: list[WireZone] | None = None


def to_numa_node(wire: WireNodeTopology, intern: Interner) -> NumaNode:
    """The zones of the node that has the object's name.

    Raises:
        ModelError: a quantity cannot be read; the message names zone and resource.
    """
    single, pod_scope = _OLDER.get(next(iter(wire.topology_policies or ()), ""), (False, False))
    attributes = {each.name: each.value for each in wire.attributes or ()}
    if "topologyManagerPolicy" in attributes:
        single = attributes["topologyManagerPolicy"] == _SINGLE
    if "topologyManagerScope" in attributes:
        pod_scope = attributes["topologyManagerScope"] == "pod"
    zones = sorted((each for each in wire.zones or () if each.type == _NUMA_TYPE), key=_number)
    return NumaNode(
        name=wire.metadata.name,
        zones=tuple(intern(_available(zone)) for zone in zones[:MAX_ZONES]),
        single=single,
        pod_scope=pod_scope,
        written=max((to_seconds(each.time) for each in wire.metadata.managed_fields or ()), default=0.0),
    )


def _number(zone: WireZone) -> tuple[int, str]:
    """By number, as the kubelet prefers them: node-10 comes after node-2."""
    match = _NUMBER.search(zone.name)
    return (int(match[1]) if match else 2**31, zone.name)


def _available(zone: WireZone) -> Amounts:
    """What is available; where the zone says only what pods may have, nothing is known to be taken."""
    amounts_read: dict[str, Quantity] = {}
    for resource in zone.resources or ():
        amount = resource.allocatable if resource.available is None else resource.available
        amounts_read[resource.name] = 0 if amount is None else amount
    amounts = dict(to_amounts(read_list(amounts_read, f"zones[{zone.name}].resources")))
    # A resource of which nothing is available is reported all the same.
    return tuple(sorted({name: amounts.get(name, 0) for name in amounts_read}.items()))
