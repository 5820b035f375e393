"""Pods with resource claims, through kube-scheduler: planned where devices are, allocated and bound by it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import count, no_reservations
from thalweg_controlplane.client.objects import object_path

from flowcore.model.policies import SCHEDULER_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True, "controller_manager": True, "kwok": True}
STEERED: dict[str, str] = {}
API, DRIVER = "resource.k8s.io/v1", "gpu.example.com"
RESOURCE, IMPLICIT = "example.com/h100", "deviceclass.resource.kubernetes.io/h100"
ONE = [{"name": "gpu", "resourceClaimTemplateName": "one"}]


def devices(node: str, number: int) -> dict[str, Any]:
    """What a driver publishes of a node."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    gpu = {"attributes": {"model": {"string": "h100"}}, "capacity": {"memory": {"value": "80Gi"}}}
    gpus = [{"name": f"gpu-{place}", **gpu} for place in range(number)]
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": gpus}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"gpus-of-{node}"}, "spec": spec}


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def published(scene: ClusterScenario) -> AsyncIterator[None]:
    """One device on a, two on b, none on c; a class of them and a template for claims of one.

    Devices have the same names in each test. kube-scheduler may learn after us that one of the test before is free, and
    would refuse the plan.
    """

    async def are_free() -> bool:
        claims = await scene.api.list(f"/apis/{API}/resourceclaims")
        return not any(claim.get("status", {}).get("allocation") for claim in claims)

    await until(are_free, 60, lambda: "claims of the test before to have no devices")
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == "h100"'
    gpu = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "h100"},
           "spec": {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": RESOURCE}}  # fmt: skip
    request = {"name": "r", "exactly": {"deviceClassName": "h100", "allocationMode": "ExactCount", "count": 1}}
    template = {"apiVersion": API, "kind": "ResourceClaimTemplate",
                "metadata": {"name": "one", "namespace": scene.namespace},
                "spec": {"spec": {"devices": {"requests": [request]}}}}  # fmt: skip
    made = [gpu, devices("a", 1), devices("b", 2)]
    await scene.api.create_many([*made, template])
    yield
    await no_reservations(scene)
    for each in made:
        await scene.api.delete(object_path(each))


async def allocated(scene: ClusterScenario) -> list[tuple[str, str]]:
    """Pool and name of each device that a claim has."""
    claims = await scene.api.list(f"/apis/{API}/namespaces/{scene.namespace}/resourceclaims")
    results = [
        result
        for claim in claims
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    ]
    return sorted((result["pool"], result["device"]) for result in results)


async def test_pods_go_where_their_devices_are(scene: ClusterScenario) -> None:
    """Three of four get one each, kube-scheduler refuses no plan, and the fourth is told. It gets what comes free."""
    await scene.nodes("a", "b", cpu="8")
    await scene.nodes("c", cpu="64")
    rejected = await count(scene.operator, "thalweg_steered_total", "rejected")
    names = ["p0", "p1", "p2"]
    await scene.api.create_many([scene.pod(name, "1", resourceClaims=ONE) for name in names])
    assert sorted((await scene.nodes_of(*names)).values()) == ["a", "b", "b"]
    assert await allocated(scene) == [("a", "gpu-0"), ("b", "gpu-0"), ("b", "gpu-1")]
    assert await count(scene.operator, "thalweg_steered_total", "rejected") == rejected
    await scene.create("p3", "1", resourceClaims=ONE)
    await scene.reason_of("p3", "0/3 nodes are available: 3 cannot allocate all claims")
    await scene.delete("p0")
    await scene.node_of("p3")
    assert len(set(await allocated(scene))) == 3


async def test_pods_that_share_a_claim(scene: ClusterScenario) -> None:
    """They go to one node, and have one device."""
    await scene.nodes("a", "b", cpu="8")
    request = {"name": "r", "exactly": {"deviceClassName": "h100", "allocationMode": "ExactCount", "count": 1}}
    await scene.api.create({"apiVersion": API, "kind": "ResourceClaim",
                            "metadata": {"name": "shared", "namespace": scene.namespace},
                            "spec": {"devices": {"requests": [request]}}})  # fmt: skip
    shared = [{"name": "gpu", "resourceClaimName": "shared"}]
    names = [f"p{number}" for number in range(4)]
    await scene.api.create_many([scene.pod(name, "1", resourceClaims=shared) for name in names])
    assert len(set((await scene.nodes_of(*names)).values())) == 1
    assert len(await allocated(scene)) == 1


async def test_both_deliveries_take_devices(scene: ClusterScenario) -> None:
    """Pods that we bind and pods that kube-scheduler binds come at once: no two of them have one device."""
    await scene.nodes("a", "b", cpu="8")
    steered, ours = [f"s{number}" for number in range(3)], [f"o{number}" for number in range(3)]
    pods = [scene.pod(name, "1", resourceClaims=ONE) for name in steered]
    pods += [scene.pod(name, "1", resourceClaims=ONE, scheduler=SCHEDULER_NAME) for name in ours]
    await scene.api.create_many(pods)

    async def placed() -> int:
        return sum(bool(pod["spec"].get("nodeName")) for pod in await scene.pods())

    async def three() -> bool:
        return await placed() == 3

    await until(three, 90, lambda: "three pods to have devices")
    assert await allocated(scene) == [("a", "gpu-0"), ("b", "gpu-0"), ("b", "gpu-1")]
    names = [pod["metadata"]["name"] for pod in await scene.pods() if pod["spec"].get("nodeName")]
    await scene.delete(*names)
    await until(three, 90, lambda: "the other three to have them")
    assert len(set(await allocated(scene))) == 3


async def test_an_urgent_pod_gets_a_device(scene: ClusterScenario) -> None:
    """One pod leaves for it, and kube-scheduler allocates what that had."""
    await scene.priority_class("urgent", 1000)
    await scene.nodes("a", "b", cpu="8")
    names = [f"p{number}" for number in range(3)]
    await scene.api.create_many([scene.pod(name, "1", resourceClaims=ONE) for name in names])
    await scene.nodes_of(*names)
    await scene.create("u", "1", resourceClaims=ONE, priorityClassName="urgent")
    await scene.node_of("u")
    assert len([pod for pod in await scene.pods() if pod["metadata"]["name"] in names]) == 2
    assert len(set(await allocated(scene))) == 3


async def test_pods_that_ask_for_an_extended_resource(scene: ClusterScenario) -> None:
    """Those that we steer get devices by claims that kube-scheduler makes, or what a node offers; ours take turns."""
    await scene.nodes("a", "b", cpu="8")
    await scene.nodes("c", cpu="8", extended={RESOURCE: "1"})
    rejected = await count(scene.operator, "thalweg_steered_total", "rejected")
    names = [f"p{number}" for number in range(4)]
    await scene.api.create_many([scene.pod(name, "1", extended={RESOURCE: "1"}) for name in names])
    assert sorted((await scene.nodes_of(*names)).values()) == ["a", "b", "b", "c"]
    assert await allocated(scene) == [("a", "gpu-0"), ("b", "gpu-0"), ("b", "gpu-1")]
    assert await count(scene.operator, "thalweg_steered_total", "rejected") == rejected
    pods = {pod["metadata"]["name"]: pod for pod in await scene.pods()}
    made = [pod["spec"]["nodeName"] for pod in pods.values() if "extendedResourceClaimStatus" in pod["status"]]
    assert sorted(made) == ["a", "b", "b"]
    await scene.create("p4", "1", extended={IMPLICIT: "1"})
    await scene.reason_of("p4", "0/3 nodes are available: 3 cannot allocate all claims")
    await scene.create("ours", "1", extended={RESOURCE: "1"}, scheduler=SCHEDULER_NAME)
    await scene.reason_of("ours", "1 Insufficient example.com/h100", "2 cannot allocate all claims")
    await scene.delete(*(name for name, pod in pods.items() if pod["spec"]["nodeName"] == "b"))
    assert await scene.nodes_of("p4", "ours") == {"p4": "b", "ours": "b"}
    assert await allocated(scene) == [("a", "gpu-0"), ("b", "gpu-0"), ("b", "gpu-1")]
