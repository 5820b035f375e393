"""On Kubernetes 1.37: pods below a CompositePodGroup wait, and the condition of their PodGroup says why."""

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


async def test_pods_below_one_wait(scene: ClusterScenario) -> None:
    """Though there is room for all; nobody else waits."""
    await create_groups(scene, "ab")
    await scene.api.create_many([scene.pod("alone", "1", scheduler=SCHEDULER_NAME)])
    await scene.nodes("n", cpu="9")
    await scene.nodes_of("alone", within=60)
    message = f"it belongs to CompositePodGroup {scene.namespace}/c, an alpha kind of Kubernetes 1.37"
    for name in "ab":
        await scene.reason_of(f"{name}-0", f"PodGroup {scene.namespace}/{name}: {message}")
        path = f"/apis/{GROUP}/v1beta1/namespaces/{scene.namespace}/podgroups/{name}"
        await scene.api.wait_for(path, lambda each: message in condition(each, "False").get("message", ""))
