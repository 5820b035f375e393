"""The openb trace on a real API server: when its pods come and end, and what the engine makes of the same pods at once.

A pod ends as a Job's pod does: its phase becomes Succeeded, and its room is free. Which pods end is drawn for each pod
with a fixed seed, so that the same ones end beside each scheduler. The trace's own ends are no help: where its pods end
as they did there, they fill a part of its nodes only, and nobody waits.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from thalweg_controlplane import Api
from thalweg_controlplane.client.objects import Manifest, object_path

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.resources import PODS, Amounts
from flowcore.planning.round import RoundResult, run_round
from harness import plane
from harness.budget import round_within
from harness.openb_rounds import snapshot_of

START, MINUTE, ENDS = "start", "minute", "ends"
ARRIVALS: Final = (START, MINUTE, ENDS)
#: What the tables call them.
WORDS: Final = {
    START: "all at the start",
    MINUTE: "within a minute",
    ENDS: "within a minute, a tenth ends",
}
#: The label of pods that end, so that a list can ask for these only.
FINISHES = "openb/ends"
SUCCEEDED = "Succeeded"
#: Seconds from a binding to the end of a pod that ends; a run must not count as over meanwhile.
ENDS_AFTER = 5.0
_MINUTE, _SHARE, _SEED = 60.0, 0.1, 23
#: How often pods are created, and asked whether they are bound.
_PACE_SECONDS, _ASK_SECONDS = 0.1, 1.0


def with_ends(pods: Sequence[Manifest]) -> list[Manifest]:
    """The same pods, and a tenth of them with the label that says that they end."""
    return [_finishing(pod) if _ends(pod["metadata"]["name"]) else pod for pod in pods]


def _ends(name: str) -> bool:
    return random.Random(f"{_SEED} {name}").random() < _SHARE


def _finishing(pod: Manifest) -> Manifest:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), FINISHES: "true"}}}


def is_finishing(pod: Manifest) -> bool:
    """Whether the pod ends some time after it was bound."""
    return FINISHES in pod["metadata"].get("labels", {})


async def create_within_a_minute(api: Api, pods: Sequence[Manifest]) -> None:
    """Creates pods in order and evenly over a minute; later if the API server does not keep up."""
    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for due, part in paced(pods, _MINUTE):
            await asyncio.sleep(begun + due - time.monotonic())
            group.create_task(plane.create(api, part))


def paced(pods: Sequence[Manifest], seconds: float) -> Iterator[tuple[float, Sequence[Manifest]]]:
    """Parts of the pods, each with the second when its turn comes: the first at once, the last before the end."""
    turns, taken = max(1, round(seconds / _PACE_SECONDS)), 0
    for turn in range(turns):
        until = len(pods) * (turn + 1) // turns
        if until > taken:
            yield turn * _PACE_SECONDS, pods[taken:until]
        taken = until


async def end_bound_pods(api: Api) -> None:
    """Ends pods with the label some time after they were bound, until it is cancelled."""
    chosen = {"labelSelector": f"{FINISHES}=true", "fieldSelector": "spec.nodeName!=,status.phase=Pending"}
    bound_since: dict[str, float] = {}
    while True:
        now = time.monotonic()
        bound = await api.list("/api/v1/namespaces/default/pods", **chosen)
        for pod in bound:
            since = bound_since.setdefault(pod["metadata"]["name"], now)
            if now - since >= ENDS_AFTER:
                path = object_path({"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]})
                await api.patch(f"{path}/status", {"status": {"phase": SUCCEEDED}})
        await asyncio.sleep(_ASK_SECONDS)


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What the engine makes of a cluster without one.

    Attributes:
        pods: as the API server would show them: placed ones have a node, and those that ended say so.
        seconds: CPU time of its rounds.
    """

    pods: list[Manifest]
    seconds: float


def plan_at_once(nodes: Sequence[Manifest], pods: Sequence[Manifest]) -> EnginePlan:
    """All pods in one round, as ``thalweg plan`` plans them.

    If pods end, those that it placed leave, and what waits is planned again, as long as that brings more.
    """
    return _plan(nodes, pods, len(pods), 1, run_round)


def plan_in_rounds(nodes: Sequence[Manifest], pods: Sequence[Manifest], arrivals: int = 200) -> EnginePlan:
    """The same pods as they come within a minute, in rounds with the usual budget of CPU time.

    Args:
        arrivals: pods that come between two rounds. What waits is planned again beside them.
    """
    lasts = math.ceil(ENDS_AFTER / (_MINUTE * arrivals / max(1, len(pods))))
    return _plan(nodes, pods, arrivals, lasts, round_within)


def _plan(
    nodes: Sequence[Manifest],
    pods: Sequence[Manifest],
    arrivals: int,
    lasts: int,
    plan: Callable[[Snapshot], RoundResult],
) -> EnginePlan:
    """Rounds until all pods have come and nothing changes any more.

    Args:
        lasts: rounds for which a pod runs that ends.
    """
    empty = snapshot_of(nodes, pods, aged=False)
    finishing = {_key(pod) for pod in pods if is_finishing(pod)}
    coming = [
        msgspec.structs.replace(pod, created=1.0 + _MINUTE * place / len(empty.pending))
        for place, pod in enumerate(empty.pending)
    ]
    nodes_by_pod: dict[str, str] = {}
    running: list[_Running] = []
    waiting: tuple[PendingPod, ...] = ()
    seconds, number, is_quiet = 0.0, 0, False
    while not is_quiet:
        new, coming = coming[:arrivals], coming[arrivals:]
        number, waiting = number + 1, (*waiting, *new)
        left = sum(pod.ends == number for pod in running)
        running = [pod for pod in running if pod.ends != number]
        snapshot = build_snapshot(
            generation=number,
            now=waiting[-1].created if waiting else 0.0,
            table=empty.table,
            running=[(pod.node, pod.usage, ()) for pod in running],
            pending=waiting,
        )
        before = time.process_time()
        result = plan(snapshot)
        seconds += time.process_time() - before
        for placement in result.placements:
            pod = placement.pod
            nodes_by_pod[pod.key] = placement.node
            usage = (*pod.pod_class.requests, (PODS, 1))
            running.append(_Running(placement.node, usage, number + lasts if pod.key in finishing else 0))
        unplaced = {left_out.pod.key for left_out in result.unplaced}
        waiting = tuple(pod for pod in waiting if pod.key in unplaced)
        is_quiet = not (coming or left or result.placements or any(pod.ends > number for pod in running))
    return EnginePlan([_as_planned(pod, nodes_by_pod.get(_key(pod), "")) for pod in pods], seconds)


@dataclass(frozen=True, slots=True)
class _Running:
    """A pod with a node; ``ends``: before which round; 0: never."""

    node: str
    usage: Amounts
    ends: int


def _key(pod: Manifest) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _as_planned(pod: Manifest, node: str) -> Manifest:
    if not node:
        return {**pod, "status": {"phase": "Pending"}}
    phase = SUCCEEDED if is_finishing(pod) else "Pending"
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": phase}}
