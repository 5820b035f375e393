"""The claims of a pod to devices: what they ask for, and what they have."""

from __future__ import annotations

import msgspec

from flowcore.model.pods import Pod
from flowcore.model.resource_claims import ResourceClaim
from flowcore.questions.scenario.device_use import asked_for
from flowcore.rules.devices.pod_claims import named_claims
from thalweg_view.view_data import ViewData


class PodClaimRow(msgspec.Struct, frozen=True):
    """A claim of a pod.

    Attributes:
        name: in the pod.
        claim: name of the ResourceClaim; "": it is not there yet.
        asks: what each of its requests asks for: "2 of class gpu".
        allocated: whether it has its devices.
        devices: ``driver/pool/device`` of each, at most 32.
    """

    name: str
    claim: str = ""
    asks: list[str] = []
    allocated: bool = False
    devices: list[str] = []


def pod_claims(data: ViewData, pod: Pod) -> list[PodClaimRow]:
    """The claims in the pod's order."""
    claiming = pod.pod_class.devices
    if claiming is None:
        return []
    claims = named_claims(claiming, data.scenario.cluster.devices.claims)
    return [_row(named.name, claims.get(named.name)) for named in claiming.claims]


def _row(name: str, claim: ResourceClaim | None) -> PodClaimRow:
    if claim is None:
        return PodClaimRow(name)
    allocation = claim.allocation
    devices = [] if allocation is None else [str(result.device) for result in allocation.devices]
    return PodClaimRow(name, claim.name, list(map(asked_for, claim.requests)), allocation is not None, devices)
