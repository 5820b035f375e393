"""Nodes with one device each, all of them allocated to claims, and pods with claims that wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from thalweg_controlplane import Api
from thalweg_controlplane.client.objects import Manifest, pod

from harness import plane, workload

_API, _DRIVER, _CLASS, _DEVICE = "resource.k8s.io/v1", "device.example.com", "device", "device-0"
_HOLDER = "holder"


def path(name: str) -> str:
    """Of a ResourceClaim in the API."""
    return f"/apis/{_API}/namespaces/{workload.MEASURED}/resourceclaims/{name}"


def claim(name: str) -> Manifest:
    """A ResourceClaim for one device."""
    return {
        "apiVersion": _API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": workload.MEASURED},
        "spec": {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": _CLASS}}]}},
    }


def claims(name: str) -> dict[str, Any]:
    """What the spec of a pod says that has this claim."""
    return {"resourceClaims": [{"name": "device", "resourceClaimName": name}]}


def holder(place: int) -> str:
    """The claim that holds the device of a node."""
    return f"held-{place:04}"


async def publish(api: Api, nodes: Sequence[str]) -> None:
    """A driver offers one device on each of these nodes."""
    selector = {"cel": {"expression": f'device.driver == "{_DRIVER}"'}}
    spec = {"selectors": [selector]}
    await api.create({"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": _CLASS}, "spec": spec})
    await api.create(pod(_HOLDER, None, None, workload.RUNNING, "nobody", nodeName=nodes[0]))
    await plane.create(
        api,
        [
            {
                "apiVersion": _API,
                "kind": "ResourceSlice",
                "metadata": {"name": f"device-of-{name}"},
                "spec": {
                    "driver": _DRIVER,
                    "nodeName": name,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": _DEVICE}],
                },
            }
            for name in nodes
        ],
    )


async def hold(api: Api, places: Iterable[int]) -> None:
    """Allocates the devices of nodes to claims that a running pod uses, where they are not."""
    uid = (await api.get(f"/api/v1/namespaces/{workload.RUNNING}/pods/{_HOLDER}"))["metadata"]["uid"]
    gate = asyncio.Semaphore(plane.CONCURRENCY)

    async def one(place: int) -> None:
        node, result = f"node-{place:04}", {"request": "device", "driver": _DRIVER, "device": _DEVICE}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        allocation = {
            "devices": {"results": [{**result, "pool": node}]},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        }
        async with gate:
            await api.apply(claim(holder(place)))
            status = {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": _HOLDER, "uid": uid}]}
            await api.patch(f"{path(holder(place))}/status", {"status": status})

    async with asyncio.TaskGroup() as group:
        for place in places:
            group.create_task(one(place))


async def free(api: Api, place: int) -> None:
    """Takes the device of a node from its claim, as the claim controller does when no pod uses it any more."""
    await api.patch(f"{path(holder(place))}/status", {"status": {"allocation": None, "reservedFor": None}})


async def delete(api: Api, names: Iterable[str]) -> None:
    """Deletes claims; what protects those that are allocated goes, as no controller is there for that."""
    for name in names:
        await api.patch(path(name), {"metadata": {"finalizers": None}})
        await api.delete(path(name))
