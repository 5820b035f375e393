"""Pods whose extended resources a DeviceClass backs: devices on nodes that do not offer the resource themselves."""

from collections import Counter
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_clusters import Manifest, allocated, claim, devices_of, of_template, slice_of
from support.eviction_clusters import node as roomy_node
from support.eviction_clusters import running
from support.eviction_clusters import snapshot as snapshot_with_running
from support.model import node, snapshot
from support.profiles import examples
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of, state_of

from flowcore.api.base import Interner
from flowcore.api.pod_objects import WirePod
from flowcore.api.pod_reader import PodReader
from flowcore.api.pods import to_pod
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.devices import DeviceClass, device_resources, with_devices
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN, ReschedulingMode
from flowcore.model.queues import Queue, QueueState, QueueUsage
from flowcore.model.resource_claims import (
    EXTENDED_RESOURCES,
    ClaimingPod,
    DeviceTaker,
    ExtendedRequest,
    extended_claim_name,
)
from flowcore.planning.round import RoundResult, run_round
from flowcore.questions.diagnosis.answers import WhyQuery
from flowcore.questions.diagnosis.fixes.proposals.waiting_pods import Judge, wanted_pods
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.what_if import WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import Drain
from flowcore.questions.scenario.plan import plan_scenario
from flowcore.rules.devices.columns.with_columns import with_columns
from flowcore.rules.devices.node_reach import device_taker, reached_node
from flowcore.rules.devices.pod_claims import REASON_LEFT_OVER, ClaimRejection
from flowcore.rules.filters import dynamic_resources, run_filters

RESOURCE, IMPLICIT = "nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu"
CLASS: Manifest = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": RESOURCE}}
BACKING = {RESOURCE: "gpu", IMPLICIT: "gpu"}
CONTEXT = AnswerContext(now=NOW)
COUNTING_PODS = {BUILT_IN.name: msgspec.structs.replace(BUILT_IN, unscheduled=UnscheduledPrice(per=PricedBy.POD))}


def read(manifest: Manifest) -> Pod:
    return to_pod(msgspec.convert(manifest, WirePod), Interner())


def container(name: str = "c", *, sidecar: bool = False, **requests: int) -> Manifest:
    """A container; words are resources, with two underscores for a dot and one for a slash."""
    named = {key.replace("__", ".").replace("_", "/"): str(number) for key, number in requests.items()}
    return {"name": name, "resources": {"requests": named}} | ({"restartPolicy": "Always"} if sidecar else {})


def manifest(name: str, *containers: Manifest, init: tuple[Manifest, ...] = (), **spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"containers": list(containers), "initContainers": list(init), **spec}}


def asking(name: str, number: int = 1, resource: str = RESOURCE, cpu: int = 1000, **fields: Any) -> PendingPod:
    """A waiting pod as a round sees it; further words are fields of PodClass."""
    pod = Pod("default", name, name, PodClass((("cpu", cpu), (resource, number)), **fields))
    pod = msgspec.structs.replace(pod, extended=(ExtendedRequest(resource, (("container-0-request-1", number),)),))
    pod = with_devices(pod, BACKING)
    return PendingPod(pod.key, pod.uid, pod.pod_class, BUILT_IN.name, 0.0, PodSignature("default"))


def claiming(name: str) -> PendingPod:
    """A waiting pod with a claim of a template."""
    pod_class = PodClass((("cpu", 1000),), devices=of_template(name))
    return PendingPod(f"default/{name}", name, pod_class, BUILT_IN.name, 0.0, PodSignature("default"))


