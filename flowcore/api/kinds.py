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
    def qualified(self) -> str:
        """The kind with its API group: "JobSet.jobset.x-k8s.io"; "Pod" for the core group."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

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
#: The newest version from Kubernetes 1.37 on, the others where somebody turned them on.
DEVICE_TAINT_RULE: Final = ObjectKind("DeviceTaintRule", "devicetaintrules", _DEVICES, ("v1", "v1beta2", "v1alpha3"))
RESOURCE_CLAIM: Final = ObjectKind("ResourceClaim", "resourceclaims", _DEVICES, namespaced=True)
#: Pods without a controller are spread by default as Services select them.
SERVICE: Final = ObjectKind("Service", "services", namespaced=True)
DISRUPTION_BUDGET: Final = ObjectKind("PodDisruptionBudget", "poddisruptionbudgets", "policy", namespaced=True)
#: What is available in each NUMA zone of a node.
NODE_TOPOLOGY: Final = ObjectKind(
    "NodeResourceTopology", "noderesourcetopologies", "topology.node.k8s.io", ("v1alpha2", "v1alpha1")
)
#: Nodes near each other in a network, by Volcano.
HYPER_NODE: Final = ObjectKind("HyperNode", "hypernodes", "topology.volcano.sh", ("v1alpha1",))
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
JOB: Final = ObjectKind("Job", "jobs", "batch", namespaced=True)
JOB_SET: Final = ObjectKind("JobSet", "jobsets", "jobset.x-k8s.io", ("v1alpha2",), namespaced=True)
LEADER_WORKER_SET: Final = ObjectKind(
    "LeaderWorkerSet", "leaderworkersets", "leaderworkerset.x-k8s.io", namespaced=True
)
_KUBEFLOW: Final = "kubeflow.org"
#: Of mpi-operator, and of the training operator.
MPI_JOB: Final = ObjectKind("MPIJob", "mpijobs", _KUBEFLOW, ("v2beta1", "v1"), namespaced=True)
KUBEFLOW: Final = (
    *(
        ObjectKind(kind, f"{kind.lower()}s", _KUBEFLOW, namespaced=True)
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
    ),
    MPI_JOB,
)
RAY_CLUSTER: Final = ObjectKind("RayCluster", "rayclusters", "ray.io", ("v1", "v1alpha1"), namespaced=True)
POD_GANG: Final = ObjectKind("PodGang", "podgangs", "scheduler.grove.io", ("v1alpha1",), namespaced=True)
VOLCANO_JOB: Final = ObjectKind("Job", "jobs", "batch.volcano.sh", ("v1alpha1",), namespaced=True)
#: Controllers that make the pods of gangs: watched only while a policy follows them, and in dumps.
PARENTS: Final = (JOB, JOB_SET, LEADER_WORKER_SET, *KUBEFLOW, RAY_CLUSTER, POD_GANG)
POLICY: Final = ObjectKind(KIND, PLURAL, GROUP, (VERSION,))
QUEUE: Final = ObjectKind(queues.KIND, queues.PLURAL, GROUP, (VERSION,))

_METRICS: Final = "metrics.k8s.io"
#: In dumps, and polled: they cannot be watched.
NODE_METRICS: Final = ObjectKind("NodeMetrics", "nodes", _METRICS, ("v1beta1",))
POD_METRICS: Final = ObjectKind("PodMetrics", "pods", _METRICS, ("v1beta1",), namespaced=True)

#: In dumps, beside all that are always watched.
IN_DUMPS: Final = (PRIORITY_CLASS, RESOURCE_CLAIM_TEMPLATE, NODE_METRICS, POD_METRICS, *PARENTS)
#: All that are always watched.
KINDS: Final = (
    NODE,
    POD,
    NAMESPACE,
    SERVICE,
    *STORAGE,
    DEVICE_CLASS,
    RESOURCE_SLICE,
    DEVICE_TAINT_RULE,
    RESOURCE_CLAIM,
    DISRUPTION_BUDGET,
    NODE_TOPOLOGY,
    HYPER_NODE,
    *POD_GROUPS.values(),
    POLICY,
    QUEUE,
)
