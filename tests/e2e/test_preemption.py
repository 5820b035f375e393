"""Pods of a lower priority leave for urgent ones on the real API server: evictions, conditions, Events, a restart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.replicas import running_replicas
from support.steering import count
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.api import STRATEGIC_PATCH

from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
STEERED: dict[str, str] = {}
BOTH = pytest.mark.parametrize("scheduler", [SCHEDULER_NAME, STEERED_NAME], ids=["binder", "extender"])
FINALIZER = "example.com/slow"


async def full_nodes(
    scene: ClusterScenario,
    *names: str,
    labels: dict[str, str] | None = None,
    slow: bool = False,
    taints: Sequence[dict[str, str]] = (),
) -> None:
    """Nodes that are full of two pods each, such as ``m0-a``; slow ones stay until their finalizer is taken away."""
    await scene.policy("own", selects={"podSelector": {}})
    await scene.priority_class("urgent", 1000)
    await scene.nodes(*names, cpu="4", taints=taints)
    await scene.ready(*names)
    for node in names:
        for letter in "ab":
            pod = scene.pod(f"{node}-{letter}", "2", scheduler=SCHEDULER_NAME, labels=labels, nodeName=node)
            if slow:
                pod["metadata"]["finalizers"] = [FINALIZER]
            await scene.api.create(pod)
            await scene.api.wait_for(
                scene.path(f"{node}-{letter}"), lambda each: each["status"].get("phase") == "Running"
            )


async def leaving(scene: ClusterScenario) -> list[dict[str, Any]]:
    """Pods that are being deleted."""
    return [each for each in await scene.pods() if "deletionTimestamp" in each["metadata"]]


def condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of a pod; empty where it has none of this type."""
    return next((each for each in pod["status"].get("conditions", []) if each["type"] == kind), {})


async def create_urgent(scene: ClusterScenario, name: str, cpu: str, scheduler: str, **spec: Any) -> None:
    """An urgent pod is created."""
    await scene.create(name, cpu, scheduler=scheduler, priorityClassName="urgent", **spec)


async def budget(scene: ClusterScenario, at_least: int, labels: dict[str, str]) -> None:
    """A PodDisruptionBudget that keeps so many pods; returns after a round, so that the operator has seen it."""
    name = next(iter(labels.values()))
    await scene.api.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": scene.namespace},
            "spec": {"minAvailable": at_least, "selector": {"matchLabels": labels}},
        }
    )
    path = f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets/{name}"
    await scene.api.wait_for(path, lambda each: each.get("status", {}).get("currentHealthy") == 2)
    await scene.wait_for_round(f"after-{name}")


@BOTH
async def test_a_restart_while_victims_terminate(scene: ClusterScenario, scheduler: str) -> None:
    """One victim is evicted, and told for whom. The new operator evicts nobody else; the pod comes when it is gone."""
    await full_nodes(scene, "m0", "m1", slow=True)
    await create_urgent(scene, "u", "1", scheduler)
    await until(lambda: leaving(scene), 60, lambda: "a victim to be evicted")
    (victim,) = await leaving(scene)
    name, node = victim["metadata"]["name"], victim["spec"]["nodeName"]
    told = await scene.api.wait_for(
        scene.path(name), lambda each: condition(each, "DisruptionTarget").get("reason") == "PreemptionByScheduler"
    )
    preemptor = await scene.api.get(scene.path("u"))
    message = f"Preempted by pod {preemptor['metadata']['uid']} on node {node}"
    said = condition(told, "DisruptionTarget")
    assert said["message"] == f"{scheduler}: preempting to accommodate a higher priority pod"
    assert said["observedGeneration"] == told["metadata"]["generation"] - 1, "the spec before its deletion"

    async def heard() -> bool:
        return ("Preempted", message) in [(each["reason"], each["message"]) for each in await scene.events_of(name)]

    await until(heard, 30, lambda: "the Event Preempted")
    await scene.api.wait_for(scene.path("u"), lambda each: each["status"].get("nominatedNodeName") == node)
    if scheduler == SCHEDULER_NAME:
        waits = await scene.api.wait_for(
            scene.path("u"), lambda each: condition(each, "PodScheduled").get("reason") == "WaitingForVictims"
        )
        assert condition(waits, "PodScheduled")["observedGeneration"] == waits["metadata"]["generation"]
    await scene.operator.kill()
    await scene.operator.start()
    await scene.wait_for_round("later")
    assert "nodeName" not in (await scene.get("u"))["spec"]
    assert [each["metadata"]["name"] for each in await leaving(scene)] == [name]
    await scene.api.patch(scene.path(name), {"metadata": {"finalizers": None}})
    assert await scene.node_of("u") == node
    for each in await scene.pods():
        if each["metadata"].get("finalizers"):
            assert "deletionTimestamp" not in each["metadata"], "a second wave"
            await scene.api.patch(scene.path(each["metadata"]["name"]), {"metadata": {"finalizers": None}})


