"""Manifests as plain dicts: the nodes and pods that tests, benchmarks and `thalweg up` create. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Manifest: TypeAlias = dict[str, Any]
"""One Kubernetes object as JSON has it."""

KWOK_ANNOTATION: Final = ("kwok.x-k8s.io/node", "fake")
"""Marks the nodes whose kubelet KWOK plays."""


def node(
    name: str,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: int = 110,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] | None = None,
    extended: Mapping[str, str] | None = None,
) -> Manifest:
    """A Ready node of KWOK's whose allocatable equals its capacity, labelled with its host name.

    Quantities are written as Kubernetes writes them: `node("a", cpu="64", extended={"nvidia.com/gpu": "8"})`.
    """
    capacity = {"cpu": cpu, "memory": memory, "pods": str(pods), **(extended or {})}
    spec: Manifest = {"taints": [dict(taint) for taint in taints]} if taints else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": dict([KWOK_ANNOTATION]),
        },
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "phase": "Running",
            # KWOK would say so itself a moment later; without KWOK nobody would.
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(
    name: str,
    cpu: str | None = None,
    memory: str | None = None,
    namespace: str = "default",
    scheduler: str = "thalweg",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    extended: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """A pod of one container with these requests; further words are fields of its spec.

    `pod("a", cpu="500m", nodeSelector={"zone": "a"})`; `containers=[...]` replaces the container. There are no limits
    but those of extended resources, which the API server wants to be equal to the requests.
    """
    requests = {resource: amount for resource, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    resources: Manifest = {"requests": {**requests, **(extended or {})}}
    if extended:
        resources["limits"] = dict(extended)
    container = {"name": "main", "image": "example.invalid/main", "resources": resources}
    metadata: Manifest = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }


def collection_path(manifest: Mapping[str, Any]) -> str:
    """The path that one POSTs this manifest to. It is taken for namespaced when its metadata names a namespace."""
    version: str = manifest["apiVersion"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{inside}/{_plural(manifest['kind'])}"


def object_path(manifest: Mapping[str, Any]) -> str:
    """The path of the object itself, once created."""
    return f"{collection_path(manifest)}/{manifest['metadata']['name']}"


def _plural(kind: str) -> str:
    """As the API server itself guesses it (meta.UnsafeGuessKindToResource)."""
    singular = kind.lower()
    if singular.endswith("s"):
        return singular + "es"
    if singular.endswith("y"):
        return singular.removesuffix("y") + "ies"
    return singular + "s"
