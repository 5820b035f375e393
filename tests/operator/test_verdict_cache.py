"""Verdicts that are remembered equal those that are not, whatever happens in between."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.draw import ASPECTS, SCORES, SOFT
from support.fake_cluster.driven_ledger import DrivenLedger
from support.histories import History, ReplicatedCluster, histories, send_changes
from support.model import node, snapshot
from support.profiles import examples
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.costs import MODELS, Load
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.devices import DeviceClass
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, MaxPerDomain, SpreadConstraint
from flowcore.model.nodes import Node, Taint
from flowcore.model.numa import NumaNeeds, NumaNode
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import HostPort, Pod, PodClass, Toleration
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resource_claims import ClaimingPod, ClaimRequest, DeviceRequest, PodClaim, ResourceClaim
from flowcore.model.resource_slices import Device, NodeReach, ResourceSlice
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.model.volumes import (
    ZONE,
    Attachment,
    Capacity,
    Claim,
    ClaimVolume,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageClass,
    VolumeAttachment,
)
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.filters import node_resources_fit, run_filters
from flowcore.rules.filters.registry import IN_ORDER, run_filter
from flowcore.rules.verdicts import VerdictCache
from flowcore.rules.verdicts.invalidation import INVALIDATES, NODE_FIELDS, NODE_STATE_EVENTS, Row


def verdicts(snapshot: Snapshot, world: ReplicatedCluster, cache: VerdictCache | None) -> list[Any]:
    """Filter and reason for each node, how many nodes each reason holds for, and how many pods fit, of every probe."""
    found: list[Any] = []
    for pod_class, kind in world.probes:
        each = run_filters(pod_class, snapshot, kind, run_filter if cache is None else cache.run_filter)
        if cache is None:
            counts = np.minimum(node_resources_fit.counts(pod_class, snapshot), 2**31 - 1)
            left = left_on(snapshot)
        else:
            counts = cache.counts(pod_class, snapshot)
            left = cache.values("test", "left", NODE_STATE_EVENTS, snapshot, left_on)
        nodes = range(len(snapshot.table.nodes))
        found.append(([each.of_node(at) for at in nodes], each.counts(), counts.tolist(), left.tolist()))
    return found


def left_on(snapshot: Snapshot, _at: Any = None) -> np.ndarray:
    """Something that follows for each node from all that is known of it."""
    told = [hash((node, free.tobytes())) for node, free in zip(snapshot.table.nodes, snapshot.free[:, :4], strict=True)]
    return np.array(told, dtype=np.int64)


def plan(result: RoundResult) -> tuple[Any, ...]:
    """All that a round says."""
    placements = [(each.pod.key, each.node, each.price) for each in result.placements]
    return placements, [(each.pod.key, each.reason, each.price) for each in result.unplaced], result.cost, result.method


def replica_with(rows: Iterable[Row]) -> Replica:
    """A replica whose cache goes by these rows alone."""
    replica = Replica()
    replica.cache = VerdictCache(rows)
    return replica


def compare(history: History, rows: Iterable[Row] = INVALIDATES, *, rounds: bool = True) -> None:
    """Fails where a replica that remembers says anything else than one that was just told everything."""
    world, replica = ReplicatedCluster(history), replica_with(rows)
    seen = replica_and_fresh(world, replica)
    for _ in world.steps():
        seen = replica_and_fresh(world, replica)
    if rounds:
        remembering, fresh = seen
        plans = run_round(remembering, cache=replica.cache, steps=6), run_round(fresh, steps=6)
        assert plan(plans[0]) == plan(plans[1])
        after = [run_round(each.after, steps=1).after for each in plans]
        assert verdicts(after[0], world, replica.cache) == verdicts(after[1], world, None)


def replica_and_fresh(world: ReplicatedCluster, replica: Replica) -> tuple[Snapshot, Snapshot]:
    """Compares the verdicts of the two."""
    remembering = world.send_changes(replica)
    fresh = world.send_changes(Replica(), everything=True)
    assert verdicts(remembering, world, replica.cache) == verdicts(fresh, world, None)
    return remembering, fresh


@given(histories(frozenset({*ASPECTS, *SCORES, SOFT})))
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_remembered_is_what_a_fresh_look_says(history: History) -> None:
    """After every step: every filter and reason, counts, and a whole round."""
    compare(history)


@pytest.mark.parametrize("aspect", sorted(ASPECTS))
@given(data=st.data())
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
def test_each_filter_alone(aspect: str, data: st.DataObject) -> None:
    """Histories in which one filter decides, so that none hides behind an earlier one."""
    compare(data.draw(histories(frozenset({aspect}))), rounds=False)


ZONED = {zone: node(f"{zone}1", labels=(("zone", zone),)) for zone in "abc"}
WEB = LabelSelector((Requirement("app", "In", ("web",)),))
NEAR = AffinityTerm("zone", WEB, ("default",))
TEAMS = LabelSelector((Requirement("team", "Exists", ()),))
TEAM = AffinityTerm("zone", WEB, (), TEAMS)
SPREAD = SpreadConstraint("zone", 1, WEB)
WEB_LABELS = (("app", "web"),)
PORT = HostPort("0.0.0.0", "TCP", 80)  # noqa: S104 - a value
TAINTED = (Taint("dedicated", "", "NoSchedule"),)


def spread(**fields: Any) -> PodSignature:
    """A web pod that spreads over zones."""
    return PodSignature(
        "default", WEB_LABELS, constraints=InterPodConstraints(spread=(msgspec.structs.replace(SPREAD, **fields),))
    )


def web(name: str, at: str, cpu: int = 1000, **fields: Any) -> Pod:
    """A web pod on a node."""
    pod_class = PodClass(requests=(("cpu", cpu),), host_ports=fields.pop("host_ports", ()))
    labels = fields.pop("labels", WEB_LABELS)
    return Pod("default", name, name, pod_class, labels=labels, node_name=at, usage=pod_class.requests, **fields)


def mounting(name: str, at: str, claim: str) -> Pod:
    """A pod on a node that has a claim mounted."""
    return Pod("default", name, name, PodClass(volumes=(ClaimVolume("default", claim),)), node_name=at)


def claim(name: str = "data", **fields: Any) -> Claim:
    """A claim; with a volume's name it is bound."""
    return Claim("default", name, size=10**9, bound="volume_name" in fields, **fields)


