"""Clusters with devices and claims, for tests whose point is not how manifests are read."""

from __future__ import annotations

from typing import Any

from support.draw_devices import read_claims, read_classes, read_slices
from support.scenario_state import manifest_pod

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.model.resource_claims import ClaimingPod, PodClaim

Manifest = dict[str, Any]
API = {"apiVersion": "resource.k8s.io/v1"}
GPU: Manifest = {"metadata": {"name": "gpu"}, "spec": {}}


def slice_of(name: str, devices: int, pool: str = "", **reach: Any) -> Manifest:
    """A pool with so many devices, of the node of its name unless something else is said."""
    spec = {
        "driver": "gpu.example.com",
        "pool": {"name": pool or name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
        **(reach or {"nodeName": name}),
    }
    return {"metadata": {"name": name}, "spec": spec}


def claim(name: str, count: int = 1, owner: str = "", **exactly: Any) -> Manifest:
    """A claim for so many devices; with an owner it was made from a template for this pod."""
    metadata: Manifest = {"name": name, "namespace": "default", "uid": name}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": owner, "controller": True}]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count, **exactly}}
    return {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}


def of_template(name: str) -> ClaimingPod:
    """A pod with a claim of its own name."""
    return ClaimingPod("default", name, name, (PodClaim("gpu", template="t"),), (("gpu", name),))


def naming(name: str, claimed: str) -> ClaimingPod:
    """A pod that names a claim."""
    return ClaimingPod("default", name, name, (PodClaim("gpu", claim=claimed),))


def allocated(manifest: Manifest, node: str, device: str) -> Manifest:
    """The claim once it has a device of a node."""
    result = {"request": "r", "driver": "gpu.example.com", "pool": node, "device": device}
    here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
    return manifest | {"status": {"allocation": {"devices": {"results": [result]}, "nodeSelector": here}}}


def claiming(name: str, node: str = "", count: int = 1, *devices: str, **spec: Any) -> list[Manifest]:
    """A pod with a claim of a template, and the claim; with devices of its node once it runs."""
    pod = manifest_pod(name, node)
    pod["spec"] |= {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}], **spec}
    pod["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]}
    made = claim(f"{name}-gpu", count, owner=name)
    if node:
        made = allocated(made, node, devices[0])
        results = made["status"]["allocation"]["devices"]["results"]
        results += [dict(results[0], device=device) for device in devices[1:]]
        made["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": name}]
    return [pod, {**API, "kind": "ResourceClaim", **made}]


def devices_of(slices: list[Manifest], claims: list[Manifest], classes: tuple[Manifest, ...] = (GPU,)) -> DeviceObjects:
    objects = DeviceObjects()
    for resource_slice in read_slices(slices):
        objects.set_slice(resource_slice.name, resource_slice)
    for each in read_claims(claims):
        objects.set_claim((each.namespace, each.name), each)
    for name, device_class in read_classes(list(classes)).items():
        objects.set_class(name, device_class)
    return objects
