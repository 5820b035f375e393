"""Rules that hold while pods run, and NoExecute taints, on the real control plane."""

from typing import Any

import msgspec
import pytest
from support.cli import plan_of
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import count

from flowcore.api import Interner, WirePod, to_pod
from flowcore.cluster.arrays.node_matching import seconds_before_eviction
from flowcore.model.nodes import Taint
from flowcore.model.policies import DURING_EXECUTION
from flowcore.rules.filters import taint_eviction, taint_toleration

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "kwok": True}
DRAIN = {"key": "drain", "effect": "NoExecute"}
#: By name of the pod: for how many seconds it tolerates the taint; None: for ever.
TOLERATED: dict[str, int | None] = {"no-time": 0, "five-minutes": 300, "for-ever": None}


def tolerates(seconds: int | None) -> dict[str, Any]:
    """Fields of a pod's spec."""
    toleration = {"key": "drain", "operator": "Exists", "effect": "NoExecute"}
    return {"tolerations": [toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}]}


def seconds_of(found: dict[str, Any], *taints: Taint) -> int | None:
    """How long a pod of the API server stays beside taints, as Thalweg reads it."""
    pod = to_pod(msgspec.convert(found, WirePod), Interner())
    return seconds_before_eviction(pod.pod_class.tolerations, taints)


async def replacement_of(scene: ClusterScenario, old: dict[str, Any]) -> str:
    """Node of the pod that the ReplicaSet made in place of another, once it has one."""
    node = ""

    async def bound() -> bool:
        nonlocal node
        others = [each for each in await scene.pods() if each["metadata"]["uid"] != old["metadata"]["uid"]]
        web = [each for each in others if each["metadata"].get("labels") == {"app": "web"}]
        node = next((each["spec"]["nodeName"] for each in web if each["spec"].get("nodeName")), "")
        return bool(node)

    await until(bound, 90, lambda: "the replacement to be bound")
    return node


async def test_a_pod_whose_node_lost_its_label_is_replaced(scene: ClusterScenario) -> None:
    """Not under Ignore, the default. Under Replace it is evicted once another node has room for its replacement."""
    await scene.policy("own", selects={"podSelector": {}})
    await scene.nodes("n0", labels={"zone": "a"})
    old = await scene.replica(nodeSelector={"zone": "a"})
    await scene.api.patch("/api/v1/nodes/n0", {"metadata": {"labels": {"zone": "b"}}})
    await scene.policy("own", selects={"podSelector": {}}, duringExecution={"rules": "Replace"})
    await scene.wait_for_round("later")
    assert not scene.history.deleted
    await scene.nodes("n1", labels={"zone": "a"})
    assert await replacement_of(scene, old) == "n1"


async def test_a_pod_leaves_a_node_with_a_taint_that_it_does_not_tolerate(scene: ClusterScenario) -> None:
    """Not because of a cordon, which is for new pods. Its node is as full as before, so nothing else moves it."""
    also = {"rules": "Replace", "also": ["Taints"]}
    await scene.policy("own", selects={"podSelector": {}}, duringExecution=also, rescheduling={"minAge": "0s"})
    await scene.nodes("n0")
    old = await scene.replica()
    await scene.nodes("n1")
    await scene.api.wait_for("/api/v1/nodes/n1", lambda each: not each["spec"].get("taints"))
    await scene.api.patch("/api/v1/nodes/n0", {"spec": {"unschedulable": True}})
    await scene.wait_for_round("later")
    assert not scene.history.deleted
    await scene.api.patch("/api/v1/nodes/n0", {"spec": {"unschedulable": False}})
    await scene.api.patch(
        "/api/v1/nodes/n0", {"spec": {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]}}
    )
    assert await replacement_of(scene, old) == "n1"


async def test_a_skew_that_arose_later_is_mended_by_one_pod(scene: ClusterScenario) -> None:
    """A new zone comes: one of two pods goes there, and no other follows. Without ``also`` both stay."""
    await scene.policy("own", selects={"podSelector": {}}, duringExecution={"rules": "Replace"})
    await scene.nodes("n0", labels={"zone": "a"})
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    await scene.replica(topologySpreadConstraints=[constraint])
    await scene.api.patch(f"/apis/apps/v1/namespaces/{scene.namespace}/replicasets/web", {"spec": {"replicas": 2}})

    async def nodes() -> list[str]:
        running = [each for each in await scene.pods() if each["status"].get("phase") == "Running"]
        return sorted(each["spec"]["nodeName"] for each in running if each["metadata"].get("labels") == {"app": "web"})

    async def on(*wanted: str) -> bool:
        return await nodes() == list(wanted)

    await until(lambda: on("n0", "n0"), 60, lambda: "both pods to run")
    await scene.nodes("n1", labels={"zone": "b"})
    await scene.wait_for_round("before")
    assert not scene.history.deleted
    also = {"rules": "Replace", "also": ["TopologySpread"]}
    await scene.policy("own", selects={"podSelector": {}}, duringExecution=also, rescheduling={"minAge": "0s"})
    await until(lambda: on("n0", "n1"), 90, lambda: "one pod in each zone")
    await scene.wait_for_round("after")
    assert await on("n0", "n1")
    assert len(scene.history.deleted) == 1


