"""CompositePodGroups: their groups are placed together or not at all. What is wrong with one concerns its own pods."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import node, plan_of, pod
from support.profiles import examples

from flowcore.api.composite_groups import WireCompositeGroup, to_composite_group
from flowcore.cluster.cluster import Cluster
from flowcore.model.composite_groups import CompositeGroup, CompositeKey
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.pods import Pod, PodClass

API = "scheduling.k8s.io/v1alpha3"


def test_what_is_read() -> None:
    """Parent, policy, topology, disruption mode, priority and preemption policy."""
    raw: dict[str, Any] = {"metadata": {"name": "c", "namespace": "ml"}}
    assert to_composite_group(msgspec.convert(raw, WireCompositeGroup)) == CompositeGroup(CompositeKey("ml", "c"))
    raw["spec"] = {
        "parentCompositePodGroupName": "root",
        "schedulingPolicy": {"gang": {"minGroupCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "disruptionMode": {"all": {}},
        "priority": 7,
        "preemptionPolicy": "Never",
    }
    read = to_composite_group(msgspec.convert(raw, WireCompositeGroup))
    of = CompositeKey("ml", "c")
    assert read == CompositeGroup(of, "root", 2, "rack", evicted_whole=True, priority=7, preempts=False)
    raw["spec"] = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"single": {}}}
    read = to_composite_group(msgspec.convert(raw, WireCompositeGroup))
    assert read == CompositeGroup(of, min_groups=1)


def composite(name: str, least: int | None, parent: str = "", **spec: Any) -> dict[str, Any]:
    """A CompositePodGroup; least None: basic."""
    policy: dict[str, Any] = {"basic": {}} if least is None else {"gang": {"minGroupCount": least}}
    of = {"parentCompositePodGroupName": parent} if parent else {}
    meta = {"name": name, "namespace": "default"}
    spec = {"schedulingPolicy": policy, **of, **spec}
    return {"apiVersion": API, "kind": "CompositePodGroup", "metadata": meta, "spec": spec}


def group(name: str, count: int | None, parent: str = "", **spec: Any) -> list[dict[str, Any]]:
    """A PodGroup and its pods of one core each: as many as it needs; None: one, of a basic group."""
    policy: dict[str, Any] = {"basic": {}} if count is None else {"gang": {"minCount": count}}
    of = {"parentCompositePodGroupName": parent} if parent else {}
    meta = {"name": name, "namespace": "default"}
    made = {"apiVersion": API, "kind": "PodGroup", "metadata": meta, "spec": {"schedulingPolicy": policy, **of, **spec}}
    return [made, *(pod(f"{name}-{n}", "1", schedulingGroup={"podGroupName": name}) for n in range(count or 1))]


def placed(cores: int, *objects: dict[str, Any]) -> tuple[set[str], str]:
    """Names of the PodGroups with a placed pod on a node of so many cores, and all reasons of the others."""
    answer = plan_of(node("n", str(cores)), *objects)
    reasons = " ".join(each["reason"] for each in answer["pending"].values())
    return {key.partition("/")[2].rpartition("-")[0] for key in answer["placements"]}, reasons


@pytest.mark.parametrize(("cores", "groups"), [(4, {"a", "b"}), (3, set())])
def test_all_groups_or_none(cores: int, groups: set[str]) -> None:
    """Where one alone has room, too."""
    objects = [composite("c", 2), *group("a", 2, "c"), *group("b", 2, "c")]
    assert placed(cores, *objects)[0] == groups


def test_groups_of_a_basic_one_are_placed_by_themselves() -> None:
    """It keeps nothing together."""
    objects = [composite("c", None), *group("a", 2, "c"), *group("b", 2, "c")]
    assert len(placed(3, *objects)[0]) == 1


@pytest.mark.parametrize(("cores", "groups"), [(5, {"a", "b", "c"}), (4, set())])
def test_nested(cores: int, groups: set[str]) -> None:
    """All of what is below the root, of which a basic PodGroup needs one pod."""
    tree = [composite("root", 2), composite("left", 2, "root"), composite("right", 1, "root")]
    objects = [*tree, *group("a", 2, "left"), *group("b", None, "left"), *group("c", 2, "right")]
    assert placed(cores, *objects)[0] == groups


def test_a_gang_within_a_basic_one() -> None:
    """The gang keeps its own groups together, and nothing beside it."""
    tree = [composite("root", None), composite("left", 2, "root")]
    objects = [*tree, *group("a", 2, "left"), *group("b", 2, "left"), *group("c", 1, "root")]
    assert placed(4, *objects)[0] in ({"a", "b"}, {"c"})
    assert placed(3, *objects)[0] == {"c"}


CYCLE = [composite("x", 1, "y"), composite("y", 1, "x")]
CHAIN = [composite("x", 1, "b"), composite("b", 1, "c"), composite("c", 1, "d"), composite("d", 1)]


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param(CYCLE, "CompositePodGroup default/x is above itself", id="cycle"),
        pytest.param([composite("x", 1, "x")], "CompositePodGroup default/x is above itself", id="itself"),
        pytest.param([], "CompositePodGroup default/x does not exist, or cannot be read", id="missing"),
        pytest.param(
            [composite("x", 1, "gone")],
            "CompositePodGroup default/gone does not exist, or cannot be read",
            id="missing above",
        ),
        pytest.param([composite("x", 2)], "CompositePodGroup default/x: 1 of 2 groups exist", id="too few"),
        pytest.param(
            [composite("x", 2_000_000_000)], "CompositePodGroup default/x: 1 of 2000000000 groups exist", id="huge"
        ),
        pytest.param(CHAIN, "more than 3 CompositePodGroups are above it", id="too deep"),
        pytest.param(
            [composite("x", 1, "root"), composite("root", 2), composite("y", 2, "root"), *group("g", 1, "y")],
            "waits for its group: CompositePodGroup default/y: 1 of 2 groups exist",
            id="too few beside it",
        ),
        pytest.param(
            [composite("x", 2), *(each for n in range(64) for each in group(f"g{n}", 1, "x")[:1])],
            "CompositePodGroup default/x has more than 64 groups",
            id="too wide",
        ),
    ],
)
def test_what_is_wrong_concerns_its_own_pods(objects: list[dict[str, Any]], reason: str) -> None:
    """They say so, and nobody else waits."""
    groups, reasons = placed(9, *objects, *group("bad", 1, "x"), *group("good", 2), pod("alone-0"))
    assert groups == {"good", "alone"}
    assert f"PodGroup default/bad: {reason}" in reasons or f"PodGroup default/bad {reason}" in reasons


def test_a_group_without_pods_keeps_the_others_waiting() -> None:
    """As the number of groups that exist says that it is to come."""
    groups, reasons = placed(9, composite("c", 2), *group("a", 1, "c"), group("b", 1, "c")[0])
    assert groups == set()
    assert "PodGroup default/b of its group has no pods" in reasons


def test_the_priority_of_the_root_counts() -> None:
    """For all groups below it, over their own."""
    tree = [composite("root", None, priority=10), composite("left", 1, "root", priority=1)]
    objects = [*tree, *group("a", 2, "left", priority=1), *group("b", 2, priority=5)]
    assert placed(2, *objects)[0] == {"a"}


KEYS = st.sampled_from(["a", "b", "c"])
PARENTS = st.sampled_from(["", "x", "y", "z"])
EVENT = st.one_of(
    st.tuples(st.just("group"), KEYS, PARENTS, st.sampled_from([None, 3])),
    st.tuples(
        st.just("composite"), st.sampled_from("xyz"), PARENTS, st.sampled_from([1, 2, 3]), st.sampled_from([None, 9])
    ),
    st.tuples(st.just("pod"), KEYS, st.sampled_from("pq")),
    st.tuples(st.sampled_from(["no group", "no composite", "no pod"]), st.sampled_from("abcxyz")),
)


@pytest.mark.parametrize("topology", ["", "rack"])
def test_running_pods_have_the_priority_of_the_root(topology: str) -> None:
    """Also where others of its pods would not be planned."""
    cluster, key, root = Cluster(), GangKey(GangSource.NATIVE, "ml", "g"), CompositeKey("ml", "root")
    cluster.put_pod(Pod("ml", "p", "p", PodClass(), gang=GangRef(key), node_name="n"))
    cluster.put_pod_group(PodGroup(key, GangSpec(1, priority=0), parent="root"))
    cluster.set_composite_group(root, CompositeGroup(root, min_groups=1, topology_key=topology, priority=9))
    assert cluster.pods["ml/p"].pod_class.priority == 9


def apply(cluster: Cluster, event: tuple[Any, ...]) -> None:
    """Has one thing happen."""
    kind, name, *rest = event
    key, of = GangKey(GangSource.NATIVE, "ml", name), CompositeKey("ml", name)
    if kind == "group":
        cluster.put_pod_group(PodGroup(key, GangSpec(min_member=2, priority=rest[1]), parent=rest[0]))
    elif kind == "composite":
        cluster.set_composite_group(of, CompositeGroup(of, rest[0], rest[1], priority=rest[2]))
    elif kind == "pod":
        cluster.put_pod(Pod("ml", f"{name}-{rest[0]}", "u", PodClass(priority=1), gang=GangRef(key)))
    elif kind == "no group":
        cluster.remove_pod_group(key)
    elif kind == "no composite":
        cluster.set_composite_group(of, None)
    else:
        for pod_key in [each for each in cluster.pods if each.startswith(f"ml/{name}-")]:
            cluster.remove_pod(pod_key)


@settings(max_examples=examples(200))
@given(st.lists(EVENT, max_size=25))
def test_whatever_happens_it_is_as_if_all_had_come_at_once(history: list[tuple[Any, ...]]) -> None:
    """What groups need, whom they wait for, why not, and the priority of each pod."""
    cluster = Cluster()
    for event in history:
        apply(cluster, event)
        for name in "abc":  # whatever is kept between two changes must be found out to be stale
            cluster.gangs.state(GangKey(GangSource.NATIVE, "ml", name))
    fresh = Cluster()
    for of, each in cluster.gangs.composites.objects.items():
        fresh.set_composite_group(of, each)
    for each_group in cluster.gangs.groups.values():
        fresh.put_pod_group(each_group)
    for pod_key in cluster.pods:
        written = cluster.as_written(pod_key)
        assert written is not None
        fresh.put_pod(written)
    for name in "abc":
        key = GangKey(GangSource.NATIVE, "ml", name)
        now, then = cluster.gangs.state(key), fresh.gangs.state(key)
        assert (now.spec, now.unschedulable_reason) == (then.spec, then.unschedulable_reason)
    assert {key: each.pod_class.priority for key, each in cluster.pods.items()} == {
        key: each.pod_class.priority for key, each in fresh.pods.items()
    }