def made_for(pod: str, on: str, device: str) -> Manifest:
    """The claim that kube-scheduler made for the extended resources of a pod."""
    made = allocated(claim(f"{pod}-extended-resources-x", owner=pod), on, device)
    made["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    made["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": pod}]
    return made


def cluster(
    nodes: list[Node], pending: list[PendingPod], gpus: dict[str, int], claims: list[Manifest] | None = None
) -> Snapshot:
    """Nodes, of which some have so many devices."""
    slices = [slice_of(name, number) for name, number in gpus.items()]
    return replace(snapshot(nodes, pending), devices=devices_of(slices, claims or [], (CLASS,)))


def check(known: Snapshot, result: RoundResult) -> None:
    """No device is had twice, every placed pod has what it asks for, and no node gives more than it offers itself."""
    after = dynamic_resources.claimable_devices(result.after)
    offered = {each.name: dict(each.allocatable).get(RESOURCE, 0) for each in known.table.nodes}
    asked, by_plugin = Counter[str](), Counter[str]()
    for placement in result.placements:
        requests = dict(placement.pod.pod_class.requests)
        number = requests.get(RESOURCE, 0)
        if offered[placement.node]:
            by_plugin[placement.node] += number
            number = 0
        asked[placement.node] += number + requests.get(IMPLICIT, 0)
        if placement.pod.pod_class.devices is not None and not placement.pod.pod_class.devices.extended:
            asked[placement.node] += 1
    held = Counter(each.device for allocation in after.allocations.values() for each in allocation.devices)
    assert max(held.values(), default=0) <= 1
    assert Counter(device.pool for device in held) == +asked
    assert all(number <= offered[name] for name, number in by_plugin.items())
    before = {each.device for one in known.devices.claims.values() if one.allocation for each in one.allocation.devices}
    assert before.isdisjoint(held)


# --- what a pod asks for ---


@pytest.mark.parametrize(
    ("containers", "init", "expected"),
    [
        pytest.param([container(x_gpu=2)], [], {"x/gpu": {"container-0-request-0": 2}}, id="one container"),
        pytest.param(
            [container(cpu=1, x_gpu=2, memory=3)], [], {"x/gpu": {"container-0-request-2": 2}}, id="place by name"
        ),
        pytest.param(
            [container(x_gpu=1), container(cpu=1), container(x_gpu=2, x_a=1)],
            [],
            {"x/a": {"container-2-request-0": 1}, "x/gpu": {"container-0-request-0": 1, "container-2-request-1": 2}},
            id="several containers and resources",
        ),
        pytest.param(
            [container(x_gpu=2)], [container(x_gpu=2)], {"x/gpu": {"container-1-request-0": 2}}, id="init has theirs"
        ),
        pytest.param(
            [container(x_gpu=2)],
            [container(x_gpu=3), container(x_gpu=5)],
            {"x/gpu": {"container-1-request-0": 3, "container-2-request-0": 2}},
            id="init lacks three more",
        ),
        pytest.param(
            [container(x_gpu=1)],
            [container(x_gpu=2, sidecar=True), container(x_gpu=2)],
            {"x/gpu": {"container-0-request-0": 2, "container-1-request-0": 1, "container-2-request-0": 1}},
            id="a sidecar that runs already keeps its own",
        ),
        pytest.param(
            [container(x_gpu=1)],
            [container(x_gpu=2), container(x_gpu=2, sidecar=True)],
            {"x/gpu": {"container-1-request-0": 2, "container-2-request-0": 1}},
            id="a sidecar that starts later lends its own",
        ),
        pytest.param(
            [container(deviceclass__resource__kubernetes__io_gpu=1, hugepages=1)],
            [],
            {IMPLICIT: {"container-0-request-0": 1}},
            id="by the name of the class",
        ),
        pytest.param([container(cpu=1, memory=2)], [], {}, id="none"),
        pytest.param([container(x_gpu=0)], [], {}, id="zero"),
    ],
)
def test_a_claim_has_a_request_for_each_container(
    containers: list[Manifest], init: list[Manifest], expected: dict[str, dict[str, int]]
) -> None:
    """Together they are what the pod requests: createRequestsAndMappings."""
    pod = read(manifest("p", *containers, init=tuple(init)))
    assert {extended.resource: dict(extended.requests) for extended in pod.extended} == expected
    for extended in pod.extended:
        assert sum(number for _, number in extended.requests) == dict(pod.pod_class.requests)[extended.resource]
        assert {request for _, request in extended.mappings} == {request for request, _ in extended.requests}


@pytest.mark.parametrize(
    ("containers", "init", "expected"),
    [
        pytest.param(
            [container("a", x_gpu=1), container("b", cpu=1), container("c", x_gpu=2)],
            [],
            [("a", "container-0-request-0"), ("c", "container-2-request-0")],
            id="each has its own",
        ),
        pytest.param(
            [container("a", x_gpu=2), container("b", x_gpu=1)],
            [container("i", x_gpu=2), container("j", x_gpu=3)],
            [("a", "container-2-request-0"), ("b", "container-3-request-0"), ("i", "container-2-request-0"),
             ("j", "container-2-request-0"), ("j", "container-3-request-0")],
            id="init has those of later ones, as many as it needs",
        ),
        pytest.param(
            [container("a", x_gpu=1)],
            [container("i", x_gpu=3), container("j", x_gpu=5)],
            [("a", "container-2-request-0"), ("i", "container-2-request-0"), ("i", "container-1-request-0"),
             ("j", "container-2-request-0"), ("j", "container-1-request-0")],
            id="what init lacks is asked for once, by the largest",
        ),
        pytest.param(
            [container("a", x_gpu=1)],
            [container("s", x_gpu=2, sidecar=True), container("i", x_gpu=2), container("k", cpu=1)],
            [("s", "container-0-request-0"), ("a", "container-3-request-0"), ("i", "container-3-request-0"),
             ("i", "container-1-request-0")],
            id="a sidecar that runs already keeps its own",
        ),
    ],
)  # fmt: skip
def test_which_request_serves_a_container(
    containers: list[Manifest], init: list[Manifest], expected: list[tuple[str, str]]
) -> None:
    """As kube-scheduler writes it into the pod's status: createRequestsAndMappings."""
    (extended,) = read(manifest("p", *containers, init=tuple(init))).extended
    assert list(extended.mappings) == expected


def test_which_class_backs_a_resource() -> None:
    """The newest, then the first by name; each class is asked for by its own name, too."""
    classes = [
        DeviceClass("old", "x/gpu", created=1.0),
        DeviceClass("b", "x/gpu", created=2.0),
        DeviceClass("a", "x/gpu", created=2.0),
        DeviceClass("other"),
    ]
    prefix = "deviceclass.resource.kubernetes.io/"
    assert device_resources(classes) == {"x/gpu": "a"} | {prefix + each.name: each.name for each in classes}


def test_a_backed_resource_is_one_more_claim() -> None:
    """It comes after the pod's own claims, and has a request for each container and resource."""
    claims = [{"name": "nic", "resourceClaimTemplateName": "t"}]
    pod = read(manifest("p", container(x_gpu=1, y_fpga=1), container(x_gpu=2), resourceClaims=claims))
    seen = with_devices(pod, {"x/gpu": "gpu"})
    devices = seen.pod_class.devices
    assert devices is not None
    assert [each.name for each in devices.claims] == ["nic", EXTENDED_RESOURCES]
    assert devices.extended_resources == ("x/gpu",)
    requests = {each.name: each.exactly for each in devices.extended}
    assert {name: (each.device_class, each.count) for name, each in requests.items() if each is not None} == {
        "container-0-request-0": ("gpu", 1),
        "container-1-request-0": ("gpu", 2),
    }
    assert seen.pod_class.requests == pod.pod_class.requests
    assert not seen.skip_reason
    unread = with_devices(pod, {"x/gpu": "gpu"}, claims_known=False).skip_reason
    assert unread.startswith("its extended resource x/gpu is backed by the DeviceClass gpu: ")
    assert unread.endswith("ResourceSlices, ResourceClaims or DeviceTaintRules cannot be read")


def test_a_claim_that_a_plan_makes_has_its_devices_once() -> None:
    """Whether the cluster shows it already or not; where the node offers the resource, none is made."""
    pod = asking("p", 1).pod_class.devices
    assert pod is not None
    nodes = [node("a"), node("b", gpu=1)]
    known = dynamic_resources.claimable_devices(cluster(nodes, [], {"a": 1})).copy()
    known.take(device_taker(pod, nodes[1]))
    assert known.planned_claims(pod) == ()
    known.release(pod)
    known.take(device_taker(pod, nodes[0]))
    (planned,) = known.planned_claims(pod) or ()
    assert (planned.name, planned.uid) == (extended_claim_name("p", "p"), "")
    assert [(request.name, request.resource) for request in planned.requests] == [("container-0-request-1", RESOURCE)]
    for is_shown in (False, True):
        made = made_for("p", "a", "gpu-0")
        made["metadata"]["name"] = planned.name
        shown = cluster(nodes, [], {"a": 1}, [made] if is_shown else [])
        beside = dynamic_resources.claimable_devices(shown).copy()
        beside.take(device_taker(pod, nodes[0], (planned,)))
        assert beside.is_taken(planned.allocation.devices[0].device)
        assert bool(beside.allocations) == (not is_shown)


def test_other_pods_stay_as_they_are() -> None:
    """The same object, whether it asks for an extended resource or not."""
    for pod in (read(manifest("p", container(cpu=1))), read(manifest("p", container(y_fpga=1)))):
        assert with_devices(pod, BACKING) is pod
        assert not pod.skip_reason


def test_waiting_pods_follow_classes_that_come_and_go() -> None:
    """And whether claims can be read."""
    state, pod = Cluster(), read(manifest("p", container(nvidia__com_gpu=1)))
    state.put_pod(pod)
    assert state.waiting[pod.key] is pod
    assert state.set_device_class("gpu", DeviceClass("gpu", RESOURCE))
    assert state.waiting[pod.key] == with_devices(pod, BACKING)
    assert state.set_claims_known(known=False)
    assert state.waiting[pod.key].unsupported_reason
    assert state.set_claims_known(known=True)
    assert state.waiting[pod.key] == with_devices(pod, BACKING)
    assert state.set_device_class("gpu", None)
    assert state.waiting[pod.key] == pod


def test_a_running_pod_holds_the_claim_of_its_status() -> None:
    """Read by the reader of all pods too; it goes with the pod."""
    made = manifest("p", container(nvidia__com_gpu=1), nodeName="n0")
    made["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "p-x", "requestMappings": []}}
    plain = manifest("q", container(nvidia__com_gpu=1), nodeName="n0")
    reader = PodReader(Interner())
    for each in (plain, made, plain):
        assert reader(msgspec.json.encode(each)).pod_class == read(each).pod_class
    devices = read(made).pod_class.devices
    assert devices == ClaimingPod("default", "p", "p").with_extended_claim(made="p-x")
    assert read(plain).pod_class.devices is None


# --- verdicts ---


def test_nodes_that_offer_the_resource_need_no_device() -> None:
    """And those that offer none need devices, in kube-scheduler's words; both filters have their part."""
    nodes = [node("offers", gpu=2), node("few", gpu=1), node("devices"), node("none")]
    known = cluster(nodes, [asking("p", 2)], {"devices": 2, "few": 4})
    verdicts = run_filters(known.pending[0].pod_class, known)
    none = ("DynamicResources", "cannot allocate all claims")
    assert [verdicts.of_node(row) for row in range(4)] == [
        ("", ""),
        ("NodeResourcesFit", f"Insufficient {RESOURCE}"),
        ("", ""),
        none,
    ]
    assert run_filters(known.pending[0].pod_class, with_columns(known).snapshot).counts() == verdicts.counts()


def test_a_claim_that_was_left_over_keeps_the_pod_waiting() -> None:
    """kube-scheduler deletes it; until then it has its device, and nobody else gets that."""
    known = cluster([node("n0")], [asking("p"), asking("q")], {"n0": 1}, [made_for("p", "n0", "gpu-0")])
    result = run_round(known)
    assert not result.placements
    words = {each.pod.uid: each.reason for each in result.unplaced}
    assert REASON_LEFT_OVER in words["p"]
    assert "cannot allocate all claims" in words["q"]


def test_a_pod_on_its_way_has_its_devices_once() -> None:
    """Before its claim is there, and when kube-scheduler has made it; none on a node that offers the resource."""
    known = cluster([node("n0"), node("n1", gpu=1)], [asking("p")], {"n0": 2, "n1": 2})
    devices, table = known.pending[0].pod_class.devices, known.table
    assert devices is not None
    for place in table.nodes:
        known.devices.takers = (device_taker(devices, place),)
        known.devices.version += 1
        taken = dynamic_resources.claimable_devices(known).allocations.values()
        assert [len(each.devices) for each in taken] == [int(place.name == "n0")]
    known.devices.takers = (device_taker(devices, table.nodes[0]),)
    (made,) = devices_of([], [made_for("p", "n0", "gpu-1")]).claims.items()
    known.devices.set_claim(*made)
    after = dynamic_resources.claimable_devices(known)
    assert not after.allocations
    assert isinstance(after.claims_of(devices), ClaimRejection)
    other = asking("q", 2).pod_class.devices
    assert other is not None
    assert after.fitting(other, map(reached_node, table.nodes)) == [False, True]


# --- rounds ---


def test_devices_that_are_alike_are_a_column() -> None:
    """Where no node offers the resource: pods of one class, and pods with claims of a template beside them."""
    nodes = [node("n0", 64_000), node("n1", 64_000)]
    pods = [asking("a"), asking("b", resource=IMPLICIT), asking("c", 3), claiming("t")]
    known = cluster(nodes, pods, {"n0": 4, "n1": 1}, [claim("t", owner="t")])
    widened = with_columns(known).snapshot
    assert widened.columns is not None
    (column,) = widened.columns.names
    assert [dict(each.pod_class.requests)[column] for each in widened.pending] == [1, 1, 3, 1]
    assert all(each.pod_class.devices is None for each in widened.pending)
    result = run_round(known)
    assert sorted(each.pod.uid for each in result.placements) in (["a", "c", "t"], ["b", "c", "t"], ["a", "b", "c"])
    assert {each.pod for each in (*result.placements, *result.unplaced)} == set(pods)
    assert result.after.resources == known.resources
    assert result.after.columns is None
    check(known, result)


@pytest.mark.parametrize("claims", [0, 1], ids=["columns", "one by one"])
def test_where_some_nodes_offer_the_resource(claims: int) -> None:
    """What a node offers itself and what devices there are is given out, and no more.

    Pods of one class are planned together, unless another pod claims the same devices: that needs them everywhere.
    """
    nodes = [node("devices", 64_000), node("offers", 64_000, gpu=3)]
    pods = [*(asking(f"p{number}") for number in range(9)), *[claiming("t")] * claims]
    known = cluster(nodes, pods, {"devices": 2, "offers": 2}, [claim("t", owner="t")])
    widened = with_columns(known).snapshot
    assert widened.columns is not None
    assert bool(widened.columns.names) == (not claims)
    assert len({pod.pod_class for pod in widened.pending}) == (len(pods) if claims else 1)
    result = run_round(known)
    placed = Counter(each.node for each in result.placements if each.pod.uid != "t")
    assert placed["offers"] == 3
    assert len(result.placements) in (5, 5 + claims)
    reasons = {each.reason for each in result.unplaced}
    assert all(f"1 Insufficient {RESOURCE}, 1 cannot allocate all claims" in reason for reason in reasons)
    assert result.after.resources == known.resources
    check(known, result)


def test_limits_of_queues_count_what_devices_serve() -> None:
    """As they count what nodes offer, of running pods and of waiting ones."""
    pods = [msgspec.structs.replace(asking(f"p{number}"), queue="team") for number in range(3)]
    known = cluster([node("n0", 64_000)], pods, {"n0": 4})
    held = {"team": QueueUsage((("cpu", 1000), ("pods", 1), (RESOURCE, 1)))}
    known = replace(known, queues=QueueState((Queue("team", limit=((RESOURCE, 2),)),), held))
    result = run_round(known)
    assert len(result.placements) == 1
    reasons = {each.reason for each in result.unplaced}
    assert len(reasons) == 1
    assert f"The limit of FlowQueue team leaves too little {RESOURCE} for it." in reasons.pop()


def test_nodes_with_devices_only_are_no_idle_gpu_nodes() -> None:
    """Preferences of other pods are the same beside a pod whose extended resources are devices."""
    plain = PendingPod("default/x", "x", PodClass((("cpu", 1000),)), BUILT_IN.name, 0.0, PodSignature("default"))
    nodes = [node("a-offers", gpu=1), node("b-devices")]
    for pods in ([plain], [plain, asking("p")]):
        result = run_round(cluster(nodes, pods, {"b-devices": 1}))
        assert {each.pod.uid: each.node for each in result.placements}["x"] == "b-devices"


def test_an_urgent_pod_gets_the_device_of_a_running_pod() -> None:
    """Both ask for the extended resource; the claim of the running one goes with it."""
    low = running("low", "n0a", 1)
    devices = ClaimingPod("default", "low", low.uid).with_extended_claim(made="low-extended-resources-x")
    requests = (("cpu", 1), (RESOURCE, 1))
    pod_class = msgspec.structs.replace(low.pod_class, requests=requests, devices=devices)
    low = msgspec.structs.replace(low, pod_class=pod_class, usage=requests)
    held = made_for("low", "n0a", "gpu-0")
    held["metadata"]["ownerReferences"][0]["uid"] = held["status"]["reservedFor"][0]["uid"] = low.uid
    urgent = asking("urgent", cpu=1, priority=10)
    known = snapshot_with_running([roomy_node("n0a"), roomy_node("n1b")], [low, running("plain", "n0a", 1)], [urgent])
    known = replace(known, devices=devices_of([slice_of("n0a", 1)], [held], (CLASS,)))
    result = run_round(known)
    assert [each.node for each in result.placements] == ["n0a"]
    assert known.running is not None
    assert [each.pod for each in result.evictions] == [pod for pod in known.running.pods if pod.key == "default/low"]


@pytest.mark.parametrize("offers", [True, False])
def test_a_running_pod_that_has_the_resource_from_its_node_claims_no_device(*, offers: bool) -> None:
    """So no move takes it to a node with devices, though waiting pods may go there; a round gives it back as it was."""
    nodes = [roomy_node("n0a", gpu=2 * offers), roomy_node("n1b", gpu=int(offers)), roomy_node("n2c")]
    pods = [asking("p", cpu=1), asking("q", cpu=1)]
    known = snapshot_with_running(nodes, [running("runs", "n0a", 1, gpu=1), running("plain", "n0a", 1)], pods)
    known = replace(known, devices=devices_of([slice_of("n2c", 3)], [], (CLASS,)))
    widened = with_columns(known)
    assert known.running is not None
    assert widened.snapshot.running is not None
    by_key = {pod.key: pod for pod in widened.snapshot.running.pods}
    fits = run_filters(by_key["default/runs"].pod_class, widened.snapshot).fits
    assert fits.tolist() == [offers, offers, False]
    assert run_filters(by_key["default/plain"].pod_class, widened.snapshot).fits.all()
    assert tuple(map(widened.running_pod, widened.snapshot.running.pods)) == known.running.pods
    result = run_round(known)
    assert len(result.placements) == len(pods)
    assert result.after.running == known.running


def test_an_urgent_pod_gets_what_a_node_offers_where_others_have_devices() -> None:
    """A pod that has the resource from its node leaves for it; devices that somebody has do not come free."""
    low = running("low", "n0a", 1, gpu=1)
    nodes = [roomy_node("n0a", gpu=1), roomy_node("n1b")]
    known = snapshot_with_running(nodes, [low], [asking("p", cpu=1, priority=9)])
    known = replace(known, devices=devices_of([slice_of("n1b", 1)], [made_for("x", "n1b", "gpu-0")], (CLASS,)))
    result = run_round(known)
    assert [each.node for each in result.placements] == ["n0a"]
    assert [each.pod.key for each in result.evictions] == ["default/low"]


@pytest.mark.parametrize("offers", [True, False])
def test_a_pod_that_has_the_resource_from_its_node_moves_to_nodes_that_offer_it(*, offers: bool) -> None:
    """Elsewhere its replacement would get none, though there nothing of the resource runs short."""
    moves = msgspec.structs.replace(BUILT_IN.rescheduling, mode=ReschedulingMode.ACT)
    policy = msgspec.structs.replace(BUILT_IN, rescheduling=moves)
    nodes = [roomy_node("n0a", gpu=2), roomy_node("n1b", cpu=8), roomy_node("n2c", cpu=1, gpu=int(offers))]
    known = snapshot_with_running(nodes, [running("low", "n0a", 1, gpu=1)], [asking("p", 2, cpu=1)], policy=policy)
    known = replace(known, devices=devices_of([slice_of("n1b", 1)], [], (CLASS,)))
    result = run_round(known, {policy.name: policy})
    assert [each.node for each in result.placements] == ["n0a"] * offers
    assert [(each.pod.key, each.to) for each in result.evictions] == [("default/low", "n2c")] * offers


def test_a_placement_that_is_taken_back_has_no_devices_elsewhere() -> None:
    """An urgent pod needs what a node offers, so another pod goes on: where devices are, if any is left."""
    nodes = [roomy_node("n0a", gpu=2), roomy_node("n1b")]
    claims = claiming("claims")
    claims = msgspec.structs.replace(
        claims, pod_class=msgspec.structs.replace(claims.pod_class, requests=(("cpu", 1),), priority=9)
    )
    pods = [asking("first", cpu=1, priority=5), asking("urgent", 2, cpu=1, priority=9), claims]
    known = snapshot_with_running(nodes, [running("low", "n0a", 1, gpu=1)], pods)
    known = replace(known, devices=devices_of([slice_of("n1b", 1)], [claim("claims", owner="claims")], (CLASS,)))
    result = run_round(known)
    assert {each.pod.uid: each.node for each in result.placements} == {"urgent": "n0a", "claims": "n1b"}
    assert [each.pod.key for each in result.evictions] == ["default/low"]
    check(known, result)


@st.composite
def mixed_clusters(draw: st.DrawFn) -> Snapshot:
    """Nodes with devices, with the resource, with both or none; pods that ask in three ways; some devices are had."""
    nodes, gpus, held = list[Node](), dict[str, int](), list[Manifest]()
    offers = draw(st.booleans())
    for place in range(draw(st.integers(1, 4))):
        name = f"n{place}"
        own = draw(st.sampled_from((0, 0, 2))) if offers else 0
        nodes.append(node(name, draw(st.sampled_from((2000, 64_000))), gpu=own))
        gpus[name] = draw(st.integers(0, 3))
        if gpus[name] and draw(st.booleans()):
            held.append(made_for(f"runs-{name}", name, f"gpu-{draw(st.integers(0, gpus[name] - 1))}"))
    pods = list[PendingPod]()
    for number in range(draw(st.integers(1, 6))):
        name = f"p{number}"
        match draw(st.sampled_from(("extended", "extended", "implicit", "claim"))):
            case "extended":
                pods.append(asking(name, draw(st.integers(1, 2))))
            case "implicit":
                pods.append(asking(name, draw(st.integers(1, 2)), IMPLICIT))
            case _:
                pods.append(claiming(name))
                held.append(claim(name, owner=name))
    return cluster(nodes, pods, gpus, held)


@settings(max_examples=examples(150), deadline=None)
@given(mixed_clusters())
def test_drawn_rounds_are_exact(known: Snapshot) -> None:
    """Nothing is had twice, as many pods are placed as one by one, and no pod waits that still fits.

    Under a policy that counts pods: by size a pod with two devices is as dear to leave as two with one.
    """
    result = run_round(known, COUNTING_PODS)
    check(known, result)
    with patch("flowcore.rules.devices.columns.with_columns._columns", lambda *_: {}):
        exact = run_round(known, COUNTING_PODS)
    check(known, exact)
    assert len(result.placements) >= len(exact.placements)
    for each in result.unplaced:
        assert not run_filters(each.pod.pod_class, result.after, each.pod.signature).fits.any()


@settings(max_examples=examples(150), deadline=None)
@given(mixed_clusters())
def test_numbers_say_what_the_allocator_says(known: Snapshot) -> None:
    """Of each node and pod: the same filter, and the same words, with columns and without."""
    widened = with_columns(known)
    for pod, exact in zip(widened.snapshot.pending, known.pending, strict=True):
        ours = run_filters(pod.pod_class, widened.snapshot, pod.signature)
        plain = run_filters(exact.pod_class, known, exact.signature)
        for row in range(len(known.table.nodes)):
            assert ours.of_node(row) == plain.of_node(row)


@settings(max_examples=examples(100), deadline=None)
@given(mixed_clusters(), st.data())
def test_what_a_pod_takes_is_free_once_it_is_gone(known: Snapshot, data: st.DataObject) -> None:
    """Taking and releasing leaves nothing behind, wherever the pod goes."""
    devices = dynamic_resources.claimable_devices(known).copy()
    for pod in known.pending:
        claims, place = pod.pod_class.devices, data.draw(st.sampled_from(known.table.nodes))
        if claims is not None:
            devices.take(device_taker(claims, place))
    for pod in known.pending:
        if pod.pod_class.devices is not None:
            devices.release(pod.pod_class.devices)
    assert not devices.allocations
    fresh = dynamic_resources.claimable_devices(known)
    for pod in known.pending:
        claims = pod.pod_class.devices
        if claims is not None:
            nodes = [reached_node(each, claims.extended_resources) for each in known.table.nodes]
            assert devices.fitting(claims, nodes) == fresh.fitting(claims, nodes)


def test_takers_of_a_node_that_offers_the_resource_say_so() -> None:
    """What is sent to a worker says which of the pod's resources the node offers."""
    devices = asking("p").pod_class.devices
    assert devices is not None
    assert device_taker(devices, node("n0", gpu=1)) == DeviceTaker(devices, "n0", offered=(RESOURCE,))
    assert device_taker(devices, node("n0")) == DeviceTaker(devices, "n0")
    assert device_taker(of_template("p"), node("n0", gpu=1)).offered == ()


# --- questions ---


def scenario(gpus: dict[str, int], *pods: Manifest) -> Scenario:
    """Nodes with so many devices, and pods that kube-scheduler binds by our plans."""
    api = {"apiVersion": "resource.k8s.io/v1"}
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "steered", "uid": "u", "generation": 1},
        "spec": {"selects": {"schedulerNames": ["default-scheduler"]}, "delivery": "Extender"},
    }  # fmt: skip
    slices = [{**api, "kind": "ResourceSlice", **slice_of(name, number)} for name, number in gpus.items()]
    nodes = [manifest_node(name, "z", cpu="16") for name in gpus]
    return scenario_of([policy, *nodes, {**api, "kind": "DeviceClass", **CLASS}, *slices, *pods])


