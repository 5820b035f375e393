"""Controllers that make gangs, for tests on a real API server: their kinds, and what they would write."""

from __future__ import annotations

from functools import partial
from typing import Any

from support.operator import until
from thalweg_controlplane import Api, ApiError
from thalweg_controlplane.client.objects import object_path

from flowcore.api.kinds import POD_GROUPS, VOLCANO_JOB, ObjectKind
from flowcore.model.gang_spec import GangSource

_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def crd(kind: ObjectKind) -> dict[str, Any]:
    """A CustomResourceDefinition that takes objects of any shape."""
    versions = [
        {
            "name": version,
            "served": True,
            "storage": version == kind.versions[0],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _ANY, "status": _ANY}}},
        }
        for version in kind.versions
    ]
    names = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "singular": kind.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": versions},
    }


async def install_parents(api: Api, *kinds: ObjectKind) -> None:
    """Installs kinds that the cluster does not have; returns once they are served."""
    for kind in kinds:
        if kind.group != "batch":
            await api.apply(crd(kind))
    await until_served(api, *kinds)


async def until_served(api: Api, *kinds: ObjectKind) -> None:
    """Returns once the API server serves kinds whose CRDs it has."""
    for kind in kinds:
        await until(partial(_is_served, api, kind.paths[0]), 60, lambda kind=kind: f"{kind.qualified} to be served")


async def _is_served(api: Api, path: str) -> bool:
    try:
        await api.get(path)
    except ApiError as error:
        if error.status not in (404, 429, 503):
            raise
        return False
    return True


def parent(kind: ObjectKind, namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    """An object of a kind; ``annotations`` are of its metadata."""
    metadata = {"name": name, "namespace": namespace, "annotations": spec.pop("annotations", {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def made_by(manifest: dict[str, Any], version: str, kind: str, name: str, uid: str = "uid") -> dict[str, Any]:
    """A pod or another object with its controller."""
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    manifest["metadata"]["ownerReferences"] = [owner]
    return manifest


def volcano_job(namespace: str, scheduler: str | None, name: str = "train", **labels: str) -> dict[str, Any]:
    """A Job of Volcano with one task of three pods."""
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example.invalid/m"}]},
    }
    tasks = [{"name": "worker", "replicas": 3, "template": template}]
    asked = {"schedulerName": scheduler} if scheduler else {}
    return parent(VOLCANO_JOB, namespace, name, minAvailable=3, queue="default", tasks=tasks, **asked)


def pod_group_of(job: dict[str, Any], phase: str = "") -> dict[str, Any]:
    """The PodGroup that Volcano's controller makes for a Job that was created."""
    kind, meta = POD_GROUPS[GangSource.VOLCANO], job["metadata"]
    group = parent(kind, meta["namespace"], f"{meta['name']}-{meta['uid']}", minMember=3, queue="default")
    if phase:
        group["status"] = {"phase": phase}
    return made_by(group, job["apiVersion"], "Job", meta["name"], meta["uid"])


async def start_volcano_job(api: Api, namespace: str, scheduler: str, phase: str = "", **labels: str) -> dict[str, Any]:
    """Creates a Job of Volcano and its PodGroup; returns the group once its phase lets the pods be made."""
    job = await api.create(volcano_job(namespace, scheduler, **labels))
    group = pod_group_of(job, phase)
    await api.create(group)
    started: dict[str, Any] = await api.wait_for(
        object_path(group), lambda each: each.get("status", {}).get("phase") == "Inqueue", within=120
    )
    return started
