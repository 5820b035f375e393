"""Pods of a PodGroup share a claim: Kubernetes' controller makes it, delivery Binder allocates it for the group."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario
from support.device_driver import API, DRIVER, allocated, allocated_are, claims, publish
from support.operator import Operator, running_operator, until
from thalweg_controlplane.client.objects import object_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

GATE = "DRAWorkloadResourceClaims=true"
PLANE = {"controller_manager": True, "kwok": True, "gates": (GATE,)}
GROUPS = "scheduling.k8s.io"
SHARED = {"name": "gpu", "resourceClaimTemplateName": "one"}
#: Seconds that devices without users stay, and some more.
LEFT = 30


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(account: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """One that knows the gate to be on."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    async with running_operator(account, log, extender=("--feature-gates", GATE)) as operator:
        yield operator


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def classes(scene: ClusterScenario) -> AsyncIterator[None]:
    """A class of devices, and a template for claims of one. At the end all goes, devices that groups keep too."""
    selects = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    gpu = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": selects}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    template = {"apiVersion": API, "kind": "ResourceClaimTemplate",
                "metadata": {"name": "one", "namespace": scene.namespace},
                "spec": {"spec": {"devices": {"requests": [request]}}}}  # fmt: skip
    await scene.api.create_many([gpu, template])
    yield
    await scene.clean_up()
    await scene.api.delete(f"/apis/{GROUPS}/v1alpha2/namespaces/{scene.namespace}/podgroups")
    await no_claims(scene)
    await scene.api.delete(object_path(gpu))
    await scene.api.delete(f"/apis/{API}/resourceslices")


async def no_claims(scene: ClusterScenario) -> None:
    """Waits until Kubernetes' controllers have removed the claims of groups that are gone."""

    async def gone() -> bool:
        return not await claims(scene)

    await until(gone, 60, lambda: "the claims to go with their group")


async def create_group(scene: ClusterScenario, least: int) -> dict[str, Any]:
    """A PodGroup that shares a claim with its pods, as the API server has it."""
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}, "resourceClaims": [SHARED]}
    metadata = {"name": "train", "namespace": scene.namespace}
    group = {"apiVersion": f"{GROUPS}/v1alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    created: dict[str, Any] = await scene.api.create(group)
    assert created["spec"]["resourceClaims"] == [SHARED], "the gate is off"
    return created


def member(scene: ClusterScenario, name: str, cpu: str = "1") -> dict[str, Any]:
    """A pod of the group."""
    return scene.pod(name, cpu, schedulingGroup={"podGroupName": "train"}, resourceClaims=[SHARED])


async def test_a_gang_shares_a_claim(scene: ClusterScenario) -> None:
    """One allocation, on a node with room for all, reserved for the group. Kubernetes frees it when the group goes."""
    await scene.nodes("a", "b", cpu="2")
    await scene.nodes("large", cpu="8")
    for node in ("a", "b", "large"):
        await publish(scene, node, 1)
    group = await create_group(scene, 3)
    names = [f"p{number}" for number in range(3)]
    await scene.api.create_many([member(scene, name) for name in names])
    assert set((await scene.nodes_of(*names)).values()) == {"large"}
    await scene.api.create(member(scene, "late"))
    assert await scene.node_of("late") == "large"
    (claim,) = await claims(scene)
    consumer = {"apiGroup": GROUPS, "resource": "podgroups", "name": "train", "uid": group["metadata"]["uid"]}
    assert claim["status"]["reservedFor"] == [consumer]
    assert [owner["name"] for owner in claim["metadata"]["ownerReferences"]] == ["train"]
    for name in (*names, "late"):
        await scene.delete(name)
    await allocated_are(scene, ("large", "gpu-0"))
    await scene.api.delete(object_path(group))
    await no_claims(scene)


async def test_a_gang_that_no_node_has_room_for(scene: ClusterScenario) -> None:
    """It waits as a whole, with the reason, and its claim gets nothing; then a node comes."""
    await scene.nodes("a", "b", cpu="2")
    for node in ("a", "b"):
        await publish(scene, node, 1)
    await create_group(scene, 3)
    names = [f"p{number}" for number in range(3)]
    await scene.api.create_many([member(scene, name) for name in names])
    await scene.reason_of("p0", "in one domain of kubernetes.io/hostname")
    assert await allocated(scene) == []
    await scene.nodes("large", cpu="8")
    await publish(scene, "large", 1)
    assert set((await scene.nodes_of(*names)).values()) == {"large"}


async def test_pods_that_go_before_others_come(scene: ClusterScenario) -> None:
    """While no pod of the group has a node and one waits, the devices come free: it may go elsewhere."""
    await scene.nodes("a", cpu="2")
    await publish(scene, "a", 1)
    await create_group(scene, 1)
    await scene.api.create(member(scene, "p"))
    assert await scene.node_of("p") == "a"
    await scene.nodes("large", cpu="8")
    await publish(scene, "large", 1)
    await scene.api.create(member(scene, "wide", "4"))
    await scene.reason_of("wide", "0/2 nodes are available")
    await scene.delete("p")
    assert await scene.node_of("wide") == "large"
    await allocated_are(scene, ("large", "gpu-0"), within=LEFT)
