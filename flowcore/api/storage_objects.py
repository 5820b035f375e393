"""Storage objects: claims, volumes, classes, CSI objects."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from flowcore.api.base import Int32, Interner, Quantities, Quantity, Wire, WireMeta, to_labels
from flowcore.api.csi_migration import InTreeSource, attachment_of, migrated_affinity, plugin_of
from flowcore.api.data import parse_data
from flowcore.api.selectors import (
    WireLabelSelector,
    WireNodeSelector,
    to_label_selector,
    to_node_term,
)
from flowcore.model.data import DATA
from flowcore.model.errors import ModelError
from flowcore.model.quantities import nanos, whole_from_nanos
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.model.volumes import (
    BETA_ZONE,
    ZONE,
    Attachment,
    Capacity,
    Claim,
    ClaimRef,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)

_CLASS = "volume.beta.kubernetes.io/storage-class"
#: Whoever binds a claim to a volume says so here: the volume comes free with the claim.
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
#: The node that a volume is provisioned for.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
#: All annotations of storage objects that are read.
READ_ANNOTATIONS = frozenset((_CLASS, _BIND_COMPLETED, SELECTED_NODE, _MIGRATED, DATA))


class WireStorageMeta(WireMeta):
    annotations: dict[str, str] | None = None
    owner_references: list[_WireOwner] | None = None


class _WireOwner(Wire):
    uid: str = ""
    controller: bool | None = None


class WireClaimResources(Wire):
    requests: Quantities | None = None


class WireClaimSpec(Wire):
    access_modes: list[str] | None = None
    selector: WireLabelSelector | None = None
    resources: WireClaimResources | None = None
    volume_name: str | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class WirePhase(Wire):
    phase: str | None = None


class WireClaim(Wire):
    metadata: WireStorageMeta
    spec: WireClaimSpec | None = None
    status: WirePhase | None = None


class WireCsiSource(Wire):
    driver: str = ""
    volume_handle: str = ""


class WireClaimRef(Wire):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class WireVolumeAffinity(Wire):
    required: WireNodeSelector | None = None


class WireVolumeSpec(InTreeSource):
    capacity: Quantities | None = None
    access_modes: list[str] | None = None
    claim_ref: WireClaimRef | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: WireVolumeAffinity | None = None
    csi: WireCsiSource | None = None


class WirePersistentVolume(Wire):
    metadata: WireStorageMeta
    spec: WireVolumeSpec | None = None
    status: WirePhase | None = None


class WireTopologyExpression(Wire):
    key: str = ""
    values: list[str] | None = None


class WireTopologyTerm(Wire):
    match_label_expressions: list[WireTopologyExpression] | None = None


class WireStorageClass(Wire):
    metadata: WireMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[WireTopologyTerm] | None = None


class WireAllocatable(Wire):
    count: Int32 | None = None


class WireNodeDriver(Wire):
    name: str = ""
    allocatable: WireAllocatable | None = None


class WireCsiNodeSpec(Wire):
    drivers: list[WireNodeDriver] | None = None


class WireCsiNode(Wire):
    metadata: WireStorageMeta
    spec: WireCsiNodeSpec | None = None


class WireAttachmentSource(Wire):
    persistent_volume_name: str | None = None


class WireAttachmentSpec(Wire):
    attacher: str = ""
    node_name: str = ""
    source: WireAttachmentSource | None = None


class WireVolumeAttachment(Wire):
    metadata: WireMeta
    spec: WireAttachmentSpec | None = None


class WireCsiDriverSpec(Wire):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class WireCsiDriver(Wire):
    metadata: WireMeta
    spec: WireCsiDriverSpec | None = None


class WireCapacity(Wire):
    metadata: WireMeta
    storage_class_name: str = ""
    node_topology: WireLabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


def to_claim(wire: WireClaim) -> Claim:
    """A claim; ``problem`` says so where its size does not parse."""
    meta, spec, problem = wire.metadata, wire.spec or WireClaimSpec(), ""
    annotations = meta.annotations or {}
    size = None
    try:
        requests = (spec.resources.requests if spec.resources else None) or {}
        size = Decimal(nanos(requests["storage"])) if "storage" in requests else None
    except ModelError as error:
        problem = f"spec.resources.requests.storage: {error.problem}"
    return Claim(
        namespace=meta.namespace or "default",
        name=meta.name,
        uid=meta.uid or "",
        controller=next((owner.uid for owner in meta.owner_references or () if owner.controller), None),
        storage_class=annotations.get(_CLASS, spec.storage_class_name or ""),
        volume_name=spec.volume_name or "",
        bound=bool(spec.volume_name) and _BIND_COMPLETED in annotations,
        lost=wire.status is not None and wire.status.phase == "Lost",
        deleting=meta.deletion_timestamp is not None,
        selected_node=annotations.get(SELECTED_NODE),
        access_modes=tuple(spec.access_modes or ()),
        size=size,
        volume_mode="Filesystem" if spec.volume_mode is None else spec.volume_mode,
        attributes_class=spec.volume_attributes_class_name or "",
        selector=None if spec.selector is None else to_label_selector(spec.selector),
        problem=problem,
        **_data(annotations),
    )


def to_volume(wire: WirePersistentVolume) -> PersistentVolume:
    """A volume; where its capacity does not parse, it is too small for every claim."""
    meta, spec = wire.metadata, wire.spec or WireVolumeSpec()
    labels, plugin = meta.labels or {}, ""
    affinity = None
    if spec.node_affinity is not None and spec.node_affinity.required is not None:
        affinity = tuple(to_node_term(term) for term in spec.node_affinity.required.node_selector_terms or ())
    if spec.csi is not None:
        attachment: Attachment | None = Attachment(spec.csi.driver, spec.csi.volume_handle)
    else:
        plugin = plugin_of(spec)
        attachment = attachment_of(spec, labels.get(BETA_ZONE) or labels.get(ZONE, ""))
    try:
        size = Decimal(nanos((spec.capacity or {}).get("storage", "0")))
    except ModelError:
        size = Decimal(-1)
    return PersistentVolume(
        name=meta.name,
        labels=to_labels(labels),
        storage_class=(meta.annotations or {}).get(_CLASS, spec.storage_class_name or ""),
        size=size,
        claim=None if spec.claim_ref is None else ClaimRef(*_fields(spec.claim_ref)),
        available=wire.status is not None and wire.status.phase == "Available",
        deleting=meta.deletion_timestamp is not None,
        access_modes=tuple(spec.access_modes or ()),
        volume_mode="Filesystem" if spec.volume_mode is None else spec.volume_mode,
        attributes_class=spec.volume_attributes_class_name or "",
        affinity=affinity,
        attachment=attachment,
        plugin=plugin,
        migrated_affinity=migrated_affinity(plugin, affinity, labels),
        **_data(meta.annotations or {}),
    )


def _data(annotations: dict[str, str]) -> dict[str, Any]:
    """The field for the annotation about data: what it says, or why it cannot be read."""
    if DATA not in annotations:
        return {}
    try:
        return {"data": parse_data(annotations[DATA])}
    except ModelError as error:
        return {"data_problem": error.problem}


def _fields(ref: WireClaimRef) -> tuple[str, str, str]:
    return ref.namespace, ref.name, ref.uid


def to_storage_class(wire: WireStorageClass) -> StorageClass:
    """A storage class."""
    return StorageClass(
        name=wire.metadata.name,
        provisioner=wire.provisioner,
        binding_mode=wire.volume_binding_mode,
        topologies=tuple(
            NodeSelectorTerm(
                tuple(Requirement(e.key, "In", tuple(e.values or ())) for e in term.match_label_expressions or ())
            )
            for term in wire.allowed_topologies or ()
        ),
    )


def to_csi_node(wire: WireCsiNode) -> CsiNode:
    """A CSI node."""
    drivers = (wire.spec or WireCsiNodeSpec()).drivers or ()
    limits = {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }
    migrated = (wire.metadata.annotations or {}).get(_MIGRATED, "")
    names = tuple(driver.name for driver in drivers)
    return CsiNode(wire.metadata.name, tuple(limits.items()), tuple(migrated.split(",")), names)


def to_attachment(wire: WireVolumeAttachment) -> VolumeAttachment | None:
    """An attachment; None where it names no driver or no PersistentVolume: filters do not count it."""
    spec = wire.spec or WireAttachmentSpec()
    volume_name = spec.source.persistent_volume_name if spec.source else None
    if not spec.attacher or volume_name is None:
        return None
    return VolumeAttachment(wire.metadata.name, spec.attacher, spec.node_name, volume_name)


def to_csi_driver(wire: WireCsiDriver) -> CsiDriver:
    """A CSI driver."""
    spec = wire.spec or WireCsiDriverSpec()
    return CsiDriver(wire.metadata.name, bool(spec.storage_capacity), bool(spec.prevent_pod_scheduling_if_missing))


def to_capacity(wire: WireCapacity) -> Capacity:
    """A storage capacity; where it does not parse, it is -1, so no claim fits."""
    free = _bytes_of(wire.capacity)
    largest = free if wire.maximum_volume_size is None else _bytes_of(wire.maximum_volume_size)
    return Capacity(
        key=(wire.metadata.namespace or "default", wire.metadata.name),
        storage_class=wire.storage_class_name,
        largest=largest,
        topology=None if wire.node_topology is None else to_label_selector(wire.node_topology),
        free=free,
    )


def _bytes_of(amount: Quantity | None) -> int:
    try:
        return -1 if amount is None else whole_from_nanos(nanos(amount))
    except ModelError:
        return -1


#: Kind -> its wire struct and its converter.
_KINDS: dict[str, tuple[type[Wire], Callable[[Any], StorageObject | None]]] = {
    "PersistentVolumeClaim": (WireClaim, to_claim),
    "PersistentVolume": (WirePersistentVolume, to_volume),
    "StorageClass": (WireStorageClass, to_storage_class),
    "CSINode": (WireCsiNode, to_csi_node),
    "VolumeAttachment": (WireVolumeAttachment, to_attachment),
    "CSIDriver": (WireCsiDriver, to_csi_driver),
    "CSIStorageCapacity": (WireCapacity, to_capacity),
}
#: The kinds that ``to_storage_object`` reads.
STORAGE_KINDS = tuple(_KINDS)
#: Kind -> its wire struct.
STORAGE_WIRES = {kind: wire for kind, (wire, _) in _KINDS.items()}


def to_storage_object(kind: str, item: Any) -> StorageObject | None:
    """A storage object from decoded JSON; None where no filter reads it.

    Raises:
        msgspec.ValidationError: the JSON has not the shape of this kind.
    """
    wire, convert = _KINDS[kind]
    return convert(msgspec.convert(item, wire))


#: Fields that are equal in many objects.
_SHARED_FIELDS = frozenset(
    {"namespace", "storage_class", "access_modes", "volume_mode", "attributes_class", "labels", "affinity",
     "migrated_affinity", "driver", "node_name", "selected_node", "limits", "migrated"}
)  # fmt: skip


def storage_decoder(kind: str, intern: Interner) -> Callable[[bytes], StorageObject | None]:
    """``to_storage_object`` from bytes. Only the fields that are read are decoded; equal values are held once."""
    wire, convert = _KINDS[kind]
    decoder = msgspec.json.Decoder(wire)

    def decode(raw: bytes) -> StorageObject | None:
        storage_object = convert(decoder.decode(raw))
        if storage_object is None:
            return None
        alike = _SHARED_FIELDS.intersection(storage_object.__struct_fields__)
        return msgspec.structs.replace(
            storage_object, **{name: intern(getattr(storage_object, name)) for name in alike}
        )

    return decode
