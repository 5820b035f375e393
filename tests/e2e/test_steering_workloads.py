"""Beside the real controller manager: a Deployment, and pods whose volumes only kube-scheduler can bind."""

from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.operator import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"controller_manager": True, "scheduler": True, "kwok": True}
STEERED: dict[str, str] = {}


async def test_a_deployment_is_scaled(scene: ClusterScenario) -> None:
    """Up to the last millicore, beyond it, down and up again."""
    await scene.nodes("a", "b", "c", cpu="4")
    labels = {"app": "web"}
    path = f"/apis/apps/v1/namespaces/{scene.namespace}/deployments/web"
    template = {"metadata": {"labels": labels}, "spec": scene.pod("template", "1")["spec"]}
    await scene.api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": scene.namespace},
            "spec": {"replicas": 6, "selector": {"matchLabels": labels}, "template": template},
        }
    )

    async def scaled(to: int, available: int) -> None:
        await scene.api.patch(path, {"spec": {"replicas": to}})
        await scene.api.wait_for(
            path,
            lambda each: (
                (each["status"].get("replicas", 0), each["status"].get("availableReplicas", 0)) == (to, available)
            ),
            within=60,
        )

    await scaled(6, 6)
    await scaled(12, 12)
    await scaled(14, 12)
    await scene.wait_settled()
    await scene.nodes("d", cpu="4")
    await scaled(14, 14)
    await scaled(2, 2)
    await scaled(16, 16)


async def test_pods_with_volumes(scene: ClusterScenario) -> None:
    """WaitForFirstConsumer, volumes on two of three nodes: bound where the volume is, and so is the claim."""
    await scene.nodes("a", "b", "c")
    await scene.api.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    for node in ("b", "c"):
        await scene.api.create(volume(f"{scene.namespace}-{node}", node))
    try:
        for name in ("one", "two"):
            await scene.api.create(claim(scene, name))
            await scene.create(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}])
        where = await scene.nodes_of("one", "two", within=60)
        assert set(where.values()) == {"b", "c"}
        for name in ("one", "two"):
            path = f"/api/v1/namespaces/{scene.namespace}/persistentvolumeclaims/{name}"
            bound = await scene.api.wait_for(path, lambda each: each["status"].get("phase") == "Bound")
            assert bound["spec"]["volumeName"] == f"{scene.namespace}-{where[name]}"
        # There is no third volume: the pod waits, and is told so.
        await scene.api.create(claim(scene, "three"))
        await scene.create("three", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "three"}}])
        await scene.reason_of("three", "persistent volume")
    finally:
        await scene.delete("one", "two", "three")
        await scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/persistentvolumeclaims")
        await scene.api.delete("/api/v1/persistentvolumes")

    async def no_volumes() -> bool:
        return not await scene.api.list("/api/v1/persistentvolumes")

    await until(no_volumes, 30, lambda: "the volumes to be gone")


def volume(name: str, node: str) -> dict[str, Any]:
    """A PersistentVolume on one node."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local",
            "local": {"path": "/mnt/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def claim(scene: ClusterScenario, name: str) -> dict[str, Any]:
    """A PersistentVolumeClaim of the test's namespace."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": scene.namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
