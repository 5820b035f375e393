"""Pods that the limit of their queue holds back: they are left out of the round, or wait for others to leave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.indexes.queue_index import QueueTree
from flowcore.costs.shares.queue_admission import held_back
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Unplaced
from flowcore.rules.reasons.codes import QUEUE_LIMIT


class KeepQueueLimits(Pass):
    """Keeps pods beyond the limits of their queues from all nodes, so that no plan passes a limit.

    Where some pod that counts for such a limit might leave, they stay in the problem: the second part of the round
    looks for those that leave for them.
    """

    def __init__(self) -> None:
        self._decided = NOTHING_DECIDED

    def apply(self, problem: Problem) -> Problem:
        """The problem with pods that are held back left out, or kept from all nodes."""
        snapshot = problem.snapshot
        held = held_back(snapshot, lambda: _fitting(problem))
        if not held:
            return problem
        beyond = [pod for pod in snapshot.pending if pod.key in held]
        kept: set[str] = set()
        if _some_may_leave(snapshot, beyond):
            kept = {pod.key for pod in beyond if pod.victim is None}
        prices = {
            pod.key: int(price)
            for demand in problem.demands
            for pod, price in zip(demand.group.pods, demand.prices, strict=True)
        }
        self._decided = Decided(
            unplaced=tuple(
                Unplaced(pod, held[pod.key], prices[pod.key], QUEUE_LIMIT, more_nodes_help=False)
                for pod in beyond
                if pod.key not in kept
            )
        )
        others = tuple(pod for pod in snapshot.pending if pod.key not in held or pod.key in kept)
        return problem.with_snapshot(replace(snapshot, pending=others, held_back={key: held[key] for key in kept}))

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate with the pods that are left out, and what they cost."""
        return candidate.with_decided(self._decided)


def _fitting(problem: Problem) -> dict[str, bool]:
    return {pod.key: bool(demand.counts.any()) for demand in problem.demands for pod in demand.group.pods}


def _some_may_leave(snapshot: Snapshot, held: Iterable[PendingPod]) -> bool:
    """Whether a running pod that counts for a limit of a pod that is held back might leave, for whatever pod."""
    running, queues = snapshot.running, snapshot.queues
    if running is None or queues is None:
        return False
    tree = QueueTree(queues.queues)
    lowest: dict[str, int] = {}
    for pod in running.pods:
        evictable = not pod.unevictable_reason and all(running.budgets.get(budget, 0) > 0 for budget in pod.budgets)
        if evictable and pod.queue in tree.queues:
            lowest[pod.queue] = min(lowest.get(pod.queue, pod.priority), pod.priority)
    limited = {name for name, queue in tree.queues.items() if queue.limit}
    highest = max(pod.pod_class.priority for pod in snapshot.pending)
    return any(
        # For a share of their queue pods of another one leave at the same priority, too.
        (low < highest or (low == highest and giving != queue))
        and not limited.isdisjoint({*tree.path(giving)} & {*tree.path(queue)})
        for queue in {pod.queue for pod in held} & tree.queues.keys()
        for giving, low in lowest.items()
    )
