"""Thalweg beside kube-scheduler's own gang scheduling and workload-aware preemption, which are off by default."""

from collections.abc import Callable
from typing import Any

import pytest
from support.audit import writes_to_pods
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import DelayingProxy, count, gates_in_effect, nobody_binds
from thalweg_controlplane import Api, ControlPlane

from flowcore.model.policies import SCHEDULER_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {
    "scheduler": True,
    "kwok": True,
    "scheduler_gates": ("GenericWorkload=true", "GangScheduling=true", "WorkloadAwarePreemption=true"),
}
STEERED: dict[str, Any] = {}
GROUPS = "scheduling.k8s.io/v1alpha2"


async def pod_group(scene: ClusterScenario, name: str, count: int, **spec: Any) -> dict[str, Any]:
    """A PodGroup of which so many pods run, or none; what its pods say."""
    await scene.api.create(
        {
            "apiVersion": GROUPS,
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": scene.namespace},
            "spec": {"schedulingPolicy": {"gang": {"minCount": count}}, **spec},
        }
    )
    return {"schedulingGroup": {"podGroupName": name}}


async def create_gang(
    scene: ClusterScenario, name: str, count: int, cpu: str, scheduler: str, **spec: Any
) -> list[str]:
    """A PodGroup with its pods; their names."""
    group = await pod_group(scene, name, count)
    names = [f"{name}-{n}" for n in range(count)]
    await scene.api.create_many(
        [scene.pod(each, cpu, scheduler=scheduler, labels={"gang": name}, **group, **spec) for each in names]
    )
    return names


async def condition(scene: ClusterScenario, group: str, status: str, words: str = "") -> dict[str, Any]:
    """The condition of a PodGroup about its scheduling, once it has this status and says these words."""

    def of(each: Any) -> dict[str, Any]:
        for one in each.get("status", {}).get("conditions", []):
            if (one["type"], one["status"]) == ("PodGroupScheduled", status) and words in one["message"]:
                return dict(one)
        return {}

    path = f"/apis/{GROUPS}/namespaces/{scene.namespace}/podgroups/{group}"
    return of(await scene.api.wait_for(path, lambda each: bool(of(each))))


async def bound(scene: ClusterScenario, names: list[str]) -> list[str]:
    """Those that have a node."""
    return [name for name in names if (await scene.get(name))["spec"].get("nodeName")]


async def test_its_gangs_beside_our_binder(scene: ClusterScenario) -> None:
    """kube-scheduler places PodGroups of its own, and Thalweg other pods on the same nodes: all run."""
    await scene.nodes("a", "b", "c", cpu="8")
    # kube-scheduler's gang scheduling is on: it does not look at a gang of which a pod is missing.
    group = await pod_group(scene, "late", 2)
    await scene.create("late-0", "1", scheduler="default-scheduler", **group)
    theirs = [await create_gang(scene, f"theirs-{n}", 3, "1", "default-scheduler") for n in range(3)]
    ours = [f"ours-{n}" for n in range(9)]
    await scene.api.create_many([scene.pod(name, "1", scheduler=SCHEDULER_NAME) for name in ours])
    await scene.nodes_of(*ours, *[name for names in theirs for name in names], within=60)
    assert await bound(scene, ["late-0"]) == []
    await scene.create("late-1", "1", scheduler="default-scheduler", **group)
    await scene.nodes_of("late-0", "late-1", within=60)
    for name in ("late", "theirs-0"):
        assert not (await condition(scene, name, "True"))["message"].startswith("Thalweg")


async def test_its_gangs_preempt_our_pods(scene: ClusterScenario) -> None:
    """A PodGroup of kube-scheduler's with a higher priority takes room from pods that Thalweg bound, as a whole."""
    await scene.priority_class("high", 1000)
    await scene.nodes("a", "b", cpu="4")
    await scene.api.create_many([scene.pod(f"ours-{n}", "1", scheduler=SCHEDULER_NAME) for n in range(8)])
    await scene.nodes_of(within=60)
    group = await pod_group(scene, "theirs", 4, priorityClassName="high")
    group["priorityClassName"] = "high"
    theirs = [f"theirs-{n}" for n in range(4)]
    await scene.api.create_many([scene.pod(name, "1", scheduler="default-scheduler", **group) for name in theirs])
    await scene.nodes_of(*theirs, within=60)


