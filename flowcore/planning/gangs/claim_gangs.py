"""PodGroups whose pods share a claim that has no devices yet: where devices are of one node, so are all of these pods.

Which devices the claim gets is decided with the first pod that is placed. So the pods of a claim are one more gang, in
one domain, and the search for domains finds a node with room for all of them. kube-scheduler takes the node that is the
best for the first pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.planning.problem.passes import Pass
from flowcore.planning.problem.problem import Problem
from flowcore.rules.devices.claimable_devices import ClaimableDevices
from flowcore.rules.devices.pod_claims import ClaimRejection
from flowcore.rules.filters.dynamic_resources import claimable_devices


class FormClaimGangs(Pass):
    """Makes a gang of the pods of each such claim."""

    def apply(self, problem: Problem) -> Problem:
        """A snapshot with more gangs, and pods that are in them."""
        return problem.with_snapshot(with_claim_gangs(problem.snapshot))


def with_claim_gangs(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the gangs of such claims, beside those that it has."""
    sharing = [pod for pod in snapshot.pending if _shares_with_group(pod) and _may_be_placed(pod, snapshot.gangs)]
    if not sharing or not _has_devices_by_node(snapshot):
        return snapshot
    devices = claimable_devices(snapshot)
    claims = {pod.key: _waiting_claims(pod, devices) for pod in sharing}
    users: dict[str, set[tuple[str, str]]] = {}
    for pod in sharing:
        for name, group in claims[pod.key]:
            users.setdefault(name, set()).add((pod.policy, group))
    # Plans of several policies may be delivered in several ways, and are not carried out together. PodGroups that name
    # the same claim do not wait for each other.
    gangs = {name: Gang(name, 0, topology_key=HOSTNAME) for name, known in users.items() if len(known) == 1}
    if not gangs:
        return snapshot

    def with_gangs(pod: PendingPod) -> PendingPod:
        own = tuple(name for name, _ in claims.get(pod.key, ()) if name in gangs)
        return msgspec.structs.replace(pod, gangs=(*pod.gangs, *own)) if own else pod

    return replace(snapshot, pending=tuple(map(with_gangs, snapshot.pending)), gangs={**snapshot.gangs, **gangs})


def _shares_with_group(pod: PendingPod) -> bool:
    """Whether a pod has a claim that its PodGroup shares; one that takes another's place is planned by itself."""
    devices = pod.pod_class.devices
    return devices is not None and pod.victim is None and any(map(devices.is_of_group, devices.claims))


def _may_be_placed(pod: PendingPod, gangs: Mapping[str, Gang]) -> bool:
    """Whether each gang of a pod can be placed: the others of its claim do not wait for one that cannot."""
    return all(name in gangs and not gangs[name].unschedulable_reason for name in pod.gangs)


def _waiting_claims(pod: PendingPod, known: ClaimableDevices) -> list[tuple[str, str]]:
    """The claims of a pod that its PodGroup shares and that ask for devices and have none, each with the group."""
    devices = pod.pod_class.devices
    claims = () if devices is None else known.claims_of(devices)
    if devices is None or isinstance(claims, ClaimRejection):
        return []
    return [
        (f"ResourceClaim {claim.key}", group.name)
        for claim in claims
        if claim.requests and claim.allocation is None and (group := devices.group_of(claim.name)) is not None
    ]


def _has_devices_by_node(snapshot: Snapshot) -> bool:
    """Whether each device is of one node, and each node is a domain by itself."""
    codes = snapshot.table.column(HOSTNAME).codes
    if (codes < 0).any() or len(np.unique(codes)) < len(codes):
        return False
    slices = snapshot.devices.slices.values()
    return all(each.reach.node_name for each in slices if each.devices)