def volume(name: str = "v", zone: str = "", **fields: Any) -> PersistentVolume:
    """A PersistentVolume of a CSI driver, and where it can be reached."""
    reach = (NodeSelectorTerm((Requirement(ZONE, "In", (zone,)),)),) if zone else None
    return PersistentVolume(name, affinity=reach, attachment=Attachment("csi", name), size=10**10, **fields)


def late(**fields: Any) -> StorageClass:
    """A class whose claims wait for their first consumer."""
    return StorageClass("late", binding_mode="WaitForFirstConsumer", **fields)


#: Objects of a cluster at first; what comes (nodes, reports on zones, pods, a namespace and its labels, storage
#: objects) or goes (names); who is asked.
Scenario = tuple[list[Any], list[Any], tuple[PodClass, PodSignature]]
FIT, NEARBY = (
    PodClass(requests=(("cpu", 4000),)),
    PodSignature("default", (), constraints=InterPodConstraints(affinity=(NEAR,))),
)
IN_ONE_ZONE = PodClass(numa=NumaNeeds(pod=(("cpu", 1000),), everywhere=True))
ANY, PORTED = PodClass(), PodClass(host_ports=(PORT,))
IN_B, NAMED = PodClass(node_selector=(("zone", "b"),)), PodClass(node_name="a1")
CAPPED = PodSignature(
    "default", WEB_LABELS, constraints=InterPodConstraints(limits=(MaxPerDomain("c", "zone", (WEB,), None, 1),))
)
CAPPED_OF_TEAMS = PodSignature(
    "default", (), constraints=InterPodConstraints(limits=(MaxPerDomain("c", "zone", (WEB,), TEAMS, 0),))
)
A, B, C = ZONED.values()
DRAINED, FLEETING = (Taint("t", "", "NoExecute"),), PodClass(tolerations=(Toleration("t", "Exists", seconds=0),))
ZA, ZB = (node(f"{zone}1", labels=((ZONE, zone),)) for zone in "ab")
DATA, OTHER = ClaimVolume("default", "data"), ClaimVolume("default", "other")
USER, USER_OF_BOTH = (PodClass(volumes=(DATA,)), PodSignature()), (PodClass(volumes=(DATA, OTHER)), PodSignature())
ALONE, ON_V = claim(access_modes=("ReadWriteOncePod",)), claim(volume_name="v")
ONE_MORE, NO_MORE = CsiNode("a1", (("csi", 1),)), CsiNode("a1", (("csi", 0),))
#: A device of the node a1, and what claims it.
GPU = DeviceClass("gpu")
DEVICES = ResourceSlice("s", "driver", "pool", 1, 1, NodeReach("a1"), devices=(Device("gpu-0"),))
IN_ZONE_B = (NodeSelectorTerm((Requirement("zone", "In", ("b",)),)),)
ONE, TWO = (ClaimRequest("r", DeviceRequest("r", "gpu", count=count)) for count in (1, 2))
WANTED = ResourceClaim("default", "gpu", requests=(ONE,))


