"""A cluster worth looking at: zones, racks, three pools of nodes, gangs, queues, policies, and pods that wait."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Manifest = dict[str, Any]
_API: Final = "scheduling.thalweg/v1alpha1"
#: When nodes and running pods were made, and when the oldest waiting pod came, before the newest.
_CREATED: Final = datetime(2026, 3, 2, 9, tzinfo=UTC)
_WAITED: Final = timedelta(minutes=40)
_NODES_PER_RACK: Final = 20
_ZONES: Final = 3
_GI: Final = 2**30


@dataclass(frozen=True, slots=True)
class _Pool:
    """Nodes that are alike."""

    name: str
    weight: float
    cpu: int
    memory: int
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class _Shape:
    """Pods that ask for the same. Requests: milli-cores, bytes, devices."""

    namespace: str
    app: str
    weight: float
    cpu: int
    memory: int
    gpus: int = 0
    priority: int = 0
    gang: int = 0
    controller: str = "ReplicaSet"


_HASH: Final = "5d9f8c7b6"
_POOLS: Final = (
    _Pool("general", 0.68, 32, 128 * _GI),
    _Pool("memory", 0.17, 32, 512 * _GI),
    _Pool("gpu", 0.15, 64, 512 * _GI, gpus=8),
)
_SHAPES: Final = (
    _Shape("shop", "web", 0.26, 500, _GI, priority=1000),
    _Shape("shop", "cart", 0.12, 1000, 2 * _GI, priority=1000),
    _Shape("shop", "search", 0.06, 4000, 16 * _GI, priority=500),
    _Shape("data", "ingest", 0.12, 2000, 4 * _GI),
    _Shape("data", "spark", 0.15, 4000, 24 * _GI, controller="Job"),
    _Shape("data", "cache", 0.05, 2000, 48 * _GI, controller="StatefulSet"),
    _Shape("research", "train", 0.10, 6000, 48 * _GI, gpus=1, priority=100, gang=8, controller="Job"),
    _Shape("research", "notebook", 0.06, 2000, 8 * _GI, gpus=1),
    _Shape("ci", "build", 0.08, 6000, 12 * _GI, controller="Job"),
)


def with_controllers(objects: Iterator[Manifest]) -> Iterator[Manifest]:
    """The same objects, each pod with a controller by its app: a ReplicaSet of a Deployment, a Job or a StatefulSet."""
    shapes = {(shape.namespace, shape.app): shape for shape in _SHAPES}
    for each in objects:
        if each["kind"] == "Pod":
            metadata = each["metadata"]
            shape = shapes[metadata["namespace"], metadata["labels"]["app"]]
            name = shape.app
            if shape.controller == "ReplicaSet":
                name = f"{shape.app}-{_HASH}"
                metadata["labels"]["pod-template-hash"] = _HASH
            uid = f"{shape.namespace}-{name}"
            owner = {"apiVersion": "apps/v1", "kind": shape.controller, "name": name, "uid": uid, "controller": True}
            metadata["ownerReferences"] = [owner]
        yield each


def make_showcase(nodes: int, waiting: int, now: datetime, *, load: float = 0.6, seed: int = 7) -> Iterator[Manifest]:
    """All objects of the cluster.

    Args:
        waiting: how many pods wait.
        now: when the newest of them came.
        load: the part of the cluster's cpu that running pods request.
    """
    random_ = random.Random(seed)
    yield from _fixed_objects()
    pools = random_.choices(_POOLS, [pool.weight for pool in _POOLS], k=nodes)
    pools.sort(key=_POOLS.index)
    for number, pool in enumerate(pools):
        yield _node(number, pool, cordoned=random_.random() < 0.012)
    yield from _running(pools, load, random_)
    yield from waiting_pods(waiting, "wait", now, random_)


def waiting_pods(count: int, prefix: str, now: datetime, random_: random.Random) -> Iterator[Manifest]:
    """Pods that wait, whole gangs at a time, the oldest first."""
    made = 0
    while made < count:
        created = now - _WAITED * (1 - made / count)
        shape = random_.choices(_SHAPES, [each.weight / max(1, each.gang) for each in _SHAPES])[0]
        size = max(1, shape.gang)
        gang = f"{shape.app}-{prefix}-{made}" if shape.gang else ""
        for _ in range(size):
            yield _pod(f"{shape.app}-{prefix}-{made}", shape, created, gang=gang)
            made += 1


def _fixed_objects() -> Iterator[Manifest]:
    for namespace in sorted({shape.namespace for shape in _SHAPES}):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"team": namespace}}}
    for name, precedence, spec in (
        ("training", 100, {"selects": _team("research"), "gangs": {"timeout": "10m"}}),
        ("batch", 50, {"selects": _team("data"), "cost": {"model": "BinPacking"}}),
        ("web", 20, {"selects": _team("shop"), "cost": {"weights": {"leastRequested": 2}}}),
    ):
        yield _custom("FlowSchedulingPolicy", name, {"precedence": precedence, **spec})
    yield _custom("FlowQueue", "company", {"selects": {"namespaceSelector": {"matchLabels": {"team": "nobody"}}}})
    for name, weight, guarantee in (
        ("research", 3, {"nvidia.com/gpu": "16"}),
        ("shop", 2, {"cpu": "200"}),
        ("data", 1, {}),
    ):
        queue = {"weight": weight, "parent": "company", "selects": _team(name)}
        yield _custom("FlowQueue", name, {**queue, "guarantee": guarantee} if guarantee else queue)


def _team(name: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {"team": name}}}


def _custom(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _node(number: int, pool: _Pool, *, cordoned: bool) -> Manifest:
    rack = number // _NODES_PER_RACK
    name = f"{pool.name}-{number:04d}"
    allocatable = {"cpu": str(pool.cpu), "memory": str(pool.memory), "pods": "110"}
    if pool.gpus:
        allocatable["nvidia.com/gpu"] = str(pool.gpus)
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{'abc'[rack % _ZONES]}",
        "topology.kubernetes.io/rack": f"r{rack + 1:02d}",
        "pool": pool.name,
    }
    spec: Manifest = {"unschedulable": True} if cordoned else {}
    if pool.gpus:
        spec["taints"] = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable, "capacity": allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": _text(_CREATED), "labels": labels},
        "spec": spec,
        "status": ready,
    }


def _running(pools: Sequence[_Pool], load: float, random_: random.Random) -> Iterator[Manifest]:
    """Pods that run: each node has its own load, around the one that is asked for."""
    made = 0
    for number, pool in enumerate(pools):
        shapes = [each for each in _SHAPES if bool(each.gpus) == bool(pool.gpus)]
        idle = 1 - min(0.99, max(0.05, random_.gauss(load, 0.22)))
        cpu, memory, gpus = pool.cpu * 1000, pool.memory, pool.gpus
        free_cpu, free_gpus = cpu * idle, gpus * idle
        for _ in range(60):
            shape = random_.choices(shapes, [each.weight for each in shapes])[0]
            if shape.cpu > cpu or shape.memory > memory or shape.gpus > gpus:
                continue
            cpu, memory, gpus = cpu - shape.cpu, memory - shape.memory, gpus - shape.gpus
            yield _pod(f"{shape.app}-run-{made}", shape, _CREATED, node=f"{pool.name}-{number:04d}")
            made += 1
            if cpu <= free_cpu or (gpus and gpus <= free_gpus):
                break


def _pod(name: str, shape: _Shape, created: datetime, *, node: str = "", gang: str = "") -> Manifest:
    requests = {"cpu": f"{shape.cpu}m", "memory": str(shape.memory)}
    # Plans that evict nobody have a lower bound above zero.
    spec: Manifest = {"schedulerName": "thalweg", "priority": shape.priority, "preemptionPolicy": "Never"}
    if shape.gpus:
        requests["nvidia.com/gpu"] = str(shape.gpus)
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    if node:
        spec["nodeName"] = node
    metadata: Manifest = {
        "name": name,
        "namespace": shape.namespace,
        "uid": f"{shape.namespace}-{name}",
        "creationTimestamp": _text(created),
        "labels": {"app": shape.app},
    }
    if gang:
        metadata["annotations"] = {
            "scheduling.thalweg/gang": gang,
            "scheduling.thalweg/gang-min-member": str(shape.gang),
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            **spec,
            "containers": [{"name": shape.app, "image": f"{shape.app}:1", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
