"""Volumes of pods, and the storage objects that decide where they can be had.

Source: core/v1 Volume, PersistentVolumeClaim and PersistentVolume, storage/v1 StorageClass, CSINode, VolumeAttachment,
CSIDriver and CSIStorageCapacity. Sizes are in billionths of a byte, exact, as quantities are compared; whole Decimals,
since those of 18 GiB do not fit the 64 bits of an integer that is sent to the worker.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from flowcore.model.data import DataSource
from flowcore.model.selectors import Labels, LabelSelector, NodeSelectorTerm

GCE_PD, AWS_EBS, CINDER = "kubernetes.io/gce-pd", "kubernetes.io/aws-ebs", "kubernetes.io/cinder"
ISCSI, RBD = "kubernetes.io/iscsi", "kubernetes.io/rbd"
#: In-tree plugin -> the CSI driver that took its place, for the plugins whose migration is on.
CSI_DRIVERS = {
    GCE_PD: "pd.csi.storage.gke.io",
    AWS_EBS: "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    CINDER: "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
#: Plugins that have such drivers too, but are never translated by filters.
UNMIGRATED = ("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume")

#: Labels of nodes and PersistentVolumes; the beta ones are those of older versions.
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
#: What separates the zones that a label of a PersistentVolume lists.
ZONE_DELIMITER = "__"

#: A persistent volume claim: namespace and name.
ClaimKey = tuple[str, str]


class Attachment(msgspec.Struct, frozen=True, gc=False):
    """A volume as a CSI driver attaches it to a node.

    Attributes:
        problem: why an in-tree volume cannot be translated to one, "" when it can.
    """

    driver: str = ""
    handle: str = ""
    problem: str = ""


class ClaimVolume(msgspec.Struct, frozen=True, gc=False, tag="claim"):
    """A volume of a pod that is had through a claim.

    Attributes:
        made_for: name and uid of the pod that the claim is made for (an ephemeral volume); None for a claim that the
            pod only names.
    """

    namespace: str
    name: str
    made_for: tuple[str, str] | None = None

    @property
    def key(self) -> ClaimKey:
        """The claim's."""
        return self.namespace, self.name


class Disk(msgspec.Struct, frozen=True, gc=False, tag="disk"):
    """A disk that a pod names itself, without a claim, in one of the in-tree ways that filters still read.

    Attributes:
        plugin: the in-tree plugin.
        key: what tells it from other disks of the plugin; () for one that is only counted.
        monitors: of Ceph; images are the same only where these overlap.
        shareable: pods may mount it beside each other as long as all of them do so read-only.
        attachment: what is counted for it on nodes with a CSINode; None for nothing.
    """

    plugin: str
    key: tuple[str, ...] = ()
    monitors: tuple[str, ...] = ()
    shareable: bool = False
    attachment: Attachment | None = None

    def conflicts(self, mounted: Disk) -> bool:
        """Whether no node may mount both: isVolumeConflict of plugins/volumerestrictions."""
        if (
            not self.key
            or (self.plugin, self.key) != (mounted.plugin, mounted.key)
            or (self.shareable and mounted.shareable)
        ):
            return False
        return self.plugin != RBD or not set(self.monitors).isdisjoint(mounted.monitors)


def are_exclusive(volumes: Volumes) -> bool:
    """Whether no node may mount these volumes for two pods: a disk that is not shared."""
    return any(isinstance(each, Disk) and each.conflicts(each) for each in volumes)


#: What filters read of a pod's volumes, in their order; config maps, scratch space and the like are left out.
Volumes = tuple[ClaimVolume | Disk, ...]


class Claim(msgspec.Struct, frozen=True, gc=False, tag="PersistentVolumeClaim"):
    """A PersistentVolumeClaim.

    Attributes:
        controller: uid of the owner that controls it, None without one.
        volume_name: the PersistentVolume that it is bound to, or is to be bound to; "" for none yet.
        bound: the controller has completed the binding.
        selected_node: the node for which it is being provisioned, None while no node is chosen.
        size: billionths of a byte, None when it asks for no size.
        problem: why it cannot be read, "" when it can: nothing that uses it can be placed.
        data: where its data is, from its annotation.
        data_problem: why that annotation is not read; "" when it is, or when there is none.
    """

    namespace: str
    name: str
    uid: str = ""
    controller: str | None = None
    storage_class: str = ""
    volume_name: str = ""
    bound: bool = False
    lost: bool = False
    deleting: bool = False
    selected_node: str | None = None
    access_modes: tuple[str, ...] = ()
    size: Decimal | None = None
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    selector: LabelSelector | None = None
    problem: str = ""
    data: tuple[DataSource, ...] = ()
    data_problem: str = ""


