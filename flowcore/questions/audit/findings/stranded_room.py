"""Room that is free and of no use: what stays free of a resource once no more pods that ask for it fit.

The measure is one kind of pods: those that hold or ask for the most of the resource. So GPUs are stranded where no cpu
is left beside them, and where fewer are free on a node than a pod asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod
from flowcore.model.amount_text import short_amount
from flowcore.model.devices import device_resources
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.resources import MEMORY, is_extended
from flowcore.model.running_pods import RunningPod
from flowcore.questions.audit.audited_cluster import AuditedCluster
from flowcore.questions.audit.counted_room import WEIGHT, CountedRoom
from flowcore.questions.audit.finding import AuditFinding, FindingKind, WitnessStep
from flowcore.questions.audit.sentences import steps_words
from flowcore.questions.audit.witness import leaving_steps

_GPU = "/gpu"
#: Pods that a plan tries to place beside those that fit, and those that fit: with more no plan is made.
_MOST_MORE, _MOST_FITTING = 200, 5_000


def stranded_room(cluster: AuditedCluster) -> Iterator[tuple[AuditFinding, list[WitnessStep]]]:
    """The findings and their witnesses: of each kind of GPUs that pods ask for, and of memory."""
    by_devices = device_resources(cluster.snapshot.devices.classes.values())
    asked: dict[str, Counter[PodClass]] = {}
    names: dict[PodClass, str] = {}
    pods = cluster.scenario.cluster.pods
    everybody: list[RunningPod | PendingPod] = [*cluster.running, *cluster.waiting]
    for pod in everybody:
        if pods[pod.key].permanent or pods[pod.key].static or pod.pod_class.devices is not None:
            continue
        if any(name in by_devices for name, _ in pod.pod_class.requests):
            continue  # devices may serve it on nodes that do not offer the resource
        names[pod.pod_class] = min(pod.key, names.get(pod.pod_class, pod.key))
        for resource, amount in pod.pod_class.requests:
            if resource == MEMORY or (is_extended(resource) and resource.endswith(_GPU)):
                asked.setdefault(resource, Counter())[pod.pod_class] += amount
    for resource in sorted(asked):
        if resource in cluster.snapshot.resources:
            most = max(asked[resource].values())
            like = min(names[pod_class] for pod_class, amount in asked[resource].items() if amount == most)
            pod_class = next(which for which, name in names.items() if name == like)
            yield _finding(cluster, resource, pod_class, like)


def _finding(
    cluster: AuditedCluster, resource: str, pod_class: PodClass, like: str
) -> tuple[AuditFinding, list[WitnessStep]]:
    snapshot = cluster.snapshot
    column, amount = snapshot.resources.index(resource), dict(pod_class.requests)[resource]
    # More pods than could be anywhere.
    ever = int((np.maximum(snapshot.allocatable[:, column], 0) // amount).sum())
    room = CountedRoom.of(snapshot, [(pod_class, ever)], cluster.movable)
    usable = room.coming[0].allowed
    request = snapshot.vector(pod_class.requests)
    offered = {name for name, asks in pod_class.requests if asks} <= set(snapshot.resources)

    def fits(free: Int64s) -> int:
        asks = request > 0
        most = np.maximum(free[:, asks] // request[asks], 0).min(axis=1)
        return int(most[usable].sum()) if offered else 0

    now = fits(snapshot.free)
    stranded = int(np.maximum(snapshot.free[usable, column], 0).sum()) - now * amount
    steps = _witness(cluster, pod_class, now, stranded // amount)
    freed = max(0, (fits(_after(cluster, steps)) - now)) * amount
    if not freed:
        steps = []
    bounds = [(room.most_that_come(prices), prices) for prices in room.prices([WEIGHT])]
    most, prices = min(bounds, key=lambda bound: bound[0])
    at_most = (most - now) * amount
    plan = f"{FindingKind.STRANDED_ROOM}/{resource}" if steps else ""
    finding = AuditFinding(
        kind=FindingKind.STRANDED_ROOM,
        now=stranded,
        at_least=freed,
        at_most=at_most,
        sentence=_sentence(resource, like, stranded, freed, at_most, steps),
        plan=plan,
        bound=room.bound(prices),
        resource=resource,
        like=like,
    )
    return finding, steps


def _witness(cluster: AuditedCluster, pod_class: PodClass, fitting: int, more: int) -> list[WitnessStep]:
    """The moves of a plan that places more such pods than fit now."""
    if not more or fitting > _MOST_FITTING or not cluster.most_moves:
        return []
    bare = PodClass(
        requests=pod_class.requests,
        node_selector=pod_class.node_selector,
        required_affinity=pod_class.required_affinity,
        tolerations=pod_class.tolerations,
    )
    pending = tuple(
        PendingPod(f"/more-{number}", f"more-{number}", bare, BUILT_IN.name)
        for number in range(fitting + min(more, _MOST_MORE))
    )
    result = cluster.plan(replace(cluster.snapshot, pending=pending, gangs={}))
    return leaving_steps(result.evictions, cluster.snapshot, cluster.prepared.policies)


def _after(cluster: AuditedCluster, steps: list[WitnessStep]) -> Int64s:
    """int64[N, R]: what is free once these moves are carried out."""
    snapshot, free = cluster.snapshot, cluster.snapshot.free.copy()
    pods = {pod.key: pod for pod in cluster.running}
    for step in steps:
        pod = pods[step.pod]
        free[snapshot.table.index[step.from_node]] += snapshot.vector(pod.usage)
        free[snapshot.table.index[step.node]] -= snapshot.vector(pod.pod_class.requests)
    return free


def _sentence(resource: str, like: str, stranded: int, freed: int, at_most: int, steps: list[WitnessStep]) -> str:
    def some(amount: int) -> str:
        return short_amount(resource, amount)

    here = f"free once no more pods like {like} fit on any node: {some(stranded)} {resource}"
    if not at_most:
        return f"{here}; no plan makes any of it usable"
    made = "no plan was found that makes some of it usable"
    if freed:
        made = f"a plan makes {some(freed)} of it usable{steps_words(steps)}"
    return f"{here}; {made}; no plan makes more usable" + ("" if freed == at_most else f" than {some(at_most)}")
