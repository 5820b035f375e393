"""In-tree volumes, translated to the CSI drivers that replaced them.

Source: csi-translation-lib plugins (gce_pd.go, aws_ebs.go, azure_disk.go, openstack_cinder.go, portworx.go,
in_tree_volume.go). Azure File and vSphere are left out: kube-scheduler's volume plugins never translate them
(isCSIMigrationOn).
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec

from flowcore.api.base import Wire
from flowcore.model.errors import ModelError
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.model.volumes import (
    AWS_EBS,
    BETA_REGION,
    BETA_ZONE,
    CINDER,
    CSI_DRIVERS,
    GCE_PD,
    REGION,
    ZONE,
    ZONE_DELIMITER,
    Attachment,
)

#: The drivers' own zone labels; the other drivers have none.
_TOPOLOGY = {
    GCE_PD: "topology.gke.io/zone",
    AWS_EBS: "topology.ebs.csi.aws.com/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
_AWS_ID = re.compile(r"vol-[^/]*")

Affinity = tuple[NodeSelectorTerm, ...]


class WireGcePd(Wire):
    pd_name: str = ""
    read_only: bool | None = None


class WireAwsEbs(Wire):
    volume_id: str = msgspec.field(default="", name="volumeID")


class WireAzureDisk(Wire):
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class WireCinder(Wire):
    volume_id: str = msgspec.field(default="", name="volumeID")


class WirePortworx(Wire):
    volume_id: str = msgspec.field(default="", name="volumeID")


class InTreeSource(Wire):
    """The in-tree sources that both pods and PersistentVolumes may have."""

    gce_persistent_disk: WireGcePd | None = None
    aws_elastic_block_store: WireAwsEbs | None = None
    azure_disk: WireAzureDisk | None = None
    cinder: WireCinder | None = None
    portworx_volume: WirePortworx | None = None


def plugin_of(source: InTreeSource) -> str:
    """The in-tree plugin of a source; "" where it has none that is migrated."""
    sources = (
        source.gce_persistent_disk,
        source.aws_elastic_block_store,
        source.azure_disk,
        source.cinder,
        source.portworx_volume,
    )
    return next((plugin for plugin, source_of in zip(CSI_DRIVERS, sources, strict=True) if source_of is not None), "")


def attachment_of(source: InTreeSource, zones: str = "") -> Attachment | None:
    """The volume as its CSI driver attaches it; None where no driver replaced its plugin.

    Args:
        zones: the zone label of a PersistentVolume, which Google's handle names.
    """
    plugin = plugin_of(source)
    if not plugin:
        return None
    try:
        return Attachment(CSI_DRIVERS[plugin], _handle(source, zones))
    except ModelError as error:
        return Attachment(CSI_DRIVERS[plugin], problem=error.problem)


def _handle(source: InTreeSource, zones: str) -> str:
    if source.gce_persistent_disk is not None:
        return f"projects/UNSPECIFIED/{_place(zones)}/disks/{source.gce_persistent_disk.pd_name}"
    if source.aws_elastic_block_store is not None:
        return _aws_id(source.aws_elastic_block_store.volume_id)
    if source.azure_disk is not None:
        kind = source.azure_disk.kind
        if kind is not None and kind.casefold() != "managed":
            raise ModelError("", f"kind({kind}) is not supported in csi migration")
        return source.azure_disk.disk_uri
    if source.cinder is not None:
        return source.cinder.volume_id
    return source.portworx_volume.volume_id if source.portworx_volume is not None else ""


def _place(zones: str) -> str:
    """Google's zone or, for a disk in several zones, region."""
    listed = zones.split(ZONE_DELIMITER)
    if len(listed) == 1:
        return f"zones/{zones or 'UNSPECIFIED'}"
    regions = set()
    for zone in listed:
        parts = zone.split("-")
        if len(parts) != 3:
            problem = f"zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            raise ModelError("", f"failed to get region from zones: {problem}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        shown = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise ModelError(
            "", f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{shown}]"
        )
    return f"regions/{regions.pop()}"


def _aws_id(name: str) -> str:
    """Amazon's id from ``aws://zone/vol-1``, ``aws:///vol-1`` or the id itself."""
    if not name.startswith("aws://"):
        return name
    rest = name.removeprefix("aws://").partition("#")[0].partition("?")[0]
    volume_id = unquote(rest.partition("/")[2]).strip("/")
    if _AWS_ID.fullmatch(volume_id) is None:
        problem = f"Invalid format for AWS volume ({name})"
        raise ModelError("", f"failed to translate Kubernetes ID to EBS Volume ID {problem}")
    return volume_id


def migrated_affinity(plugin: str, affinity: Affinity | None, labels: dict[str, str]) -> Affinity | None:
    """A volume's node affinity in the driver's own topology (translateTopologyFromInTreeToCSI)."""
    key = _TOPOLOGY.get(plugin)
    if key is None:
        return affinity
    zone, region = _topology_labels(affinity or (), labels)
    if _values(affinity or (), zone):
        affinity = _renamed(affinity or (), zone, key)
    elif zone in labels:
        zones = tuple(sorted({each.strip() for each in labels[zone].split(ZONE_DELIMITER)} - {""}))
        if zones:
            added = Requirement(key, "In", zones)
            affinity = tuple(
                NodeSelectorTerm((*term.expressions, added), term.fields) for term in affinity or (NodeSelectorTerm(),)
            )
    if region == BETA_REGION and _values(affinity or (), region):
        affinity = _renamed(affinity or (), region, REGION)
    return affinity


def _topology_labels(affinity: Affinity, labels: dict[str, str]) -> tuple[str, str]:
    """The labels in use for zone and region: the beta or the stable ones."""
    used = {requirement.key for term in affinity for requirement in term.expressions}
    for keys in (used, labels):
        if ZONE in keys:
            return ZONE, REGION
        if BETA_ZONE in keys:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _values(affinity: Affinity, key: str) -> bool:
    return any(each.values for term in affinity for each in term.expressions if each.key == key)


def _renamed(affinity: Affinity, old: str, new: str) -> Affinity:
    return tuple(
        NodeSelectorTerm(
            tuple(Requirement(new if e.key == old else e.key, e.operator, e.values) for e in term.expressions),
            term.fields,
        )
        for term in affinity
    )
