"""Volumes of pods."""

from __future__ import annotations

from flowcore.api.base import Wire
from flowcore.api.csi_migration import InTreeSource, attachment_of, plugin_of
from flowcore.model.volumes import AWS_EBS, GCE_PD, ISCSI, RBD, Attachment, ClaimVolume, Disk, Volumes


class WireClaimSource(Wire):
    claim_name: str = ""


class WireAnything(Wire):
    """An object that is read for its presence alone."""


class WireIscsi(Wire):
    iqn: str = ""
    read_only: bool | None = None


class WireRbd(Wire):
    monitors: list[str] | None = None
    pool: str = ""
    image: str = ""
    read_only: bool | None = None


class WireImageSource(Wire):
    reference: str | None = None


class WireVolume(InTreeSource):
    name: str = ""
    image: WireImageSource | None = None
    persistent_volume_claim: WireClaimSource | None = None
    ephemeral: WireAnything | None = None
    iscsi: WireIscsi | None = None
    rbd: WireRbd | None = None
    empty_dir: WireAnything | None = None
    host_path: WireAnything | None = None


def to_volumes(volumes: list[WireVolume] | None, namespace: str, pod: str, uid: str) -> Volumes:
    """The claims and disks of a pod's volumes, in order."""
    sources: list[ClaimVolume | Disk] = []
    for wire in volumes or ():
        claimed = True
        if wire.persistent_volume_claim is not None:
            sources.append(ClaimVolume(namespace, wire.persistent_volume_claim.claim_name))
        elif wire.ephemeral is not None:
            sources.append(ClaimVolume(namespace, f"{pod}-{wire.name}", (pod, uid)))
        else:
            claimed = False
        sources.extend(_disks(wire, claimed=claimed))
    return tuple(sources)


def _disks(wire: WireVolume, *, claimed: bool) -> list[Disk]:
    """Disks of a volume. No API server accepts a disk that is a claim too; here the claim counts."""
    plugin, attachment = plugin_of(wire), None if claimed else attachment_of(wire)
    if attachment is not None and attachment.problem:
        text = f"converting volume({wire.name}) from inline to csi: {attachment.problem}"
        attachment = Attachment(attachment.driver, problem=text)
    disks = []
    if wire.gce_persistent_disk is not None:
        disk = wire.gce_persistent_disk
        disks.append(Disk(GCE_PD, (disk.pd_name,), shareable=bool(disk.read_only)))
    if wire.aws_elastic_block_store is not None:
        disks.append(Disk(AWS_EBS, (wire.aws_elastic_block_store.volume_id,)))
    if wire.iscsi is not None:
        disks.append(Disk(ISCSI, (wire.iscsi.iqn,), shareable=bool(wire.iscsi.read_only)))
    if wire.rbd is not None:
        key, monitors = (wire.rbd.pool, wire.rbd.image), tuple(wire.rbd.monitors or ())
        disks.append(Disk(RBD, key, monitors, shareable=bool(wire.rbd.read_only)))
    if attachment is not None:
        disks.append(Disk(plugin, attachment=attachment))
    return disks
