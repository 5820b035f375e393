"""How objects of each kind are read: a wire struct and what makes the value of it.

Not here: storage objects (``flowcore.api.storage_objects``), policies, and what is in dumps only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from flowcore.api.base import Interner, Wire
from flowcore.api.device_taint_rules import WireDeviceTaintRule, to_device_taint_rule
from flowcore.api.devices import WireDeviceClass, to_device_class
from flowcore.api.disruption_budgets import WireDisruptionBudget, to_disruption_budget
from flowcore.api.hyper_nodes import WireHyperNode, to_hyper_node
from flowcore.api.kinds import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    DISRUPTION_BUDGET,
    HYPER_NODE,
    NODE_TOPOLOGY,
    QUEUE,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    SERVICE,
    ObjectKind,
)
from flowcore.api.node_topology import WireNodeTopology, to_numa_node
from flowcore.api.queues import WireQueue, to_queue
from flowcore.api.resource_claims import WireDeviceClaim, to_resource_claim
from flowcore.api.resource_slices import WireResourceSlice, to_resource_slice
from flowcore.api.services import WireService, to_service

READ_BY: Final[Mapping[ObjectKind, tuple[type[Wire], Callable[[Any, Interner], Any]]]] = {
    DEVICE_CLASS: (WireDeviceClass, lambda wire, _intern: to_device_class(wire)),
    DEVICE_TAINT_RULE: (WireDeviceTaintRule, lambda wire, _intern: to_device_taint_rule(wire)),
    DISRUPTION_BUDGET: (WireDisruptionBudget, lambda wire, _intern: to_disruption_budget(wire)),
    HYPER_NODE: (WireHyperNode, lambda wire, _intern: to_hyper_node(wire)),
    NODE_TOPOLOGY: (WireNodeTopology, to_numa_node),
    RESOURCE_CLAIM: (WireDeviceClaim, lambda wire, _intern: to_resource_claim(wire)),
    RESOURCE_SLICE: (WireResourceSlice, lambda wire, _intern: to_resource_slice(wire)),
    SERVICE: (WireService, to_service),
    QUEUE: (WireQueue, lambda wire, _intern: to_queue(wire)),
}