async def test_a_pod_grows_where_it_runs(scene: ClusterScenario) -> None:
    """Its node defers the resize, as a kubelet says it: the lower pod beside it leaves, and the pod is left alone."""
    await scene.policy("own", selects={"podSelector": {}})
    await scene.priority_class("urgent", 1000)
    await scene.nodes("m0", cpu="4")
    await scene.ready("m0")
    for name, spec in (("grows", {"priorityClassName": "urgent"}), ("low", {})):
        await scene.create(name, "2", nodeName="m0", **spec)
        await scene.api.wait_for(scene.path(name), lambda each: each["status"].get("phase") == "Running")

    async def say(cpu: str, *conditions: dict[str, str]) -> None:
        """What a kubelet says of the pod."""
        has = {"allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}
        status = {"conditions": conditions, "containerStatuses": [{"name": "main", **has}]}
        await scene.api.patch(f"{scene.path('grows')}/status", {"status": status}, content_type=STRATEGIC_PATCH)

    await say("2")
    larger = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}}
    await scene.api.patch(f"{scene.path('grows')}/resize", larger, content_type=STRATEGIC_PATCH)
    await say("2", {"type": "PodResizePending", "status": "True", "reason": "Deferred"})

    async def left() -> bool:
        return [each["metadata"]["name"] for each in await scene.pods()] == ["grows"]

    await until(left, 60, lambda: "the lower pod to leave")
    grown = await scene.get("grows")
    assert condition(grown, "PodScheduled").get("status") != "False"
    assert "nominatedNodeName" not in grown["status"]
    await say("3", {"type": "PodResizePending", "$patch": "delete"})
    await scene.create("later", "1")
    assert await scene.node_of("later") == "m0"
    del scene.history.peaks["m0"]  # what the pod asked for counted there before it had it


async def two_victims(scene: ClusterScenario, scheduler: str) -> tuple[str, list[dict[str, Any]]]:
    """Two pods of a full node are evicted for the urgent pod ``u``, and do not end yet; the node and these pods."""
    await full_nodes(scene, "m0", "m1", slow=True)
    await create_urgent(scene, "u", "3", scheduler)

    async def both_leave() -> bool:
        return len(await leaving(scene)) == 2

    await until(both_leave, 60, lambda: "two victims to be evicted")
    victims = await leaving(scene)
    (node,) = {each["spec"]["nodeName"] for each in victims}
    await scene.api.wait_for(scene.path("u"), lambda each: each["status"].get("nominatedNodeName") == node)
    return node, victims


async def end(scene: ClusterScenario, victims: Sequence[dict[str, Any]], scheduler: str) -> None:
    """The victims end, and pods like them wait at once."""
    for name in ("new-a", "new-b"):
        await scene.create(name, "2", scheduler=scheduler)
    for each in victims:
        await let_end(scene, each)

    async def are_gone() -> bool:
        return not await leaving(scene)

    await until(are_gone, 30, lambda: "the victims to end")


