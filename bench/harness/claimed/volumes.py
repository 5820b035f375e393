"""StatefulSets whose pods claim a local volume each: a claim for each pod, whose class waits for its first consumer."""

from __future__ import annotations

import asyncio
from collections import Counter

from thalweg_controlplane import Api
from thalweg_controlplane.client.objects import Manifest, node, pod

from harness import plane, workload

_CLASS = "local"
_HOST = "kubernetes.io/hostname"
#: Volumes of a node, and their size.
_VOLUMES_OF_NODE, _SIZE = 3, "100Gi"
#: Pods of a StatefulSet.
_REPLICAS = 50
_AVAILABLE_SECONDS = 120.0
_VOLUMES = "/api/v1/persistentvolumes"
_CLAIMS = f"/api/v1/namespaces/{workload.MEASURED}/persistentvolumeclaims"


def _volumes_of(nodes: int) -> list[Manifest]:
    """Local volumes of each node."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"volume-{at:05}-{place}"},
            "spec": {
                "capacity": {"storage": _SIZE},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": _CLASS,
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": f"/mnt/{place}"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": _HOST, "operator": "In", "values": [f"node-{at:05}"]}]}
                        ]
                    }
                },
            },
        }
        for at in range(nodes)
        for place in range(_VOLUMES_OF_NODE)
    ]


def _storage_class() -> Manifest:
    """Of volumes that are there."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": _CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _pod_names(count: int) -> list[str]:
    """Of StatefulSets one after the other."""
    return [f"set-{i // _REPLICAS:03}-{i % _REPLICAS}" for i in range(count)]


def _claims(count: int) -> list[Manifest]:
    """One for each pod."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"data-{name}", "namespace": workload.MEASURED},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": _CLASS,
                "resources": {"requests": {"storage": _SIZE}},
            },
        }
        for name in _pod_names(count)
    ]


async def fill(api: Api, nodes: int, pods: int) -> int:
    """Makes nodes, volumes and claims; returns how many volumes there are, once the controller has taken them up."""
    await api.create(_storage_class())
    await plane.create(api, [node(f"node-{i:05}", cpu="64", memory="512Gi") for i in range(nodes)])
    volumes = _volumes_of(nodes)
    await plane.create(api, volumes)
    await plane.create(api, _claims(pods))
    async with asyncio.timeout(_AVAILABLE_SECONDS):
        while not await _are_available(api):  # noqa: ASYNC110 - the controller has no event for all
            await asyncio.sleep(0.2)
    return len(volumes)


async def _are_available(api: Api) -> bool:
    return all(each["status"].get("phase") == "Available" for each in await api.list(_VOLUMES))


def make_pods(count: int, scheduler: str) -> list[Manifest]:
    """With their claims."""
    return [
        pod(
            name,
            "500m",
            "1Gi",
            workload.MEASURED,
            scheduler,
            labels={"app": name.rpartition("-")[0]},
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}],
        )
        for name in _pod_names(count)
    ]


async def until_claimed(_api: Api, _count: int) -> None:
    """Nothing: the claims are there before the pods."""


async def misplaced(api: Api, pods: list[Manifest]) -> int:
    """Pods whose volume is not on their node, and volumes that several claims have."""
    volume_of = {each["metadata"]["name"]: each["spec"].get("volumeName", "") for each in await api.list(_CLAIMS)}
    placed = [each for each in pods if each["spec"].get("nodeName")]
    used_volumes = Counter(volume_of[f"data-{each['metadata']['name']}"] for each in placed)
    elsewhere = sum(
        volume_of[f"data-{each['metadata']['name']}"].rpartition("-")[0].removeprefix("volume-")
        != each["spec"]["nodeName"].removeprefix("node-")
        for each in placed
    )
    return elsewhere + sum(count > 1 for count in used_volumes.values())
