"""Clusters with running pods that may leave, and pods that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.assembly import to_snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.running import running_pods
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod, PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement

NOW = 10_000.0
HOSTNAME = "kubernetes.io/hostname"


def selects(app: str) -> LabelSelector:
    """Pods of an app."""
    return LabelSelector((Requirement("app", "In", (app,)),))


def keeps_apart(app: str) -> InterPodConstraints:
    """No two pods of an app on a node."""
    return InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, selects(app), ("default",)),))


def node(name: str, cpu: int = 4, gpu: int = 0) -> Node:
    """A node with so many cores and GPUs."""
    allocatable = (("cpu", cpu), ("memory", 64), ("nvidia.com/gpu", gpu), ("pods", 110))
    return Node(name, labels=((HOSTNAME, name), ("zone", name[-1])), allocatable=allocatable)


def running(name: str, on: str, cpu: int, *, priority: int = 0, **fields: Any) -> Pod:
    """A running pod of a controller; further words are fields of Pod."""
    gpu = fields.pop("gpu", 0)
    requests = (("cpu", cpu), ("nvidia.com/gpu", gpu)) if gpu else (("cpu", cpu),)
    ports = fields.pop("host_ports", ())
    pod_class = PodClass(requests=requests, priority=priority, host_ports=ports)
    known: dict[str, Any] = {"started": 1.0, "owner": "web", "created": 1.0} | fields
    return Pod("default", name, f"uid-{name}", pod_class, usage=requests, node_name=on, **known)


def waiting(name: str, cpu: int, *, priority: int = 0, gpu: int = 0, **fields: Any) -> PendingPod:
    """A waiting pod; further words are fields of PendingPod."""
    requests = (("cpu", cpu), ("nvidia.com/gpu", gpu)) if gpu else (("cpu", cpu),)
    pod_class = PodClass(requests=requests, priority=priority, host_ports=fields.pop("host_ports", ()))
    return PendingPod(f"default/{name}", f"uid-{name}", pod_class, BUILT_IN.name, 1.0, **fields)


def snapshot(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    pending: Sequence[PendingPod],
    budgets: Sequence[DisruptionBudget] = (),
    policy: Policy = BUILT_IN,
    gangs: Sequence[Gang] = (),
    now: float = NOW,
) -> Snapshot:
    """A cluster in which single running pods are known."""
    cluster = Cluster()
    cluster.set_namespace("default", ())
    for each in nodes:
        cluster.put_node(each)
    for pod in pods:
        cluster.put_pod(pod)
    for budget in budgets:
        cluster.set_disruption_budget(budget.key, budget)
    known = running_pods(cluster, lambda _: policy, now)
    return to_snapshot(cluster, now=now, pending=tuple(pending), gangs=gangs, running=known)


# --- drawn clusters ---

_apps = st.sampled_from(["a", "b", "c"])
_ports = st.sampled_from([(), (), (), (HostPort(ANY_ADDRESS, "TCP", 80),)])


@st.composite
def clusters(draw: st.DrawFn, policy: Policy) -> Snapshot:
    """Small full clusters with budgets, gangs, some in one zone, ports and anti-affinity, and pods that wait."""
    # Every other node is in zone a.
    names = [f"n{number}{'ab'[number % 2]}" for number in range(draw(st.integers(1, 5)))]
    nodes = [node(name, draw(st.integers(2, 8)), draw(st.integers(0, 2))) for name in names]
    pods: list[Pod] = []
    for each in nodes:
        free = dict(each.allocatable)
        held: set[HostPort] = set()
        apart: set[str] = set()
        for _ in range(draw(st.integers(0, 6))):
            cpu, gpu = draw(st.integers(1, 4)), draw(st.sampled_from([0, 0, 1]))
            ports, app = draw(_ports), draw(_apps)
            lonely = draw(st.integers(0, 5)) == 0
            if cpu > free["cpu"] or gpu > free["nvidia.com/gpu"] or not held.isdisjoint(ports) or app in apart:
                continue
            if lonely and any(dict(pod.labels)["app"] == app for pod in pods if pod.node_name == each.name):
                continue
            free["cpu"], free["nvidia.com/gpu"] = free["cpu"] - cpu, free["nvidia.com/gpu"] - gpu
            held.update(ports)
            gang = draw(st.sampled_from([None, None, None, "g", "h"]))
            spec = GangSpec(min_member=2, evicted_whole=gang == "h")
            if lonely:
                apart.add(app)
            pods.append(
                running(
                    f"p{len(pods)}",
                    each.name,
                    cpu,
                    gpu=gpu,
                    priority=draw(st.sampled_from([0, 0, 1, 5, 9])),
                    labels=(("app", app),),
                    started=float(draw(st.integers(1, 50))),
                    owner=draw(st.sampled_from(["", "web", "db"])),
                    host_ports=ports,
                    gang=None if gang is None else GangRef(GangKey(GangSource.THALWEG, "default", gang), spec),
                    constraints=keeps_apart(app) if lonely else None,
                )
            )
    budgets = [
        DisruptionBudget("default", f"b-{app}", selects(app), draw(st.integers(0, 2)))
        for app in draw(st.sets(_apps, max_size=2))
    ]
    pending, gangs = [], list[Gang]()
    for at in range(draw(st.integers(1, 5))):
        app = draw(_apps)
        constraints = keeps_apart(app) if draw(st.integers(0, 4)) == 0 else None
        kind = msgspec.structs.replace(pods[0].signature if pods else running("x", "n0", 1).signature)
        kind = msgspec.structs.replace(kind, namespace="default", labels=(("app", app),), constraints=constraints)
        pending.append(
            waiting(
                f"w{at}",
                draw(st.integers(1, 6)),
                gpu=draw(st.sampled_from([0, 0, 1, 2])),
                priority=draw(st.sampled_from([0, 3, 7, 7])),
                host_ports=draw(_ports),
                signature=kind,
                preempts=draw(st.integers(0, 5)) > 0,
                gangs=("gang w",) if draw(st.integers(0, 3)) == 0 else (),
            )
        )
    members = sum(bool(pod.gangs) for pod in pending)
    if members:
        key = draw(st.sampled_from(["", "", "zone"]))
        domain = draw(st.sampled_from(["", "", "a", "b", "of no node"])) if key else ""
        least = draw(st.integers(0 if domain else 1, members))
        gangs.append(Gang("gang w", least, topology_key=key, domain=domain))
    return snapshot(nodes, pods, pending, budgets, policy, gangs)
