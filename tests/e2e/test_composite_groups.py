"""On Kubernetes 1.37: PodGroups of a CompositePodGroup are placed together, and their conditions are as there."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.controlplane import SharedPlane, executables

from flowcore.model.policies import SCHEDULER_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUP = "scheduling.k8s.io"
PLANE = {"kwok": True}


@pytest.fixture(scope="session")
def shared_plane(request: pytest.FixtureRequest) -> Iterator[SharedPlane]:
    """Of the version that has them."""
    shared = SharedPlane(executables(request.config, "1.37"))
    yield shared
    asyncio.run(shared.stop())


def condition(group: Any, status: str) -> dict[str, Any]:
    """The condition of a PodGroup about its scheduling, if it has this status."""
    conditions = group.get("status", {}).get("conditions", [])
    wanted = ("PodGroupInitiallyScheduled", status)
    return next((each for each in conditions if (each["type"], each["status"]) == wanted), {})


async def create(scene: ClusterScenario, version: str, kind: str, name: str, **spec: Any) -> None:
    """An object of the API group of PodGroups."""
    metadata = {"name": name, "namespace": scene.namespace}
    await scene.api.create({"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata, "spec": spec})


async def create_groups(scene: ClusterScenario, names: str) -> None:
    """A CompositePodGroup that needs two groups, and groups of two pods of one core each."""
    pods = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    groups = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}
    templates = [{"name": name, **pods} for name in names]
    root = {"name": "root", **groups, "podGroupTemplates": templates}
    await create(scene, "v1beta1", "Workload", "w", compositePodGroupTemplates=[root])
    of = {"workloadRef": {"workloadName": "w", "templateName": "root"}}
    await create(scene, "v1alpha3", "CompositePodGroup", "c", **of, **groups)
    for name in names:
        of = {"workloadRef": {"workloadName": "w", "templateName": name}, "parentCompositePodGroupName": "c"}
        await create(scene, "v1beta1", "PodGroup", name, **of, **pods)
        member = {"scheduler": SCHEDULER_NAME, "schedulingGroup": {"podGroupName": name}}
        await scene.api.create_many([scene.pod(f"{name}-{n}", "1", **member) for n in range(2)])


async def test_two_of_three_groups(scene: ClusterScenario) -> None:
    """Two are placed where there is room for two; the third one comes by itself when it has room."""
    await create_groups(scene, "abc")
    await scene.nodes("n", cpu="5")
    path = f"/apis/{GROUP}/v1beta1/namespaces/{scene.namespace}/podgroups"
    await scene.nodes_of("a-0", "a-1", "b-0", "b-1", within=60)
    await scene.api.wait_for(f"{path}/c", lambda each: condition(each, "False"))
    await scene.nodes("m", cpu="1")
    await scene.nodes_of("c-0", "c-1", within=60)


async def test_groups_of_a_composite_one(scene: ClusterScenario) -> None:
    """Neither is placed where one alone has room; with room for both, both are."""
    await create_groups(scene, "ab")
    await scene.nodes("n", cpu="3")
    path = f"/apis/{GROUP}/v1beta1/namespaces/{scene.namespace}/podgroups"
    message = "needs 4 pods at once, and there is room for 3"
    waits = await scene.api.wait_for(f"{path}/a", lambda each: message in condition(each, "False").get("message", ""))
    assert condition(waits, "False")["reason"] == "Unschedulable"
    await scene.nodes("m", cpu="1")
    await scene.nodes_of("a-0", "a-1", "b-0", "b-1", within=60)
    for name in "ab":
        await scene.api.wait_for(f"{path}/{name}", lambda each: condition(each, "True"))
