"""Where a cluster has the objects of each kind: a row for each, beside pods, nodes and namespaces.

Those three have events of their own, because the ledger acts on what changed about them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from flowcore.api.kinds import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    DISRUPTION_BUDGET,
    HYPER_NODE,
    NODE_TOPOLOGY,
    PARENTS,
    POD_GROUPS,
    QUEUE,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    SERVICE,
    STORAGE,
    VOLCANO_JOB,
    ObjectKind,
)
from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.cluster.cluster import Cluster
from flowcore.model.device_taint_rules import DeviceTaintRule
from flowcore.model.devices import DeviceClass
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_parents import GangParent, ParentKey, VolcanoJob
from flowcore.model.gang_spec import GangKey, GangSource, PodGroup
from flowcore.model.hyper_nodes import HyperNode
from flowcore.model.numa import NumaNode
from flowcore.model.queues import Queue
from flowcore.model.resource_claims import ResourceClaim
from flowcore.model.resource_slices import ResourceSlice
from flowcore.model.selectors import LabelSelector
from flowcore.model.services import Service
from flowcore.model.volumes import StorageKey, StorageObject, key_of

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class Store(Generic[K, V]):
    """Where a cluster has the objects of some kinds.

    Attributes:
        kinds: that share it; the key of an object says which it is of.
        saved: of a line of a saved state, what its "saved" says, and the field with the object.
        type: of the objects.
        key_of: the key of an object.
        key_by_name: the key of an object of a kind, by its namespace ("" for kinds without) and name.
        text: "namespace/name" of a key, or "name".
        objects: all, by key.
        put: takes an object that came or changed; None: it is gone. Returns whether a round is wanted.
        unreadable: what stands for a version that cannot be read, by key and last version; None: that version stays.
    """

    kinds: tuple[ObjectKind, ...]
    saved: tuple[str, str]
    type: Any
    key_of: Callable[[V], K]
    key_by_name: Callable[[ObjectKind, str, str], K]
    text: Callable[[K], str]
    objects: Callable[[Cluster], Mapping[K, V]]
    put: Callable[[Cluster, K, V | None], bool]
    unreadable: Callable[[K, V | None], V] | None = None


def _name(_kind: ObjectKind, _namespace: str, name: str) -> str:
    return name


def _namespace_and_name(_kind: ObjectKind, namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def _storage_text(key: StorageKey) -> str:
    _, namespace, name = key
    return f"{namespace}/{name}" if namespace else name


def _put_storage(cluster: Cluster, key: StorageKey, value: StorageObject | None) -> bool:
    return cluster.remove_storage(key) if value is None else cluster.put_storage(value)


def _put_pod_group(cluster: Cluster, key: GangKey, group: PodGroup | None) -> bool:
    return cluster.remove_pod_group(key) if group is None else cluster.put_pod_group(group)


def _unreadable_budget(key: str, _before: DisruptionBudget | None) -> DisruptionBudget:
    """Which pods it protects is unknown, so that no pod of its namespace is evicted."""
    namespace, _, name = key.partition("/")
    return DisruptionBudget(namespace, name, LabelSelector())


def _unreadable_service(key: str, _before: Service | None) -> Service:
    """It selects no pods."""
    namespace, _, name = key.partition("/")
    return Service(namespace, name)


def _unreadable_queue(name: str, before: Queue | None) -> Queue:
    """It selects no pods."""
    return Queue(name, "" if before is None else before.uid, problem="the object cannot be read")


def _unreadable_hyper_node(name: str, before: HyperNode | None) -> HyperNode:
    """It has no members. Its tier and the name of that stay, so that others and gangs keep theirs."""
    tier, tier_name = (0, "") if before is None else (before.tier, before.tier_name)
    return HyperNode(name, tier, tier_name, problem="the object cannot be read")


STORAGE_OBJECTS: Final = Store[StorageKey, StorageObject](
    STORAGE,
    ("Storage", "storage"),
    StorageObject,
    key_of,
    lambda kind, namespace, name: (kind.kind, namespace, name),
    _storage_text,
    lambda cluster: cluster.storage.objects,
    _put_storage,
)
DEVICE_CLASSES: Final = Store[str, DeviceClass](
    (DEVICE_CLASS,),
    ("DeviceClass", "device_class"),
    DeviceClass,
    lambda value: value.name,
    _name,
    str,
    lambda cluster: cluster.devices.classes,
    Cluster.set_device_class,
)
RESOURCE_SLICES: Final = Store[str, ResourceSlice](
    (RESOURCE_SLICE,),
    ("ResourceSlice", "resource_slice"),
    ResourceSlice,
    lambda resource_slice: resource_slice.name,
    _name,
    str,
    lambda cluster: cluster.tainted_slices.published,
    Cluster.set_resource_slice,
)
DEVICE_TAINT_RULES: Final = Store[str, DeviceTaintRule](
    (DEVICE_TAINT_RULE,),
    ("DeviceTaintRule", "device_taint_rule"),
    DeviceTaintRule,
    lambda rule: rule.name,
    _name,
    str,
    lambda cluster: cluster.tainted_slices.rules,
    Cluster.set_device_taint_rule,
)
RESOURCE_CLAIMS: Final = Store[ClaimKey, ResourceClaim](
    (RESOURCE_CLAIM,),
    ("ResourceClaim", "resource_claim"),
    ResourceClaim,
    lambda claim: (claim.namespace, claim.name),
    lambda _kind, namespace, name: (namespace, name),
    "/".join,
    lambda cluster: cluster.devices.claims,
    Cluster.set_resource_claim,
)
NODE_TOPOLOGIES: Final = Store[str, NumaNode](
    (NODE_TOPOLOGY,),
    ("NodeResourceTopology", "numa_node"),
    NumaNode,
    lambda report: report.name,
    _name,
    str,
    lambda cluster: cluster.numa.reports,
    lambda cluster, name, report: cluster.numa.set_report(name, report),
)
HYPER_NODES: Final = Store[str, HyperNode](
    (HYPER_NODE,),
    ("HyperNode", "hyper_node"),
    HyperNode,
    lambda hyper_node: hyper_node.name,
    _name,
    str,
    lambda cluster: cluster.hyper_nodes.objects,
    Cluster.set_hyper_node,
    _unreadable_hyper_node,
)
QUEUES: Final = Store[str, Queue](
    (QUEUE,),
    ("Queue", "queue"),
    Queue,
    lambda queue: queue.name,
    _name,
    str,
    lambda cluster: cluster.queues.objects,
    lambda cluster, name, queue: cluster.queues.put(name, queue),
    _unreadable_queue,
)
SERVICES: Final = Store[str, Service](
    (SERVICE,),
    ("Service", "service"),
    Service,
    lambda service: service.key,
    _namespace_and_name,
    str,
    lambda cluster: cluster.services.objects,
    Cluster.set_service,
    _unreadable_service,
)
DISRUPTION_BUDGETS: Final = Store[str, DisruptionBudget](
    (DISRUPTION_BUDGET,),
    ("PodDisruptionBudget", "disruption_budget"),
    DisruptionBudget,
    lambda budget: budget.key,
    _namespace_and_name,
    str,
    lambda cluster: cluster.budgets.objects,
    Cluster.set_disruption_budget,
    _unreadable_budget,
)
GROUPS_OF_PODS: Final = Store[GangKey, PodGroup](
    tuple(POD_GROUPS.values()),
    ("PodGroup", "pod_group"),
    PodGroup,
    lambda group: group.key,
    lambda kind, namespace, name: GangKey(GangSource(kind.group), namespace, name),
    lambda key: f"{key.namespace}/{key.name}",
    lambda cluster: cluster.gangs.groups,
    _put_pod_group,
)
GANG_PARENTS: Final = Store[ParentKey, GangParent](
    PARENTS,
    ("GangParent", "gang_parent"),
    GangParent,
    lambda parent: parent.key,
    lambda kind, namespace, name: ParentKey(kind.qualified, namespace, name),
    lambda key: f"{key.namespace}/{key.name}",
    lambda cluster: cluster.gangs.parents,
    Cluster.set_gang_parent,
)
VOLCANO_JOBS: Final = Store[tuple[str, str], VolcanoJob](
    (VOLCANO_JOB,),
    ("VolcanoJob", "volcano_job"),
    VolcanoJob,
    lambda job: (job.namespace, job.name),
    lambda _kind, namespace, name: (namespace, name),
    "/".join,
    lambda cluster: cluster.volcano_jobs,
    Cluster.set_volcano_job,
)
#: Kinds that are watched only while a policy follows them.
FOLLOWED_STORES: Final[tuple[Store[Any, Any], ...]] = (GANG_PARENTS, VOLCANO_JOBS)
STORES: Final[tuple[Store[Any, Any], ...]] = (
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIMS,
    NODE_TOPOLOGIES,
    HYPER_NODES,
    QUEUES,
    DISRUPTION_BUDGETS,
    SERVICES,
    STORAGE_OBJECTS,
    GROUPS_OF_PODS,
    *FOLLOWED_STORES,
)
