"""A driver of devices as tests play it: it publishes slices, and says of allocated devices that they are ready."""

from __future__ import annotations

from typing import Any

from support.cluster_scenario import ClusterScenario
from support.operator import until

API, DRIVER = "resource.k8s.io/v1", "gpu.example.com"


async def publish(scene: ClusterScenario, node: str, number: int, **device: Any) -> None:
    """A driver publishes devices of a node, or other ones than before."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    gpus = [{"name": f"gpu-{place}", **device} for place in range(number)]
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": gpus}
    metadata = {"name": f"gpus-of-{node}"}
    await scene.api.apply({"apiVersion": API, "kind": "ResourceSlice", "metadata": metadata, "spec": spec})


def claims_path(scene: ClusterScenario) -> str:
    """Where the claims of the scene's namespace are listed."""
    return f"/apis/{API}/namespaces/{scene.namespace}/resourceclaims"


async def claims(scene: ClusterScenario) -> list[dict[str, Any]]:
    """All of them."""
    return await scene.api.list(claims_path(scene))


async def devices_come_free(scene: ClusterScenario, since: str) -> None:
    """Waits until a claim had a version without devices after a version of the list, for however short a time."""

    async def came_free() -> bool:
        versions = await scene.api.versions(claims_path(scene), since)
        return any("allocation" not in each.get("status", {}) for each in versions)

    await until(came_free, 60, lambda: "a claim without devices")


async def allocated(scene: ClusterScenario) -> list[tuple[str, str]]:
    """Pool and name of each device that a claim has."""
    allocations = [claim.get("status", {}).get("allocation", {}) for claim in await claims(scene)]
    results = [result for each in allocations for result in each.get("devices", {}).get("results", [])]
    return sorted((result["pool"], result["device"]) for result in results)


async def allocated_are(scene: ClusterScenario, *devices: tuple[str, str], within: float = 60) -> None:
    """Waits until claims have these devices and no others."""
    last: list[tuple[str, str]] = []

    async def are() -> bool:
        last[:] = await allocated(scene)
        return last == sorted(devices)

    await until(are, within, lambda: f"{devices} to be allocated, not {last}")


async def report(scene: ClusterScenario, condition: str) -> None:
    """The driver says so of all allocated devices."""
    for claim in await claims(scene):
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        said = {"type": condition, "status": "True", "reason": "Driver", "message": "says so",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        devices = [
            {key: each[key] for key in ("driver", "pool", "device")} | {"conditions": [said]} for each in results
        ]
        if devices:
            path = f"/apis/{API}/namespaces/{scene.namespace}/resourceclaims/{claim['metadata']['name']}/status"
            await scene.api.patch(path, {"status": {"devices": devices}})
