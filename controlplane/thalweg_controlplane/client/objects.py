"""Manifests as plain dicts: nodes and pods for tests, benchmarks and `thalweg up`. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Manifest: TypeAlias = dict[str, Any]
"""One Kubernetes object, as in JSON."""

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
    """A Ready KWOK node with allocatable equal to capacity and the label of its host name.

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
            # KWOK sets this condition too, a moment later; without KWOK it would be missing.
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
    """A pod of one container with these requests; further keywords are fields of its spec.

    `pod("a", cpu="500m", nodeSelector={"zone": "a"})`; `containers=[...]` replaces the container. Only extended
    resources have limits, because the API server requires them to equal the requests.
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
    """The path to POST a manifest to. The kind counts as namespaced if the metadata has a namespace."""
    version: str = manifest["apiVersion"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{inside}/{_plural(manifest['kind'])}"


def object_path(manifest: Mapping[str, Any]) -> str:
    """The path of the object."""
    return f"{collection_path(manifest)}/{manifest['metadata']['name']}"


def _plural(kind: str) -> str:
    """The plural of a kind, guessed as in the API server (meta.UnsafeGuessKindToResource)."""
    singular = kind.lower()
    if singular.endswith("s"):
        return singular + "es"
    if singular.endswith("y"):
        return singular.removesuffix("y") + "ies"
    return singular + "s"
