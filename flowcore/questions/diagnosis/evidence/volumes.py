"""Volumes of a pod that keep it from nodes: the claim, its volume and where that is, who has it, who binds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flowcore.api.storage_objects import SELECTED_NODE
from flowcore.model.amount_text import counted, short_bytes
from flowcore.model.selectors import NodeSelectorTerm
from flowcore.model.volumes import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    Claim,
    ClaimVolume,
    Disk,
    PersistentVolume,
    StorageClass,
)
from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.questions.diagnosis.lists import listed, listed_pods
from flowcore.rules.filters import node_volume_limits, volume_binding, volume_restrictions, volume_zone

_VOLUME_FILTERS = (volume_binding.NAME, volume_zone.NAME)
_DOMAINS = (ZONE, REGION, BETA_ZONE, BETA_REGION)


def claims(pod: UnplacedCase) -> Iterator[str]:
    """A sentence for each claim of a pod that keeps it from nodes."""
    storage = pod.plan.before.storage
    for source in pod.unplaced.pod.pod_class.volumes:
        claim = storage.claims.get(source.key) if isinstance(source, ClaimVolume) else None
        if claim is None:
            continue
        volume = storage.volumes.get(claim.volume_name)
        if claim.deleting:
            yield f"{_name(claim)} is being deleted{_in_use(pod, claim)}."
        elif claim.bound:
            if volume is not None and (text := _bound(pod, claim, volume)):
                yield text
        elif claim.selected_node is not None:
            yield _selected(pod, claim, claim.selected_node)
        elif waits_for_provisioner(pod, claim):
            yield f"{_name(claim)} {_unbound(pod, claim)}."
        else:
            yield from _to_come(pod, claim)


def waits_for_provisioner(pod: UnplacedCase, claim: Claim) -> bool:
    """Whether a claim is to be bound before its pod has a node."""
    storage_class = pod.plan.before.storage.classes.get(claim.storage_class) if claim.storage_class else None
    mode = "Immediate" if storage_class is None else storage_class.binding_mode
    return not claim.bound and (mode != "WaitForFirstConsumer" or bool(claim.volume_name))


def step_for_claims(pod: UnplacedCase) -> str:
    """What to do about claims that no node helps; "": there is none.

    A claim has no volume yet, has chosen its node, is being deleted, or cannot be used.
    """
    storage, volumes = pod.plan.before.storage, pod.unplaced.pod.pod_class.volumes
    for source in volumes:
        claim = storage.claims.get(source.key) if isinstance(source, ClaimVolume) else None
        if claim is not None and claim.deleting:
            return f"Wait until {_name(claim)} is gone, and create it anew."
        if claim is None or claim.bound:
            continue
        if claim.selected_node is not None:
            if claim.selected_node not in pod.after.table.index:
                return f"Take the annotation {SELECTED_NODE} off {_name(claim)}, or make it anew."
            return f"Free room on node {claim.selected_node}, or make {_name(claim)} anew."
        if waits_for_provisioner(pod, claim):
            return f"See why {_name(claim)} is not bound: kubectl describe pvc {claim.name} -n {claim.namespace}."
        storage_class = storage.classes.get(claim.storage_class)
        if storage_class is None or volume_binding.provisions(storage_class):
            continue
        if not _suiting(_of_class(pod, claim), claim):
            return f"Make a PersistentVolume of class {claim.storage_class} that suits {_name(claim)}."
    if volume_binding.prefilter_reason(volumes, storage):
        return "Mend its volume claims."
    named = [storage.claims[each.key] for each in volumes if isinstance(each, ClaimVolume)]
    bound = [storage.volumes[each.volume_name] for each in named if each.volume_name in storage.volumes]
    reached = [volume_binding.reach(each.affinity, pod.after.table) for each in bound]
    if all(each.any() for each in reached) and reached and not np.logical_and.reduce(reached).any():
        return "Bring its volumes together: no node can use all of them."
    return ""


def used_volumes(pod: UnplacedCase) -> Iterator[str]:
    """Who has a claim that one pod may use, or a disk that one pod may mount."""
    storage, volumes = pod.plan.result.after.storage, pod.unplaced.pod.pod_class.volumes
    alone = volume_restrictions.only_for_one_pod(volumes, storage)
    for occupant in pod.occupants:
        mounted = occupant.pod_class.volumes
        for source in volume_restrictions.named_claims(mounted):
            if source.key in alone:
                shown = f"PersistentVolumeClaim {source.namespace}/{source.name}"
                yield f"{shown} is for one pod (ReadWriteOncePod) and is used by {pod.context.name(occupant.key)}."
        if volume_restrictions.conflicting_disks(volumes, mounted):
            plugin = next(disk.plugin for disk in volumes if isinstance(disk, Disk) and disk.key)
            yield f"Its disk ({plugin}) is mounted by {pod.context.name(occupant.key)} on {occupant.node}."


def attached_volumes(pod: UnplacedCase) -> Iterator[str]:
    """Nodes that take no more volumes of a driver."""
    storage = pod.plan.result.after.storage
    wanted = set(node_volume_limits.limited_attachments(pod.unplaced.pod.pod_class.volumes, storage).values())
    for node in sorted(pod.most_open_nodes(node_volume_limits.NAME)):
        csi_node = storage.csi_nodes.get(node)
        for driver, limit in csi_node.limits if csi_node is not None else ():
            if driver in wanted:
                yield f"{node} takes {counted(limit, 'volume')} of {driver} and has no room for another one."


def _bound(pod: UnplacedCase, claim: Claim, volume: PersistentVolume) -> str:
    """Where the volume of a claim is; "": it keeps the pod from no node."""
    table = pod.after.table
    by_labels = [f"{key}={value}" for key, value in volume.labels if key in _DOMAINS]
    near, where = volume_binding.reach(volume.affinity, table), _places(volume.affinity)
    if volume.affinity is None:
        if not by_labels:
            return ""
        near, where = ~pod.after.rejected_by((volume_zone.NAME,)), " and ".join(by_labels)
    if near.all():
        return ""
    text = f"{_name(claim)} is bound to PersistentVolume {volume.name}, which only nodes with {where} can use"
    if not near.any():
        return f"{text}; there is none."
    return f"{text}: {pod.reasons_of(np.flatnonzero(near), *_VOLUME_FILTERS)}."


def _in_use(pod: UnplacedCase, claim: Claim) -> str:
    """Which pods on nodes use a claim: it stays as long as they do."""
    key = (claim.namespace, claim.name)
    users = [
        each.key
        for each in pod.occupants
        if any((used.namespace, used.name) == key for used in volume_restrictions.named_claims(each.pod_class.volumes))
    ]
    return f"; {listed_pods(users, pod.context)} {'uses' if len(users) == 1 else 'use'} it" if users else ""


def _selected(pod: UnplacedCase, claim: Claim, node: str) -> str:
    text = f"{_name(claim)} has chosen node {node} (annotation {SELECTED_NODE})"
    row = pod.after.table.index.get(node)
    if row is None:
        return f"{text}, and there is no such node."
    return f"{text}: {pod.reasons_of(np.array([row]), *_VOLUME_FILTERS)}."


def _unbound(pod: UnplacedCase, claim: Claim) -> str:
    """What a claim that is bound before its pod has a node waits for."""
    if claim.volume_name:
        return f"is to be bound to PersistentVolume {claim.volume_name}, and is not yet"
    if not claim.storage_class:
        return "has no volume and names no StorageClass: a PersistentVolume that suits it has to be made"
    storage_class = pod.plan.before.storage.classes.get(claim.storage_class)
    if storage_class is None:
        return f"has no volume: StorageClass {claim.storage_class} does not exist"
    if not volume_binding.provisions(storage_class):
        return f"has no volume, and StorageClass {claim.storage_class} provisions none: make one that suits it"
    who = f"its provisioner {storage_class.provisioner} has to bind it"
    return f"has no volume: StorageClass {claim.storage_class} binds claims at once, and {who}"


def _to_come(pod: UnplacedCase, claim: Claim) -> Iterator[str]:
    """Where the volume of a claim can be that waits for its pod."""
    storage, table = pod.plan.result.after.storage, pod.after.table
    storage_class = storage.classes.get(claim.storage_class)
    if storage_class is None:
        return
    of_class = _of_class(pod, claim)
    provisions = volume_binding.provisions(storage_class)
    if of_class or not provisions:
        yield f"{_name(claim)} needs a PersistentVolume of class {claim.storage_class}{_free(pod, claim, of_class)}."
    if provisions and storage_class.topologies:
        near = volume_binding.reach(storage_class.topologies, table)
        where = f"{_provisioned(storage_class)} makes volumes only for nodes with {_places(storage_class.topologies)}"
        if not near.any():
            yield f"{where}; there is none."
        elif not near.all():
            yield f"{where}: {pod.reasons_of(np.flatnonzero(near), *_VOLUME_FILTERS)}."
    if provisions and claim.size is not None:
        _, has_space = volume_binding.provision(claim, storage, table)
        if not has_space.all():
            size = short_bytes(int(claim.size) // 10**9)
            largest = max((space.largest for space in storage.spaces(claim.storage_class)), default=0)
            most = f"{short_bytes(largest)} at most" if largest > 0 else "none"
            room = f"{size} is asked for, {most} is free"
            yield f"{_provisioned(storage_class)} has too little space for {_name(claim)}: {room}."


def _free(pod: UnplacedCase, claim: Claim, of_class: Sequence[PersistentVolume]) -> str:
    """Which volumes of its class a claim may have, and where these are."""
    if not of_class:
        return ", and there is none: the class provisions none"
    free = _not_taken(of_class, claim)
    if not free:
        are = "the only one is" if len(of_class) == 1 else f"all {len(of_class)} are"
        return f", and {are} taken"
    suiting = _suiting(free, claim)
    if not suiting:
        size = f" of {short_bytes(int(claim.size) // 10**9)}" if claim.size else ""
        return f", and none of {len(free)} free ones suits it{size}: look at size, access modes and selector"
    near = np.zeros(len(pod.after.table.nodes), dtype=np.bool_)
    for volume in suiting:
        near |= volume_binding.reach(volume.affinity, pod.after.table)
    names = listed([each.name for each in suiting])
    if not near.any():
        return f": {names} is free, and no node can use it" if len(suiting) == 1 else f": no node can use {names}"
    where = pod.reasons_of(np.flatnonzero(near), *_VOLUME_FILTERS)
    return f": {names} {'is' if len(suiting) == 1 else 'are'} free, on {where}"


def _of_class(pod: UnplacedCase, claim: Claim) -> list[PersistentVolume]:
    """The volumes of a claim's class, after the plan: some are promised to other claims then."""
    volumes = pod.plan.result.after.storage.volumes.values()
    return [each for each in volumes if each.storage_class == claim.storage_class]


def _not_taken(volumes: Sequence[PersistentVolume], claim: Claim) -> list[PersistentVolume]:
    """The volumes that are kept for no other claim."""
    free = (each for each in volumes if each.claim is None or each.claim.is_to(claim))
    return [each for each in free if each.available or each.claim is not None]


def _suiting(volumes: Sequence[PersistentVolume], claim: Claim) -> list[PersistentVolume]:
    """The volumes that a claim may have, on whatever node."""
    return [
        each
        for each in _not_taken(volumes, claim)
        if volume_binding.may_hold(each, claim) and (each.claim is not None or volume_binding.is_offered(each, claim))
    ]


def _places(terms: Sequence[NodeSelectorTerm] | None) -> str:
    """What nodes must have, as kubectl writes it; terms are alternatives."""
    return " or ".join(",".join(each.text for each in term.expressions) for term in terms or ())


def _name(claim: Claim) -> str:
    return f"PersistentVolumeClaim {claim.namespace}/{claim.name}"


def _provisioned(storage_class: StorageClass) -> str:
    return f"StorageClass {storage_class.name} ({storage_class.provisioner})"
