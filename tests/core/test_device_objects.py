"""Device classes, slices and claims as they are read, and what is told of odd ones."""

from typing import Any

import msgspec
import pytest
from support.draw_devices import cel, read_claims, read_classes, read_slices

from flowcore.api import Interner
from flowcore.api.pod_objects import WirePod
from flowcore.api.pod_reader import PodReader
from flowcore.api.resource_claims import WireDeviceClaim, to_claiming_pod, to_resource_claim
from flowcore.api.resource_slices import WireResourceSlice, to_resource_slice
from flowcore.model.errors import ModelError
from flowcore.model.quantities import NANO
from flowcore.model.resource_claims import (
    ALL,
    AllocatedDevice,
    AttributeConstraint,
    ClaimAllocation,
    ClaimingPod,
    ClaimRequest,
    DeviceRequest,
    DeviceToleration,
    PodClaim,
)
from flowcore.model.resource_slices import (
    CounterSet,
    DeviceAttribute,
    DeviceCapacity,
    DeviceId,
    DeviceTaint,
    NodeReach,
    PoolId,
    RequestPolicy,
    ValidRange,
)
from flowcore.model.selectors import NodeSelectorTerm, Requirement

GI = 2**30 * NANO
ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def test_a_slice_is_read() -> None:
    """All that an allocation reads."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}}
    device = {
        "name": "d",
        "attributes": {"s": {"string": "x"}, "i": {"int": 1}, "b": {"bool": True}, "v": {"version": "1.0.0"},
                       "l": {"strings": ["x"]}},
        "capacity": {"memory": {"value": "8Gi", "requestPolicy": policy}, "cores": {"value": "4"}},
        "consumesCounters": [{"counterSet": "card", "counters": {"slots": {"value": "2"}}}],
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        "nodeName": "n",
        "bindsToNode": True,
        "bindingConditions": ["ready"],
        "allowMultipleAllocations": True,
    }  # fmt: skip
    spec = {
        "driver": "gpu.example.com",
        "pool": {"name": "p", "generation": 2, "resourceSliceCount": 3},
        "perDeviceNodeSelection": True,
        "devices": [device],
        "nodeSelector": {"nodeSelectorTerms": [ZONE]},
        "sharedCounters": [{"name": "card", "counters": {"slots": {"value": "4"}}}],
    }
    (read,) = read_slices([{"metadata": {"name": "s"}, "spec": spec}])
    assert (read.name, read.pool_id, read.generation, read.slice_count) == ("s", PoolId("gpu.example.com", "p"), 2, 3)
    assert read.reach == NodeReach(terms=(NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),))
    assert read.per_device
    assert read.shared_counters == (CounterSet("card", (("slots", 4 * NANO),)),)
    (gpu,) = read.devices
    assert dict(gpu.attributes) == {
        "s": DeviceAttribute("string", "x"),
        "i": DeviceAttribute("int", 1),
        "b": DeviceAttribute("bool", True),
        "v": DeviceAttribute("version", "1.0.0"),
        "l": DeviceAttribute(""),
    }
    assert dict(gpu.capacity) == {
        "memory": DeviceCapacity(8 * GI, RequestPolicy(GI, (), ValidRange(GI, 4 * GI, GI))),
        "cores": DeviceCapacity(4 * NANO),
    }
    assert gpu.consumes == (CounterSet("card", (("slots", 2 * NANO),)),)
    assert gpu.taints == (DeviceTaint("k", "v", "NoSchedule"),)
    assert gpu.reach == NodeReach("n")
    assert (gpu.binds_to_node, gpu.binding_conditions, gpu.allow_multiple) == (True, ("ready",), True)


def test_a_claim_is_read() -> None:
    """What is asked for, what is allocated, and for whom."""
    exactly = {
        "deviceClassName": "gpu",
        "selectors": [*cel("true"), {}],
        "allocationMode": "All",
        "adminAccess": True,
        "tolerations": [{"key": "k"}],
        "capacity": {"requests": {"memory": "1Gi"}},
    }
    devices = {
        "requests": [
            {"name": "a", "exactly": exactly},
            {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "gpu", "count": 2}]},
        ],
        "constraints": [{"requests": ["a"], "matchAttribute": "d/numa"}, {"distinctAttribute": "d/numa"}],
    }
    result = {"request": "b/x", "driver": "d", "pool": "p", "device": "0", "shareID": "s",
              "consumedCapacity": {"memory": "1Gi"}}  # fmt: skip
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [ZONE]}}
    owners = [{"uid": "q"}, {"uid": "p", "controller": True}]
    manifest = {
        "metadata": {"name": "c", "namespace": "n", "uid": "u", "ownerReferences": owners,
                     "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"devices": devices},
        "status": {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}]},
    }  # fmt: skip
    (claim,) = read_claims([manifest])
    assert (claim.key, claim.uid, claim.controller, claim.is_being_deleted) == ("n/c", "u", "p", True)
    tolerations = (DeviceToleration("k"),)
    everything = DeviceRequest("a", "gpu", ("true", None), ALL, 1, True, tolerations, (("memory", GI),))
    assert claim.requests == (
        ClaimRequest("a", everything),
        ClaimRequest("b", None, (DeviceRequest("x", "gpu", count=2),)),
    )
    assert [request.reference(request.alternatives[0]) for request in claim.requests] == ["a", "b/x"]
    assert claim.constraints == (AttributeConstraint(("a",), "d/numa"), AttributeConstraint((), "", "d/numa"))
    term = NodeSelectorTerm((Requirement("zone", "In", ("a",)),))
    share = AllocatedDevice("b/x", DeviceId("d", "p", "0"), False, "s", (("memory", GI),))
    assert claim.allocation == ClaimAllocation((share,), (term,))
    assert claim.reserved_for == ("p",)


def _reported(*conditions: tuple[str, str], device: str = "0", **fields: Any) -> dict[str, Any]:
    """What a driver says of a device."""
    said = [{"type": kind, "status": value, "reason": "Why", "message": "m" * 300} for kind, value in conditions]
    return {"driver": "d", "pool": "p", "device": device, "conditions": said, **fields}


@pytest.mark.parametrize(
    ("devices", "awaited", "failure"),
    [
        ([], ("d/p/0 (ready, linked)",), ""),
        ([_reported(("ready", "True"), ("linked", "False"))], ("d/p/0 (linked)",), ""),
        ([_reported(("ready", "True"), ("linked", "True"))], (), ""),
        ([_reported(("ready", "True"), ("linked", "True"), device="1")], ("d/p/0 (ready, linked)",), ""),
        ([_reported(("ready", "True"), ("linked", "True"), shareID="s")], ("d/p/0 (ready, linked)",), ""),
        ([_reported(("broken", "Unknown"))], ("d/p/0 (ready, linked)",), ""),
        (
            [_reported(("ready", "True"), ("linked", "True"), ("broken", "True"))],
            (),
            f"d/p/0 (broken, Why: {'m' * 200})",
        ),
    ],
)
def test_what_an_allocated_device_lacks(devices: list[dict[str, Any]], awaited: tuple[str, ...], failure: str) -> None:
    """As kube-scheduler looks at it: a device without binding conditions is ready whatever its driver says."""
    result = {"request": "r", "driver": "d", "pool": "p", "device": "0", "bindingConditions": ["ready", "linked"],
              "bindingFailureConditions": ["broken"]}  # fmt: skip
    plain = {"request": "r", "driver": "d", "pool": "p", "device": "2", "bindingFailureConditions": ["broken"]}
    status = {"allocation": {"devices": {"results": [result, plain]}}}
    said = [*devices, _reported(("broken", "True"), device="2")]
    (claim,) = read_claims([{"metadata": {"name": "c"}, "status": status | {"devices": said}}])
    assert (claim.awaited, claim.failure) == (awaited, failure)
    (claim,) = read_claims([{"metadata": {"name": "c"}, "status": {"devices": said}}])
    assert (claim.awaited, claim.failure) == ((), "")


@pytest.mark.parametrize(
    ("manager", "subresource", "fields", "ours"),
    [
        ("thalweg", "status", {"f:status": {"f:allocation": {"f:devices": {}}}}, True),
        ("thalweg", "status", {"f:status": {"f:reservedFor": {}}}, False),
        ("thalweg", "", {"f:status": {"f:allocation": {}}}, False),
        ("kube-scheduler", "status", {"f:status": {"f:allocation": {}}}, False),
        ("thalweg", "status", None, False),
        ("thalweg", "status", {"f:status": None}, False),
    ],
)
def test_who_allocated(manager: str, subresource: str, fields: object, ours: bool) -> None:  # noqa: FBT001
    """As the API server remembers it, and only while there is an allocation."""
    writers = [{"manager": "x", "fieldsV1": {}}, {"manager": manager, "subresource": subresource, "fieldsV1": fields}]
    metadata = {"name": "c", "managedFields": writers}
    allocation = {"devices": {"results": []}}
    allocated, free = read_claims(
        [{"metadata": metadata, "status": {"allocation": allocation}}, {"metadata": metadata, "status": {}}]
    )
    assert (allocated.is_ours, free.is_ours) == (ours, False)


@pytest.mark.parametrize(
    ("manager", "subresource", "extended", "ours"),
    [("thalweg", "", "true", True), ("kube-scheduler", "", "true", False), ("thalweg", "", "false", False),
     ("thalweg", "status", "true", False)],
)  # fmt: skip
def test_who_made_a_claim_for_extended_resources(manager: str, subresource: str, extended: str, ours: bool) -> None:  # noqa: FBT001
    """As the API server remembers it, with devices or without."""
    writer = {"manager": manager, "subresource": subresource, "fieldsV1": {"f:spec": {"f:devices": {}}}}
    annotations = {"resource.kubernetes.io/extended-resource-claim": extended}
    (made,) = read_claims([{"metadata": {"name": "c", "managedFields": [writer], "annotations": annotations}}])
    assert (made.is_ours, made.is_extended) == (ours, extended == "true")


def test_a_class_has_its_selectors() -> None:
    """In their order; one of a kind that is not known is not dropped."""
    manifest = {"metadata": {"name": "gpu"}, "spec": {"selectors": [*cel("true", "false"), {}]}}
    assert read_classes([manifest])["gpu"].selectors == ("true", "false", None)


def test_a_class_has_what_drivers_are_told() -> None:
    """As it is written."""
    opaque = {"driver": "d", "parameters": {"kind": "Config", "list": [1, None]}}
    manifest = {"metadata": {"name": "gpu"}, "spec": {"config": [{"opaque": opaque}, {}]}}
    first, second = map(msgspec.json.decode, read_classes([manifest])["gpu"].config)
    assert first["opaque"] == opaque
    assert second.get("opaque") is None


def _slice(**device: Any) -> dict[str, Any]:
    return {"metadata": {"name": "s"}, "spec": {"driver": "d", "devices": [{"name": "0", **device}]}}


@pytest.mark.parametrize(
    ("device", "field"),
    [
        ({"capacity": {"memory": {"value": "x"}}}, "capacity[memory].value"),
        (
            {"capacity": {"memory": {"value": "1", "requestPolicy": {"default": "x"}}}},
            "capacity[memory].requestPolicy.default",
        ),
        (
            {"capacity": {"memory": {"value": "1", "requestPolicy": {"validRange": {"step": "x"}}}}},
            "capacity[memory].requestPolicy.validRange.step",
        ),
        (
            {"consumesCounters": [{"counterSet": "c", "counters": {"n": {"value": "x"}}}]},
            "consumesCounters[c].counters[n]",
        ),
    ],
)
def test_an_amount_of_a_device_that_is_none_is_named(device: dict[str, Any], field: str) -> None:
    """By slice, device and field."""
    with pytest.raises(ModelError) as raised:
        to_resource_slice(msgspec.convert(_slice(**device), WireResourceSlice))
    assert raised.value.field == f"ResourceSlice s: spec.devices[0].{field}"
    assert '"x" is not a quantity' in raised.value.problem


def test_an_amount_of_a_claim_that_is_none_is_named() -> None:
    """By claim, request and field."""
    exactly = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "x"}}}
    manifest = {"metadata": {"name": "c", "namespace": "n"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": exactly}]}}}  # fmt: skip
    with pytest.raises(ModelError) as raised:
        to_resource_claim(msgspec.convert(manifest, WireDeviceClaim))
    assert raised.value.field == "ResourceClaim n/c: spec.devices.requests[r].exactly.capacity.requests[memory]"


def test_a_pod_names_its_claims() -> None:
    """Claims that there are, those that are made from a template, and what was made."""
    claims = [{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimTemplateName": "t"}, {"name": "c"}]
    made = [{"name": "b", "resourceClaimName": "p-b-1"}, {"name": "d"}]
    manifest = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"resourceClaims": claims},
        "status": {"resourceClaimStatuses": made},
    }
    pod = to_claiming_pod(msgspec.convert(manifest, WirePod))
    assert pod.key == "n/p"
    assert pod == ClaimingPod(
        "n",
        "p",
        "u",
        (PodClaim("a", claim="x"), PodClaim("b", template="t"), PodClaim("c")),
        (("b", "p-b-1"), ("d", "")),
    )


def test_pods_of_one_spec_have_their_own_claims() -> None:
    """What was read of the spec of one pod is not taken for the next: the claims were made for each of them."""
    read = PodReader(Interner())

    def pod(name: str, made: str) -> ClaimingPod | None:
        status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": made}]} if made else {}
        spec = {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
        return read(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})).pod_class.devices

    claims = (PodClaim("gpu", template="t"),)
    assert pod("a", "") == ClaimingPod("ns", "a", "uid-a", claims)
    assert pod("a", "a-x") == ClaimingPod("ns", "a", "uid-a", claims, (("gpu", "a-x"),))
    assert pod("b", "b-y") == ClaimingPod("ns", "b", "uid-b", claims, (("gpu", "b-y"),))
