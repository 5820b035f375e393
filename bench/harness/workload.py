"""The nodes and pods of the load benchmarks: the same for every scheduler, drawn with a fixed seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from thalweg_controlplane.objects import Manifest, node, pod

#: Namespace of the pods whose placing is measured; the API server makes it itself.
MEASURED = "default"
#: Namespace of the pods that are there before, so that a watch of the measured ones does not see them.
RUNNING = "running"
MIXES = ("plain", "mixed", "apart")
#: Pods of one set are never on the same node.
_SET = 100

_SEED = 20230501
_ZONE = "topology.kubernetes.io/zone"
_ZONES = ("zone-a", "zone-b", "zone-c")
_TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
_TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}

#: Common requests of the openb trace: milli-CPU, MiB, pods in the trace. Its GPUs are left out here.
_SIZES = (
    (3152, 5600, 1592),
    (11300, 49152, 857),
    (11908, 47104, 778),
    (8000, 30517, 649),
    (11400, 48128, 534),
    (12500, 57344, 364),
    (32000, 49152, 284),
    (18708, 64512, 255),
    (9810, 41560, 195),
    (4000, 22888, 189),
    (4000, 15258, 182),
    (12000, 24576, 158),
    (15700, 58368, 158),
    (4152, 10600, 152),
    (4000, 30517, 136),
)


def make_nodes(count: int) -> list[Manifest]:
    """Three zones; every tenth node is tainted. Large enough that all pods of a usual run fit."""
    return [
        node(
            f"node-{i:05}",
            cpu="64",
            memory="512Gi",
            labels={_ZONE: _ZONES[i % len(_ZONES)]},
            taints=[_TAINT] if i % 10 == 9 else None,
        )
        for i in range(count)
    ]


def make_running(count: int, nodes: int) -> Iterator[Manifest]:
    """Pods that have a node from their creation on, spread evenly."""
    for i in range(count):
        yield pod(
            f"running-{i:06}",
            cpu="100m",
            memory="100Mi",
            namespace=RUNNING,
            scheduler="nobody",
            labels={"app": f"running-{i % 50}"},
            nodeName=f"node-{i % nodes:05}",
        )


def make_pods(mix: str, count: int, scheduler: str) -> list[Manifest]:
    """The pods to place: `plain` (all alike), `mixed` (see the README), or `apart` (hostname anti-affinity)."""
    if mix == "plain":
        return [pod(f"pod-{i:06}", "100m", "100Mi", MEASURED, scheduler, labels={"app": "plain"}) for i in range(count)]
    if mix == "apart":
        return [_apart(i, scheduler) for i in range(count)]
    draw = random.Random(_SEED)
    return [_mixed(i, draw, scheduler) for i in range(count)]


def _mixed(i: int, draw: random.Random, scheduler: str) -> Manifest:
    at = draw.choices(range(len(_SIZES)), [size[2] for size in _SIZES])[0]
    cpu, memory, _ = _SIZES[at]
    rules: dict[str, Any] = {}
    where = draw.randrange(6)
    if where == 0:
        rules["nodeSelector"] = {_ZONE: draw.choice(_ZONES)}
    elif where == 1:
        rules["affinity"] = _in_zones(draw.sample(_ZONES, 2))
    if draw.randrange(10) == 0:
        rules["tolerations"] = [_TOLERATION]
    return pod(f"pod-{i:06}", f"{cpu}m", f"{memory}Mi", MEASURED, scheduler, labels={"app": f"size-{at}"}, **rules)


def _apart(i: int, scheduler: str) -> Manifest:
    """One of a set of pods with required anti-affinity on the hostname."""
    labels = {"set": str(i // _SET)}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod(f"pod-{i:06}", "100m", "100Mi", MEASURED, scheduler, labels=labels, affinity=affinity)


def _in_zones(zones: list[str]) -> Manifest:
    expression = {"key": _ZONE, "operator": "In", "values": sorted(zones)}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
