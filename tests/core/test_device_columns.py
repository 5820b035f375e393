"""Devices as columns of room: numbers say what the allocator says, and rounds treat devices as other amounts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_clusters import Manifest, allocated, claim, devices_of, naming, of_template, slice_of
from support.draw_devices import cel, read_claims, read_classes, read_slices
from support.eviction_clusters import node as roomy_node
from support.eviction_clusters import running, waiting
from support.eviction_clusters import snapshot as snapshot_with_running
from support.model import node, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN, ReschedulingMode
from flowcore.model.resource_claims import ClaimingPod, DeviceTaker
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.devices import search_effort
from flowcore.rules.devices.cel import CelProblem
from flowcore.rules.devices.columns.with_columns import WithColumns, with_columns
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.node_reach import ReachedNode
from flowcore.rules.devices.pod_claims import ClaimRejection
from flowcore.rules.devices.search_effort import REASON_LATER
from flowcore.rules.filters import dynamic_resources, run_filters

GPU, COLUMN = "gpu", "deviceclass.resource.kubernetes.io/gpu"
DRIVER = "gpu.example.com"
MODEL = f'device.attributes["{DRIVER}"].model'


def pending(pod: ClaimingPod, **fields: Any) -> PendingPod:
    requests = fields.pop("requests", (("cpu", 1000),))
    return PendingPod(
        pod.key, pod.uid, PodClass(requests, devices=pod, **fields), BUILT_IN.name, 0.0, PodSignature("default")
    )


def cluster(nodes: dict[str, int], claims: list[Manifest], **fields: Any) -> Snapshot:
    """Nodes with so many GPUs, and a waiting pod for each claim with an owner."""
    owned = [each["metadata"]["name"] for each in claims if each["metadata"].get("ownerReferences")]
    pods = fields.pop("pods", [pending(of_template(name)) for name in owned])
    slices = fields.pop("slices", [slice_of(name, count) for name, count in nodes.items()])
    known = snapshot([node(name, 64_000) for name in nodes], pods)
    return replace(known, devices=devices_of(slices, claims, **fields))


def claims_for(*names: str, count: int = 1, **exactly: Any) -> list[Manifest]:
    return [claim(name, count, owner=name, **exactly) for name in names]


def with_models(name: str, *models: str, **fields: Any) -> Manifest:
    """A node's slice with a device of each of these models."""
    made = slice_of(name, len(models))
    for device, model in zip(made["spec"]["devices"], models, strict=True):
        device |= {"attributes": {"model": {"string": model}}, **fields}
    return made


def columns_of(known: Snapshot) -> dict[str, list[list[int]]]:
    """By column: how many devices each node has, and how many are taken."""
    widened = with_columns(known).snapshot
    if widened.columns is None:
        return {}
    at = {name: widened.resources.index(name) for name in widened.columns.names}
    return {
        name: [widened.allocatable[:, place].tolist(), widened.used[:, place].tolist()] for name, place in at.items()
    }


def check_devices(known: Snapshot, result: RoundResult) -> None:
    """The allocator gives every placed pod its devices, in the order of the plan; no device is had twice."""
    after = dynamic_resources.claimable_devices(result.after)
    for placement in result.placements:
        pod = placement.pod.pod_class.devices
        if pod is not None:
            claims = after.claims_of(pod)
            assert not isinstance(claims, ClaimRejection)
            assert all(each.allocation is not None for each in claims), placement
    before = [each.allocation for each in known.devices.claims.values() if each.allocation is not None]
    results = [each for allocation in (*before, *after.allocations.values()) for each in allocation.devices]
    whole = (each.device for each in results if each.share_id is None and not each.admin_access)
    assert max(Counter(whole).values(), default=0) <= 1


# --- what is a column ---


