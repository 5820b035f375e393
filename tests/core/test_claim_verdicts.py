"""What a node says to the claims of a pod, in kube-scheduler's words."""

from typing import Any

import msgspec
import pytest
from support.draw_devices import cel, reached_node, read_claims, read_classes, read_slices

from flowcore.model.resource_claims import MAX_CONSUMERS, ClaimingPod, PodClaim, ResourceClaim
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.pools import SliceIndex
from flowcore.rules.devices.claim_verdicts import DeviceState, node_devices
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.pod_claims import ERROR, ClaimRejection, claims_of

Manifest = dict[str, Any]
CLASSES = read_classes([{"metadata": {"name": "gpu"}, "spec": {}}])
POD = ClaimingPod("default", "p", "uid-p", (PodClaim("mine", claim="c"),))
MADE = ClaimingPod("default", "p", "uid-p", (PodClaim("mine", template="t"),), (("mine", "c"),))


def claim(*requests: Manifest, name: str = "c", **fields: Any) -> ResourceClaim:
    meta = {"name": name, "namespace": "default", "uid": name}
    manifest = {"metadata": meta, "spec": {"devices": {"requests": list(requests)}}}
    return msgspec.structs.replace(read_claims([manifest])[0], **fields)


def request(**fields: Any) -> Manifest:
    return {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1, **fields}}


def state(*devices: str) -> DeviceState:
    spec = {"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n0",
            "devices": [{"name": name} for name in devices]}  # fmt: skip
    slices = SliceIndex(read_slices([{"metadata": {"name": "s"}, "spec": spec}]))
    return DeviceState(slices, CLASSES, AllocatedDevices(), DeviceSelectors())


def held(**fields: Any) -> ResourceClaim:
    """A claim that has a device of the node."""
    (allocation,) = _allocations(claim(request()))
    return claim(request(), allocation=allocation, **fields)


def _allocations(*claims: ResourceClaim) -> tuple[Any, ...]:
    found = node_devices(claims, reached_node(), state("a"))
    assert not isinstance(found, ClaimRejection)
    return found


@pytest.mark.parametrize(
    ("pod", "known", "reason", "code"),
    [
        (ClaimingPod("default", "p", "u", (PodClaim("mine"),)), None,
         'pod "default/p", spec.resourceClaim "mine": none of the supported fields are set', ""),
        (ClaimingPod("default", "p", "u", (PodClaim("mine", template="t"),)), None,
         'pod "default/p": ResourceClaim not created yet', ""),
        (POD, None, 'could not find ResourceClaim "default/c"', ""),
        (POD, claim(request(), is_being_deleted=True), 'resourceclaim "c" is being deleted', ""),
        (MADE, claim(request(), controller="uid-q"),
         "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)", ""),
        (POD, claim(request(deviceClassName="none")), "request r: device class none does not exist", ""),
        (POD, claim({"name": "r", "firstAvailable": [{"name": "x", "deviceClassName": "none"}]}),
         "request r/x: device class none does not exist", ""),
        (POD, claim({"name": "r"}), "resource claim default/c, request r: unknown request type", ""),
        (POD, claim(request(deviceClassName="")), "request r: unsupported request type", ERROR),
        (POD, held(reserved_for=tuple(map(str, range(MAX_CONSUMERS)))), "resourceclaim in use", ""),
    ],
)  # fmt: skip
def test_why_no_node_takes_a_pod(pod: ClaimingPod, known: ResourceClaim | None, reason: str, code: str) -> None:
    """Before any node is asked."""
    claims = {} if known is None else {("default", "c"): known}
    rejection = ClaimRejection(reason, code) if code else ClaimRejection(reason)
    assert claims_of(pod, claims, CLASSES) == rejection


@pytest.mark.parametrize(
    ("pod", "known"),
    [
        (POD, claim(request())),
        (MADE, claim(request(), controller="uid-p")),
        (POD, held(reserved_for=("uid-p", *map(str, range(MAX_CONSUMERS - 1))))),
        (POD, held(reserved_for=tuple(map(str, range(MAX_CONSUMERS - 1))))),
    ],
)
def test_claims_that_a_pod_may_use(pod: ClaimingPod, known: ResourceClaim) -> None:
    """One that others use has room for more."""
    assert claims_of(pod, {("default", "c"): known}, CLASSES) == (known,)


def test_a_template_may_make_no_claim() -> None:
    """The claim is then left out."""
    assert claims_of(msgspec.structs.replace(MADE, made=(("mine", ""),)), {}, CLASSES) == ()


def test_a_node_gives_what_is_missing() -> None:
    """A claim that has devices keeps them; the others get theirs, in the pod's order."""
    other = held(name="held")
    waiting = claim(request(), name="new")
    found = node_devices((waiting, other), reached_node(), state("a", "b"))
    assert not isinstance(found, ClaimRejection)
    assert found[1] == other.allocation
    assert [device.device.device for device in found[0].devices] == ["a"]


def test_devices_on_another_node() -> None:
    """What the claim has, this node does not reach."""
    (allocation,) = _allocations(claim(request()))
    elsewhere = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),))
    far = claim(request(), allocation=msgspec.structs.replace(allocation, terms=(elsewhere,)))
    assert node_devices((far,), reached_node(), state("a")) == ClaimRejection("resourceclaim not available on the node")


def test_too_few_devices() -> None:
    """The node alone is rejected; an expression that errs ends the attempt."""
    assert node_devices((claim(request(count=2)),), reached_node(), state("a")) == ClaimRejection(
        "cannot allocate all claims"
    )
    bad = claim(request(selectors=cel("device.attributes['d'].x == 1")))
    assert node_devices((bad,), reached_node(), state("a")) == ClaimRejection(
        "claim default/c: selector #0: CEL runtime error: no such key: x", ERROR
    )
