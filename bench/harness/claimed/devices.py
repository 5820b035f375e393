"""Pods that claim a GPU each by a template, on nodes whose driver publishes eight GPUs."""

from __future__ import annotations

import asyncio
from collections import Counter

from thalweg_controlplane import Api
from thalweg_controlplane.client.objects import Manifest, node, pod

from harness import plane, workload

_API, _DRIVER, _CLASS, _TEMPLATE = "resource.k8s.io/v1", "gpu.example.com", "gpu", "one-gpu"
_GPUS_OF_NODE = 8
_CLAIMS = f"/apis/{_API}/namespaces/{workload.MEASURED}/resourceclaims"
_CLAIMED_SECONDS = 300.0


def _slice(node_name: str) -> Manifest:
    """What a driver publishes of a node."""
    gpus = [
        {
            "name": f"gpu-{place}",
            "attributes": {"model": {"string": "h100"}, "index": {"int": place}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for place in range(_GPUS_OF_NODE)
    ]
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": _API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"gpus-of-{node_name}"},
        "spec": {"driver": _DRIVER, "nodeName": node_name, "pool": pool, "devices": gpus},
    }


def _class() -> Manifest:
    selector = {"cel": {"expression": f'device.driver == "{_DRIVER}"'}}
    return {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": _CLASS}, "spec": {"selectors": [selector]}}


def _template() -> Manifest:
    expression = f'device.attributes["{_DRIVER}"].model == "h100"'
    exactly = {"deviceClassName": _CLASS, "selectors": [{"cel": {"expression": expression}}]}
    return {
        "apiVersion": _API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": _TEMPLATE, "namespace": workload.MEASURED},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


async def fill(api: Api, nodes: int, _pods: int) -> int:
    """Makes nodes with devices; how many devices there are."""
    names = [f"node-{i:05}" for i in range(nodes)]
    await plane.create(api, [node(name, cpu="64", memory="512Gi") for name in names])
    await plane.create(api, [_class(), _template(), *map(_slice, names)])
    return nodes * _GPUS_OF_NODE


def make_pods(count: int, scheduler: str) -> list[Manifest]:
    """All alike."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": _TEMPLATE}]
    return [pod(f"pod-{i:06}", "4", "16Gi", workload.MEASURED, scheduler, resourceClaims=claims) for i in range(count)]


async def until_claimed(api: Api, count: int) -> None:
    """Returns once the controller has made the pods' claims and told the pods."""
    async with asyncio.timeout(_CLAIMED_SECONDS):
        while not await _are_claimed(api, count):  # noqa: ASYNC110 - the controller has no event for all
            await asyncio.sleep(0.5)


async def _are_claimed(api: Api, count: int) -> bool:
    pods = await api.list(f"/api/v1/namespaces/{workload.MEASURED}/pods")
    return sum(bool(each["status"].get("resourceClaimStatuses")) for each in pods) >= count


async def misplaced(api: Api, pods: list[Manifest]) -> int:
    """Pods whose device is not on their node, pods without one, and devices that several claims have."""
    nodes = {each["metadata"]["uid"]: each["spec"]["nodeName"] for each in pods if each["spec"].get("nodeName")}
    devices: Counter[tuple[str, str]] = Counter()
    served: Counter[str] = Counter()
    elsewhere = 0
    for claim in await api.list(_CLAIMS):
        status = claim.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", [])
        devices.update((result["pool"], result["device"]) for result in results)
        for consumer in status.get("reservedFor", []):
            served[consumer["uid"]] += len(results)
            where = nodes.get(consumer["uid"])
            elsewhere += where is not None and any(result["pool"] != where for result in results)
    without = sum(not served[uid] for uid in nodes)
    return elsewhere + without + sum(count > 1 for count in devices.values())
