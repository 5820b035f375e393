"""Pods that wait behind our scheduling gate: planned, nominated, opened, bound; gates of others are theirs."""

from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import count, filters, gates_in_effect, no_extender_calls, nobody_binds, nominated
from thalweg_controlplane import Api, ControlPlane

from flowcore.model.policies import GATE

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED = {"waiting": "Gate"}
OURS = [{"name": GATE}]
THEIRS = {"name": "example.com/later"}


def condition(pod: dict[str, Any]) -> dict[str, Any]:
    """Its PodScheduled condition."""
    return next(each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")


async def test_gated_pods_are_placed(scene: ClusterScenario) -> None:
    """A hundred, opened with their nomination: kube-scheduler is never asked about one that it has to leave."""
    await scene.nodes(*(f"n{number}" for number in range(5)), cpu="2")
    held = await count(scene.operator, "thalweg_extender_answers_total", "filter", "held")
    await scene.api.create_many([scene.pod(f"p{n}", "100m", schedulingGates=OURS) for n in range(100)], 16)
    assert len(await scene.nodes_of()) == 100
    assert not any(each["spec"].get("schedulingGates") for each in await scene.pods())
    assert await count(scene.operator, "thalweg_extender_answers_total", "filter", "held") == held
    assert await count(scene.operator, "thalweg_steered_total", "elsewhere") == 0


async def test_gated_pods_without_room(scene: ClusterScenario) -> None:
    """They stay behind the gate and know why, kube-scheduler is not asked; room that comes is theirs."""
    await scene.nodes("a", cpu="1")
    await scene.create("first", "1", schedulingGates=OURS)
    await scene.node_of("first")
    await no_extender_calls(scene)
    before = await filters(scene)
    await scene.create("second", "1", schedulingGates=OURS)
    await scene.reason_of("second", "0/1 nodes are available: 1 Insufficient cpu")
    seen = condition(await scene.get("second"))
    assert (seen["status"], seen["reason"]) == ("False", "SchedulingGated")
    assert (await scene.get("second"))["spec"]["schedulingGates"] == OURS
    await until(lambda: scene.events_of("second"), 30, lambda: "the Event")
    (event,) = await scene.events_of("second")
    assert event["message"] == seen["message"]
    assert await filters(scene) == before
    await scene.delete("first")
    assert await scene.node_of("second") == "a"


async def test_the_api_server_gates_them_itself(scene: ClusterScenario) -> None:
    """Nobody writes a gate into a pod: those with room come through, the others wait behind it and know why."""
    await scene.nodes("a", cpu="2")
    await gates_in_effect(scene, scene.pod("gated", "64"))
    await scene.api.create_many([scene.pod(f"p{n}", "500m") for n in range(7)])
    bound: list[dict[str, Any]] = []

    async def four() -> bool:
        bound[:] = [each for each in await scene.pods() if each["spec"].get("nodeName")]
        return len(bound) == 4

    await until(four, 30, lambda: f"4 pods to be bound, not {len(bound)}")
    assert not any(each["spec"].get("schedulingGates") for each in bound)
    left = [each["metadata"]["name"] for each in await scene.pods() if not each["spec"].get("nodeName")]
    for name in left:
        await scene.reason_of(name, "Insufficient cpu")
        assert (await scene.get(name))["spec"]["schedulingGates"] == OURS


async def test_gates_where_nothing_waits_for_them(scene: ClusterScenario) -> None:
    """Pods that no policy steers are opened: unmanaged ones, those of our binder, those that cannot be planned."""
    await scene.nodes("a", "b")
    await scene.create("unmanaged", schedulingGates=OURS, scheduler="default-scheduler")
    await scene.create("binders", schedulingGates=OURS, scheduler="thalweg")
    assert set(await scene.nodes_of("unmanaged", "binders")) == {"unmanaged", "binders"}
    await scene.create("strange", schedulingGates=OURS, annotations={"gpu-fraction": "0.5"})
    await scene.api.wait_for(scene.path("strange"), lambda each: not each["spec"].get("schedulingGates"))
    await scene.wait_settled()


async def test_gates_of_others(scene: ClusterScenario) -> None:
    """A pod with another gate beside ours is left alone until that one opens."""
    await scene.nodes("a")
    made = await scene.create("both", schedulingGates=[*OURS, THEIRS])
    await scene.create("unmanaged", schedulingGates=[*OURS, THEIRS], scheduler="default-scheduler")
    await scene.create("barrier")
    await scene.node_of("barrier")
    assert await scene.get("both") == made
    for name in ("both", "unmanaged"):
        await scene.api.patch(scene.path(name), {"spec": {"schedulingGates": OURS}})
    await scene.nodes_of("both", "unmanaged")


async def test_a_restart_between_nomination_and_opening(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api]
) -> None:
    """Nominated and still shut when the operator comes back: opened, and bound where it was nominated."""
    await scene.nodes("a", "b", cpu="2")
    async with nobody_binds(plane):
        await scene.operator.kill()
        made = scene.pod("pod", "1", schedulingGates=OURS, nodeSelector={"kubernetes.io/hostname": "b"})
        made["metadata"]["annotations"] = {"scheduling.thalweg/nominated": "b"}
        await scene.api.create(made)
        await scene.api.patch(scene.path("pod") + "/status", {"status": {"nominatedNodeName": "b"}})
        await scene.operator.start()
        await scene.api.wait_for(scene.path("pod"), lambda each: not each["spec"].get("schedulingGates"))
        await nominated(scene, "pod", "b")
        assert (await scene.operator.metrics())["thalweg_reservations"] == 1
    assert await scene.node_of("pod") == "b"


async def test_a_policy_that_goes(scene: ClusterScenario) -> None:
    """Pods without room behind our gate are opened when nothing steers them any more: kube-scheduler tells them why."""
    await scene.nodes("a", cpu="1")
    names = [f"p{number}" for number in range(5)]
    for name in names:
        await scene.create(name, "2", schedulingGates=OURS)
    await scene.reason_of(names[-1], "Insufficient cpu")
    await scene.policy("steered", selects={"podSelector": {}}, delivery="Observe")

    async def opened() -> bool:
        return all(condition(each)["reason"] == "Unschedulable" for each in await scene.pods())

    await until(opened, 30, lambda: "all to be opened and told by kube-scheduler")
