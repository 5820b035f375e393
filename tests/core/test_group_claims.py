"""Claims that the pods of a PodGroup share: whose they are, who reserves them, and where rounds place such pods."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import eviction_clusters
from support.cli import plan_of
from support.cli import pod as manifest_pod
from support.device_clusters import API, GPU, Manifest, allocated, claim, devices_of, naming, slice_of
from support.draw_devices import read_claims, read_classes
from support.model import GI, amounts, node, snapshot
from support.profiles import examples
from support.scenario_state import scenario_of

from flowcore.api import Interner, WirePodGroup, to_pod_group
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.model.device_gates import WORKLOAD_CLAIMS, DeviceGates
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.resource_claims import (
    MAX_CONSUMERS,
    ClaimingGroup,
    ClaimingPod,
    DeviceTaker,
    GroupConsumer,
    PodClaim,
    ResourceClaim,
)
from flowcore.planning.round import run_round
from flowcore.rules.devices.pod_claims import REASON_IN_USE, ClaimRejection, asking_anew, claims_of
from flowcore.rules.filters import dynamic_resources

CLASSES = read_classes([GPU])
KEY = GangKey(GangSource.NATIVE, "default", "train")
SHARED, OWN = PodClaim("gpu", template="t"), PodClaim("mine", template="t")
GROUP = ClaimingGroup("train", "group", (SHARED,))
ALPHA = "scheduling.k8s.io/v1alpha2"


def member(name: str, group: ClaimingGroup | None = GROUP, made: str = "train-gpu") -> ClaimingPod:
    """A pod that names a claim as its group does."""
    return ClaimingPod("default", name, name, (SHARED,), (("gpu", made),), group=group)


def of_group(name: str = "train-gpu", owner: str = "train", version: str = ALPHA, **fields: Any) -> ResourceClaim:
    """A claim that the controller made for a PodGroup."""
    (read,) = read_claims([made_for(name, owner, version)])
    return msgspec.structs.replace(read, **fields)


def made_for(name: str, owner: str = "train", version: str = ALPHA) -> Manifest:
    manifest = claim(name)
    controls = {"apiVersion": version, "kind": "PodGroup", "name": owner, "uid": "group", "controller": True}
    manifest["metadata"]["ownerReferences"] = [controls]
    return manifest


def judged(pod: ClaimingPod, *claims: ResourceClaim) -> tuple[ResourceClaim, ...] | ClaimRejection:
    return claims_of(pod, {(each.namespace, each.name): each for each in claims}, CLASSES)


NOT_ITS = "ResourceClaim default/train-gpu was not created for Pod default/p"


@pytest.mark.parametrize(
    ("group", "known", "problem"),
    [
        (GROUP, of_group(), ""),
        (GROUP, of_group(version="scheduling.k8s.io/v1beta1"), ""),
        (ClaimingGroup("train"), of_group(), ""),
        (GROUP, of_group(controller="p", controller_group=""), ""),
        (GROUP, of_group(owner="other"), "neither Pod nor PodGroup train is the owner"),
        (GROUP, of_group(version="scheduling.volcano.sh/v1beta1"), "neither Pod nor PodGroup train is the owner"),
        (None, of_group(), "Pod is not owner"),
    ],
)
def test_whose_a_claim_is(group: ClaimingGroup | None, known: ResourceClaim, problem: str) -> None:
    """IsForPod: the pod's, or that of its PodGroup by name, of whichever version; the group's only with the gate."""
    found = judged(member("p", group), known)
    assert found == (ClaimRejection(f"{NOT_ITS} ({problem})") if problem else (known,))


@pytest.mark.parametrize(
    ("named", "shared", "is_shared"),
    [
        (PodClaim("gpu", template="t"), PodClaim("gpu", template="t"), True),
        (PodClaim("gpu", claim="c"), PodClaim("gpu", claim="c"), True),
        (PodClaim("gpu", claim="c"), PodClaim("gpu", claim="d"), False),
        (PodClaim("gpu", template="t"), PodClaim("gpu", template="s"), False),
        (PodClaim("gpu", template="t"), PodClaim("other", template="t"), False),
    ],
)
def test_who_reserves_a_claim(named: PodClaim, shared: PodClaim, *, is_shared: bool) -> None:
    """BindTo: the group if it names the claim as the pod does, in all fields; else the pod."""
    group = ClaimingGroup("train", "group", (shared,))
    pod = ClaimingPod("default", "p", "p", (named,), (("gpu", "c"),), group=group)
    assert pod.group_of("c") == (GroupConsumer("train", "group") if is_shared else None)
    assert pod.consumer("c") == ("group" if is_shared else "p")
    assert pod.consumer("another") == "p"


def test_a_claim_with_all_its_consumers() -> None:
    """A group that is one of them has room for any number of pods; one that is not waits, as a pod does."""
    has = read_claims([allocated(made_for("train-gpu"), "n0", "gpu-0")])[0]
    others = tuple(f"c{number}" for number in range(MAX_CONSUMERS - 1))
    with_group = msgspec.structs.replace(has, reserved_for=(*others, "group"))
    without = msgspec.structs.replace(has, reserved_for=(*others, "another"))
    assert judged(member("p"), with_group) == (with_group,)
    assert judged(member("p"), without) == ClaimRejection(REASON_IN_USE)


def test_a_group_is_one_consumer_of_planned_pods() -> None:
    """However many of its pods are planned. A pod by itself is one more, and then nobody else may have the claim."""
    shared = claim("c")
    shared = allocated(shared, "n0", "gpu-0")
    shared["status"]["reservedFor"] = [{"uid": f"c{number}"} for number in range(MAX_CONSUMERS - 2)]
    group = ClaimingGroup("train", "group", (PodClaim("gpu", claim="c"),))
    pods = [msgspec.structs.replace(naming(f"p{number}", "c"), group=group) for number in range(5)]
    known = replace(snapshot([node("n0")], []), devices=devices_of([slice_of("n0", 1)], [shared]))

    def beside(*planned: ClaimingPod) -> Any:
        return dynamic_resources.claimable_devices(
            replace(known, takers=tuple(DeviceTaker(each, "n0") for each in planned))
        )

    devices = beside(*pods)
    assert devices.planned_claims(pods[0])[0].group == GroupConsumer("train", "group")
    assert not isinstance(devices.claims_of(naming("alone", "c")), ClaimRejection)
    full = beside(*pods, naming("alone", "c"))
    assert full.claims_of(naming("late", "c")) == ClaimRejection(REASON_IN_USE)
    more = msgspec.structs.replace(naming("p9", "c"), group=group)
    assert not isinstance(full.claims_of(more), ClaimRejection)
    for each in (*pods, naming("alone", "c")):
        full = full.copy()
        full.release(each)
    assert not full.has_planned_claim(more)


def test_what_goes_with_a_pod() -> None:
    """A replacement asks for claims of its own; what its group has stays with the group."""
    pod = msgspec.structs.replace(member("p"), claims=(SHARED, OWN), made=(("gpu", "train-gpu"), ("mine", "p-mine")))
    own = read_claims([claim("p-mine", owner="p")])[0]
    claims = {(each.namespace, each.name): each for each in (of_group(), own)}
    anew = asking_anew(pod, claims)
    assert anew is not None
    assert [request.name for request in anew.extended] == ["mine/r"]
    assert asking_anew(member("p"), claims) is None


# --- the cluster ---


def read_group(**spec: Any) -> PodGroup:
    raw = {"metadata": {"name": "train", "namespace": "default", "uid": "group"}, "spec": spec}
    return to_pod_group(msgspec.convert(raw, WirePodGroup), GangSource.NATIVE, Interner())


def test_what_is_read_of_a_group() -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "net", "resourceClaimName": "c"}]
    assert read_group(resourceClaims=claims).claims == (SHARED, PodClaim("net", claim="c"))
    assert read_group().claims == ()


def waiting_pod(name: str, node_name: str = "") -> Pod:
    devices = member(name, None)
    return Pod("default", name, name, PodClass(devices=devices), gang=GangRef(KEY), node_name=node_name)


EVENTS = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from("ab"), st.sampled_from(["", "n"])),
    st.tuples(st.just("group"), st.sampled_from([(), (SHARED,)]), st.sampled_from(["group", "again"])),
    st.tuples(st.just("gone"), st.just(""), st.just("")),
)


@settings(max_examples=examples(100))
@given(st.lists(EVENTS, max_size=15), st.booleans())
def test_in_any_order(history: list[Any], is_on: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    """Pods and their group come, change and go: the claims of each pod know the group as it is; none with the gate off.

    A change says that pods wait otherwise.
    """
    cluster, known = Cluster(), ClaimingGroup("train")
    cluster.device_gates = DeviceGates(frozenset() if is_on else frozenset({WORKLOAD_CLAIMS}))
    for kind, what, which in history:
        before = {key: pod.pod_class for key, pod in cluster.pods.items()}
        changed = False
        if kind == "pod":
            cluster.put_pod(waiting_pod(what, which))
        elif kind == "group":
            known = ClaimingGroup("train", which, what)
            changed = cluster.put_pod_group(PodGroup(KEY, GangSpec(min_member=1), uid=which, claims=what))
        else:
            known = ClaimingGroup("train")
            changed = cluster.remove_pod_group(KEY)
        expected = known if is_on else None
        for key, pod in cluster.pods.items():
            assert pod.pod_class.devices is not None
            assert pod.pod_class.devices.group == expected
            waiting = cluster.waiting.get(key)
            assert waiting is None or waiting.pod_class.devices == pod.pod_class.devices
        after = {key: pod.pod_class for key, pod in cluster.pods.items()}
        assert kind == "pod" or changed or before == after


# --- rounds ---


def in_gang(pod: ClaimingPod, gang: str = "PodGroup default/train", **fields: Any) -> PendingPod:
    pod_class = PodClass(requests=amounts(1000), devices=pod)
    gangs = (gang,) if gang else ()
    return PendingPod(pod.key, pod.uid, pod_class, BUILT_IN.name, 0.0, PodSignature("default"), gangs, **fields)


def labelled(name: str, cpu: int) -> Node:
    return node(name, cpu, 512 * GI, labels=((HOSTNAME, name),))


#: Two pods go to an empty node first: the large one is nearly full, and has room for four of them.
SMALL, LARGE = [labelled(f"small-{number}", 2000) for number in range(3)], labelled("large", 64_000)
BUSY = [("large", amounts(60_000), ())]


def crowd(count: int, *, nodes: list[Node], slices: list[Manifest], least: int = 0) -> Snapshot:
    """A gang whose pods share a claim for one device."""
    pods = [in_gang(member(f"p{number}")) for number in range(count)]
    known = snapshot(nodes, pods, [each for each in BUSY if any(node.name == each[0] for node in nodes)])
    gang = Gang("PodGroup default/train", least or count)
    return replace(known, devices=devices_of(slices, [made_for("train-gpu")]), gangs={gang.name: gang})


def test_a_gang_goes_to_a_node_with_room_for_all() -> None:
    """One allocation serves all of them, in one round, though the first pod alone would take another node."""
    nodes = [*SMALL, LARGE]
    slices = [slice_of(each.name, 1) for each in nodes]
    alone = run_round(crowd(1, nodes=nodes, slices=slices))
    assert [each.node.partition("-")[0] for each in alone.placements] == ["small"]
    result = run_round(crowd(4, nodes=nodes, slices=slices))
    assert [each.node for each in result.placements] == ["large"] * 4
    devices = dynamic_resources.claimable_devices(result.after)
    assert len(devices.allocations) == 1
    for each in result.placements:
        assert each.pod.pod_class.devices is not None
        (planned,) = devices.planned_claims(each.pod.pod_class.devices) or ()
        assert planned.group == GroupConsumer("train", "group")


def test_no_node_has_room_for_the_gang() -> None:
    """Nothing is placed, and the reason names the domain that it needs."""
    result = run_round(crowd(4, nodes=SMALL, slices=[slice_of(each.name, 1) for each in SMALL]))
    assert not result.placements
    assert {HOSTNAME in each.reason for each in result.unplaced} == {True}


def test_more_pods_than_the_gang_needs() -> None:
    """Those that it needs are placed where they have room together, the others wait beside them."""
    result = run_round(crowd(4, nodes=SMALL, slices=[slice_of("small-1", 1)], least=2))
    assert [each.node for each in result.placements] == ["small-1"] * 2
    assert len(result.unplaced) == 2


def test_a_pod_that_waits_by_itself() -> None:
    """The others of its claim do not wait for it: one of an annotation that cannot be read, or of a later slice."""
    known = crowd(4, nodes=[LARGE], slices=[slice_of("large", 1)], least=2)
    late = Gang("late", 2, unschedulable_reason="late is placed after the others")
    pending = [*known.pending[:2], *(msgspec.structs.replace(pod, gangs=(late.name,)) for pod in known.pending[2:])]
    result = run_round(replace(known, pending=tuple(pending), gangs=known.gangs | {late.name: late}))
    assert [each.pod.key for each in result.placements] == ["default/p0", "default/p1"]
    assert {each.reason for each in result.unplaced} == {"Late is placed after the others."}


def test_devices_that_all_nodes_reach() -> None:
    """The pods need not be on one node."""
    result = run_round(crowd(6, nodes=SMALL, slices=[slice_of("fabric", 1, allNodes=True)]))
    assert sorted(each.node for each in result.placements) == sorted(2 * [each.name for each in SMALL])


def test_pods_of_a_basic_group() -> None:
    """They are no gang, and go to one node all the same: as many as it has room for."""
    pods = [in_gang(member(f"p{number}"), "") for number in range(3)]
    devices = devices_of([slice_of(each.name, 1) for each in SMALL], [made_for("train-gpu")])
    result = run_round(replace(snapshot(SMALL, pods), devices=devices))
    assert len(result.placements) == 2
    assert len({each.node for each in result.placements}) == 1


def test_groups_that_name_the_same_claim() -> None:
    """They are no gang together: a node has room for one of them, and that one does not wait for the other."""
    named, pods = PodClaim("gpu", claim="c"), list[PendingPod]()
    for name in ("first", "second"):
        group = ClaimingGroup(name, name, (named,))
        for number in range(2):
            claiming = ClaimingPod("default", f"{name}-{number}", f"{name}-{number}", (named,), group=group)
            pods.append(in_gang(claiming, f"PodGroup default/{name}"))
    gangs = {pod.gangs[0]: Gang(pod.gangs[0], 2) for pod in pods}
    devices = devices_of([slice_of("small-1", 1)], [claim("c")])
    result = run_round(replace(snapshot(SMALL, pods), devices=devices, gangs=gangs))
    assert [each.node for each in result.placements] == ["small-1"] * 2
    assert len({each.pod.gangs[0] for each in result.placements}) == 1


def test_later_pods_follow_the_allocation() -> None:
    """The claim has its device: pods go where that is, and no domain is chosen."""
    nodes = [*SMALL, LARGE]
    known = crowd(2, nodes=nodes, slices=[slice_of(each.name, 1) for each in nodes])
    has = allocated(made_for("train-gpu"), "small-2", "gpu-0")
    has["status"]["reservedFor"] = [{"uid": "group"}]
    result = run_round(replace(known, devices=devices_of([slice_of(each.name, 1) for each in nodes], [has])))
    assert [each.node for each in result.placements] == ["small-2"] * 2


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 4), st.integers(0, 2))
def test_a_gang_is_placed_if_a_node_has_room(rooms: list[int], count: int, without: int) -> None:
    """With devices of their own nodes: exactly if one node with a device has room for all of them."""
    nodes = [labelled(f"n{number}", 1000 * room) for number, room in enumerate(rooms)]
    slices = [slice_of(each.name, int(number >= without)) for number, each in enumerate(nodes)]
    result = run_round(crowd(count, nodes=nodes, slices=slices))
    assert len(result.placements) == (count if max(rooms[without:], default=0) >= count else 0)
    assert len({each.node for each in result.placements}) <= 1


@pytest.mark.parametrize("racked", [True, False])
def test_pods_leave_a_node_with_devices(*, racked: bool) -> None:
    """Of many nodes where as many would leave it is the only one that has some."""
    names = [f"n{number}" for number in range(12)]
    room = (("cpu", 2), ("memory", 64), ("pods", 110))
    nodes = [Node(name, labels=((HOSTNAME, name), ("rack", "a")), allocatable=room) for name in names]
    gang = Gang("PodGroup default/train", 2, topology_key="rack" if racked else "")
    pending = [eviction_clusters.waiting(name, 1, priority=10, gangs=(gang.name,)) for name in ("p0", "p1")]
    claiming = [
        msgspec.structs.replace(pod, pod_class=msgspec.structs.replace(pod.pod_class, devices=member(pod.uid)))
        for pod in pending
    ]
    running = [eviction_clusters.running(f"on-{name}", name, 2) for name in names]
    full = eviction_clusters.snapshot(nodes, running, claiming, gangs=[gang])
    devices = devices_of([slice_of(name, int(name == "n11")) for name in names], [made_for("train-gpu")])
    result = run_round(replace(full, devices=devices))
    assert [each.node for each in result.placements] == ["n11", "n11"]
    assert [each.pod.key for each in result.evictions] == ["default/on-n11"]


# --- dumps ---


def test_manifests_of_a_group() -> None:
    """One claim is made of the template for all pods of the group, and one for a pod that names it otherwise."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}
    template = {**API, "kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "default"},
                "spec": {"spec": {"devices": {"requests": [request]}}}}  # fmt: skip
    named = {"name": "gpu", "resourceClaimTemplateName": "t"}
    group = {"apiVersion": ALPHA, "kind": "PodGroup", "metadata": {"name": "train", "namespace": "default"},
             "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [named]}}  # fmt: skip
    in_group = {"schedulingGroup": {"podGroupName": "train"}}
    pods = [manifest_pod(name, resourceClaims=[named], **in_group) for name in "ab"]
    pods.append(manifest_pod("c", resourceClaims=[named | {"name": "own"}], **in_group))
    objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0", "labels": {HOSTNAME: "n0"}},
         "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}},
        {**API, "kind": "DeviceClass", **GPU},
        {**API, "kind": "ResourceSlice", **slice_of("n0", 2)},
        template, group, *pods,
    ]  # fmt: skip
    made = scenario_of(objects).cluster.devices.claims
    assert sorted(name for _, name in made) == ["c-own", "train-gpu"]
    assert len(plan_of(*objects)["placements"]) == 3
