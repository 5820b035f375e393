"""The kinds of objects that are read: from a cluster by watching, from a dump by name."""

from __future__ import annotations

from typing import Final

import msgspec

from flowcore.api import queues
from flowcore.api.policies import GROUP, KIND, PLURAL, VERSION
from flowcore.model.gang_spec import GangSource

_STORAGE: Final = "storage.k8s.io"


class ObjectKind(msgspec.Struct, frozen=True):
    """A kind of an API group. Other groups may have kinds of the same name, such as Node.longhorn.io.

    Attributes:
        group: "" for the core group.
        versions: versions of one shape, as far as it is read; the newest is the first.
    """

    kind: str
    plural: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    namespaced: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the API server lists all objects of the kind, the newest version first."""
        prefix = f"/apis/{self.group}" if self.group else "/api"
        return tuple(f"{prefix}/{version}/{self.plural}" for version in self.versions)

    @property
    def api_version(self) -> str:
        """Group and newest version, as objects write it."""
        return f"{self.group}/{self.versions[0]}" if self.group else self.versions[0]

    @property
    def is_core(self) -> bool:
        """Whether every API server serves the kind."""
        return not self.group


NODE: Final = ObjectKind("Node", "nodes")
POD: Final = ObjectKind("Pod", "pods", namespaced=True)
NAMESPACE: Final = ObjectKind("Namespace", "namespaces")
_DEVICES: Final = "resource.k8s.io"
DEVICE_CLASS: Final = ObjectKind("DeviceClass", "deviceclasses", _DEVICES)
RESOURCE_SLICE: Final = ObjectKind("ResourceSlice", "resourceslices", _DEVICES)
RESOURCE_CLAIM: Final = ObjectKind("ResourceClaim", "resourceclaims", _DEVICES, namespaced=True)
DISRUPTION_BUDGET: Final = ObjectKind("PodDisruptionBudget", "poddisruptionbudgets", "policy", namespaced=True)
#: What is available in each NUMA zone of a node.
NODE_TOPOLOGY: Final = ObjectKind(
    "NodeResourceTopology", "noderesourcetopologies", "topology.node.k8s.io", ("v1alpha2", "v1alpha1")
)
#: In dumps only: the API server writes a pod's priority into the pod.
PRIORITY_CLASS: Final = ObjectKind("PriorityClass", "priorityclasses", "scheduling.k8s.io")
#: In dumps only: what pods will claim whose claims are not made yet.
RESOURCE_CLAIM_TEMPLATE: Final = ObjectKind(
    "ResourceClaimTemplate", "resourceclaimtemplates", _DEVICES, namespaced=True
)
#: What filters on volumes read.
STORAGE: Final = (
    ObjectKind("PersistentVolume", "persistentvolumes"),
    ObjectKind("PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True),
    ObjectKind("StorageClass", "storageclasses", _STORAGE),
    ObjectKind("CSINode", "csinodes", _STORAGE),
    ObjectKind("CSIDriver", "csidrivers", _STORAGE),
    ObjectKind("CSIStorageCapacity", "csistoragecapacities", _STORAGE, namespaced=True),
    ObjectKind("VolumeAttachment", "volumeattachments", _STORAGE),
)
POD_GROUPS: Final = {
    source: ObjectKind("PodGroup", "podgroups", source.value, versions, namespaced=True)
    for source, versions in (
        (GangSource.NATIVE, ("v1beta1", "v1alpha3", "v1alpha2")),
        (GangSource.COSCHEDULING, ("v1alpha1",)),
        (GangSource.VOLCANO, ("v1beta1",)),
    )
}
COMPOSITE_POD_GROUP: Final = ObjectKind(
    "CompositePodGroup", "compositepodgroups", GangSource.NATIVE.value, ("v1alpha3",), namespaced=True
)
POLICY: Final = ObjectKind(KIND, PLURAL, GROUP, (VERSION,))
QUEUE: Final = ObjectKind(queues.KIND, queues.PLURAL, GROUP, (VERSION,))

_METRICS: Final = "metrics.k8s.io"
#: In dumps, and polled: they cannot be watched.
NODE_METRICS: Final = ObjectKind("NodeMetrics", "nodes", _METRICS, ("v1beta1",))
POD_METRICS: Final = ObjectKind("PodMetrics", "pods", _METRICS, ("v1beta1",), namespaced=True)

#: In dumps, beside all that are watched.
IN_DUMPS: Final = (PRIORITY_CLASS, RESOURCE_CLAIM_TEMPLATE, NODE_METRICS, POD_METRICS)
#: All that are watched.
KINDS: Final = (
    NODE,
    POD,
    NAMESPACE,
    *STORAGE,
    DEVICE_CLASS,
    RESOURCE_SLICE,
    RESOURCE_CLAIM,
    DISRUPTION_BUDGET,
    NODE_TOPOLOGY,
    *POD_GROUPS.values(),
    COMPOSITE_POD_GROUP,
    POLICY,
    QUEUE,
)
