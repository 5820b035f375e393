"""Feature gates that are off: kube-scheduler's verdicts and words, for slices and claims as a cluster keeps them."""

from typing import Any

import msgspec
import pytest
from support.device_clusters import Manifest, allocated, claim, naming, slice_of
from support.draw_devices import read_claims, read_classes, read_slices

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.saved_state import BesideCluster, put_lines, to_lines
from flowcore.model.device_gates import (
    ADMIN_ACCESS,
    BINDING_CONDITIONS,
    CLAIM_DEVICE_STATUS,
    CONSUMABLE_CAPACITY,
    DEVICE_TAINT_RULES,
    DEVICE_TAINTS,
    EXTENDED_RESOURCE,
    FRACTIONAL_RANGES,
    ON_SINCE,
    PARTITIONABLE_DEVICES,
    PRIORITIZED_LIST,
    WORKLOAD_CLAIMS,
    DeviceGates,
)
from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.model.pods import Pod, PodClass
from flowcore.model.resource_claims import ExtendedRequest
from flowcore.rules.devices.allocation.allocator import REASON_NONE_FIT
from flowcore.rules.devices.allocation.pools import SliceIndex
from flowcore.rules.devices.columns.request_kinds import RequestKind
from flowcore.rules.devices.columns.selected_devices import SelectedDevices
from flowcore.rules.devices.device_index import DeviceIndex
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.node_reach import ReachedNode
from flowcore.rules.devices.pod_claims import ERROR, UNRESOLVABLE, ClaimRejection

CLASS: Manifest = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}}
NODE = ReachedNode("n0")
TAINT = {"key": "broken", "effect": "NoSchedule"}
COUNTERS = [{"name": "card", "counters": {"slots": {"value": "1"}}}]
CONSUMES = [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]


def known(slices: list[Manifest], claims: list[Manifest], *off: str) -> Cluster:
    """A cluster of these objects."""
    cluster = Cluster()
    cluster.device_gates = DeviceGates(frozenset(off))
    for name, device_class in read_classes([CLASS]).items():
        cluster.set_device_class(name, device_class)
    for resource_slice in read_slices(slices):
        cluster.set_resource_slice(resource_slice.name, resource_slice)
    for resource_claim in read_claims(claims):
        cluster.set_resource_claim((resource_claim.namespace, resource_claim.name), resource_claim)
    return cluster


def answer(slices: list[Manifest], claims: list[Manifest], *off: str) -> list[str] | ClaimRejection:
    """The devices that the first claim gets on the node, or why it gets none."""
    devices = DeviceIndex.of(known(slices, claims, *off).devices).devices
    pod_claims = devices.claims_of(naming("p", claims[0]["metadata"]["name"]))
    if isinstance(pod_claims, ClaimRejection):
        return pod_claims
    allocations = devices.answer(pod_claims, NODE)
    if isinstance(allocations, ClaimRejection):
        return allocations
    return [each.device.device for each in allocations[0].devices]


def with_device(**fields: Any) -> Manifest:
    """A slice with one device that has these fields."""
    made = slice_of("n0", 1)
    made["spec"]["devices"][0] |= fields
    return made


def listing(**fields: Any) -> Manifest:
    """A claim with one alternative."""
    made = claim("c")
    alternative = {"name": "a", "deviceClassName": "gpu", "count": 1, **fields}
    made["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": [alternative]}]
    return made


AMOUNT = {"requests": {"memory": "1Gi"}}
LACKS_CAPACITY = "has capacity requests, but the DRAConsumableCapacity feature is disabled"


@pytest.mark.parametrize(
    ("gate", "manifest", "rejection"),
    [
        (
            PRIORITIZED_LIST,
            listing(),
            ClaimRejection(
                "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled",
                UNRESOLVABLE,
            ),
        ),
        (
            ADMIN_ACCESS,
            claim("c", adminAccess=True),
            ClaimRejection("claim default/c, request r: admin access is requested, but the feature is disabled", ERROR),
        ),
        (
            CONSUMABLE_CAPACITY,
            claim("c", capacity=AMOUNT),
            ClaimRejection(f"claim default/c, request r: {LACKS_CAPACITY}", ERROR),
        ),
        (
            CONSUMABLE_CAPACITY,
            listing(capacity=AMOUNT),
            ClaimRejection(f"claim default/c, subrequest a: {LACKS_CAPACITY}", ERROR),
        ),
    ],
)
def test_what_a_request_may_not_ask_for(gate: str, manifest: Manifest, rejection: ClaimRejection) -> None:
    """With the gate it gets its device, without it kube-scheduler's words. A claim that has its device keeps it."""
    device = with_device(capacity={"memory": {"value": "8Gi"}})
    assert answer([device], [manifest]) == ["gpu-0"]
    assert answer([device], [manifest], gate) == rejection
    assert answer([device], [allocated(manifest, "n0", "gpu-0")], gate) == ["gpu-0"]


