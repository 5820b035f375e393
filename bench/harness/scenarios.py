"""Large scenarios: nodes that are nearly full of running pods, and pods that wait for every kind of reason."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from flowcore.costs import BUILT_IN_MODELS
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.reading.objects import ObjectReader

#: Seconds since the epoch.
NOW = 1_770_000_000.0
_PODS_PER_NODE = 12
#: Nodes with a disk that more pods want than have room there.
_WITH_DISK = 10
_OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "all", "uid": "all", "controller": True}
_ZONE, _HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def large_scenario(nodes: int, waiting: int, seed: int = 0, *, movable: bool = False) -> Scenario:
    """A cluster of 16-core nodes in three zones, a tenth of them tainted, with 12 running pods on each.

    Of the waiting pods four in ten fit. One in ten each is too large, wants a label that no node has, has a constraint
    of its policy against it, is in a gang without room or of which pods are missing, wants nodes that more pods want.

    Args:
        waiting: how many pods wait, 20 at least.
        movable: whether running pods have a controller, so that they may be moved.
    """
    scenario, generator = Scenario(), random.Random(seed)
    reader = ObjectReader(Edits(scenario), NOW, BUILT_IN_MODELS)
    for each in (*_nodes(nodes), _policy(), *_running(nodes, generator, movable=movable), *_waiting(waiting)):
        reader.put(each, each["kind"])
    return scenario


def _nodes(count: int) -> Iterator[dict[str, Any]]:
    room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    for at in range(count):
        name, disk = f"n{at:05}", {"disk": "nvme"} if at < _WITH_DISK else {}
        yield {
            "kind": "Node",
            "metadata": {"name": name, "labels": {_HOSTNAME: name, _ZONE: "abc"[at % 3], **disk}},
            "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]} if at % 10 == 0 else {},
            "status": {"allocatable": room},
        }


def _policy() -> dict[str, Any]:
    one_each = {"pods": {"matchLabels": {"app": "alone"}}, "topologyKey": _ZONE, "maxPerDomain": 1}
    selects = {"podSelector": {"matchLabels": {"app": "alone"}}}
    spec = {"selects": selects, "constraints": [{"name": "zones", "conflict": one_each}]}
    return {"kind": "FlowSchedulingPolicy", "metadata": {"name": "alone"}, "spec": spec}


def _running(nodes: int, generator: random.Random, *, movable: bool) -> Iterator[dict[str, Any]]:
    metadata = {"ownerReferences": [_OWNER]} if movable else {}
    for at in range(nodes):
        for number in range(_PODS_PER_NODE):
            cpu = generator.choice(("500m", "1", "1500m"))
            yield _pod(f"r{at:05}-{number}", cpu, metadata, nodeName=f"n{at:05}", status={"phase": "Running"})


def _waiting(count: int) -> Iterator[dict[str, Any]]:
    for at in range(count):
        match at % 10:
            case 0:
                yield _pod(f"large-{at}", "15")
            case 1:
                yield _pod(f"picky-{at}", "1", nodeSelector={"disk": "ssd"})
            case 2:
                yield _pod(f"alone-{at}", "1", {"labels": {"app": "alone"}}, schedulerName="thalweg")
            case 3:
                yield _pod(f"gang-{at}", "14", {"annotations": _gang("wide", count // 10)})
            case 4:
                yield _pod(f"part-{at}", "1", {"annotations": _gang("part", count)})
            case 5:
                yield _pod(f"rival-{at}", "1", nodeSelector={"disk": "nvme"}, priority=at % 7)
            case _:
                yield _pod(f"fits-{at}", ("500m", "1", "2", "3")[at % 4])


def _gang(name: str, least: int) -> dict[str, str]:
    return {"scheduling.thalweg/gang": name, "scheduling.thalweg/gang-min-member": str(least)}


def _pod(
    name: str, cpu: str, metadata: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": "1Gi"}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": "2026-02-01T00:00:00Z",
            **(metadata or {}),
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}], **spec},
        "status": status or {"phase": "Pending"},
    }