def claiming(claim: str) -> ClaimingPod:
    """A pod that names a claim."""
    return ClaimingPod("default", f"of-{claim}", f"of-{claim}", (PodClaim("mine", claim=claim),))


CLAIMING = PodClass(devices=claiming("gpu")), PodSignature()
#: A pod that has an extended resource by devices, and the node once it offers the resource itself.
BY_DEVICES = ClaimingPod("default", "p", "p").with_extended_claim((msgspec.structs.replace(ONE, resource="x/gpu"),))
OFFERING = msgspec.structs.replace(A, allocatable=(*A.allocatable, ("x/gpu", 1)))
#: For each row of the table a change after which its filter says something else.
SCENARIOS: dict[tuple[str, str], Scenario] = {
    ("POD_ADDED", "NodeResourcesFit"): ([A], [web("w", "a1")], (FIT, PodSignature())),
    ("POD_ADDED", "NodePorts"): ([A], [web("w", "a1", host_ports=(PORT,))], (PORTED, PodSignature())),
    ("POD_ADDED", "PodTopologySpread"): ([A, B], [web("w", "a1")], (ANY, spread())),
    ("POD_ADDED", "InterPodAffinity"): ([A, B], [web("w", "a1")], (ANY, NEARBY)),
    ("POD_DELETED", "NodeResourcesFit"): ([A, web("w", "a1")], ["default/w"], (FIT, PodSignature())),
    ("POD_DELETED", "NodePorts"): ([A, web("w", "a1", host_ports=(PORT,))], ["default/w"], (PORTED, PodSignature())),
    ("POD_DELETED", "PodTopologySpread"): (
        [A, B, web("v", "a1"), web("w", "b1")], ["default/w"], (ANY, spread()),
    ),
    ("POD_DELETED", "InterPodAffinity"): ([A, B, web("w", "a1")], ["default/w"], (ANY, NEARBY)),
    ("POD_RESIZED", "NodeResourcesFit"): (
        [A, web("w", "a1", 0)], [web("w", "a1", 1000)], (FIT, PodSignature()),
    ),
    ("POD_RESIZED", "NodePorts"): (
        [A, web("w", "a1")], ["default/w", web("v", "a1", host_ports=(PORT,))], (PORTED, PodSignature()),
    ),
    ("NODE_ADDED", "NodeUnreadable"): ([A], [node("b1", problem="no cpu")], (ANY, PodSignature())),
    ("NODE_ADDED", "NodeUnschedulable"): ([A], [node("b1", unschedulable=True)], (ANY, PodSignature())),
    ("NODE_ADDED", "NodeName"): ([A], [B], (NAMED, PodSignature())),
    ("NODE_ADDED", "TaintToleration"): ([A], [node("b1", taints=TAINTED)], (ANY, PodSignature())),
    ("NODE_ADDED", "TaintEviction"): ([A], [node("b1", taints=DRAINED)], (FLEETING, PodSignature())),
    ("NODE_ADDED", "NodeAffinity"): ([B], [A], (IN_B, PodSignature())),
    ("NODE_ADDED", "NodePorts"): ([A, web("w", "b1", host_ports=(PORT,))], [B], (PORTED, PodSignature())),
    ("NODE_ADDED", "NodeResourcesFit"): ([A], [node("b1", 1000)], (FIT, PodSignature())),
    ("NODE_ADDED", "PodTopologySpread"): ([A, web("w", "a1")], [B], (ANY, spread())),
    ("NODE_ADDED", "InterPodAffinity"): ([A, web("w", "a1")], [B], (ANY, NEARBY)),
    ("NODE_DELETED", "PodTopologySpread"): ([A, B, web("w", "a1")], ["b1"], (ANY, spread())),
    ("NODE_DELETED", "InterPodAffinity"): (
        [A, node("a2", labels=A.labels), web("w", "a1")], ["a1"], (ANY, NEARBY),
    ),
    ("NODE_LABELS", "NodeAffinity"): ([A, B], [node("b1")], (IN_B, PodSignature())),
    ("NODE_LABELS", "PodTopologySpread"): ([A, B, web("w", "a1")], [node("b1")], (ANY, spread())),
    ("NODE_LABELS", "InterPodAffinity"): ([A, B, web("w", "a1")], [node("b1", labels=A.labels)], (ANY, NEARBY)),
    ("NODE_TAINTS", "TaintToleration"): ([A], [node("a1", labels=A.labels, taints=TAINTED)], (ANY, PodSignature())),
    ("NODE_TAINTS", "TaintEviction"): ([A], [node("a1", labels=A.labels, taints=DRAINED)], (FLEETING, PodSignature())),
    ("NODE_TAINTS", "PodTopologySpread"): (
        [A, B, C, web("w", "a1")],
        [node("b1", labels=B.labels, taints=TAINTED), node("c1", labels=C.labels, taints=TAINTED)],
        (ANY, spread(honors_taints=True)),
    ),
    ("NODE_UNSCHEDULABLE", "NodeUnschedulable"): ([A], [node("a1", unschedulable=True)], (ANY, PodSignature())),
    ("NODE_ALLOCATABLE", "NodeUnreadable"): ([A], [node("a1", problem="no cpu")], (ANY, PodSignature())),
    ("NODE_ALLOCATABLE", "NodeResourcesFit"): ([A], [node("a1", 1000)], (FIT, PodSignature())),
    ("NODE_ADDED", "NodeDeclaredFeatures"): (
        [node("a1", features=("x",))], [B], (PodClass(features=("x",)), PodSignature()),
    ),
    ("NODE_FEATURES", "NodeDeclaredFeatures"): (
        [A], [node("a1", labels=A.labels, features=("x",))], (PodClass(features=("x",)), PodSignature()),
    ),
    ("NODE_ADDED", "NodeResourceTopologyMatch"): ([A, NumaNode("a1")], [B], (IN_ONE_ZONE, PodSignature())),
    ("NUMA_ZONES", "NodeResourceTopologyMatch"): (
        [A], [NumaNode("a1", ((("cpu", 1000),),))], (IN_ONE_ZONE, PodSignature()),
    ),
    ("NODE_ADDED", "DynamicResources"): ([A, GPU, WANTED], [B], CLAIMING),
    ("NODE_LABELS", "DynamicResources"): (
        [A, B, GPU, WANTED, msgspec.structs.replace(DEVICES, reach=NodeReach(terms=IN_ZONE_B))],
        [node("b1")],
        CLAIMING,
    ),
    ("NODE_ALLOCATABLE", "DynamicResources"): (
        [A, GPU], [OFFERING], (PodClass((("x/gpu", 1),), devices=BY_DEVICES), PodSignature()),
    ),
    ("RESOURCE_SLICE", "DynamicResources"): ([A, GPU, WANTED], [DEVICES], CLAIMING),
    ("RESOURCE_CLAIM", "DynamicResources"): (
        [A, GPU, DEVICES, WANTED], [msgspec.structs.replace(WANTED, requests=(TWO,))], CLAIMING,
    ),
    ("DEVICE_CLASS", "DynamicResources"): (
        [A, GPU, DEVICES, WANTED], [DeviceClass("gpu", selectors=("false",))], CLAIMING,
    ),
    ("DEVICE_TAKERS", "DynamicResources"): (
        [A, GPU, DEVICES, WANTED, msgspec.structs.replace(WANTED, name="other")],
        [(Pod("default", "q", "q", PodClass(devices=claiming("other"))), "a1")],
        CLAIMING,
    ),
    ("NAMESPACE_LABELS", "InterPodAffinity"): (
        [A, B, ("default", ()), web("w", "a1")],
        [("default", (("team", "one"),))],
        (ANY, PodSignature("default", (), constraints=InterPodConstraints(affinity=(TEAM,)))),
    ),
    ("POD_ADDED", "PolicyConstraints"): ([A, B], [web("w", "a1")], (ANY, CAPPED)),
    ("POD_DELETED", "PolicyConstraints"): ([A, B, web("w", "a1")], ["default/w"], (ANY, CAPPED)),
    ("NODE_ADDED", "PolicyConstraints"): ([A, web("w", "a1")], [node("a2", labels=A.labels)], (ANY, CAPPED)),
    ("NODE_DELETED", "PolicyConstraints"): (
        [A, node("a2", labels=A.labels), web("w", "a1")], ["a1"], (ANY, CAPPED),
    ),
    ("NODE_LABELS", "PolicyConstraints"): ([A, B, web("w", "a1")], [node("b1", labels=A.labels)], (ANY, CAPPED)),
    ("NAMESPACE_LABELS", "PolicyConstraints"): (
        [A, ("default", ()), web("w", "a1")], [("default", (("team", "one"),))], (ANY, CAPPED_OF_TEAMS),
    ),
    ("NODE_ADDED", "VolumeRestrictions"): ([A, ALONE, mounting("w", "b1", "data")], [B], USER),
    ("NODE_ADDED", "NodeVolumeLimits"): ([ZA, ON_V, volume(), CsiNode("b1", (("csi", 0),))], [ZB], USER),
    ("NODE_ADDED", "VolumeBinding"): ([ZA, ON_V, volume(zone="a")], [ZB], USER),
    ("NODE_ADDED", "VolumeZone"): ([ZA, ON_V, volume(labels=ZA.labels)], [ZB], USER),
    ("NODE_DELETED", "VolumeRestrictions"): ([A, B, ALONE, mounting("w", "b1", "data")], ["b1"], USER),
    ("NODE_LABELS", "VolumeBinding"): ([ZA, ZB, ON_V, volume(zone="a")], [node("b1", labels=ZA.labels)], USER),
    ("NODE_LABELS", "VolumeZone"): ([ZA, ZB, ON_V, volume(labels=ZA.labels)], [node("b1", labels=ZA.labels)], USER),
    ("POD_VOLUMES", "VolumeRestrictions"): ([A, ALONE], [mounting("w", "a1", "data")], USER),
    ("POD_VOLUMES", "NodeVolumeLimits"): (
        [A, ONE_MORE, ON_V, volume(), claim("other", volume_name="w"), volume("w")],
        [mounting("w", "a1", "other")],
        USER,
    ),
    ("PERSISTENT_VOLUME", "NodeVolumeLimits"): ([A, NO_MORE, ON_V], [volume()], USER),
    ("PERSISTENT_VOLUME", "VolumeBinding"): (
        [A, late(), claim(storage_class="late")], [volume(storage_class="late", available=True)], USER,
    ),
    ("PERSISTENT_VOLUME", "VolumeZone"): ([ZA, ON_V, volume(labels=ZA.labels)], [volume(labels=ZB.labels)], USER),
    ("CLAIM", "VolumeRestrictions"): ([A, claim(), mounting("w", "a1", "data")], [ALONE], USER),
    ("CLAIM", "NodeVolumeLimits"): ([A, NO_MORE, claim(), volume()], [ON_V], USER),
    ("CLAIM", "VolumeBinding"): ([ZA, late(), claim(storage_class="late"), volume(zone="a")], [ON_V], USER),
    ("CLAIM", "VolumeZone"): (
        [ZA, ON_V, volume(labels=ZA.labels), volume("w", labels=ZB.labels)], [claim(volume_name="w")], USER,
    ),
    ("STORAGE_CLASS", "NodeVolumeLimits"): (
        [A, NO_MORE, late(), claim(storage_class="late")], [late(provisioner="csi")], USER,
    ),
    ("STORAGE_CLASS", "VolumeBinding"): ([A, late(), claim(storage_class="late")], [late(provisioner="csi")], USER),
    ("STORAGE_CLASS", "VolumeZone"): (
        [ZA, ON_V, volume(labels=ZB.labels), claim("other", storage_class="late")], [late()], USER_OF_BOTH,
    ),
    ("CSI_NODE", "NodeVolumeLimits"): ([A, ONE_MORE, ON_V, volume()], [NO_MORE], USER),
    ("CSI_NODE", "VolumeBinding"): (
        [ZA, ON_V, volume(plugin="in-tree", zone="b")], [CsiNode("a1", migrated=("in-tree",))], USER,
    ),
    ("CSI_DRIVER", "NodeVolumeLimits"): ([A, ON_V, volume()], [CsiDriver("csi", is_needed=True)], USER),
    ("CSI_DRIVER", "VolumeBinding"): (
        [A, late(provisioner="csi"), claim(storage_class="late")], [CsiDriver("csi", tracks_capacity=True)], USER,
    ),
    ("VOLUME_ATTACHMENT", "NodeVolumeLimits"): (
        [A, ONE_MORE, ON_V, volume(), volume("w")], [VolumeAttachment("x", "csi", "a1", "w")], USER,
    ),
    ("STORAGE_CAPACITY", "VolumeBinding"): (
        [A, late(provisioner="csi"), claim(storage_class="late"), CsiDriver("csi", tracks_capacity=True)],
        [Capacity(("default", "x"), "late", 10**10, LabelSelector(()))],
        USER,
    ),
}  # fmt: skip