async def test_our_gangs_by_the_binder(scene: ClusterScenario) -> None:
    """A PodGroup whose pods name Thalweg is placed by Thalweg as a whole, or waits as a whole, and says so."""
    await scene.nodes("a", "b", cpu="4")
    fits = await create_gang(scene, "fits", 4, "1", SCHEDULER_NAME)
    await scene.nodes_of(*fits, within=60)
    large = await create_gang(scene, "large", 5, "1", SCHEDULER_NAME)
    for name in large:
        await scene.reason_of(name, "PodGroup", "needs 5 pods at once")
    assert await bound(scene, large) == []
    placed = await condition(scene, "fits", "True")
    waits = await condition(scene, "large", "False", "needs 5 pods at once")  # before that it may lack pods
    assert (placed["reason"], placed["message"]) == ("Scheduled", "Thalweg placed 4 pods; the group needs 4.")
    assert waits["reason"] == "Unschedulable"
    assert waits["message"].startswith("Thalweg: PodGroup ")
    await scene.nodes("c", cpu="4")
    await scene.nodes_of(*large, within=60)
    assert (await condition(scene, "large", "True"))["lastTransitionTime"] >= waits["lastTransitionTime"]


async def test_the_priority_of_our_groups(scene: ClusterScenario) -> None:
    """The API server writes the priority of a PodGroup's class; its pods, which name none, go first."""
    await scene.priority_class("of-groups", 1000)
    for name, spec in (("plain", {}), ("urgent", {"priorityClassName": "of-groups"})):
        group = await pod_group(scene, name, 4, **spec)
        await scene.api.create_many(
            [scene.pod(f"{name}-{n}", "1", scheduler=SCHEDULER_NAME, **group) for n in range(4)]
        )
        await scene.reason_of(f"{name}-3", "0/0 nodes are available")
    await scene.nodes("a", cpu="4")
    await scene.nodes_of(*(f"urgent-{n}" for n in range(4)), within=60)
    assert await bound(scene, [f"plain-{n}" for n in range(4)]) == []


def apart(name: str) -> dict[str, Any]:
    """Each pod of a gang on a node of its own."""
    term = {"labelSelector": {"matchLabels": {"gang": name}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(name: str) -> dict[str, Any]:
    """The pods of a gang over zones, one more in a zone than in another at most."""
    selector = {"matchLabels": {"gang": name}}
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }
        ]
    }


@pytest.mark.parametrize(
    ("rule", "waiting"),
    [
        pytest.param(lambda _: {}, "Gate", id="plain-Gate"),
        pytest.param(lambda _: {}, "Hold", id="plain-Hold"),
        pytest.param(apart, "Gate", id="apart-Gate"),
        pytest.param(apart, "Hold", id="apart-Hold"),
        pytest.param(spread, "Gate", id="spread-Gate"),
        pytest.param(spread, "Hold", id="spread-Hold"),
    ],
)
async def test_our_gangs_by_the_extender(scene: ClusterScenario, waiting: str, rule: Any) -> None:
    """A PodGroup in delivery Extender is placed as a whole, or waits as a whole until there is room."""
    await scene.policy(
        "steered", selects={"podSelector": {}}, delivery="Extender", waiting=waiting, gangs={"waiting": waiting}
    )
    if waiting == "Gate":
        await gates_in_effect(scene, scene.pod("probe"))
    for zone in ("x", "y"):
        for n in range(2):
            await scene.nodes(f"{zone}{n}", cpu="2", labels={"topology.kubernetes.io/zone": zone})
    fits = await create_gang(scene, "fits", 4, "1", scene.scheduler, **rule("fits"))
    await scene.nodes_of(*fits, within=60)
    more = await create_gang(scene, "more", 5, "1", scene.scheduler, **rule("more"))
    await scene.wait_for_round("mark")
    assert await bound(scene, more) == []
    await scene.nodes("x2", cpu="2", labels={"topology.kubernetes.io/zone": "x"})
    await scene.nodes_of(*more, within=60)


# --- without a gate: PodGroups in delivery Extender, by a policy that says no more ---

Writes = Callable[[], list[str]]


@pytest.fixture
def writes(plane: tuple[ControlPlane, Api], scene: ClusterScenario) -> Writes:
    """What Thalweg wrote to pods of the test so far: "patch pods/status fits-0"."""
    since = plane[0].audit_log.stat().st_size
    return lambda: writes_to_pods(plane[0], scene.namespace, since)


async def steered_by_default(scene: ClusterScenario) -> None:
    """The policy says no more than its delivery, and gates pods of other gangs."""
    await scene.policy("steered", selects={"podSelector": {}}, delivery="Extender")
    await gates_in_effect(scene, scene.pod("probe", annotations={"scheduling.thalweg/gang": "other"}))


