"""The scenes of placing, through kube-scheduler: it binds, the plan says where."""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import ONLY_BY_PLANS, count, filters, no_extender_calls, no_plans
from thalweg_controlplane import Api, ControlPlane

from flowcore.model.advice import HELD_MESSAGE
from flowcore.model.policies import STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED: dict[str, str] = {}


def anti_affinity(app: str, topology: str = "kubernetes.io/hostname") -> dict[str, Any]:
    return {"podAntiAffinity": required(app, topology)}


def required(app: str, topology: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


async def held(scene: ClusterScenario) -> float:
    """How often filter held a pod so far."""
    return await count(scene.operator, "thalweg_extender_answers_total", "filter", "held")


async def test_plain_pods_go_where_the_plan_says(scene: ClusterScenario) -> None:
    """Three hundred fill the nodes to the last millicore; kube-scheduler binds each where it was nominated for."""
    await scene.nodes(*(f"n{number}" for number in range(10)), cpu="9")
    before = await count(scene.operator, "thalweg_steered_total", "bound")
    await scene.api.create_many([scene.pod(f"p{number}", "300m") for number in range(300)], 16)
    await scene.nodes_of(within=60)
    # Not one was placed by kube-scheduler on its own account.
    assert await count(scene.operator, "thalweg_steered_total", "bound") == before + 300
    assert await count(scene.operator, "thalweg_steered_total", "elsewhere") == 0


async def test_constraints_that_kube_scheduler_does_not_know(scene: ClusterScenario) -> None:
    """Caps and exclusive groups hold for pods that it binds, those too that change places with pods like them."""
    nodes = {f"n{number}": "abc"[number % 3] for number in range(12)}
    for name, zone in nodes.items():
        await scene.nodes(name, labels={"zone": zone})
    noise = {"groups": [{"matchLabels": {"app": app}} for app in ("loud", "quiet")]}
    await scene.policy(
        "apart",
        precedence=1,
        selects={"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
        delivery="Extender",
        constraints=[
            {
                "name": "az",
                "conflict": {"pods": {"matchLabels": {"app": "web"}}, "topologyKey": "zone", "maxPerDomain": 8},
            },
            {"name": "noise", "exclusive": {**noise, "topologyKey": "kubernetes.io/hostname", "maxPerDomain": 5}},
        ],
    )
    pods = [
        scene.pod(f"{app}{number}", labels={"app": app}) for number in range(30) for app in ("web", "loud", "quiet")
    ]
    await scene.api.create_many([*pods, *(scene.pod(f"free{number}") for number in range(30))], 16)
    apps: dict[str, Counter[str]] = {}

    async def all_that_fit() -> bool:
        nonlocal apps
        where = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in await scene.pods()}
        apps = {
            app: Counter(node for name, node in where.items() if name.startswith(app) and node)
            for app in ("web", "loud", "quiet", "free")
        }
        return (apps["web"].total(), apps["free"].total()) == (24, 30)

    await until(all_that_fit, 60, lambda: f"24 and 30 to be bound, not {apps}")
    zones: Counter[str] = Counter()
    for node, pods_there in apps["web"].items():
        zones[nodes[node]] += pods_there
    assert zones == {"a": 8, "b": 8, "c": 8}
    assert not apps["loud"].keys() & apps["quiet"].keys()
    assert apps["loud"]
    assert max((apps["loud"] + apps["quiet"]).values()) <= 5


async def test_selectors_taints_and_affinity(scene: ClusterScenario) -> None:
    """Kubernetes' own fields hold; a pod that no node may take is told so by our Event, in the filters' words."""
    await scene.nodes("plain")
    await scene.nodes("ssd", labels={"disk": "ssd"})
    await scene.nodes("tainted", taints=[{"key": "t", "effect": "NoSchedule"}], labels={"disk": "tape"})
    await scene.create("picky", nodeSelector={"disk": "ssd"})
    await scene.create("tolerant", nodeSelector={"disk": "tape"}, tolerations=[{"operator": "Exists"}])
    await scene.create("impossible", nodeSelector={"disk": "floppy"})
    await scene.create("leader", labels={"app": "pair"}, nodeSelector={"disk": "ssd"})
    await scene.create("follower", affinity={"podAffinity": required("pair", "kubernetes.io/hostname")})
    assert await scene.nodes_of("picky", "tolerant", "leader", "follower") == {
        "picky": "ssd", "tolerant": "tainted", "leader": "ssd", "follower": "ssd",
    }  # fmt: skip
    await scene.reason_of("impossible", "didn't match Pod's node affinity/selector")
    await until(lambda: scene.events_of("impossible"), 30, lambda: "our Event")
    (event,) = await scene.events_of("impossible")
    assert "node affinity/selector" in event["message"]


async def test_pods_that_shun_each_other(scene: ClusterScenario) -> None:
    """One a node by hostname anti-affinity; the one too many is held, and goes to the node that comes."""
    await scene.nodes(*(f"n{number}" for number in range(8)))
    names = [f"p{number}" for number in range(9)]
    await scene.api.create_many(
        [scene.pod(name, labels={"app": "x"}, affinity=anti_affinity("x")) for name in names], 16
    )

    async def eight() -> bool:
        return sum(bool(each["spec"].get("nodeName")) for each in await scene.pods()) == 8

    await until(eight, 30, lambda: "eight to be bound")
    await scene.wait_settled()
    await scene.nodes("late")
    where = await scene.nodes_of(*names)
    assert len(set(where.values())) == 9


async def test_a_spread_that_is_legal_in_one_order_only(scene: ClusterScenario) -> None:
    """Thirty pods over three zones with maxSkew 1, in waves: ten in each, where the plan says, and hardly one refused.

    On a slow machine a wave may be overdue. Then a pod of the next one is refused, and planned anew.
    """
    bound = await count(scene.operator, "thalweg_steered_total", "bound")
    for zone in "abc":
        await scene.nodes(f"{zone}1", f"{zone}2", labels={"zone": zone})
    spread = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
               "labelSelector": {"matchLabels": {"app": "x"}}}]  # fmt: skip
    names = [f"p{number}" for number in range(30)]
    await scene.api.create_many(
        [scene.pod(name, labels={"app": "x"}, topologySpreadConstraints=spread) for name in names], 16
    )
    where = await scene.nodes_of(*names)
    assert Counter(node[0] for node in where.values()) == {"a": 10, "b": 10, "c": 10}
    assert await count(scene.operator, "thalweg_steered_total", "bound") == bound + 30
    assert await count(scene.operator, "thalweg_steered_total", "rejected") <= 3  # a wave