def asking_manifest(name: str, on: str = "", number: int = 1) -> Manifest:
    pod = manifest_pod(name, on)
    pod["spec"]["containers"][0]["resources"]["requests"][RESOURCE] = str(number)
    return pod


def on_device(name: str, on: str, device: str) -> list[Manifest]:
    """A running pod with a claim for its extended resources."""
    pod, made = asking_manifest(name, on), made_for(name, on, device)
    pod["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": made["metadata"]["name"]}}
    return [pod, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **made}]


def test_headroom_counts_devices() -> None:
    """Of pods like one that runs, and like one that waits, and of pods that we bind ourselves."""
    known = scenario({"a": 4, "b": 3, "c": 0}, *on_device("runs", "a", "gpu-0"), asking_manifest("waits", number=2))
    before = state_of(known)
    for query, fits in (
        (HeadroomQuery(like="default/runs", scale_ups=0), 4),
        (HeadroomQuery(like="default/waits", scale_ups=0), 1),
    ):
        answer = answer_headroom(known, query, CONTEXT)
        assert (answer.fits, sum(answer.nodes.values())) == (fits, fits), answer.reason
        assert "c" not in answer.nodes
        assert "cannot allocate all claims" in answer.reason
    ours = answer_headroom(known, HeadroomQuery(requests={RESOURCE: "1"}, scale_ups=0), CONTEXT)
    assert ours.fits == 4
    assert state_of(known) == before


