"""What a hypothetical change makes of the claims of one pod."""

from __future__ import annotations

import msgspec

from flowcore.cluster.kinds import RESOURCE_CLAIMS
from flowcore.model.resource_claims import (
    MAX_DEVICES,
    ClaimRequest,
    DeviceRequest,
    ResourceClaim,
)
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.hypothetical.change_pods import find_pod
from flowcore.questions.scenario.hypothetical.changes import CountDevices, DropDeviceConstraint, ReplaceDeviceSelector
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.rules.devices.pod_claims import named_claims

ClaimChange = ReplaceDeviceSelector | DropDeviceConstraint | CountDevices


def change(edits: Edits, wanted: ClaimChange, context: AnswerContext) -> None:
    """Changes what a pod's claim asks for, and with it what all pods ask for that use the claim.

    Raises:
        ModelError: there is no such pod or claim, or the claim does not ask so, or has its devices already.
    """
    pod = find_pod(edits, wanted.pod, context)
    claiming = pod.pod_class.devices
    claims = {} if claiming is None else named_claims(claiming, edits.scenario.cluster.devices.claims)
    claim = claims.get(wanted.claim)
    if claim is None:
        raise UnknownName("", f"pod {wanted.pod} has no claim {wanted.claim}")
    if claim.allocation is not None:
        raise UnknownName("", f"claim {claim.key} has its devices already")
    changed = changed_claim(claim, wanted)
    # An earlier change may have been that of another pod with the same claim.
    if changed == claim and not edits.is_changed(RESOURCE_CLAIMS, claim):
        raise UnknownName("", f"claim {claim.key} does not ask for what is to be changed")
    edits.put_object(RESOURCE_CLAIMS, changed)


def changed_claim(claim: ResourceClaim, wanted: ClaimChange) -> ResourceClaim:
    """The claim after a change; the same, if it does not ask for what is to be changed."""
    if isinstance(wanted, DropDeviceConstraint):
        kept = tuple(
            each
            for each in claim.constraints
            if wanted.attribute not in (each.match_attribute, each.distinct_attribute)
        )
        return msgspec.structs.replace(claim, constraints=kept)
    return msgspec.structs.replace(claim, requests=tuple(_changed_request(each, wanted) for each in claim.requests))


def _changed_request(request: ClaimRequest, wanted: ReplaceDeviceSelector | CountDevices) -> ClaimRequest:
    changed = tuple(
        _changed(alternative, wanted) if request.reference(alternative) == wanted.request else alternative
        for alternative in request.alternatives
    )
    if request.first_available:
        return msgspec.structs.replace(request, first_available=changed)
    return msgspec.structs.replace(request, exactly=changed[0] if changed else None)


def _changed(request: DeviceRequest, wanted: ReplaceDeviceSelector | CountDevices) -> DeviceRequest:
    if isinstance(wanted, CountDevices):
        return msgspec.structs.replace(request, count=wanted.count) if 0 < wanted.count <= MAX_DEVICES else request
    selectors = (wanted.new_selector if each == wanted.selector else each for each in request.selectors)
    return msgspec.structs.replace(request, selectors=tuple(each for each in selectors if each != ""))
