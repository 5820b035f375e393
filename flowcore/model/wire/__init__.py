"""From Kubernetes JSON to model values.

The ``Wire*`` structs name only the fields that scheduling reads; everything else, fields of newer
Kubernetes versions included, is skipped by the decoder. What has the wrong shape (a label that is a
number) raises ``msgspec.ValidationError`` with its path. What has the right shape and cannot be read (a
quantity ``"abc"``) blocks that one pod or node, with the field named, and disturbs no other.
"""

from flowcore.model.wire.base import Interner, to_labels
from flowcore.model.wire.gangs import WirePodGroup, to_pod_group, to_unreadable_pod_group
from flowcore.model.wire.nodes import WireNamespace, WireNode, to_node
from flowcore.model.wire.pod_objects import WirePod
from flowcore.model.wire.pods import to_pod, to_unreadable_pod
from flowcore.model.wire.selectors import WireLabelSelector, to_label_selector
from flowcore.model.wire.volumes import (
    STORAGE_KINDS,
    WireDeviceClass,
    storage_decoder,
    to_device_class,
    to_storage_object,
)

__all__ = [
    "STORAGE_KINDS",
    "Interner",
    "WireDeviceClass",
    "WireLabelSelector",
    "WireNamespace",
    "WireNode",
    "WirePod",
    "WirePodGroup",
    "storage_decoder",
    "to_device_class",
    "to_label_selector",
    "to_labels",
    "to_node",
    "to_pod",
    "to_pod_group",
    "to_storage_object",
    "to_unreadable_pod",
    "to_unreadable_pod_group",
]