def test_pods_of_one_template_are_one_class() -> None:
    """They request a number, and give up their own claims for it; the round gives them back."""
    known = cluster({"n0": 4, "n1": 2}, [*claims_for(*"abc", count=2), allocated(claim("x"), "n0", "gpu-0")])
    widened = with_columns(known)
    (pod_class,) = {each.pod_class for each in widened.snapshot.pending}
    assert pod_class.devices is None
    assert dict(pod_class.requests)[COLUMN] == 2
    assert columns_of(known) == {COLUMN: [[4, 2], [1, 0]]}
    assert tuple(map(widened.pod, widened.snapshot.pending)) == known.pending
    result = run_round(known)
    assert Counter(each.node for each in result.placements) == {"n0": 1, "n1": 1}
    assert {each.pod for each in (*result.placements, *result.unplaced)} == set(known.pending)
    assert result.after.resources == known.resources
    check_devices(known, result)


def test_kinds_that_get_the_same_devices_share_a_column() -> None:
    """By different selectors, which say the same here; those that get others have a column of their own."""
    slices = [with_models("n0", "a", "a", "b")]
    claims = [
        *claims_for("p", selectors=cel(f'{MODEL} == "a"')),
        *claims_for("q", selectors=cel(f'{MODEL} != "b"')),
        *claims_for("r", selectors=cel(f'{MODEL} == "b"')),
    ]
    assert columns_of(cluster({"n0": 3}, claims, slices=slices)) == {COLUMN: [[2], [0]], f"{COLUMN}-2": [[1], [0]]}


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param([*claims_for("p"), *claims_for("q", selectors=cel(f'{MODEL} == "a"'))], id="some in common"),
        pytest.param(claims_for("p", selectors=cel(f"{MODEL}.nothing")), id="an expression errs"),
        pytest.param(claims_for("p", allocationMode="All"), id="all devices"),
        pytest.param(claims_for("p", adminAccess=True), id="admin access"),
        pytest.param(claims_for("p", count=33), id="more than a claim may have"),
        pytest.param([*claims_for("p"), *claims_for("q", allocationMode="All")], id="another pod takes all"),
    ],
)
def test_what_numbers_do_not_say_is_no_column(claims: list[Manifest]) -> None:
    """Such pods take devices one by one."""
    assert not columns_of(cluster({"n0": 3}, claims, slices=[with_models("n0", "a", "a", "b")]))


@pytest.mark.parametrize(
    "slices",
    [
        pytest.param([slice_of("fabric", 2, allNodes=True), slice_of("n0", 1)], id="devices of several nodes"),
        pytest.param([with_models("n0", "a", allowMultipleAllocations=True)], id="shared devices"),
        pytest.param(
            [with_models("n0", "a", bindingConditions=["ready"], bindingFailureConditions=["broken"])], id="conditions"
        ),
    ],
)
def test_devices_that_are_not_had_alone_are_no_column(slices: list[Manifest]) -> None:
    """Nor those that other nodes reach too."""
    assert not columns_of(cluster({"n0": 1}, claims_for("p"), slices=slices))


def test_pools_of_one_name_on_two_nodes_are_no_column() -> None:
    """Their devices have one name and are one device, though each pool looks complete; the slices may go at once."""
    slices = [slice_of(name, 1, pool="gpus", nodeName=name) for name in ("n0", "n1")]
    known = cluster({"n0": 1, "n1": 1}, claims_for("a", "b"), slices=slices)
    assert not columns_of(known)
    result = run_round(known)
    assert len(result.placements) == 1
    check_devices(known, result)
    for each in slices:
        known.devices.set_slice(each["metadata"]["name"], None)
    assert len(run_round(known).unplaced) == 2


def test_a_claim_that_others_may_name_is_no_number() -> None:
    """Two pods that name one claim get one device."""
    known = cluster({"n0": 2}, [claim("shared")], pods=[pending(naming(name, "shared")) for name in "ab"])
    assert not columns_of(known)
    assert len(run_round(known).placements) == 2


