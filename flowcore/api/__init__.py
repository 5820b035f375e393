"""From Kubernetes JSON to model values.

The ``Wire*`` structs name only the fields that scheduling reads. The decoder skips all other fields, also those of
newer Kubernetes versions. A field of the wrong shape (a label that is a number) raises ``msgspec.ValidationError``
with its path. A field of the right shape with a value that cannot be parsed (a quantity ``"abc"``) blocks that one pod
or node. The reason names the field.
"""

from flowcore.api.base import Interner, to_labels
from flowcore.api.devices import WireDeviceClass, to_device_class
from flowcore.api.disruption_budgets import WireDisruptionBudget, to_disruption_budget
from flowcore.api.gangs import WirePodGroup, to_pod_group, to_unreadable_pod_group
from flowcore.api.node_topology import WireNodeTopology, to_numa_node
from flowcore.api.nodes import NodeReader, WireNamespace, WireNode, to_node
from flowcore.api.pod_objects import WirePod
from flowcore.api.pod_reader import PodReader
from flowcore.api.pods import to_pod, to_unreadable_pod
from flowcore.api.queues import WireQueue, to_queue
from flowcore.api.selectors import WireLabelSelector, to_label_selector
from flowcore.api.storage_objects import STORAGE_KINDS, storage_decoder, to_storage_object

__all__ = [
    "STORAGE_KINDS",
    "Interner",
    "NodeReader",
    "PodReader",
    "WireDeviceClass",
    "WireDisruptionBudget",
    "WireLabelSelector",
    "WireNamespace",
    "WireNode",
    "WireNodeTopology",
    "WirePod",
    "WirePodGroup",
    "WireQueue",
    "storage_decoder",
    "to_device_class",
    "to_disruption_budget",
    "to_label_selector",
    "to_labels",
    "to_node",
    "to_numa_node",
    "to_pod",
    "to_pod_group",
    "to_queue",
    "to_storage_object",
    "to_unreadable_pod",
    "to_unreadable_pod_group",
]