def changed(state: DrivenLedger, things: list[Any]) -> None:
    """Lets things come or go."""
    for thing in things:
        match thing:
            case Node():
                state.upsert_node(thing)
            case Pod():
                state.upsert_pod(thing)
            case NumaNode():
                state.set_numa_node(thing.name, thing)
            case DeviceClass():
                state.set_device_class(thing.name, thing)
            case ResourceSlice():
                state.set_resource_slice(thing)
            case ResourceClaim():
                state.set_resource_claim(thing)
            case (Pod() as waiting, str() as place):
                state.upsert_pod(waiting)
                assert state.reserve(waiting, place)
            case (name, labels):
                state.set_namespace(name, labels)
            case str() if "/" in thing:
                state.delete_pod(thing)
            case str():
                state.delete_node(thing)
            case _:
                state.upsert_storage(thing)


def answers(scenario: Scenario, rows: Iterable[Row], which: str) -> tuple[list[Any], list[Any], list[Any]]:
    """What a filter says before the change, after it, and if nothing were remembered."""
    first, then, (pod_class, kind) = scenario
    state, replica = DrivenLedger(), replica_with(rows)
    filters = [each for each in IN_ORDER if each.name == which]

    def asked(snapshot: Snapshot, cache: VerdictCache) -> list[Any]:
        found = [cache.run_filter(each, pod_class, kind, snapshot) for each in filters]
        names = [each.name for each in snapshot.table.nodes]
        return [[(r.reason, [n for n, no in zip(names, r.nodes, strict=True) if no]) for r in each] for each in found]

    changed(state, first)
    before = asked(send_changes(state, replica, [pod_class]), replica.cache)
    changed(state, then)
    after = asked(send_changes(state, replica, [pod_class]), replica.cache)
    state.mark_all_dirty()
    return before, after, asked(send_changes(state, Replica(), [pod_class]), VerdictCache())


