"""Rounds of pods that claim devices: verdicts are exact, and no two pods of one round get one device."""

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_clusters import Manifest, allocated, claim, devices_of, naming, of_template, slice_of
from support.draw_devices import cel
from support.model import node, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy, ReschedulingMode, ReschedulingPolicy
from flowcore.model.resource_claims import (
    AllocatedDevice,
    ClaimAllocation,
    ClaimingPod,
    DeviceTaker,
    PlannedClaim,
    PodClaim,
)
from flowcore.model.resource_slices import DeviceId
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.devices.claimable_devices import ClaimableDevices
from flowcore.rules.devices.pod_claims import ClaimRejection
from flowcore.rules.filters import dynamic_resources, run_filters

CPU: Amounts = (("cpu", 1000),)


def waiting(pod: ClaimingPod, *, requests: Amounts = CPU, priority: int = 0) -> PendingPod:
    pod_class = PodClass(requests=requests, devices=pod, priority=priority)
    return PendingPod(pod.key, pod.uid, pod_class, BUILT_IN.name, 0.0, PodSignature("default"))


def cluster(
    nodes: list[Node], slices: list[Manifest], claims: list[Manifest], pods: list[ClaimingPod], **fields: Any
) -> Snapshot:
    known = snapshot(nodes, [waiting(pod) for pod in pods])
    return replace(known, devices=devices_of(slices, claims), **fields)


def placed(result: RoundResult) -> dict[str, str]:
    return {each.pod.uid: each.node for each in result.placements}


def reasons(result: RoundResult) -> dict[str, str]:
    return {each.pod.uid: each.reason for each in result.unplaced}


def check_devices(known: Snapshot, result: RoundResult) -> ClaimableDevices:
    """Every pod gets its devices beside those of all others; no whole device is had twice."""
    after = dynamic_resources.claimable_devices(result.after)
    for placement in result.placements:
        pod = placement.pod.pod_class.devices
        assert pod is not None
        claims = after.claims_of(pod)
        assert not isinstance(claims, ClaimRejection)
        assert all(each.allocation is not None for each in claims)
    held = Counter(each.device for allocation in after.allocations.values() for each in allocation.devices)
    before = [each.allocation for each in known.devices.claims.values() if each.allocation is not None]
    held.update(each.device for allocation in before for each in allocation.devices)
    assert max(held.values(), default=0) <= 1
    return after


def test_two_pods_do_not_get_one_device() -> None:
    """There is room for both, but one device: one waits, and is told why."""
    pods = [of_template("a"), of_template("b")]
    known = cluster([node("n0")], [slice_of("n0", 1)], [claim("a", owner="a"), claim("b", owner="b")], pods)
    result = run_round(known)
    assert list(placed(result).values()) == ["n0"]
    (reason,) = reasons(result).values()
    assert "cannot allocate all claims" in reason
    check_devices(known, result)


def test_pods_go_where_devices_are() -> None:
    """Ten pods want a device each; three nodes have four, five and one of them, a fourth has none."""
    nodes = [node(f"n{number}", 16_000) for number in range(4)]
    names = [f"p{number}" for number in range(11)]
    slices = [slice_of("n0", 4), slice_of("n1", 5), slice_of("n2", 1)]
    known = cluster(nodes, slices, [claim(name, owner=name) for name in names], [of_template(name) for name in names])
    result = run_round(known)
    assert Counter(placed(result).values()) == {"n0": 4, "n1": 5, "n2": 1}
    check_devices(known, result)


def test_pods_that_share_a_claim_share_its_node() -> None:
    """The first allocates it; there is one device."""
    known = cluster(
        [node("n0"), node("n1")],
        [slice_of("n0", 1), slice_of("n1", 1)],
        [claim("shared")],
        [naming("a", "shared"), naming("b", "shared"), naming("c", "shared")],
    )
    result = run_round(known)
    assert len(placed(result)) == 3
    assert len(set(placed(result).values())) == 1
    assert len(check_devices(known, result).allocations) == 1


def test_devices_of_several_nodes_are_counted_once() -> None:
    """A pool that all nodes reach has two devices: two of three pods are placed, wherever they go."""
    names = ["a", "b", "c"]
    known = cluster(
        [node(f"n{number}", 1000) for number in range(3)],
        [slice_of("fabric", 2, allNodes=True)],
        [claim(name, owner=name) for name in names],
        [of_template(name) for name in names],
    )
    result = run_round(known)
    assert len(placed(result)) == 2
    check_devices(known, result)