def test_a_claim_may_ask_for_several_kinds() -> None:
    """A device of each of two models: both columns are asked for, and both limit how many pods a node takes."""
    slices = [with_models("n0", "a", "a", "a", "b"), with_models("n1", "a", "b", "b")]
    claims = claims_for("p", "q", "r")
    for each in claims:
        each["spec"]["devices"]["requests"] = [
            {
                "name": model,
                "exactly": {"deviceClassName": GPU, "count": 1, "selectors": cel(f'{MODEL} == "{model}"')},
            }
            for model in "ab"
        ]
    known = cluster({"n0": 4, "n1": 3}, claims, slices=slices)
    assert columns_of(known) == {COLUMN: [[3, 1], [0, 0]], f"{COLUMN}-2": [[1, 2], [0, 0]]}
    result = run_round(known)
    assert sorted(each.node for each in result.placements) == ["n0", "n1"]
    check_devices(known, result)


def test_tainted_devices_are_left_out() -> None:
    """But for pods that tolerate the taint; they get others too, so that both take devices one by one."""
    tainted = with_models("n0", "a", "a")
    tainted["spec"]["devices"][0]["taints"] = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    assert columns_of(cluster({"n0": 2}, claims_for("p"), slices=[tainted])) == {COLUMN: [[1], [0]]}
    tolerant = claims_for("q", tolerations=[{"key": "k", "operator": "Exists"}])
    assert not columns_of(cluster({"n0": 2}, [*claims_for("p"), *tolerant], slices=[tainted]))


def test_a_pod_that_gets_no_devices_keeps_nobody_from_a_column() -> None:
    """It wants two of one serial number, which no node has, and takes none while it waits."""
    slices = [slice_of("n0", 2)]
    for number, device in enumerate(slices[0]["spec"]["devices"]):
        device["attributes"] = {"serial": {"int": number}}
    (hopeless,) = claims_for("z", count=2)
    hopeless["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/serial"}]
    known = cluster({"n0": 2}, [*claims_for("a", "b"), hopeless], slices=slices)
    assert columns_of(known) == {COLUMN: [[2], [0]]}
    assert {each.pod.uid for each in run_round(known).placements} == {"a", "b"}


def test_admin_access_takes_nothing() -> None:
    """A pod with it is placed beside pods whose devices are numbers."""
    admin = claims_for("z", adminAccess=True, allocationMode="All")
    known = cluster({"n0": 2}, [*claims_for("a", "b"), *admin])
    assert columns_of(known) == {COLUMN: [[2], [0]]}
    result = run_round(known)
    assert len(result.placements) == 3
    check_devices(known, result)


def test_a_pod_of_another_kind_does_not_slow_the_others() -> None:
    """It takes NICs, which no GPU pod claims."""
    nic = slice_of("n0-nic", 1, allNodes=True)
    nic["spec"]["driver"] = "nic.example.com"
    classes = (
        {"metadata": {"name": GPU}, "spec": {"selectors": cel(f'device.driver == "{DRIVER}"')}},
        {"metadata": {"name": "nic"}, "spec": {"selectors": cel('device.driver == "nic.example.com"')}},
    )
    claims = [*claims_for(*"abc"), *claims_for("n", deviceClassName="nic")]
    known = cluster({"n0": 2}, claims, slices=[slice_of("n0", 2), nic], classes=classes)
    assert columns_of(known) == {COLUMN: [[2], [0]]}
    result = run_round(known)
    assert {each.pod.uid for each in result.unplaced} < set("abc")
    assert len(result.unplaced) == 1
    check_devices(known, result)


