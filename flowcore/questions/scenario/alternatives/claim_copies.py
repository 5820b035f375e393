"""Claims for copies of a pod: each copy gets claims of its own where the pod has those that were made for it."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.pods import PodClass
from flowcore.model.resource_claims import ClaimingPod, ResourceClaim


class ClaimCopies:
    """Classes of copies that claim devices, and the snapshot with their claims.

    Attributes:
        snapshot: the given one; the claims of copies are added to it as they are asked for.
    """

    def __init__(self, snapshot: Snapshot, pod_class: PodClass) -> None:
        self._pod_class, self._copied = pod_class, pod_class.devices
        self._of_copy: list[PodClass] = []
        if self._copied is not None:
            snapshot = replace(snapshot, devices=_shared(snapshot.devices))
        self.snapshot = snapshot

    def pod_class(self, number: int) -> PodClass:
        """The class of a copy."""
        if self._copied is None:
            return self._pod_class
        while len(self._of_copy) <= number:
            claiming = self._claiming(self._copied, f"{self._copied.name}-copy-{len(self._of_copy)}")
            self._of_copy.append(msgspec.structs.replace(self._pod_class, devices=claiming))
        return self._of_copy[number]

    def _claiming(self, pod: ClaimingPod, name: str) -> ClaimingPod:
        made, objects = dict(pod.made), self.snapshot.devices
        for named in pod.claims:
            claim = objects.claims.get((pod.namespace, made.get(named.name, ""))) if named.template else None
            if claim is not None and not pod.is_of_group(named):
                made[named.name] = f"{name}-{named.name}"
                objects.set_claim((pod.namespace, made[named.name]), _fresh(claim, made[named.name], name))
        return msgspec.structs.replace(pod, name=name, uid=name, made=tuple(made.items()))


def _fresh(claim: ResourceClaim, name: str, owner: str) -> ResourceClaim:
    return msgspec.structs.replace(
        claim, name=name, uid=name, controller=owner, is_being_deleted=False, allocation=None, reserved_for=()
    )


def _shared(objects: DeviceObjects) -> DeviceObjects:
    """The same objects, to which claims can be added."""
    shared = DeviceObjects()
    shared.slices, shared.classes, shared.takers = objects.slices, objects.classes, objects.takers
    shared.claims, shared.extended = dict(objects.claims), dict(objects.extended)
    return shared