def test_amounts_are_passed_over_by_older_allocators() -> None:
    """Without binding conditions too, kube-scheduler has an allocator that knows none: the device is had whole."""
    device = with_device(capacity={"memory": {"value": "8Gi"}})
    more = {"requests": {"memory": "16Gi"}}
    for wanted in (claim("c", capacity=more), listing(capacity=more)):
        assert answer([device], [wanted]) == ClaimRejection(REASON_NONE_FIT)
        assert answer([device], [wanted], CONSUMABLE_CAPACITY, BINDING_CONDITIONS) == ["gpu-0"]


@pytest.mark.parametrize("gate", [BINDING_CONDITIONS, CLAIM_DEVICE_STATUS])
def test_devices_that_get_ready_later(gate: str) -> None:
    """Without the gates nobody gets them; "all" are the others."""
    later = with_device(bindingConditions=["ready"], bindingFailureConditions=["failed"])
    assert answer([later], [claim("c")]) == ["gpu-0"]
    assert answer([later], [claim("c")], gate) == ClaimRejection(REASON_NONE_FIT)
    later["spec"]["devices"].append({"name": "gpu-1"})
    every = claim("c", allocationMode="All")
    assert answer([later], [every]) == ["gpu-0", "gpu-1"]
    assert answer([later], [every], gate) == ["gpu-1"]


def test_taints_of_devices() -> None:
    """Without the gate they keep nobody away."""
    tainted = with_device(taints=[TAINT])
    assert answer([tainted], [claim("c")]) == ClaimRejection(REASON_NONE_FIT)
    assert answer([tainted], [claim("c")], DEVICE_TAINTS) == ["gpu-0"]


def test_partitions() -> None:
    """Without the gate slices with counters, or that name nodes device by device, are not read; their pool is whole."""
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 3}
    partition, plain = with_device(consumesCounters=CONSUMES), {"name": "whole"}
    partition["spec"] |= {"pool": pool, "devices": [*partition["spec"]["devices"], plain]}
    counters = slice_of("counters", 0, nodeName="n0")
    counters["spec"] |= {"pool": pool, "sharedCounters": COUNTERS}
    single = slice_of("single", 0, perDeviceNodeSelection=True)
    single["spec"] |= {"pool": pool, "devices": [{"name": "single", "nodeName": "n0"}]}
    slices = [partition, counters, single]
    assert answer(slices, [claim("c", 3)]) == ["gpu-0", "whole", "single"]
    assert answer(slices, [claim("c", 2)], PARTITIONABLE_DEVICES) == ClaimRejection(REASON_NONE_FIT)
    assert answer(slices, [claim("c")], PARTITIONABLE_DEVICES) == ["whole"]


def test_shares_of_a_device() -> None:
    """Without the gate a device that several may share is had as a whole, and is taken if somebody has a share."""
    shared = with_device(
        allowMultipleAllocations=True,
        capacity={"memory": {"value": "8Gi", "requestPolicy": {"default": "1Gi", "validValues": ["1Gi"]}}},
    )
    taken = allocated(claim("other"), "n0", "gpu-0")
    taken["status"]["allocation"]["devices"]["results"][0] |= {"shareID": "s", "consumedCapacity": {"memory": "1Gi"}}
    assert answer([shared], [claim("c"), taken]) == ["gpu-0"]
    assert answer([shared], [claim("c"), taken], CONSUMABLE_CAPACITY) == ClaimRejection(REASON_NONE_FIT)
    assert answer([shared], [claim("c")], CONSUMABLE_CAPACITY) == ["gpu-0"]