def test_pools_of_their_own_do_not_make_independent_rounds() -> None:
    """Pods that may go to different nodes only still share the devices that both nodes reach."""
    names = ["a", "b"]
    claims = [claim(name, owner=name) for name in names]
    known = cluster([node("n0"), node("n1")], [slice_of("fabric", 1, allNodes=True)], claims, [])
    pods = []
    for name, place in zip(names, ("n0", "n1"), strict=True):
        pod_class = PodClass(requests=CPU, devices=of_template(name), node_name=place)
        pods.append(PendingPod(f"default/{name}", name, pod_class, BUILT_IN.name, 0.0, PodSignature("default")))
    result = run_round(replace(known, pending=tuple(pods)))
    assert len(placed(result)) == 1
    check_devices(known, result)


def test_what_is_allocated_is_taken() -> None:
    """By another claim; and a pod whose claim has its device goes to it."""
    held = allocated(claim("held", owner="mine"), "n0", "gpu-0")
    slices = [slice_of("n0", 1), slice_of("n1", 0)]
    pod = naming("mine", "held")
    known = cluster(
        [node("n0"), node("n1")], slices, [held, claim("other", owner="other")], [pod, of_template("other")]
    )
    planned = run_round(known)
    assert placed(planned) == {"mine": "n0"}
    assert "2 cannot allocate all claims" in reasons(planned)["other"]
    verdicts = run_filters(PodClass(devices=pod), known)
    assert verdicts.of_node(1) == ("DynamicResources", "resourceclaim not available on the node")


def test_pods_on_their_way_have_their_devices() -> None:
    """Their claims say nothing yet."""
    known = cluster([node("n0")], [slice_of("n0", 2)], [claim(name, owner=name) for name in "abc"], [])
    known.devices.takers = (DeviceTaker(of_template("a"), "n0"),)
    result = run_round(replace(known, pending=(waiting(of_template("b")), waiting(of_template("c")))))
    assert len(placed(result)) == 1
    check_devices(known, result)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ([], 'could not find ResourceClaim "default/p"'),
        ([claim("p", owner="q")], "ResourceClaim default/p was not created for Pod default/p (Pod is not owner)"),
        ([claim("p", owner="p", deviceClassName="none")], "request r: device class none does not exist"),
        (
            [claim("p", owner="p", selectors=cel("device.attributes['x'].y"))],
            "claim default/p: selector #0: CEL runtime error: no such key: y",
        ),
    ],
)
def test_what_is_wrong_with_a_claim_is_the_reason(claims: list[Manifest], reason: str) -> None:
    """With its own name, though others ask for the same."""
    known = cluster([node("n0")], [slice_of("n0", 1)], [*claims, claim("r", owner="r")], [of_template("p")])
    result = run_round(known)
    assert not result.placements
    assert reason in reasons(result)["p"]


@st.composite
def device_clusters(draw: st.DrawFn) -> Snapshot:
    """Nodes with a few devices each, perhaps some that all reach, and pods with claims, some of them shared."""
    count = draw(st.integers(1, 4))
    nodes = [node(f"n{number}", draw(st.sampled_from([1000, 3000]))) for number in range(count)]
    slices = [slice_of(each.name, draw(st.integers(0, 3))) for each in nodes]
    if draw(st.booleans()):
        slices.append(slice_of("fabric", draw(st.integers(0, 2)), allNodes=True))
    claims, pods = [claim("shared", draw(st.integers(1, 2)))], list[ClaimingPod]()
    for number in range(draw(st.integers(1, 6))):
        name = f"p{number}"
        if draw(st.integers(0, 3)) == 0:
            pods.append(naming(name, "shared"))
        else:
            claims.append(claim(name, draw(st.integers(1, 2)), owner=name))
            pods.append(of_template(name))
    return cluster(nodes, slices, claims, pods)


@settings(max_examples=examples(60), deadline=None)
@given(device_clusters())
def test_no_device_is_had_twice(known: Snapshot) -> None:
    """Whatever is drawn; and no pod waits though a node has room and devices for it when the plan is done."""
    result = run_round(known, steps=4)
    check_devices(known, result)
    for each in result.unplaced:
        fits = run_filters(each.pod.pod_class, result.after, each.pod.signature).fits
        assert not fits.any(), each.pod.key