def named(row: Row) -> str:
    return f"{row.event.name}-{row.filter}"


@pytest.mark.parametrize("row", INVALIDATES, ids=named)
def test_every_row_of_the_table_is_needed(row: Row) -> None:
    """With it the filter says after the change what is so; without it, what was."""
    scenario = SCENARIOS[row.event.name, row.filter]
    before, after, fresh = answers(scenario, INVALIDATES, row.filter)
    assert after == fresh != before
    _, after, _ = answers(scenario, [each for each in INVALIDATES if each != row], row.filter)
    assert after != fresh


@pytest.mark.parametrize("model", sorted(MODELS))
def test_costs_are_those_of_a_fresh_look_under_every_model(model: str) -> None:
    """Though pods came to one of many nodes only, and whatever a model compares."""
    nodes = [node(f"n{at}", 8000 + 1000 * at) for at in range(8)]
    state, replica = DrivenLedger(), Replica()
    policies = {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(model))}
    changed(state, [*nodes, *(web(f"w{at}", f"n{at}", 1000 + 500 * at) for at in range(4))])
    waiting = (PendingPod("default/p", "p", PodClass(requests=(("cpu", 1000),)), BUILT_IN.name),)

    def priced(snapshot: Snapshot, cache: VerdictCache | None) -> list[list[int]]:
        asked = dataclasses.replace(snapshot, pending=waiting)
        (demand,) = demands_of(asked, Load.of(asked), policies, cache=cache)
        return [demand.arc.tolist(), demand.first_increase.tolist()]

    before = priced(send_changes(state, replica, []), replica.cache)
    changed(state, [web("new", "n6", 9000)])
    after = priced(send_changes(state, replica, []), replica.cache)
    state.mark_all_dirty()
    assert after == priced(send_changes(state, Replica(), []), None) != before