def test_costly_claims_of_one_namespace_wait_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not known yet which devices they may get; rounds go on until it is, and then they take part."""
    monkeypatch.setattr(search_effort, "MOST_OF_NAMESPACE", 1000)
    nodes = {f"n{number}": 1 for number in range(20)}
    slices = [with_models(name, f"{name}-model") for name in nodes]
    costly = claims_for("costly", selectors=cel(f'{MODEL} == "n19-model"'))
    costly[0]["metadata"]["namespace"] = "other"
    there = msgspec.structs.replace(of_template("costly"), namespace="other")
    known = cluster(nodes, [*claims_for("a"), *costly], pods=[pending(of_template("a")), pending(there)], slices=slices)
    known.devices.begin_round()
    first = run_round(known)
    assert [each.pod.uid for each in first.placements] == ["a"]
    assert first.unplaced[0].reason.startswith(f"0/20 nodes are available: 20 {REASON_LATER}")
    assert not known.devices.is_searched
    rounds = 1
    while not known.devices.is_searched:
        known.devices.is_searched = True
        known.devices.begin_round()
        rounds, last = rounds + 1, run_round(known)
    assert 2 <= rounds < 20
    assert {each.pod.uid for each in last.placements} == {"a", "costly"}
    check_devices(known, last)


def test_who_asks_for_devices_pays_for_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of the round do not: namespaces that cost much wait for their turn."""
    slices = [with_models(f"n{number}", "a") for number in range(4)]
    own, other = claims_for("own"), claims_for("other", selectors=cel(f'{MODEL} == "b"', f'{MODEL} != ""'))
    other[0]["metadata"]["namespace"] = "other"
    pods = [pending(of_template("own")), pending(msgspec.structs.replace(of_template("other"), namespace="other"))]
    pods.append(PendingPod("plain/p", "p", PodClass((("cpu", 1000),)), BUILT_IN.name, 0.0, PodSignature("plain")))
    known = cluster({f"n{number}": 1 for number in range(4)}, [*own, *other], pods=pods, slices=slices)
    asked, paid, matches = list[str](), Counter[str](), DeviceSelectors.matches

    def asking(self: DeviceSelectors, expression: str, *arguments: Any) -> bool | CelProblem:
        asked.append(expression)
        return matches(self, expression, *arguments)

    def charge(paying: Sequence[PendingPod]) -> None:
        paid.update(dict.fromkeys((pod.key for pod in paying), len(asked)))
        asked.clear()

    monkeypatch.setattr(DeviceSelectors, "matches", asking)
    with_columns(known, charge)
    assert not asked
    assert +paid == {"other/other": 4}, "the other claim has no selector"


# --- the same as the allocator ---

_SELECTORS = [None, 'device.driver != ""', f'{MODEL} == "a"', f'{MODEL} != "b"', f'{MODEL} == "b"', f"{MODEL}.nothing"]


@st.composite
def device_clusters(draw: st.DrawFn, kinds: int = 2) -> Snapshot:
    """Nodes with devices of two models, some tainted, shared or had; pods with claims of a few templates."""
    count = draw(st.integers(1, 4))
    nodes = {f"n{number}": 0 for number in range(count)}
    slices, held = list[Manifest](), list[Manifest]()
    for name in nodes:
        made = with_models(name, *draw(st.lists(st.sampled_from("aab"), max_size=4)))
        for device in made["spec"]["devices"]:
            rare = draw(st.integers(0, 20))
            if rare == 0:
                device["taints"] = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
            elif rare == 1:
                device["allowMultipleAllocations"] = True
            elif rare < 5:
                held.append(allocated(claim(f"held-{name}-{device['name']}"), name, device["name"]))
        slices.append(made)
    if draw(st.integers(0, 7)) == 0:
        slices.append(slice_of("fabric", 1, allNodes=True))
    templates = [
        (draw(st.integers(1, 2)), draw(st.sampled_from(_SELECTORS)), draw(st.integers(0, 9)) == 0)
        for _ in range(draw(st.integers(1, kinds)))
    ]
    claims = list[Manifest]()
    for number in range(draw(st.integers(1, 7))):
        size, selector, takes_all = draw(st.sampled_from(templates))
        exactly: dict[str, Any] = {} if selector is None else {"selectors": cel(selector)}
        if takes_all:
            exactly["allocationMode"] = "All"
        claims += claims_for(f"p{number}", count=size, **exactly)
    drawn = cluster(nodes, [*claims, *held], slices=slices)
    cpus = [draw(st.sampled_from([2000, 64_000])) for _ in nodes]
    return replace(drawn, allocatable=np.where(drawn.allocatable == 64_000, np.array(cpus)[:, None], drawn.allocatable))