def test_what_is_decided_stays() -> None:
    """Devices of pods on their way are those that were written or will be, not those that a search finds now."""
    names = ("a", "b", "c")
    objects = devices_of([slice_of("n0", 3)], [claim(name, owner=name) for name in names])
    device = DeviceId("gpu.example.com", "n0", "gpu-1")
    decided = PlannedClaim("default", "a", "a", ClaimAllocation((AllocatedDevice("r", device),)))
    gone = PlannedClaim("default", "gone", "gone", ClaimAllocation((AllocatedDevice("r", device),)))
    objects.takers = (DeviceTaker(of_template("a"), "n0", claims=(decided, gone)),)
    known = replace(snapshot([node("n0")], [waiting(of_template(name)) for name in names[1:]]), devices=objects)
    result = run_round(known)
    after = check_devices(known, result)
    assert sorted(placed(result)) == ["b", "c"]
    taken = {name: after.allocations["default", name].devices[0].device.device for name in names}
    assert taken["a"] == "gpu-1"
    assert sorted(taken.values()) == ["gpu-0", "gpu-1", "gpu-2"]
    assert after.planned_claims(of_template("a")) == (decided,)
    assert after.planned_claims(of_template("d")) is None


def test_each_pod_of_a_round_is_told_with_its_devices() -> None:
    """The same as in the plan's order, whoever asks later."""
    names = [f"p{number}" for number in range(6)]
    pods = [naming(name, name) for name in names]  # devices of claims that pods name are no numbers
    known = cluster(
        [node(f"n{number}") for number in range(2)],
        [slice_of(f"n{number}", 3) for number in range(2)],
        [claim(name) for name in names],
        pods,
    )
    result = run_round(known)
    after = check_devices(known, result)
    assert len(result.placements) == len(names)
    for taker in result.after.takers:
        claims = after.planned_claims(taker.pod)
        assert claims
        assert taker.claims in ((), claims)  # (): it took a number of a column
        assert {device.device.pool for each in claims for device in each.allocation.devices} == {taker.node}


def of_closed_node(reserved: str = "") -> Snapshot:
    """A claim with a device of a cordoned node, and its pod; another node has a free device."""
    held = allocated(claim("shared"), "a", "gpu-0")
    if reserved:
        held["status"]["reservedFor"] = [{"resource": "pods", "name": reserved, "uid": reserved}]
    return cluster(
        [node("a", unschedulable=True), node("b")],
        [slice_of("a", 1), slice_of("b", 1)],
        [held],
        [naming("p", "shared")],
    )


@pytest.mark.parametrize("reserved", ["", "p"])
def test_an_idle_claim_that_keeps_its_pod_from_all_nodes(reserved: str) -> None:
    """It is to be freed, and the pod is told so; no node that comes would help."""
    (left,) = run_round(of_closed_node(reserved)).unplaced
    assert left.frees == (("default", "shared"),)
    assert left.reason.endswith(
        "ResourceClaim shared has devices elsewhere that nobody uses: it is freed, and then b takes the pod."
    )
    assert (left.code, left.more_nodes_help) == (dynamic_resources.NAME, False)


def test_of_claims_on_different_nodes_one_keeps_its_devices() -> None:
    """Each is kept from the other's node, where its pod gets a second device beside the first. Not both are freed."""
    claims = [allocated(claim(name), name, "gpu-0") for name in "ab"]
    pod = ClaimingPod("default", "p", "p", tuple(PodClaim(name, claim=name) for name in "ab"))
    known = cluster([node("a"), node("b")], [slice_of("a", 1), slice_of("b", 2)], claims, [pod])
    (left,) = run_round(known).unplaced
    assert left.frees == (("default", "a"),)


def beside_low(others: list[Node], elsewhere: int, pods: list[PendingPod]) -> Snapshot:
    """An idle claim with the device of a node that a running pod fills; b has devices, too."""
    low = RunningPod(
        "default/low", "low", "a", PodClass(requests=CPU), usage=CPU, started=1.0, policy=BUILT_IN.name, owner="web"
    )
    known = snapshot([node("a", cpu=1000), *others], pods, [("a", CPU, ())])
    objects = devices_of([slice_of("a", 1), slice_of("b", elsewhere)], [allocated(claim("shared"), "a", "gpu-0")])
    return replace(known, devices=objects, running=RunningPods((low,)))


@pytest.mark.parametrize("elsewhere", [0, 1])
def test_an_idle_claim_is_freed_before_anybody_leaves(elsewhere: int) -> None:
    """Of two ways to a node kube-scheduler takes that too; without devices elsewhere the running pod leaves."""
    result = run_round(beside_low([node("b")], elsewhere, [waiting(naming("p", "shared"), priority=1)]))
    assert placed(result) == ({} if elsewhere else {"p": "a"})
    assert [each.frees for each in result.unplaced] == ([(("default", "shared"),)] if elsewhere else [])