def test_the_table_says_each_thing_once() -> None:
    """One row for an event and a filter, every field of a node is some event, and every filter is in the table."""
    keys = [(row.event, row.filter) for row in INVALIDATES]
    assert len(keys) == len(set(keys))
    assert {each.name for each in IN_ORDER} == {row.filter for row in INVALIDATES}
    assert set(Node.__struct_fields__) - {"name", "uid"} == set(NODE_FIELDS)


def test_the_documents_have_the_table() -> None:
    """docs/reference/cached-verdicts.md lists every row in the words of the code."""
    text = (Path(__file__).parents[2] / "docs/reference/cached-verdicts.md").read_text()
    for row in INVALIDATES:
        assert f"| {row.event.value} | {row.filter} | {row.scope.value} | {row.reason} |" in text


def touched(changes: list[Any], pod_class: PodClass, kind: PodSignature) -> dict[str, int]:
    """How many rows each filter computes anew after these changes to a cluster of three zones with a web pod in one."""
    state, replica = DrivenLedger(), Replica()
    changed(state, [*ZONED.values(), ("default", ()), web("w", "a1")])
    seen = send_changes(state, replica, [pod_class])
    run_filters(pod_class, seen, kind, replica.cache.run_filter)
    replica.cache.take_stats()
    changed(state, changes)
    seen = send_changes(state, replica, [pod_class])
    run_filters(pod_class, seen, kind, replica.cache.run_filter)
    return {name: tally.rows for name, tally in replica.cache.take_stats().items() if tally.rows}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([A], {}),  # a heartbeat
        ([web("v", "b1")], {"NodeResourcesFit": 1, "PodTopologySpread": 3, "InterPodAffinity": 3}),
        ([web("v", "b1", labels=(("app", "db"),))], {"NodeResourcesFit": 1}),  # no rule speaks of it
        ([web("w", "a1", labels=(("app", "web"), ("pod", "w")))], {"PodTopologySpread": 3, "InterPodAffinity": 3}),
        ([web("w", "a1", 2000)], {"NodeResourcesFit": 1}),  # resized in place
        ([msgspec.structs.replace(A, taints=TAINTED)], {"TaintToleration": 1}),
        ([msgspec.structs.replace(A, unschedulable=True)], {"NodeUnschedulable": 1}),
        ([msgspec.structs.replace(A, labels=(*A.labels, ("disk", "ssd")))], {}),  # nobody reads that label
        ([("default", (("team", "one"),))], {}),  # no rule selects namespaces
        ([("other", ())], {}),
    ],
)
def test_an_event_touches_what_it_must_and_no_more(changes: list[Any], expected: dict[str, int]) -> None:
    """Of a web pod that wants web pods near and spreads over zones."""
    rules = InterPodConstraints(affinity=(NEAR,), spread=(SPREAD,))
    assert touched(changes, PodClass(), PodSignature("default", WEB_LABELS, constraints=rules)) == expected


