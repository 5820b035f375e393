"""Pods go where Kubernetes' own fields let them, and nowhere else."""

import asyncio
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.steering import nominate

pytestmark = pytest.mark.asyncio(loop_scope="module")


def required(*expressions: dict[str, Any]) -> dict[str, Any]:
    """Required node affinity with one term."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def preferred(weight: int, key: str, value: str) -> dict[str, Any]:
    """One preferred node affinity term."""
    expression = {"key": key, "operator": "In", "values": [value]}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


async def test_node_selector(scene: ClusterScenario) -> None:
    """A pod goes to the node whose labels it names; one that no node meets waits and says so."""
    await scene.nodes("a", labels={"disk": "hdd"})
    await scene.nodes("b", labels={"disk": "ssd"})
    await scene.create("picky", nodeSelector={"disk": "ssd"})
    await scene.create("impossible", nodeSelector={"disk": "tape"})
    assert await scene.node_of("picky") == "b"
    await scene.reason_of("impossible", "0/2 nodes are available", "node affinity/selector")


async def test_required_node_affinity(scene: ClusterScenario) -> None:
    """In, NotIn, Exists, Gt and matchFields are heeded."""
    await scene.nodes("small", labels={"cores": "4", "zone": "x"})
    await scene.nodes("large", labels={"cores": "32", "zone": "y"})
    await scene.nodes("plain")
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["small"]}]}
    by_field = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}}
    wanted = {
        "in": (required({"key": "zone", "operator": "In", "values": ["y", "z"]}), "large"),
        "not-in": (required({"key": "zone", "operator": "NotIn", "values": ["x", "y"]}), "plain"),
        "gt": (required({"key": "cores", "operator": "Gt", "values": ["8"]}), "large"),
        "absent": (required({"key": "cores", "operator": "DoesNotExist"}), "plain"),
        "field": (by_field, "small"),
    }
    for name, (affinity, _) in wanted.items():
        await scene.create(name, affinity=affinity)
    assert await scene.nodes_of(*wanted) == {name: node for name, (_, node) in wanted.items()}


async def test_preferred_node_affinity(scene: ClusterScenario) -> None:
    """A preference decides between nodes that are otherwise alike, and gives way where the preferred node is full."""
    await scene.nodes("a", "b", "c", cpu="4")
    await scene.nodes("liked", cpu="4", labels={"gpu": "yes"})
    likes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred(100, "gpu", "yes")]}}
    await scene.create("first", "3", affinity=likes)
    assert await scene.node_of("first") == "liked"
    await scene.create("second", "3", affinity=likes)
    assert await scene.node_of("second") != "liked"


async def test_nominations_of_others(scene: ClusterScenario) -> None:
    """A pod goes to the node that somebody else nominated it for, or to another one that has room."""
    await scene.nodes("a", cpu="1")
    await scene.create("big", "2")
    await scene.reason_of("big", "Insufficient cpu")
    for node in ("gone", "a", "later"):
        await nominate(scene.api, scene.path("big"), node)
    await scene.nodes("b", "c", cpu="4")
    assert await scene.node_of("big") in "bc"
    await scene.create("old", "2", nodeSelector={"kubernetes.io/hostname": "c"})
    await scene.node_of("old")
    await scene.create("gated", "1", schedulingGates=[{"name": "example.com/later"}])
    await nominate(scene.api, scene.path("gated"), "c")
    await scene.api.patch(scene.path("gated"), {"spec": {"schedulingGates": None}})
    assert await scene.node_of("gated") == "c"


async def test_taints_of_each_effect(scene: ClusterScenario) -> None:
    """NoSchedule and NoExecute keep pods away that do not tolerate them; PreferNoSchedule only makes a node dearer."""
    await scene.nodes("tainted", cpu="2", taints=[{"key": "t", "value": "1", "effect": "NoSchedule"}])
    await scene.nodes("evicting", cpu="2", taints=[{"key": "e", "value": "1", "effect": "NoExecute"}])
    await scene.create("intolerant")
    await scene.reason_of("intolerant", "0/2 nodes are available", "untolerated taint")
    await scene.create(
        "tolerant", tolerations=[{"key": "t", "operator": "Equal", "value": "1", "effect": "NoSchedule"}]
    )
    await scene.create("enduring", tolerations=[{"key": "e", "operator": "Exists"}])
    assert await scene.nodes_of("tolerant", "enduring") == {"tolerant": "tainted", "enduring": "evicting"}
    await scene.nodes("avoided", cpu="2", taints=[{"key": "p", "effect": "PreferNoSchedule"}])
    assert await scene.node_of("intolerant") == "avoided"
    await scene.nodes("clean", cpu="2")
    await scene.create("choosing")
    assert await scene.node_of("choosing") == "clean"


async def test_unschedulable_nodes(scene: ClusterScenario) -> None:
    """A cordoned node takes nothing until it is uncordoned; a pod that tolerates the cordon goes there all the same."""
    await scene.nodes("cordoned")
    await scene.api.patch("/api/v1/nodes/cordoned", {"spec": {"unschedulable": True}})
    await scene.create("early")
    await scene.reason_of("early", "unschedulable")
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    await scene.create("tolerant", tolerations=[toleration])
    assert await scene.node_of("tolerant") == "cordoned"
    await scene.api.patch("/api/v1/nodes/cordoned", {"spec": {"unschedulable": None}})
    assert await scene.node_of("early") == "cordoned"


async def test_mixed_sizes_never_overcommit(scene: ClusterScenario) -> None:
    """3,000m, 1,000m and 1,000m do not all fit on 4,000m: exactly one waits, and it is told why."""
    await scene.nodes("only", cpu="4000m")
    sizes = {"large": "3000m", "small-1": "1000m", "small-2": "1000m"}
    await scene.api.create_many([scene.pod(name, cpu) for name, cpu in sizes.items()])
    await scene.wait_settled()
    placed = {each["metadata"]["name"] for each in await scene.pods() if each["spec"].get("nodeName")} & set(sizes)
    assert len(placed) == 2
    (left,) = set(sizes) - placed
    await scene.reason_of(left, "0/1 nodes are available: 1 Insufficient cpu")


async def test_exact_fits_are_used(scene: ClusterScenario) -> None:
    """Every millicore, every byte and every pod place of the nodes can be given away, down to nothing."""
    await scene.nodes("a", "b", cpu="3", memory="3Gi", pods=3)
    await scene.api.create_many([scene.pod(f"p{number}", "1", memory="1Gi") for number in range(6)])
    where = await scene.nodes_of(*(f"p{number}" for number in range(6)))
    assert sorted(where.values()) == ["a"] * 3 + ["b"] * 3
    await scene.create("one-too-many", None)
    await scene.reason_of("one-too-many", "Too many pods")


async def test_host_ports(scene: ClusterScenario) -> None:
    """A host port is given once a node and protocol; the third pod of two nodes waits for it."""
    await scene.nodes("a", "b")

    def serving(name: str, protocol: str = "TCP") -> dict[str, Any]:
        port = {"containerPort": 80, "hostPort": 8080, "protocol": protocol}
        return scene.pod(name, containers=[{"name": "main", "image": "example.invalid/main", "ports": [port]}])

    await scene.api.create_many([serving("one"), serving("two")])
    assert set((await scene.nodes_of("one", "two")).values()) == {"a", "b"}
    await scene.api.create_many([serving("three"), serving("datagrams", "UDP")])
    await scene.node_of("datagrams")
    await scene.reason_of("three", "free ports")
    freed = await scene.node_of("one")
    await scene.delete("one")
    assert await scene.node_of("three") == freed


async def test_extended_resources(scene: ClusterScenario) -> None:
    """Devices are counted like cpu: those who ask go where they are, until they are gone."""
    await scene.nodes("plain-1", "plain-2")
    await scene.nodes("gpu", extended={"example.com/gpu": "4"})
    await scene.api.create_many([scene.pod(f"g{number}", extended={"example.com/gpu": "2"}) for number in range(3)])
    await scene.wait_settled()
    placed = [each for each in await scene.pods() if each["spec"].get("nodeName")]
    assert [each["spec"]["nodeName"] for each in placed] == ["gpu", "gpu"]
    (left,) = [name for name in ("g0", "g1", "g2") if name not in {each["metadata"]["name"] for each in placed}]
    await scene.reason_of(left, "Insufficient example.com/gpu")


async def test_a_resource_that_appears_later(scene: ClusterScenario) -> None:
    """A node whose device plugin registers after the pod came is found out about."""
    await scene.nodes("late")
    await scene.create("wants", extended={"example.com/fpga": "1"})
    await scene.reason_of("wants", "Insufficient example.com/fpga")
    grown = {"status": {"capacity": {"example.com/fpga": "1"}, "allocatable": {"example.com/fpga": "1"}}}
    await scene.api.patch("/api/v1/nodes/late/status", grown)
    assert await scene.node_of("wants") == "late"


async def test_many_pods_of_many_kinds(scene: ClusterScenario) -> None:
    """Two hundred pods with selectors, tolerations and sizes on twenty nodes: all that can be placed are."""
    for number in range(20):
        taints = [{"key": "special", "value": "yes", "effect": "NoSchedule"}] if number % 5 == 0 else []
        await scene.nodes(f"n{number}", cpu="8", labels={"zone": f"z{number % 4}"}, taints=taints)
    tolerations = [{"key": "special", "operator": "Exists"}]
    pods = [
        scene.pod(
            f"p{number}",
            ("100m", "500m", "1")[number % 3],
            memory="64Mi",
            **({"nodeSelector": {"zone": f"z{number % 4}"}} if number % 2 else {}),
            **({"tolerations": tolerations} if number % 7 == 0 else {}),
        )
        for number in range(200)
    ]
    await scene.api.create_many(pods)
    await scene.nodes_of()


async def test_running_pods_anti_affinity_is_respected(scene: ClusterScenario) -> None:
    """A pod that another scheduler placed may keep ours out of its zone."""
    await scene.nodes("a1", "a2", labels={"zone": "a"})
    await scene.nodes("b1", labels={"zone": "b"})
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    hermit = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await scene.create("hermit", scheduler="by-hand", affinity=hermit)
    await bind(scene, "hermit", "a1")
    await scene.wait_for_round("barrier")
    await scene.api.create_many([scene.pod(f"web-{number}", labels={"app": "web"}) for number in range(4)])
    await scene.create("other", labels={"app": "db"}, nodeSelector={"zone": "a"})
    where = await scene.nodes_of(*(f"web-{number}" for number in range(4)), "other")
    assert {node for name, node in where.items() if name.startswith("web")} == {"b1"}
    await scene.create("stuck", labels={"app": "web"}, nodeSelector={"zone": "a"})
    await scene.reason_of("stuck", "anti-affinity")
    await scene.delete("hermit")
    assert await scene.node_of("stuck") in {"a1", "a2"}


async def test_pods_bound_by_hand_count(scene: ClusterScenario) -> None:
    """Room that others took is not given away again, whatever scheduler their pods name."""
    await scene.nodes("a", "b", cpu="2")
    await scene.create("foreign", "1500m", scheduler="by-hand")
    await bind(scene, "foreign", "a")
    await scene.create("ours", "1")
    assert await scene.node_of("ours") == "b"
    await scene.create("static", "1", nodeName="b", scheduler="by-hand")
    await scene.create("waits", "600m")
    await scene.reason_of("waits", "2 Insufficient cpu")


async def test_a_pod_that_is_changed_while_it_waits(scene: ClusterScenario) -> None:
    """A selector that is taken away by ungating, or a toleration that is added, counts from then on."""
    await scene.nodes("a", taints=[{"key": "t", "effect": "NoSchedule"}])
    await scene.create("pod")
    await scene.reason_of("pod", "untolerated taint")
    seen = await scene.get("pod")
    more = [*seen["spec"].get("tolerations", []), {"key": "t", "operator": "Exists"}]
    await scene.api.patch(scene.path("pod"), {"spec": {"tolerations": more}})
    assert await scene.node_of("pod") == "a"


async def test_two_namespaces_with_the_same_pod_name(scene: ClusterScenario) -> None:
    """A pod is its namespace and its name."""
    await scene.nodes("a")
    other = scene.namespace + "-2"
    await scene.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    twin = scene.pod("twin")
    twin["metadata"]["namespace"] = other
    await asyncio.gather(scene.create("twin"), scene.api.create(twin))
    await scene.node_of("twin")
    await scene.api.wait_for(f"/api/v1/namespaces/{other}/pods/twin", lambda each: each["spec"].get("nodeName"))


async def bind(scene: ClusterScenario, name: str, node: str) -> None:
    """As another scheduler would."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await scene.api.request("POST", scene.path(name) + "/binding", body)