def test_columns_do_not_count_what_nobody_gets() -> None:
    """Devices that get ready later, or take counters, are no numbers. Without the gates the others are."""
    mixed, counters = with_device(bindingConditions=["ready"]), slice_of("counters", 0, nodeName="n0")
    mixed["spec"]["devices"] += [{"name": "gpu-1", "consumesCounters": CONSUMES}, {"name": "gpu-2"}]
    counters["spec"] |= {"sharedCounters": COUNTERS}
    for each in (mixed, counters):
        each["spec"]["pool"] = {"name": "n0", "generation": 1, "resourceSliceCount": 2}

    def selected(*off: str) -> SelectedDevices:
        kind = RequestKind("gpu", (), ())
        devices = SelectedDevices(kind, DeviceSelectors(), lambda _: False)
        devices.follow(SliceIndex(known([mixed, counters], [], *off).devices.slices.values()), [NODE])
        return devices

    assert not selected().is_countable
    assert not selected(BINDING_CONDITIONS).is_countable
    assert not selected(PARTITIONABLE_DEVICES).is_countable
    devices = selected(BINDING_CONDITIONS, PARTITIONABLE_DEVICES)
    assert devices.is_countable
    assert [each.device for each in devices.node_of] == ["gpu-2"]


def test_extended_resources() -> None:
    """Without the gate a DeviceClass backs none, by whichever name."""
    pod = Pod("default", "p", "p", PodClass((("cpu", 1), ("nvidia.com/gpu", 1))))
    pod = msgspec.structs.replace(pod, extended=(ExtendedRequest("nvidia.com/gpu", (("r", 1),)),))
    assert known([], []).as_waiting(pod).pod_class.devices is not None
    assert known([], [], EXTENDED_RESOURCE).as_waiting(pod) == pod


@pytest.mark.parametrize(
    ("version", "off"),
    [
        ("v1.36.3", {DEVICE_TAINT_RULES, FRACTIONAL_RANGES, WORKLOAD_CLAIMS}),
        ("v1.37.0-alpha.1+5", {FRACTIONAL_RANGES, WORKLOAD_CLAIMS}),
        ("v1.38.0", {WORKLOAD_CLAIMS}),
        ("v1.35.2-eks-1", set(ON_SINCE) - {ADMIN_ACCESS, PRIORITIZED_LIST, CLAIM_DEVICE_STATUS}),
        ("v1.32.0", set(ON_SINCE)),
        ("", {WORKLOAD_CLAIMS}),
        ("v2.0.0", {WORKLOAD_CLAIMS}),
    ],
)
def test_defaults_of_a_version(version: str, off: set[str]) -> None:
    """Those of Kubernetes; a setting counts instead, in both directions."""
    assert DeviceGates.of_server(KubernetesVersion(version), {}).off == off
    assert DeviceGates.of_server(KubernetesVersion(version), {DEVICE_TAINTS: False}).off == off | {DEVICE_TAINTS}
    assert DeviceGates.of_server(KubernetesVersion(version), {DEVICE_TAINTS: True}).off == off - {DEVICE_TAINTS}


def test_a_worker_reads_the_same() -> None:
    """What is sent on has been read with the gates: who gets it needs to know none, and objects stay what they are."""
    cluster = known([with_device(taints=[TAINT])], [listing()], DEVICE_TAINTS, PRIORITIZED_LIST)
    (resource_slice,), (made,) = cluster.devices.slices.values(), cluster.devices.claims.values()
    assert not resource_slice.devices[0].taints
    assert made.requests[0].lacks == PRIORITIZED_LIST
    assert not cluster.set_resource_slice(resource_slice.name, resource_slice)
    assert not cluster.set_resource_claim((made.namespace, made.name), made)


def test_a_saved_state_has_the_gates() -> None:
    """The view's process and who reads a dump of the operator judge pods as the operator does, and new objects too."""
    pod = Pod("default", "p", "p", PodClass((("cpu", 1), ("nvidia.com/gpu", 1))))
    pod = msgspec.structs.replace(pod, extended=(ExtendedRequest("nvidia.com/gpu", (("r", 1),)),))
    cluster = known([with_device(taints=[TAINT])], [listing()], DEVICE_TAINTS, EXTENDED_RESOURCE)
    cluster.put_pod(pod)
    again = Cluster()
    put_lines([line.decode() for line in to_lines(cluster, BesideCluster(), 0.0)], again)
    assert again.devices.slices == cluster.devices.slices
    assert again.waiting == {pod.key: pod}
    (fresh,) = read_slices([with_device(taints=[TAINT])])
    again.set_resource_slice("fresh", fresh)
    assert not again.devices.slices["fresh"].devices[0].taints