@settings(max_examples=examples(150), deadline=None)
@given(device_clusters())
def test_numbers_say_what_the_allocator_says(known: Snapshot) -> None:
    """Of each node, for each class that requests numbers; also how many of its pods the node takes."""
    widened = with_columns(known)
    for pod in widened.snapshot.pending:
        claiming = widened.pod(pod).pod_class.devices
        if pod.pod_class.devices is not None or claiming is None:
            continue
        verdicts = run_filters(pod.pod_class, widened.snapshot, pod.signature)
        exact = run_filters(PodClass(devices=claiming), known, pod.signature)
        for row in range(len(known.table.nodes)):
            if verdicts.of_node(row)[0] in ("", dynamic_resources.NAME):
                assert verdicts.of_node(row) == exact.of_node(row)
        alike = [widened.pod(each) for each in widened.snapshot.pending if each.pod_class == pod.pod_class]
        for row, each in enumerate(known.table.nodes):
            devices = dynamic_resources.claimable_devices(known).copy()
            reached = ReachedNode(each.name, each.labels)
            taken = 0
            for one in alike:
                assert one.pod_class.devices is not None
                taken += devices.fitting(one.pod_class.devices, [reached])[0]
                devices.take(DeviceTaker(one.pod_class.devices, each.name, each.labels))
            (name, number), free = dynamic_resources.column_requests(pod.pod_class, widened.snapshot)[0], None
            free = int(widened.snapshot.free[row, widened.snapshot.resources.index(name)])
            assert taken == min(len(alike), free // number)


@settings(max_examples=examples(100), deadline=None)
@given(device_clusters())
def test_as_many_pods_get_a_node_as_one_by_one(known: Snapshot) -> None:
    """And each gets devices that no other has; where a policy counts pods, for by size fewer may be better."""
    policies = {BUILT_IN.name: msgspec.structs.replace(BUILT_IN, unscheduled=UnscheduledPrice(per=PricedBy.POD))}
    result = run_round(known, policies)
    check_devices(known, result)
    with patch("flowcore.planning.round.round.with_columns", lambda each, *_: WithColumns(each, each)):
        exact = run_round(known, policies)
    assert len(result.placements) >= len(exact.placements)
    for each in result.unplaced:
        # A device on which its selector errs may be in use by now, and is not asked about any more.
        fits = run_filters(each.pod.pod_class, known, each.pod.signature).fits
        assert not (fits & run_filters(each.pod.pod_class, result.after, each.pod.signature).fits).any()


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_columns_follow_what_changes(data: st.DataObject) -> None:
    """Slices, claims, pods on their way and nodes change one by one; the numbers are those of a fresh index."""
    objects, names = DeviceObjects(), ["n0", "n1", "n2"]
    for device_class in read_classes([{"metadata": {"name": GPU}, "spec": {}}]).items():
        objects.set_class(*device_class)
    for each in read_claims(claims_for("p")):
        objects.set_claim((each.namespace, each.name), each)
    for _ in range(data.draw(st.integers(1, 8))):
        name = data.draw(st.sampled_from(names))
        match data.draw(st.sampled_from(["slice", "no slice", "claim", "no claim", "takers", "nodes"])):
            case "slice":
                (made,) = read_slices([with_models(name, *data.draw(st.lists(st.sampled_from("ab"), max_size=3)))])
                objects.set_slice(name, made)
            case "no slice":
                objects.set_slice(name, None)
            case "claim":
                device = f"gpu-{data.draw(st.integers(0, 2))}"
                (held,) = read_claims([allocated(claim(f"held-{name}", owner=f"held-{name}"), name, device)])
                objects.set_claim((held.namespace, held.name), held)
            case "no claim":
                objects.set_claim(("default", f"held-{name}"), None)
            case "takers":
                (made_claim,) = read_claims(claims_for(f"t-{name}"))
                objects.set_claim((made_claim.namespace, made_claim.name), made_claim)
                objects.takers = (DeviceTaker(of_template(f"t-{name}"), name),)
                objects.version += 1
            case _:
                names = [*names[1:], f"n{len(names) + data.draw(st.integers(0, 3))}"]
                names = list(dict.fromkeys(names))
        known = replace(snapshot([node(each) for each in names], [pending(of_template("p"))]), devices=objects)
        fresh = DeviceObjects()
        fresh.slices, fresh.classes, fresh.claims = dict(objects.slices), objects.classes, dict(objects.claims)
        fresh.takers = objects.takers
        assert columns_of(known) == columns_of(replace(known, devices=fresh))


# --- pods on their way, and pods that leave ---


def test_a_pod_on_its_way_keeps_others_from_devices_that_are_not_free_yet() -> None:
    """Its victim has the device still: nobody else is planned for that."""
    held = allocated(claim("held"), "n0", "gpu-0")
    known = cluster({"n0": 1}, [held, *claims_for("a", "b")], pods=[pending(of_template("b"))])
    known.devices.takers = (DeviceTaker(of_template("a"), "n0"),)
    assert columns_of(known) == {COLUMN: [[1], [2]]}


def _running(name: str, on: str, device: str, **fields: Any) -> tuple[Pod, Manifest]:
    """A running pod with a claim that has a device."""
    pod = running(name, on, 1, **fields)
    claiming = replace_uid(of_template(name), pod.uid)
    held = allocated(claim(name, owner=name), on, device)
    held["metadata"]["ownerReferences"][0]["uid"] = pod.uid
    held["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": pod.uid}]
    return msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, devices=claiming)), held