async def let_end(scene: ClusterScenario, pod: dict[str, Any]) -> None:
    """A slow pod may end."""
    await scene.api.patch(scene.path(pod["metadata"]["name"]), {"metadata": {"finalizers": None}})


async def check_nobody_else_leaves(scene: ClusterScenario, node: str, scheduler: str) -> None:
    """The urgent pod gets its node, and all other pods stay, also after one more round."""
    assert await scene.node_of("u") == node
    await scene.create("later", scheduler=scheduler)
    await scene.node_of("later")
    pods = await scene.pods()
    assert {each["metadata"]["name"] for each in pods} >= {"u", "new-a", "new-b"}, "a second wave"
    assert not await leaving(scene), "a second wave"
    for each in pods:
        if each["metadata"].get("finalizers"):
            await let_end(scene, each)


@BOTH
async def test_killed_while_victims_terminate(scene: ClusterScenario, scheduler: str) -> None:
    """The victims end while no operator runs, and pods like them wait before the next one starts: nobody else leaves.

    kube-scheduler clears the nomination meanwhile, since its extender does not answer.
    """
    node, victims = await two_victims(scene, scheduler)
    await scene.operator.kill()
    await end(scene, victims, scheduler)
    if scheduler == STEERED_NAME:
        await scene.api.wait_for(scene.path("u"), lambda each: not each["status"].get("nominatedNodeName"))
    await scene.operator.start()
    await check_nobody_else_leaves(scene, node, scheduler)
    assert await count(scene.operator, "thalweg_evictions_total", "evicted") == 0


async def test_a_standby_takes_over_while_victims_terminate(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """The leader of two replicas is killed after its evictions: the other one evicts nobody else."""
    await scene.operator.stop()
    config = scene.operator.kubeconfig
    async with running_replicas(plane[1], [config, config], tmp_path) as replicas:
        standby, leader = await replicas.standby(), await replicas.leader()
        node, victims = await two_victims(scene, SCHEDULER_NAME)
        await leader.kill()
        await end(scene, victims, SCHEDULER_NAME)
        assert await replicas.leader(leader) is standby
        await check_nobody_else_leaves(scene, node, SCHEDULER_NAME)
        assert await count(standby, "thalweg_evictions_total", "evicted") == 0
        leader.begin()
    await scene.operator.start()


@BOTH
async def test_budgets_are_kept(scene: ClusterScenario, scheduler: str) -> None:
    """A pod that needs two victims of a budget that allows one evicts nobody; where two may go, both do."""
    await full_nodes(scene, "m0", labels={"app": "few"})
    await budget(scene, 1, {"app": "few"})
    await create_urgent(scene, "u", "3", scheduler)
    if scheduler == SCHEDULER_NAME:
        await scene.reason_of("u", "Insufficient cpu")
    await scene.wait_for_round("later")
    assert not await leaving(scene)
    # Nobody may go to m1 before it is full and its budget is counted.
    await full_nodes(
        scene, "m1", labels={"app": "many"}, taints=[{"key": "example.com/closed", "effect": "NoSchedule"}]
    )
    await budget(scene, 0, {"app": "many"})
    before = await count(scene.operator, "thalweg_eviction_dry_runs_total", "allowed")
    await scene.api.patch("/api/v1/nodes/m1", {"spec": {"taints": None}})
    assert await scene.node_of("u") == "m1"
    assert {each["metadata"]["name"] for each in await scene.pods()} >= {"m0-a", "m0-b", "u"}
    assert await count(scene.operator, "thalweg_eviction_dry_runs_total", "allowed") == before + 1


async def test_a_pod_that_preempts_nobody(scene: ClusterScenario) -> None:
    """Its preemptionPolicy is Never: it waits, and says for what."""
    await full_nodes(scene, "m0")
    await scene.priority_class("polite", 1000, preemptionPolicy="Never")
    await scene.create("polite", "1", scheduler=SCHEDULER_NAME, priorityClassName="polite")
    await scene.reason_of("polite", "Insufficient cpu")
    assert not await leaving(scene)
