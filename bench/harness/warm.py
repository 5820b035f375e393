"""Batch after batch through the door that the operator uses: bytes in, bytes out, state kept between rounds.

What a batch places runs when the next one comes: its nodes are sent as changed, as the operator does it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from thalweg_operator.planning.worker.messages import (
    PendingEntry,
    RoundReply,
    RoundRequest,
    reply_decoder,
    reply_encoder,
    request_decoder,
    request_encoder,
)
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod
from flowcore.cluster.changes import ClusterChanges
from flowcore.model.node_usage import NodeUsage
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.resources import PODS
from harness.budget import USUAL
from harness.instances import Instance
from harness.rechecks import Checker


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: what it took, what was placed where."""

    cpu_seconds: float
    placements: tuple[tuple[PendingPod, int], ...]
    left: int
    solves: int

    @property
    def placed(self) -> int:
        """How many pods."""
        return len(self.placements)


def measure(instance: Instance, batches: int) -> list[Batch]:
    """CPU time of each batch, decoding and encoding included.

    The first one brings all nodes and everything that runs there; the figure that counts is that of the later ones.
    """
    snapshot, replica = instance.snapshot, Replica()
    used, assumed = snapshot.used.copy(), snapshot.non_zero_requested.copy()
    index = {node.name: at for at, node in enumerate(snapshot.table.nodes)}
    changed = set(range(len(snapshot.table.nodes)))
    come = [(kind, at) for kind, nodes in instance.running for at in nodes.tolist()]
    done: list[Batch] = []
    for number in range(batches):
        pods = instance.batch(number + 1, instance.size.pending)
        uses = [_use(instance, at, used, assumed) for at in sorted(changed)]
        body = request_encoder.encode(_request(instance, number, uses, come, pods))
        before = time.process_time()
        reply_body = reply_encoder.encode(run_request(replica, request_decoder.decode(body)))
        seconds = time.process_time() - before
        reply: RoundReply = reply_decoder.decode(reply_body)
        if reply.problem:
            raise RuntimeError(reply.problem)
        placements = tuple((pods[each.pod], index[each.node]) for each in reply.placements)
        changed = {at for _, at in placements}
        come = [(pod.signature, at) for pod, at in placements]
        for pod, at in placements:
            used[at] += snapshot.vector(pod.pod_class.requests)
            assumed[at] += pod.pod_class.non_zero_requests
        done.append(Batch(seconds, placements, len(reply.unplaced), reply.solves))
    return done


def verdict(instance: Instance, batches: Sequence[Batch]) -> str:
    """No node overcommitted by all batches together, no filter broken."""
    checker = Checker(instance.snapshot, instance.running)
    placed = [placement for batch in batches for placement in batch.placements]
    over = int((checker.free(placed) < 0).any(axis=1).sum())
    wrong = sum(not checker.allowed(pod.pod_class)[at] for pod, at in placed)
    wrong += checker.skewed(placed)
    return f"NO: {over} nodes overcommitted, {wrong} pods where a filter rejects them" if over or wrong else "yes"


def _use(instance: Instance, at: int, used: Int64s, assumed: Int64s) -> NodeUsage:
    snapshot = instance.snapshot
    row = dict(zip(snapshot.resources, used[at].tolist(), strict=True))
    pods = row.pop(PODS)
    cpu, memory = assumed[at].tolist()
    amounts = tuple(sorted((name, amount) for name, amount in row.items() if amount))
    return NodeUsage(snapshot.table.nodes[at].name, amounts, pods, cpu, memory, ())


def _request(
    instance: Instance,
    number: int,
    uses: list[NodeUsage],
    come: Sequence[tuple[PodSignature, int]],
    pods: Sequence[PendingPod],
) -> RoundRequest:
    classes: dict[PodClass, int] = {}
    kinds: dict[PodSignature, int] = {}
    nodes = instance.snapshot.table.nodes
    waiting = [
        PendingEntry(
            key=pod.key,
            pod_class=classes.setdefault(pod.pod_class, len(classes)),
            policy=0,
            created=pod.created,
            signature=kinds.setdefault(pod.signature, len(kinds)),
        )
        for pod in pods
    ]
    pod_changes = [
        (kinds.setdefault(kind, len(kinds)), {nodes[at].name: count}) for (kind, at), count in Counter(come).items()
    ]
    return RoundRequest(
        number=number,
        generation=number,
        now=instance.snapshot.now,
        reset=number == 0,
        changes=ClusterChanges(
            nodes=list(nodes) if number == 0 else [],
            usage=uses,
            namespaces=dict(instance.snapshot.pod_index.namespaces) if number == 0 else {},
        ),
        pod_changes=pod_changes,
        policies=[BUILT_IN],
        classes=list(classes),
        signatures=list(kinds),
        pending=waiting,
        budget=USUAL,
    )