async def test_a_group_that_wants_to_be_together(scene: ClusterScenario) -> None:
    """Required affinity to each other: all in the one zone that has room for all of them."""
    await scene.nodes("a1", "a2", labels={"zone": "a"}, cpu="1")
    await scene.nodes("b1", "b2", labels={"zone": "b"}, cpu="2")
    names = [f"p{number}" for number in range(4)]
    affinity = {"podAffinity": required("g", "zone")}
    await scene.api.create_many([scene.pod(name, "1", labels={"app": "g"}, affinity=affinity) for name in names], 4)
    where = await scene.nodes_of(*names)
    assert {node[0] for node in where.values()} == {"b"}


async def test_more_pods_than_room(scene: ClusterScenario) -> None:
    """Those left over have a reason and an Event, and nobody asks about them. Room that comes is used."""
    await scene.nodes("a", "b", cpu="1")
    await scene.api.create_many([scene.pod(f"first-{number}", "500m") for number in range(4)])
    await scene.nodes_of()
    await no_extender_calls(scene)
    before = await filters(scene)
    rest = [f"rest-{number}" for number in range(10)]
    await scene.api.create_many([scene.pod(name, "500m") for name in rest])
    await scene.wait_settled()
    await no_extender_calls(scene)
    # kube-scheduler's own filters find no room either, so it has no node to ask about.
    assert await filters(scene) == before
    for name in rest:
        await until(partial(scene.events_of, name), 30, lambda name=name: f"our Event on {name}")
    await scene.delete("first-0")
    await scene.nodes("late", cpu="4")

    async def nine() -> bool:
        return sum(bool(each["spec"].get("nodeName")) for each in await scene.pods()) == 3 + 9

    await until(nine, 30, lambda: "nine of the rest to be bound")


async def test_held_pods_are_asked_about_twice(scene: ClusterScenario) -> None:
    """There is room and no plan yet: held twice each under one constant text, then silence until the plan comes."""
    await scene.nodes("a", "b", "c", cpu="4")
    selects = {"podSelector": {}, "schedulerNames": [STEERED_NAME]}
    await scene.policy("steered", selects=selects, delivery="Extender", unscheduled=ONLY_BY_PLANS)
    with no_plans(scene):
        before = await held(scene)
        names = [f"p{number}" for number in range(10)]
        for name in names:
            await scene.create(name)
            await scene.reason_of(name, HELD_MESSAGE)
        await no_extender_calls(scene)
        assert await held(scene) - before <= 2 * len(names)
        assert len({await scene.reason_of(name) for name in names}) == 1
    await scene.nodes_of(*names)


async def test_priorities(scene: ClusterScenario) -> None:
    """Of a backlog that does not fit, those of the highest priority run when room comes.

    Where the policy evicts nobody, kube-scheduler evicts nobody either for a pod that is held.
    """
    await scene.policy("steered", selects={"podSelector": {}}, delivery="Extender", preemption={"mode": "Never"})
    for name, value in (("low", 10), ("high", 1000)):
        await scene.priority_class(name, value)
    await scene.nodes("a", "b", cpu="2")
    await scene.api.create_many(
        [scene.pod(f"{kind}-{number}", "1", priorityClassName=kind) for kind in ("low", "high") for number in range(4)]
    )

    async def four() -> bool:
        return sum(bool(each["spec"].get("nodeName")) for each in await scene.pods()) == 4

    await until(four, 30, lambda: "four to be bound")
    await scene.wait_settled()
    # Those that came first may run, whatever their priority: nothing is evicted.
    assert not scene.history.deleted
    for each in await scene.pods():
        if each["metadata"]["name"].startswith("low") and each["spec"].get("nodeName"):
            await scene.delete(each["metadata"]["name"])

    async def high_first() -> bool:
        return all(each["spec"].get("nodeName") for each in await scene.pods()
                   if each["metadata"]["name"].startswith("high"))  # fmt: skip

    await until(high_first, 30, lambda: "all of the higher priority to be bound")


async def test_a_backlog_from_before(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """Pods that were there before the operator and kube-scheduler are all placed."""
    await scene.operator.stop()
    await plane[0].kill("kube-scheduler")
    await scene.nodes(*(f"n{number}" for number in range(5)), cpu="4")
    await scene.api.create_many([scene.pod(f"p{number}", "100m") for number in range(200)], 16)
    await asyncio.gather(plane[0].start("kube-scheduler"), scene.operator.start())
    assert len(await scene.nodes_of(within=60)) == 200