def test_nobody_moves_for_a_pod_whose_idle_claim_is_freed() -> None:
    policy = Policy(BUILT_IN.name, rescheduling=ReschedulingPolicy(ReschedulingMode.ACT, min_age=0))
    known = beside_low([node("b"), node("c")], 1, [waiting(naming("p", "shared"))])
    result = run_round(known, {BUILT_IN.name: policy})
    assert (result.evictions, [each.frees for each in result.unplaced]) == ((), [(("default", "shared"),)])


def test_a_pod_leaves_where_others_of_the_round_take_the_node_that_a_freed_claim_would_open() -> None:
    """So the claim is not freed, and somebody leaves: else the pod would have neither."""
    rival = PendingPod("default/q", "q", PodClass(requests=(("cpu", 4000),), priority=2), BUILT_IN.name, 0.0)
    result = run_round(beside_low([node("b")], 1, [waiting(naming("p", "shared"), priority=1), rival]))
    assert placed(result) == {"p": "a", "q": "b"}
    assert [each.pod.key for each in result.evictions] == ["default/low"]


def test_a_claim_that_another_pod_reserves_keeps_its_devices() -> None:
    """A node that comes does not reach them."""
    (left,) = run_round(of_closed_node("q")).unplaced
    assert left.frees == ()
    assert (left.code, left.more_nodes_help) == (dynamic_resources.NAME, False)


def test_a_claim_that_a_pod_of_the_plan_uses_keeps_its_devices() -> None:
    """The other one has no room beside it: it waits for that, or for a node in reach."""
    held = allocated(claim("shared"), "a", "gpu-0")
    known = snapshot(
        [node("a"), node("b")], [waiting(naming(name, "shared"), requests=(("cpu", 3000),)) for name in "pq"]
    )
    result = run_round(replace(known, devices=devices_of([slice_of("a", 1), slice_of("b", 1)], [held])))
    assert list(placed(result).values()) == ["a"]
    assert [each.frees for each in result.unplaced] == [()]


def in_gang(known: Snapshot, gang: Gang) -> Snapshot:
    pending = tuple(msgspec.structs.replace(each, gangs=(gang.name,)) for each in known.pending)
    return replace(known, pending=pending, gangs={gang.name: gang})


@pytest.mark.parametrize("size", [1, 2])
def test_a_claim_of_a_pod_that_waits_for_its_gang_keeps_its_devices(size: int) -> None:
    """A node takes the pod as the claim is, though another one that would take it comes first."""
    held = allocated(claim("shared"), "b", "gpu-0")
    known = cluster([node("a"), node("b")], [slice_of("a", 1), slice_of("b", 1)], [held], [naming("p", "shared")])
    result = run_round(in_gang(known, Gang("g", size)))
    assert placed(result) == ({"p": "b"} if size == 1 else {})
    assert all(each.frees == () for each in result.unplaced)


@pytest.mark.parametrize("domain", ["1", "2"])
def test_a_claim_is_freed_for_a_node_of_the_gang_s_domain_only(domain: str) -> None:
    """The claim has a device of a cordoned node of zone 1; zone 2 has the free one."""
    nodes = [node("a", unschedulable=True, labels=(("zone", "1"),)), node("b", labels=(("zone", "2"),))]
    held = allocated(claim("shared"), "a", "gpu-0")
    known = cluster(nodes, [slice_of("a", 1), slice_of("b", 1)], [held], [naming("p", "shared")])
    (left,) = run_round(in_gang(known, Gang("g", 1, topology_key="zone", domain=domain))).unplaced
    assert left.frees == ((("default", "shared"),) if domain == "2" else ())


@pytest.mark.parametrize("errs", [False, True])
def test_a_claim_whose_selector_would_err_on_a_node_keeps_its_devices(errs: bool) -> None:  # noqa: FBT001
    """Without them the next attempt would end there, though another node would take the pod."""
    slices = [slice_of(name, 1) for name in "abc"]
    for each in slices:
        has = not errs or each["metadata"]["name"] != "c"
        each["spec"]["devices"][0]["attributes"] = {"exists": {"bool": True}} if has else {}
    asked = claim("shared", selectors=cel("device.attributes['gpu.example.com'].exists"))
    nodes = [node("a", unschedulable=True), node("b"), node("c")]
    (left,) = run_round(cluster(nodes, slices, [allocated(asked, "a", "gpu-0")], [naming("p", "shared")])).unplaced
    assert left.frees == (() if errs else (("default", "shared"),))