def replace_uid(pod: ClaimingPod, uid: str) -> ClaimingPod:
    return msgspec.structs.replace(pod, uid=uid)


def _urgent(name: str, priority: int = 10) -> PendingPod:
    pod = waiting(name, 1, priority=priority)
    claiming = replace_uid(of_template(name), pod.uid)
    return msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, devices=claiming))


def _claim_of(pod: PendingPod, count: int = 1) -> Manifest:
    made = claim(pod.key.partition("/")[2], count, owner="x")
    made["metadata"]["ownerReferences"][0]["uid"] = pod.uid
    return made


def test_an_urgent_pod_gets_the_device_of_a_running_pod() -> None:
    """Cores are free everywhere; the pod with the device leaves, not the one without."""
    low, held = _running("low", "n0a", "gpu-0")
    high, also_held = _running("high", "n1b", "gpu-0", priority=100)
    urgent = _urgent("urgent")
    known = snapshot_with_running(
        [roomy_node("n0a"), roomy_node("n1b")], [low, high, running("plain", "n0a", 1)], [urgent]
    )
    slices = [slice_of("n0a", 1), slice_of("n1b", 1)]
    known = replace(known, devices=devices_of(slices, [held, also_held, _claim_of(urgent)]))
    result = run_round(known)
    assert [(each.pod, each.node) for each in result.placements] == [(urgent, "n0a")]
    (eviction,) = result.evictions
    assert eviction.pod.key == "default/low"
    assert known.running is not None
    assert eviction.pod in known.running.pods


def test_a_claim_that_others_use_does_not_leave() -> None:
    """Evicting one of its pods frees no device."""
    low, held = _running("low", "n0a", "gpu-0")
    held["status"]["reservedFor"].append({"resource": "pods", "name": "other", "uid": "other"})
    urgent = _urgent("urgent")
    known = snapshot_with_running([roomy_node("n0a")], [low], [urgent])
    known = replace(known, devices=devices_of([slice_of("n0a", 1)], [held, _claim_of(urgent)]))
    result = run_round(known)
    assert not result.evictions
    assert "cannot allocate all claims" in result.unplaced[0].reason


def test_a_pod_whose_claim_others_use_does_not_move() -> None:
    """Its device stays, and its replacement needs another one, which no other node has."""
    low, held = _running("low", "n0a", "gpu-0")
    held["status"]["reservedFor"].append({"resource": "pods", "name": "other", "uid": "other"})
    waits, claims = waiting("waits", 4), _urgent("claims", 0)
    moves = msgspec.structs.replace(BUILT_IN.rescheduling, mode=ReschedulingMode.ACT)
    policy = msgspec.structs.replace(BUILT_IN, rescheduling=moves)
    nodes = [roomy_node("n0a", cpu=5), roomy_node("n1b", cpu=2)]
    known = snapshot_with_running(nodes, [low], [waits, claims], policy=policy)
    known = replace(known, devices=devices_of([slice_of("n0a", 2)], [held, _claim_of(claims)]))
    result = run_round(known, {policy.name: policy})
    assert len(result.placements) == 1
    assert not result.evictions


