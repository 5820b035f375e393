"""Snapshots from model values, for tests whose point is not how manifests are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import ANY_ADDRESS, HostPort, PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.resources import Amounts

GI = 1024**3


def amounts(cpu: int = 0, memory: int = 0, **more: int) -> Amounts:
    """Cpu in millicores, memory in bytes, other resources by name (``gpu`` is nvidia.com/gpu); zeros left out."""
    found = {"cpu": cpu, "memory": memory, **more}
    if "gpu" in found:
        found["nvidia.com/gpu"] = found.pop("gpu")
    return tuple(sorted((name, amount) for name, amount in found.items() if amount))


def node(name: str, cpu: int = 4000, memory: int = 16 * GI, *, pods: int = 110, gpu: int = 0, **fields: Any) -> Node:
    """A node; further words are fields of Node."""
    return Node(name, allocatable=amounts(cpu, memory, pods=pods, gpu=gpu), **fields)


def pod(name: str, cpu: int = 0, memory: int = 0, *, created: float = 0.0, policy: str = BUILT_IN.name,
        kind: PodSignature | None = None, gpu: int = 0, **fields: Any) -> PendingPod:  # fmt: skip
    """A pending pod; further words are fields of PodClass."""
    pod_class = PodClass(requests=amounts(cpu, memory, gpu=gpu), **fields)
    return PendingPod(f"default/{name}", name, pod_class, policy, created, kind or PodSignature())


def snapshot(
    nodes: Iterable[Node],
    pending: Sequence[PendingPod],
    running: Iterable[tuple[str, Amounts, tuple[HostPort, ...]]] = (),
    now: float = 0.0,
    pod_index: PodIndex | None = None,
) -> Snapshot:
    """A snapshot of generation 1."""
    table, waiting = NodeTable.of(nodes), tuple(pending)
    return build_snapshot(generation=1, now=now, table=table, running=running, pending=waiting, pod_index=pod_index)


def ports_clash(one: HostPort, other: HostPort) -> bool:
    """Whether a node cannot have both: HostPortInfo.CheckConflict of kube-scheduler's framework/types.go."""
    if (one.protocol, one.port) != (other.protocol, other.port):
        return False
    return one.ip == other.ip or ANY_ADDRESS in (one.ip, other.ip)