def test_fixes_judge_pods_by_all_their_devices() -> None:
    """Pods that ask for the same are judged together, and one that has a claim of its own by both."""
    *alike, both = (asking_manifest(name) for name in ("x", "y", "both"))
    for pod in alike:
        pod["metadata"]["labels"] = {}
    both["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimName": "own"}]
    own = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim("own")}
    known = scenario({"a": 1, "b": 2}, *alike, both, own)
    keys = ("default/x", "default/y", "default/both")
    wanted = {each.keys: each for each in wanted_pods(known, keys)}
    assert set(wanted) == {keys[:2], keys[2:]}
    judge = Judge(plan_scenario(known, NOW).before)
    fitting = {pods: judge.fits(each).tolist() for pods, each in wanted.items()}
    assert fitting == {keys[:2]: [True, True], keys[2:]: [False, True]}


def test_a_drained_pod_takes_its_devices_along() -> None:
    """Its claim goes with it; kube-scheduler makes another one."""
    known = scenario({"a": 1, "b": 1}, *on_device("runs", "a", "gpu-0"))
    before = state_of(known)
    answer = answer_what_if(known, WhatIfQuery([Drain("a")]), CONTEXT)
    assert not answer.waiting
    assert state_of(known) == before


def test_why_counts_the_devices() -> None:
    """Those that match and those that are free, where nodes do not offer it; all requests of a pod together."""
    waits, apart = asking_manifest("waits"), asking_manifest("apart", number=2)
    two = asking_manifest("two")
    two["spec"]["containers"].append({"name": "d", "resources": {"requests": {RESOURCE: "3"}}})
    held = [*on_device("runs-a", "a", "gpu-0"), *on_device("runs-b", "b", "gpu-0")]

    def evidence(known: Scenario, pod: str, *, nodes: bool = True) -> list[str]:
        answer = answer_why(known, WhyQuery(f"default/{pod}"), AnswerContext(now=NOW, nodes=nodes))
        return [each for each in answer.evidence if each.startswith("Extended")]

    what = f"Extended resource {RESOURCE} asks for"
    known = scenario({"a": 2, "b": 2}, *held, apart, two)
    assert evidence(known, "apart") == [f"{what} 2 of class gpu: 4 devices match, 2 are free, at most 1 on one node."]
    assert evidence(known, "two") == [f"{what} 4 of class gpu: 4 devices match, 2 are free."]
    assert not evidence(known, "apart", nodes=False)
    assert evidence(scenario({"a": 1}, *held[:2], waits), "waits") == [
        f"{what} 1 of class gpu: 1 device matches, none is free."
    ]
    assert evidence(scenario({"a": 0}, waits), "waits") == [f"{what} 1 of class gpu: no device matches."]
    offers = manifest_node("offers", "z", cpu="16")
    offers["status"]["allocatable"][RESOURCE] = "1"
    mixed = scenario({"a": 1, "offers": 3}, offers, *held[:2], asking_manifest("has-it", "offers"), waits)
    assert evidence(mixed, "waits") == [
        f"{what} 1 of class gpu: 1 device matches on nodes that do not offer {RESOURCE} themselves, none is free."
    ]