class ClaimRef(msgspec.Struct, frozen=True, gc=False):
    """Which claim a PersistentVolume is kept for; an empty uid leaves that open."""

    namespace: str
    name: str
    uid: str = ""

    def is_to(self, claim: Claim) -> bool:
        """IsVolumeBoundToClaim of component-helpers storage/volume."""
        return (self.namespace, self.name) == (claim.namespace, claim.name) and self.uid in ("", claim.uid)


class VolumeChoice(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a claim that waits for its first consumer is to get, for a pod that goes to a node.

    Attributes:
        volume: the PersistentVolume that it is to be bound to; "": one is provisioned for the node.
    """

    namespace: str
    name: str
    uid: str
    volume: str = ""

    @property
    def key(self) -> ClaimKey:
        """The claim's."""
        return self.namespace, self.name


class PersistentVolume(msgspec.Struct, frozen=True, gc=False, tag="PersistentVolume"):
    """A PersistentVolume.

    Attributes:
        affinity: which nodes reach it: terms are alternatives, their fields are not read. None: all nodes.
        size: billionths of a byte; negative when it cannot be read, so that it is large enough for no claim.
        attachment: its CSI source, or what its in-tree source is translated to; None for other sources.
        plugin: the in-tree plugin of its source, "" for others.
        migrated_affinity: ``affinity`` as it is on nodes where that plugin was migrated to CSI.
        data, data_problem: see ``Claim``.
    """

    name: str
    labels: Labels = ()
    storage_class: str = ""
    size: Decimal = Decimal(0)
    claim: ClaimRef | None = None
    available: bool = False
    deleting: bool = False
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    attachment: Attachment | None = None
    plugin: str = ""
    migrated_affinity: tuple[NodeSelectorTerm, ...] | None = None
    data: tuple[DataSource, ...] = ()
    data_problem: str = ""


class StorageClass(msgspec.Struct, frozen=True, gc=False, tag="StorageClass"):
    """A StorageClass; ``topologies`` are alternatives, none of them means everywhere.

    Attributes:
        is_scored: nodes with more free storage come first (StorageCapacityScoring).
    """

    name: str
    provisioner: str = ""
    binding_mode: str | None = None
    topologies: tuple[NodeSelectorTerm, ...] = ()
    is_scored: bool = True


class CsiNode(msgspec.Struct, frozen=True, gc=False, tag="CSINode"):
    """A CSINode.

    Attributes:
        limits: driver and how many of its volumes the node takes, for the drivers that say so.
        migrated: in-tree plugins whose volumes CSI drivers serve on this node.
        drivers: all drivers that the node has.
    """

    name: str
    limits: tuple[tuple[str, int], ...] = ()
    migrated: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()


class VolumeAttachment(msgspec.Struct, frozen=True, gc=False, tag="VolumeAttachment"):
    """A VolumeAttachment of a PersistentVolume."""

    name: str
    driver: str
    node_name: str
    volume_name: str


class CsiDriver(msgspec.Struct, frozen=True, gc=False, tag="CSIDriver"):
    """A CSIDriver.

    Attributes:
        tracks_capacity: volumes are made only where a Capacity says that there is space.
        is_needed: a node without the driver takes no pod with its volumes (preventPodSchedulingIfMissing).
    """

    name: str
    tracks_capacity: bool = False
    is_needed: bool = False


class Capacity(msgspec.Struct, frozen=True, gc=False, tag="CSIStorageCapacity"):
    """A CSIStorageCapacity: the largest volume of a class that nodes of the topology can have, and all that is free.

    In bytes; -1: that is not said, or cannot be read.
    """

    key: ClaimKey
    storage_class: str = ""
    largest: int = -1
    topology: LabelSelector | None = None
    free: int = -1


StorageObject = Claim | PersistentVolume | StorageClass | CsiNode | VolumeAttachment | CsiDriver | Capacity

#: Kind, namespace ("" for those that have none) and name of a storage object.
StorageKey = tuple[str, str, str]


def claim_key(namespace: str, name: str) -> StorageKey:
    """The key of a PersistentVolumeClaim."""
    return "PersistentVolumeClaim", namespace, name


def volume_key(name: str) -> StorageKey:
    """The key of a PersistentVolume."""
    return "PersistentVolume", "", name


def key_of(stored: StorageObject) -> StorageKey:
    """What tells a storage object from all others."""
    kind = str(stored.__struct_config__.tag)
    match stored:
        case Claim():
            return kind, stored.namespace, stored.name
        case Capacity():
            return kind, *stored.key
    return kind, "", stored.name


def data_problem(stored: StorageObject) -> str:
    """Why its annotation about data is not read; "" when it is, or when there is none."""
    return stored.data_problem if isinstance(stored, Claim | PersistentVolume) else ""
