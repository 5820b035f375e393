"""VolumeZone: a node with zone or region labels reaches only volumes that are labelled likewise.

Source: kube-scheduler plugins/volumezone.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.volumes import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    ZONE_DELIMITER,
    Claim,
    PersistentVolume,
    Volumes,
)
from flowcore.rules.filters.rejection import Rejection
from flowcore.rules.filters.volume_restrictions import named_claims, not_found

NAME = "VolumeZone"
REASON = "node(s) had no available volume zone"
#: The labels that are compared, and under which a node may have the value instead.
_TODAY = {BETA_ZONE: ZONE, BETA_REGION: REGION, ZONE: ZONE, REGION: REGION}


def prefilter_reason(volumes: Volumes, storage: Storage) -> str:
    """Why every node is rejected, "" if some may fit."""
    for source in named_claims(volumes):
        if not source.name:
            return "PersistentVolumeClaim had no name"
        claim = storage.claims.get(source.key)
        if claim is None:
            return not_found(source.name)
        problem = _unbound(claim, storage)
        if problem:
            return problem
        if claim.volume_name and claim.volume_name not in storage.volumes:
            return f'persistentvolume "{claim.volume_name}" not found'
    return ""


def _unbound(claim: Claim, storage: Storage) -> str:
    """Why a claim without a volume rejects every node, "" if it may not."""
    if claim.volume_name:
        return ""
    if not claim.storage_class:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = storage.classes.get(claim.storage_class)
    if storage_class is None:
        return f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
    if storage_class.binding_mode is None:
        return f'VolumeBindingMode not set for StorageClass "{claim.storage_class}"'
    return "" if storage_class.binding_mode == "WaitForFirstConsumer" else "PersistentVolume had no name"


def rejections(volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that lack a label of a volume, or have a value that the volume does not list."""
    names = {storage.claims[each.key].volume_name for each in named_claims(volumes)} - {""}
    wanted = {each for name in names for each in _domains(storage.volumes[name])}
    if not wanted:
        return ()
    refused = np.zeros(len(table.nodes), dtype=np.bool_)
    for key, values in wanted:
        column, today = table.column(key), table.column(_TODAY[key])
        fits = _among(values, column.values)[column.codes]
        fits |= (column.codes < 0) & _among(values, today.values)[today.codes]
        refused |= ~fits
    labelled = np.zeros_like(refused)
    for key in _TODAY:
        labelled |= table.column(key).codes >= 0
    return (Rejection(REASON, refused & labelled),)


def _among(values: frozenset[str], of: tuple[str, ...]) -> Bools:
    """bool[V + 1]: which values of a column are among these; the last entry is for nodes without the label."""
    return np.array([*(value in values for value in of), False], dtype=np.bool_)


def _domains(volume: PersistentVolume) -> list[tuple[str, frozenset[str]]]:
    """Zone and region labels of a volume with their values; a label with an empty entry is ignored."""
    domains = []
    for key, text in volume.labels:
        values = frozenset(value.strip() for value in text.split(ZONE_DELIMITER))
        if key in _TODAY and "" not in values:
            domains.append((key, values))
    return domains
