"""Beside the real controller manager, the real kube-scheduler and KWOK's kubelets."""

import asyncio
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}


def workload(
    scene: ClusterScenario, kind: str, name: str, cpu: str, scheduler: str = "thalweg", **spec: Any
) -> dict[str, Any]:
    """A Deployment, StatefulSet or Job."""
    pod = scene.pod("template", cpu, scheduler=scheduler)["spec"]
    labels = {"app": name}
    if kind == "Job":
        pod["restartPolicy"] = "Never"
        selector: dict[str, Any] = {}
    else:
        selector = {"selector": {"matchLabels": labels}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": scene.namespace},
        "spec": {**selector, "template": {"metadata": {"labels": labels}, "spec": pod}, **spec},
    }


def path(scene: ClusterScenario, kind: str, name: str) -> str:
    return f"/apis/{'batch' if kind == 'jobs' else 'apps'}/v1/namespaces/{scene.namespace}/{kind}/{name}"


async def available(scene: ClusterScenario, name: str, count: int, kind: str = "deployments") -> None:
    """Waits until exactly so many replicas are available."""
    field = "availableReplicas" if kind == "deployments" else "readyReplicas"
    await scene.api.wait_for(
        path(scene, kind, name),
        lambda each: each["status"].get("replicas", 0) == each["status"].get(field, 0) == count,
        within=60,
    )


async def names_of(scene: ClusterScenario, app: str) -> list[str]:
    return [
        each["metadata"]["name"]
        for each in await scene.pods()
        if each["metadata"].get("labels", {}).get("app") == app and "deletionTimestamp" not in each["metadata"]
    ]


async def test_a_deployment_is_scaled_and_loses_pods(scene: ClusterScenario) -> None:
    """Scaled up to the last millicore, its pods deleted and replaced, scaled down and up again."""
    await scene.nodes("a", "b", "c", cpu="4")
    await scene.api.create(workload(scene, "Deployment", "web", "1", replicas=6))
    await available(scene, "web", 6)
    await scene.api.patch(path(scene, "deployments", "web"), {"spec": {"replicas": 12}})
    await available(scene, "web", 12)
    doomed = (await names_of(scene, "web"))[:8]
    await asyncio.gather(*(scene.api.delete(scene.path(name)) for name in doomed))

    async def replaced() -> bool:
        return not set(doomed) & set(await names_of(scene, "web"))

    await until(replaced, 30, lambda: "the deleted to be gone")
    await available(scene, "web", 12)
    # One more than there is room for waits, and goes in when room comes.
    await scene.api.patch(path(scene, "deployments", "web"), {"spec": {"replicas": 14}})

    async def two_wait() -> bool:
        return len([each for each in await scene.pods() if not each["spec"].get("nodeName")]) == 2

    await until(two_wait, 30, lambda: "two to wait")
    await scene.wait_settled()
    await scene.nodes("d", cpu="4")
    await available(scene, "web", 14)
    await scene.api.patch(path(scene, "deployments", "web"), {"spec": {"replicas": 2}})
    await available(scene, "web", 2)
    await scene.api.patch(path(scene, "deployments", "web"), {"spec": {"replicas": 16}})
    await available(scene, "web", 16)


async def test_a_job_whose_pods_complete(scene: ClusterScenario) -> None:
    """Forty pods on room for three: each waits for another to end, and the Job ends."""
    await scene.nodes("only", cpu="3")
    await scene.api.create(workload(scene, "Job", "once", "1", completions=40, parallelism=10))
    await scene.api.wait_for(path(scene, "jobs", "once"), lambda each: each["status"].get("succeeded") == 40, within=90)
    assert {each["status"]["phase"] for each in await scene.pods()} == {"Succeeded"}


async def test_a_job_whose_pods_are_deleted(scene: ClusterScenario) -> None:
    """Its controller replaces them, and the replacements are placed."""
    await scene.nodes("closed", cpu="4", taints=[{"key": "t", "effect": "NoSchedule"}])
    await scene.api.create(workload(scene, "Job", "hit", "1", completions=3, parallelism=3))
    await until(lambda: _count(scene, "hit", 3), 30, lambda: "its pods")
    await scene.wait_settled()
    # One only: the controller counts it as a failure, and waits longer with each.
    await scene.delete((await names_of(scene, "hit"))[0])
    await until(lambda: _count(scene, "hit", 3), 30, lambda: "its replacements")
    await scene.api.patch("/api/v1/nodes/closed", {"spec": {"taints": None}})
    await scene.api.wait_for(path(scene, "jobs", "hit"), lambda each: each["status"].get("succeeded") == 3, within=60)