def test_a_node_that_comes_or_goes_leaves_the_others_alone() -> None:
    """Their verdicts are carried over, wherever they are in the table now."""
    state, replica = DrivenLedger(), Replica()
    changed(state, [node(f"n{at}", 1000 * (at + 1), labels=(("zone", "ab"[at % 2]),)) for at in range(10)])
    pod_class = PodClass(requests=(("cpu", 4000),), node_selector=(("zone", "b"),))

    def asked() -> tuple[list[str], list[int], int]:
        seen = send_changes(state, replica, [pod_class])
        fits = run_filters(pod_class, seen, PodSignature(), replica.cache.run_filter).fits
        counts = replica.cache.counts(pod_class, seen).tolist()
        rows = sum(tally.rows for tally in replica.cache.take_stats().values())
        return [each.name for each, good in zip(seen.table.nodes, fits, strict=True) if good], counts, rows

    assert asked()[:2] == (["n3", "n5", "n7", "n9"], [0, 0, 0, 1, 1, 1, 1, 2, 2, 2])
    changed(state, ["n0", "n5", node("m", 8000, labels=(("zone", "b"),))])
    names, counts, rows = asked()
    assert (names, counts) == (["m", "n3", "n7", "n9"], [2, 0, 0, 1, 1, 1, 2, 2, 2])
    assert rows == len(("unreadable", "cordon", "taints", "labels", "amounts", "counts")), (
        "one of each, of the new node"
    )


def test_no_more_is_kept_than_allowed() -> None:
    """Columns that nobody asked for during a generation go, those that are asked for stay."""
    state = snapshot([A, B], [])
    cache = VerdictCache(max_bytes=20_000)
    cache.change_nodes(NodeTable.of(()), state.table, ())
    cache.follow(state)
    for cpu in range(1, 100):
        cache.counts(PodClass(requests=(("cpu", 1),)), state)
        cache.counts(PodClass(requests=(("cpu", cpu),)), state)
    assert cache.nbytes <= 2 * 21_000
    tally = cache.take_stats()["NodeResourcesFit"]
    assert (tally.misses, tally.hits) == (99, 99)