async def check_whole(scene: ClusterScenario, *gangs: list[str]) -> None:
    """Each of these gangs is bound whole, and none of their pods has or had a gate."""
    await scene.nodes_of(*(name for names in gangs for name in names))
    for pod in await scene.pods():
        assert "schedulingGates" not in pod["spec"]
        conditions = pod["status"].get("conditions", [])
        assert all(condition.get("reason") != "SchedulingGated" for condition in conditions)


async def test_planned_groups_cost_no_write(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], writes: Writes
) -> None:
    """Three gangs have their plan before kube-scheduler asks: it takes them in its order, and we write nothing."""
    await steered_by_default(scene)
    await scene.nodes("a", "b", "c", cpu="4")
    async with nobody_binds(plane):
        gangs = [await create_gang(scene, f"gang-{n}", 4, "1", scene.scheduler) for n in range(3)]

        async def planned() -> bool:
            return await count(scene.operator, "thalweg_reservations") == 12

        await until(planned, 30, lambda: "a plan of all gangs")
        assert await bound(scene, [name for names in gangs for name in names]) == []
    await check_whole(scene, *gangs)
    assert writes() == []


async def test_groups_that_come_pod_by_pod(scene: ClusterScenario, writes: Writes) -> None:
    """Their pods come in turns. Each gang is bound whole once its last pod is there, and none is nominated."""
    await steered_by_default(scene)
    await scene.nodes("a", "b", "c", "d", cpu="4")
    groups = [await pod_group(scene, f"gang-{n}", 4) for n in range(4)]
    gangs = [[f"gang-{n}-{at}" for at in range(4)] for n in range(4)]
    for at in range(4):
        for names, group in zip(gangs, groups, strict=True):
            assert await bound(scene, names[:at]) == []
            await scene.create(names[at], "1", **group)
            if at == 3:
                await scene.nodes_of(*names)
    await check_whole(scene, *gangs)
    # At most a wake, where a plan came too late for an attempt.
    assert not [write for write in writes() if "status" in write]


async def test_groups_that_do_not_fit_together(scene: ClusterScenario) -> None:
    """One of two gangs waits whole, and is bound whole once the other one has left."""
    await steered_by_default(scene)
    await scene.nodes("a", "b", cpu="4")
    one, two = [await create_gang(scene, name, 6, "1", scene.scheduler) for name in ("one", "two")]
    last: list[list[str]] = []

    async def one_is_bound() -> bool:
        nonlocal last
        last = [await bound(scene, names) for names in (one, two)]
        return sorted(map(len, last)) == [0, 6]

    await until(one_is_bound, 60, lambda: f"one gang whole, the other one absent: {last}")
    first, second = (one, two) if last[0] else (two, one)
    await scene.reason_of(second[0], "Thalweg")
    await scene.wait_for_round("mark")
    assert await bound(scene, second) == []
    await scene.delete(*first)
    await check_whole(scene, second)


async def test_groups_with_a_topology(scene: ClusterScenario) -> None:
    """Each gang is in one rack, whichever nodes kube-scheduler, which does not know the topology here, may like."""
    await steered_by_default(scene)
    for rack in ("x", "y", "z"):
        await scene.nodes(f"{rack}0", f"{rack}1", cpu="2", labels={"example.com/rack": rack})
    constraints = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
    groups = [await pod_group(scene, f"gang-{n}", 4, **constraints) for n in range(3)]
    gangs = [[f"gang-{n}-{at}" for at in range(4)] for n in range(3)]
    pods = [scene.pod(names[at], "1", **groups[n]) for at in range(4) for n, names in enumerate(gangs)]
    await scene.api.create_many(pods)
    await check_whole(scene, *gangs)
    for names in gangs:
        assert len({node[0] for node in (await scene.nodes_of(*names)).values()}) == 1


async def test_an_attempt_that_fails_midway(scene: ClusterScenario, relay: DelayingProxy) -> None:
    """kube-scheduler loses an answer about the third pod, drops the whole attempt, and asks about all of them again."""
    await steered_by_default(scene)
    await scene.nodes("a", "b", "c", cpu="2")
    questions = 0

    def break_third(part: bytes) -> None:
        nonlocal questions
        questions += part.startswith(b"POST /extender/filter")
        if questions == 3:
            questions += 1
            raise ConnectionResetError

    relay.asked = break_third
    try:
        gang = await create_gang(scene, "gang", 4, "1", scene.scheduler)
        await check_whole(scene, gang)
    finally:
        relay.asked = lambda _part: None
    assert questions > 4
