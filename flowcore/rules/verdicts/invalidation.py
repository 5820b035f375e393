"""Which event makes which verdicts stale, as data: a row for an event and a filter, with where and why.

Source: the seed "equivalence class", section 3. Its table is of 2017; docs/reference/cached-verdicts.md shows
both and tells each difference. What is not in the table, an event does not touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from flowcore.cluster.arrays.device_objects import SEARCH, TAKERS
from flowcore.model.nodes import Node
from flowcore.rules.filters import (
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resource_topology,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    policy_constraints,
    taint_eviction,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from flowcore.rules.filters.registry import NODE_UNREADABLE


class Event(Enum):
    """An event in a cluster that may change verdicts."""

    POD_ADDED = "a pod takes a node: bound there, or planned and reserved"
    POD_DELETED = "a pod leaves its node: deleted, terminal, reservation dropped"
    POD_RESIZED = "pods of a node take other amounts or ports, as many as before"
    NODE_ADDED = "a node comes"
    NODE_DELETED = "a node goes"
    NODE_LABELS = "labels of a node change"
    NODE_TAINTS = "taints of a node change"
    NODE_UNSCHEDULABLE = "a node is cordoned or uncordoned"
    NODE_ALLOCATABLE = "allocatable of a node changes, or whether it can be read"
    NODE_FEATURES = "a node declares other features"
    NODE_REPORT = "a node reports other images or another bandwidth"
    NODE_MEASURED = "another load of a node is measured"
    POD_VOLUMES = "a pod with volumes takes a node or leaves it"
    PERSISTENT_VOLUME = "a PersistentVolume comes, goes or changes"
    CLAIM = "a PersistentVolumeClaim comes, goes or changes"
    STORAGE_CLASS = "a StorageClass comes, goes or changes"
    CSI_NODE = "a CSINode comes, goes or changes"
    CSI_DRIVER = "a CSIDriver comes, goes or changes"
    VOLUME_ATTACHMENT = "a VolumeAttachment comes, goes or changes"
    STORAGE_CAPACITY = "a CSIStorageCapacity comes, goes or changes"
    NAMESPACE_LABELS = "a namespace comes, goes or changes its labels"
    NUMA_ZONES = "a node reports other NUMA zones, or pods take room in them that its report may not show"
    RESOURCE_SLICE = "a ResourceSlice comes, goes or changes"
    RESOURCE_CLAIM = "a ResourceClaim comes, goes or changes"
    DEVICE_CLASS = "a DeviceClass comes, goes or changes"
    DEVICE_TAKERS = "pods that claim devices are planned, or are so no more"


#: The event for each field of a node.
NODE_FIELDS: Mapping[str, Event] = {
    "labels": Event.NODE_LABELS,
    "taints": Event.NODE_TAINTS,
    "unschedulable": Event.NODE_UNSCHEDULABLE,
    "allocatable": Event.NODE_ALLOCATABLE,
    "problem": Event.NODE_ALLOCATABLE,
    "features": Event.NODE_FEATURES,
    "report": Event.NODE_REPORT,
}

#: The event for each kind of storage object.
STORAGE_EVENTS: Mapping[str, Event] = {
    "PersistentVolume": Event.PERSISTENT_VOLUME,
    "PersistentVolumeClaim": Event.CLAIM,
    "StorageClass": Event.STORAGE_CLASS,
    "CSINode": Event.CSI_NODE,
    "CSIDriver": Event.CSI_DRIVER,
    "VolumeAttachment": Event.VOLUME_ATTACHMENT,
    "CSIStorageCapacity": Event.STORAGE_CAPACITY,
}

#: The event for each kind of object about devices, and for pods that take some. What a round left unsearched is asked
#: again as if slices had changed.
DEVICE_EVENTS: Mapping[str, Event] = {
    "ResourceSlice": Event.RESOURCE_SLICE,
    "ResourceClaim": Event.RESOURCE_CLAIM,
    "DeviceClass": Event.DEVICE_CLASS,
    TAKERS: Event.DEVICE_TAKERS,
    SEARCH: Event.RESOURCE_SLICE,
}


#: Events that may change what a node offers or what is used there.
NODE_STATE_EVENTS = frozenset(
    {
        *NODE_FIELDS.values(),
        Event.NODE_ADDED,
        Event.NODE_MEASURED,
        Event.POD_ADDED,
        Event.POD_DELETED,
        Event.POD_RESIZED,
    }
)


class Stale(Enum):
    """Where an event makes a verdict stale."""

    NODE = "that node"
    EVERYWHERE = "all nodes"
    #: The pod is one that a rule of the class speaks of, or has a rule that speaks of the class.
    RULES = "all nodes, if a rule between the class and the pod speaks of it"
    #: The label is a topology key of the rules, or selects the nodes that a rule counts.
    LABELS = "all nodes, if the rules read that label"
    #: A rule counts only nodes whose taints the class tolerates.
    TAINTS = "all nodes, if the rules read taints"
    #: Pods that the rules read run there.
    DOMAIN = "all nodes, if pods that the rules read run there"
    NAMESPACES = "all nodes, if the rules select namespaces by labels"


@dataclass(frozen=True, slots=True)
class Row:
    """An event makes the verdicts of a filter stale."""

    event: Event
    filter: str
    scope: Stale
    reason: str


_FIT, _PORTS = node_resources_fit.NAME, node_ports.NAME
_MOUNTS, _LIMITS = volume_restrictions.NAME, node_volume_limits.NAME
_BINDING, _ZONE = volume_binding.NAME, volume_zone.NAME
_AFFINITY, _SPREAD = inter_pod_affinity.NAME, pod_topology_spread.NAME
_POLICY, _DEVICES = policy_constraints.NAME, dynamic_resources.NAME

INVALIDATES: tuple[Row, ...] = (
    Row(Event.POD_ADDED, _FIT, Stale.NODE, "it takes room there"),
    Row(Event.POD_ADDED, _PORTS, Stale.NODE, "it may hold host ports"),
    Row(Event.POD_ADDED, _SPREAD, Stale.RULES, "the skew of its domain grows; the emptiest domain may be another"),
    Row(Event.POD_ADDED, _AFFINITY, Stale.RULES, "its anti-affinity keeps others out of its domain, theirs shun it, or "
        "their affinity is met there"),
    Row(Event.POD_DELETED, _FIT, Stale.NODE, "its room comes free"),
    Row(Event.POD_DELETED, _PORTS, Stale.NODE, "its host ports come free"),
    Row(Event.POD_DELETED, _SPREAD, Stale.RULES, "the skew of every other domain grows if its own was the emptiest"),
    Row(Event.POD_DELETED, _AFFINITY, Stale.RULES, "its domain opens to those it kept out or that shunned it, and "
        "closes to those that wanted it near"),
    Row(Event.POD_RESIZED, _FIT, Stale.NODE, "other amounts are taken there"),
    Row(Event.POD_RESIZED, _PORTS, Stale.NODE, "one pod may have come for another between two rounds"),
    Row(Event.NODE_ADDED, NODE_UNREADABLE, Stale.NODE, "there is no verdict for it"),
    Row(Event.NODE_ADDED, node_unschedulable.NAME, Stale.NODE, "there is no verdict for it"),
    Row(Event.NODE_ADDED, node_name.NAME, Stale.NODE, "there is no verdict for it"),
    Row(Event.NODE_ADDED, taint_toleration.NAME, Stale.NODE, "there is no verdict for it"),
    Row(Event.NODE_ADDED, taint_eviction.NAME, Stale.NODE, "there is no verdict for it"),
    Row(Event.NODE_ADDED, node_affinity.NAME, Stale.NODE, "there is no verdict for it"),
    Row(Event.NODE_ADDED, _PORTS, Stale.NODE, "there is no verdict for it; pods may be bound to it already"),
    Row(Event.NODE_ADDED, _FIT, Stale.NODE, "there is no verdict for it; pods may be bound to it already"),
    Row(Event.NODE_ADDED, _SPREAD, Stale.EVERYWHERE, "it may open an empty domain: skews grow, minDomains is reached"),
    Row(Event.NODE_ADDED, _AFFINITY, Stale.EVERYWHERE, "pods bound to it count in its domain from now on"),
    Row(Event.NODE_DELETED, _SPREAD, Stale.EVERYWHERE, "the emptiest domain may go with it; minDomains is missed"),
    Row(Event.NODE_DELETED, _AFFINITY, Stale.DOMAIN, "its pods count in no domain any more"),
    Row(Event.NODE_LABELS, node_affinity.NAME, Stale.NODE, "selectors read labels"),
    Row(Event.NODE_LABELS, _SPREAD, Stale.LABELS, "it changes its domain with all its pods, or is counted from now on"),
    Row(Event.NODE_LABELS, _AFFINITY, Stale.LABELS, "it changes its domain with all its pods"),
    Row(Event.NODE_TAINTS, taint_toleration.NAME, Stale.NODE, "taints decide"),
    Row(Event.NODE_TAINTS, taint_eviction.NAME, Stale.NODE, "taints decide"),
    Row(Event.NODE_TAINTS, _SPREAD, Stale.TAINTS, "with nodeTaintsPolicy Honor its pods and its domain may not count"),
    Row(Event.NODE_UNSCHEDULABLE, node_unschedulable.NAME, Stale.NODE, "the cordon decides"),
    Row(Event.NODE_ALLOCATABLE, NODE_UNREADABLE, Stale.NODE, "whether it can be read decides"),
    Row(Event.NODE_ALLOCATABLE, _FIT, Stale.NODE, "there is more room, or less"),
    Row(Event.NODE_ADDED, node_declared_features.NAME, Stale.NODE, "there is no verdict for it"),
    Row(Event.NODE_ADDED, node_resource_topology.NAME, Stale.NODE, "there is no verdict for it"),
    Row(Event.NUMA_ZONES, node_resource_topology.NAME, Stale.NODE, "the room in its zones decides"),
    Row(Event.NODE_FEATURES, node_declared_features.NAME, Stale.NODE, "what it declares decides"),
    Row(Event.NODE_ADDED, _MOUNTS, Stale.EVERYWHERE, "pods bound to it may use a claim that only one pod may use"),
    Row(Event.NODE_ADDED, _LIMITS, Stale.EVERYWHERE, "there is no verdict for it"),
    Row(Event.NODE_ADDED, _BINDING, Stale.EVERYWHERE, "there is no verdict for it"),
    Row(Event.NODE_ADDED, _ZONE, Stale.EVERYWHERE, "there is no verdict for it"),
    Row(Event.NODE_DELETED, _MOUNTS, Stale.EVERYWHERE, "so may those that were bound to it"),
    Row(Event.NODE_LABELS, _BINDING, Stale.EVERYWHERE, "volumes and classes name nodes by labels"),
    Row(Event.NODE_LABELS, _ZONE, Stale.EVERYWHERE, "zones are labels"),
    Row(Event.POD_VOLUMES, _MOUNTS, Stale.EVERYWHERE, "it holds disks there, or a claim that only one pod may use"),
    Row(Event.POD_VOLUMES, _LIMITS, Stale.EVERYWHERE, "it uses up attachments there"),
    Row(Event.PERSISTENT_VOLUME, _LIMITS, Stale.EVERYWHERE, "it says which driver attaches the claims bound to it"),
    Row(Event.PERSISTENT_VOLUME, _BINDING, Stale.EVERYWHERE, "it says where claims that have or want it can be had"),
    Row(Event.PERSISTENT_VOLUME, _ZONE, Stale.EVERYWHERE, "its labels name zones"),
    Row(Event.CLAIM, _MOUNTS, Stale.EVERYWHERE, "it may be for one pod only, or missing"),
    Row(Event.CLAIM, _LIMITS, Stale.EVERYWHERE, "it says which volume is attached"),
    Row(Event.CLAIM, _BINDING, Stale.EVERYWHERE, "it is bound or not, or missing"),
    Row(Event.CLAIM, _ZONE, Stale.EVERYWHERE, "it says which volume's zone counts"),
    Row(Event.STORAGE_CLASS, _LIMITS, Stale.EVERYWHERE, "it names the driver of claims that are not bound yet"),
    Row(Event.STORAGE_CLASS, _BINDING, Stale.EVERYWHERE, "it says when and where claims are bound"),
    Row(Event.STORAGE_CLASS, _ZONE, Stale.EVERYWHERE, "it says whether an unbound claim may wait"),
    Row(Event.CSI_NODE, _LIMITS, Stale.EVERYWHERE, "it names the limits"),
    Row(Event.CSI_NODE, _BINDING, Stale.EVERYWHERE, "it says which in-tree volumes its node serves by CSI"),
    Row(Event.CSI_DRIVER, _LIMITS, Stale.EVERYWHERE, "it says whether nodes without it take its volumes"),
    Row(Event.CSI_DRIVER, _BINDING, Stale.EVERYWHERE, "it says whether capacity counts"),
    Row(Event.VOLUME_ATTACHMENT, _LIMITS, Stale.EVERYWHERE, "it uses up an attachment"),
    Row(Event.STORAGE_CAPACITY, _BINDING, Stale.EVERYWHERE, "it says where volumes can be made"),
    Row(Event.NAMESPACE_LABELS, _AFFINITY, Stale.NAMESPACES, "other pods are among those that a term speaks of"),
    Row(Event.POD_ADDED, _POLICY, Stale.RULES, "its domain may be full now, or closed to other groups"),
    Row(Event.POD_DELETED, _POLICY, Stale.RULES, "its domain has room for one more"),
    Row(Event.NODE_ADDED, _POLICY, Stale.EVERYWHERE, "its domain may be full; pods bound to it count from now on"),
    Row(Event.NODE_DELETED, _POLICY, Stale.DOMAIN, "its pods count in no domain any more"),
    Row(Event.NODE_LABELS, _POLICY, Stale.LABELS, "it changes its domain with all its pods, or is for others"),
    Row(Event.NAMESPACE_LABELS, _POLICY, Stale.NAMESPACES, "other pods are among those that a policy counts"),
    Row(Event.NODE_ADDED, _DEVICES, Stale.EVERYWHERE, "there is no verdict for it"),
    Row(Event.NODE_ALLOCATABLE, _DEVICES, Stale.EVERYWHERE, "it may offer a resource that is devices on other nodes"),
    Row(Event.NODE_LABELS, _DEVICES, Stale.EVERYWHERE, "slices, devices and allocations name nodes by labels"),
    Row(Event.RESOURCE_SLICE, _DEVICES, Stale.EVERYWHERE, "it says which devices there are and who reaches them"),
    Row(Event.RESOURCE_CLAIM, _DEVICES, Stale.EVERYWHERE, "it asks for other devices, gets them, or gives them back"),
    Row(Event.DEVICE_CLASS, _DEVICES, Stale.EVERYWHERE, "it selects other devices, or is missing"),
    Row(Event.DEVICE_TAKERS, _DEVICES, Stale.EVERYWHERE, "they take devices before their claims say so"),
)  # fmt: skip


def scopes(rows: Iterable[Row] = INVALIDATES) -> dict[str, dict[Event, Stale]]:
    """The table by filter and event."""
    by_filter: dict[str, dict[Event, Stale]] = {}
    for row in rows:
        by_filter.setdefault(row.filter, {})[row.event] = row.scope
    return by_filter


def node_events(before: Node, after: Node) -> list[Event]:
    """What happened to a node that was there and is."""
    return sorted(
        {event for name, event in NODE_FIELDS.items() if getattr(before, name) != getattr(after, name)},
        key=lambda event: event.name,
    )