def test_a_device_that_two_claims_have_does_not_come_free() -> None:
    """kube-scheduler and a plan may give it out at once. Once one of the claims is gone, it leaves with the other."""
    (low, held), (high, also_held) = _running("low", "n0a", "gpu-0"), _running("high", "n0a", "gpu-0", priority=100)
    urgent = _urgent("urgent")
    known = snapshot_with_running([roomy_node("n0a")], [low, high], [urgent])
    known = replace(known, devices=devices_of([slice_of("n0a", 1)], [held, also_held, _claim_of(urgent)]))
    assert not run_round(known).evictions
    known.devices.set_claim(("default", "high"), None)
    assert [each.pod.key for each in run_round(known).evictions] == ["default/low"]


def test_what_running_pods_use_follows_their_claims() -> None:
    """In a second round of the same objects: what a claim has by then leaves with its pod."""
    low, held = _running("low", "n0a", "gpu-0")
    urgent = _urgent("urgent")
    known = snapshot_with_running([roomy_node("n0a")], [low], [urgent])
    shared = msgspec.json.decode(msgspec.json.encode(held))
    shared["status"]["reservedFor"].append({"resource": "pods", "name": "other", "uid": "other"})
    known = replace(known, devices=devices_of([slice_of("n0a", 1)], [shared, _claim_of(urgent)]))
    assert not run_round(known).evictions
    (alone,) = read_claims([held])
    known.devices.set_claim((alone.namespace, alone.name), alone)
    assert [each.pod.key for each in run_round(known).evictions] == ["default/low"]
    known.devices.set_claim((alone.namespace, alone.name), msgspec.structs.replace(alone, allocation=None))
    result = run_round(known)
    assert result.placements
    assert not result.evictions


def test_fewest_pods_leave_for_several_devices() -> None:
    """Two devices are needed: one pod with two of them leaves, not two with one each."""
    pods, held = list[Pod](), list[Manifest]()
    for number in range(2):
        pod, of_pod = _running(f"one-{number}", "n0a", f"gpu-{number}")
        pods.append(pod)
        held.append(of_pod)
    two, of_two = _running("two", "n1b", "gpu-0")
    second = dict(of_two["status"]["allocation"]["devices"]["results"][0], device="gpu-1")
    of_two["status"]["allocation"]["devices"]["results"].append(second)
    of_two["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    urgent = _urgent("urgent")
    known = snapshot_with_running([roomy_node("n0a"), roomy_node("n1b")], [*pods, two], [urgent])
    slices = [slice_of("n0a", 2), slice_of("n1b", 2)]
    known = replace(known, devices=devices_of(slices, [*held, of_two, _claim_of(urgent, 2)]))
    result = run_round(known)
    assert [each.pod.key for each in result.evictions] == ["default/two"]


def test_a_pod_without_devices_is_told_what_it_lacks() -> None:
    """In kube-scheduler's words, and what every plan leaves in numbers of devices."""
    known = cluster({"n0": 2}, claims_for(*"abc"))
    result = run_round(known)
    (left,) = result.unplaced
    assert left.reason.startswith("0/1 nodes are available: 1 cannot allocate all claims.")
    assert left.code == dynamic_resources.NAME
    assert left.more_nodes_help
    assert result.left_at_least is not None
    assert (result.left_at_least.pods, result.left_at_least.resource) == (1, COLUMN)


def test_one_more_round_sees_what_the_first_placed() -> None:
    """What is left of the devices is for pods that come later."""
    known = cluster({"n0": 3}, claims_for(*"abcd"))
    first, second = known.pending[:2], known.pending[2:]
    result = run_round(replace(known, pending=first))
    assert len(result.placements) == 2
    after = run_round(replace(result.after, pending=second))
    assert len(after.placements) == 1
    check_devices(known, after)