async def test_a_stateful_set_keeps_its_names(scene: ClusterScenario) -> None:
    """Pods come back under the same name with another uid, and find their place again."""
    await scene.nodes("a", "b", cpu="2")
    await scene.api.create(
        workload(scene, "StatefulSet", "db", "1", replicas=4, serviceName="db", podManagementPolicy="Parallel")
    )
    await available(scene, "db", 4, "statefulsets")
    for _ in range(3):
        before = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await scene.pods()}
        await asyncio.gather(*(scene.api.delete(scene.path(name)) for name in before))

        async def anew(before: dict[str, str] = before) -> bool:
            now = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await scene.pods()}
            return set(now) == set(before) and not set(now.values()) & set(before.values())

        await until(anew, 30, lambda: "all to be replaced")
        await available(scene, "db", 4, "statefulsets")


async def test_beside_kube_scheduler(scene: ClusterScenario) -> None:
    """Each scheduler's pods count for the other, and neither touches the other's."""
    await scene.nodes("a", "b", cpu="4")
    await scene.api.create(workload(scene, "Deployment", "theirs", "1", "default-scheduler", replicas=4))
    await available(scene, "theirs", 4)
    await scene.api.create(workload(scene, "Deployment", "ours", "1", replicas=3))
    await available(scene, "ours", 3)
    await scene.api.patch(path(scene, "deployments", "theirs"), {"spec": {"replicas": 5}})
    await available(scene, "theirs", 5)
    # Full. One more of each waits, each told by its own scheduler.
    await scene.create("our-last", "1")
    await scene.reason_of("our-last", "2 Insufficient cpu")
    await scene.create("their-last", "1", scheduler="default-scheduler")
    await scene.api.wait_for(
        scene.path("their-last"),
        lambda each: any(c.get("reason") == "Unschedulable" for c in each["status"].get("conditions", ())),
    )
    assert await scene.events_of("their-last") == []
    # Room that theirs leave is ours.
    await scene.api.delete(scene.path("their-last"), gracePeriodSeconds="0")
    await scene.api.patch(path(scene, "deployments", "theirs"), {"spec": {"replicas": 4}})
    await scene.node_of("our-last")
    writers = {
        each["metadata"]["name"]: {field["manager"] for field in each["metadata"]["managedFields"]}
        for each in await scene.pods()
        if each["spec"]["schedulerName"] == "default-scheduler"
    }
    assert len(writers) == 4
    assert not [name for name, managers in writers.items() if any("python" in manager.lower() for manager in managers)]


async def test_anti_affinity_of_pods_that_kube_scheduler_placed(scene: ClusterScenario) -> None:
    """Two of theirs that want their hosts free of web pods keep ours to the third."""
    await scene.nodes("a", "b", "c", cpu="8")
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    alone = {"labelSelector": {"matchLabels": {"app": "hermit"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term, alone]}}
    for name in ("hermit-1", "hermit-2"):
        await scene.create(name, scheduler="default-scheduler", labels={"app": "hermit"}, affinity=affinity)
    hermits = set((await scene.nodes_of("hermit-1", "hermit-2")).values())
    assert len(hermits) == 2
    await scene.wait_for_round("barrier")
    await scene.api.create(workload(scene, "Deployment", "web", "1", replicas=5))
    await available(scene, "web", 5)
    places = {
        each["spec"]["nodeName"]
        for each in await scene.pods()
        if each["metadata"].get("labels", {}).get("app") == "web"
    }
    assert places == {"a", "b", "c"} - hermits


async def test_an_evicting_taint(scene: ClusterScenario) -> None:
    """Pods of a node that gets a NoExecute taint are evicted, replaced, and placed elsewhere."""
    await scene.nodes("a", "b", "c", cpu="4")
    await scene.api.create(workload(scene, "Deployment", "web", "500m", replicas=12))
    await available(scene, "web", 12)
    await scene.api.patch("/api/v1/nodes/a", {"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}})

    async def moved() -> bool:
        places = [each["spec"].get("nodeName") for each in await scene.pods()]
        return len(places) == 12 and set(places) == {"b", "c"}

    await until(moved, 60, lambda: "all to be on b and c")
    await available(scene, "web", 12)


async def _count(scene: ClusterScenario, app: str, count: int) -> bool:
    return len(await names_of(scene, app)) == count