async def test_room_is_kept_for_the_replacement_before_a_taint_evicts(scene: ClusterScenario) -> None:
    """While the pod still runs nobody else gets that room; the controller evicts it, and its replacement comes."""
    await scene.policy("own", selects={"podSelector": {}}, duringExecution={"rules": "Replace"})
    await scene.nodes("n0", cpu="2")
    old = await scene.replica(**tolerates(15))
    await scene.nodes("n1", cpu="2")
    await scene.api.wait_for("/api/v1/nodes/n1", lambda each: not each["spec"].get("taints"))
    evicted = await count(scene.operator, "thalweg_evictions_total")
    await scene.api.patch("/api/v1/nodes/n0", {"spec": {"taints": [DRAIN]}})

    async def reserved() -> bool:
        return (await scene.operator.metrics())["thalweg_reservations"] == 1

    await until(reserved, 60, lambda: "room for the replacement")
    await scene.create("other", "2")
    assert await replacement_of(scene, old) == "n1"
    await scene.reason_of("other", "Insufficient cpu")
    assert await count(scene.operator, "thalweg_evictions_total") == evicted


async def test_no_pod_is_sent_where_it_would_be_evicted_at_once(scene: ClusterScenario) -> None:
    """The others go to the tainted node: they may stay for a while. The controller evicts none of those that came."""
    await scene.nodes("n0", taints=[DRAIN])
    for name, seconds in TOLERATED.items():
        await scene.create(name, "1", **tolerates(seconds))
    await scene.create("nothing", "1")
    await scene.reason_of("no-time", taint_eviction.REASON)
    await scene.reason_of("nothing", taint_toleration.REASON)
    assert await scene.nodes_of("five-minutes", "for-ever") == {"five-minutes": "n0", "for-ever": "n0"}
    await scene.nodes("n1")
    assert await scene.nodes_of("no-time", "nothing") == {"no-time": "n1", "nothing": "n1"}


async def test_who_leaves_when_a_taint_comes(scene: ClusterScenario) -> None:
    """The controller evicts those at once for which Thalweg reckons 0 seconds, and no others; ``plan`` plans ahead."""
    await scene.nodes("n0")
    await scene.create("default", "500m")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "some-uid", "controller": True}
    for name, seconds in TOLERATED.items():
        pod = scene.pod(name, "500m", annotations={DURING_EXECUTION: "Replace"}, **tolerates(seconds))
        await scene.api.create(pod)
    await scene.nodes_of("default", *TOLERATED)
    before = {each["metadata"]["name"]: each for each in await scene.pods()}
    assert {name: seconds_of(before[name], Taint("drain", "", "NoExecute")) for name in before} == {
        "default": 0,
        **TOLERATED,
    }
    # Every pod has these tolerations: the API server adds them.
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        assert seconds_of(before["default"], Taint(key, "", "NoExecute")) == 300
    await scene.nodes("n1")
    await scene.api.wait_for("/api/v1/nodes/n1", lambda each: not each["spec"].get("taints"))
    await scene.api.patch("/api/v1/nodes/n0", {"spec": {"taints": [DRAIN]}})

    async def evicted() -> bool:
        found = {each["metadata"]["name"] for each in await scene.pods() if "deletionTimestamp" not in each["metadata"]}
        return not found & {"default", "no-time"}

    await until(evicted, 60, lambda: "the controller to evict")
    staying = [each for each in await scene.pods() if each["metadata"]["name"] in TOLERATED]
    assert {each["metadata"]["name"] for each in staying} >= {"five-minutes", "for-ever"}
    nodes = [{"kind": "Node", **each} for each in await scene.api.list("/api/v1/nodes")]
    pods = [{"kind": "Pod", **each} for each in staying]
    for each in pods:
        each["metadata"]["ownerReferences"] = [owner]
    answer = plan_of(*nodes, *pods)
    replaced = f"{scene.namespace}/five-minutes"
    assert answer["evicted"] == {replaced: {"node": "n0", "for": [], "kind": "Rule", "to": "n1"}}
