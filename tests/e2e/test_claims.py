"""Pods with volume claims, through kube-scheduler: planned where volumes can be had, and bound by it alone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import count, no_reservations
from thalweg_controlplane import ApiError
from thalweg_controlplane.client.objects import object_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True, "controller_manager": True}
STEERED: dict[str, str] = {}
DATA = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def volumes(scene: ClusterScenario) -> AsyncIterator[None]:
    """Volumes of two sizes in zone b, and a class that hands them out; all gone when the test is."""
    late = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    made = [late, volume("small", "1Gi", "b"), volume("large", "9Gi", "b")]
    await scene.api.create_many(made)
    yield
    await no_reservations(scene)
    for each in made:
        await scene.api.delete(object_path(each))
        await until(
            lambda each=each: _gone(scene, each), 60, lambda each=each: f"{each['metadata']['name']} to be gone"
        )


async def _gone(scene: ClusterScenario, manifest: dict[str, Any]) -> bool:
    """A finalizer that comes back while we take it off keeps an object for a while."""
    try:
        await scene.api.patch(object_path(manifest), {"metadata": {"finalizers": None}})
    except ApiError as error:
        return error.status == 404
    return False


def volume(name: str, size: str, zone: str) -> dict[str, Any]:
    reach = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "late",
            "hostPath": {"path": f"/{name}"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [reach]}}}  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def claim(scene: ClusterScenario, name: str, size: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late", "resources": {"requests": {"storage": size}}}
    metadata = {"name": name, "namespace": scene.namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


async def test_a_claim_that_waits_for_its_first_consumer(scene: ClusterScenario) -> None:
    """The pod is planned where a volume is, and let through there: its claim is bound to the smallest that will do."""
    await scene.nodes("a", labels={"zone": "a"}, cpu="64")
    await scene.nodes("b", labels={"zone": "b"}, cpu="2")
    rejected = await count(scene.operator, "thalweg_steered_total", "rejected")
    data = await scene.api.create(claim(scene, "data", "2Gi"))
    await scene.create("p", "1", volumes=DATA)
    assert await scene.nodes_of("p") == {"p": "b"}
    assert await count(scene.operator, "thalweg_steered_total", "rejected") == rejected
    bound = await scene.api.wait_for(object_path(data), lambda each: each["status"].get("phase") == "Bound")
    assert bound["spec"]["volumeName"] == "large"


async def test_a_claim_that_comes_late(scene: ClusterScenario) -> None:
    """The pod waits, is told which claim, and goes as soon as it is there."""
    await scene.nodes("b", labels={"zone": "b"})
    await scene.create("p", "1", volumes=DATA)
    await scene.reason_of("p", 'persistentvolumeclaim "data" not found')
    await scene.api.create(claim(scene, "data", "1Gi"))
    assert await scene.nodes_of("p") == {"p": "b"}
