"""Pods that the limit of their queue holds back: they are left out of the round."""

from __future__ import annotations

from dataclasses import replace

from flowcore.costs.shares.queue_admission import held_back
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.placements.candidate import NOTHING_DECIDED, Candidate, Decided
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Unplaced
from flowcore.rules.reasons.codes import QUEUE_LIMIT


class KeepQueueLimits(Pass):
    """Leaves out pods beyond the limits of their queues, so that no plan passes a limit."""

    def __init__(self) -> None:
        self._decided = NOTHING_DECIDED

    def apply(self, problem: Problem) -> Problem:
        """The problem without pods that are held back."""
        held = held_back(problem.snapshot, lambda: _fitting(problem))
        if not held:
            return problem
        prices = {
            pod.key: int(price)
            for demand in problem.demands
            for pod, price in zip(demand.group.pods, demand.prices, strict=True)
        }
        pending = problem.snapshot.pending
        self._decided = Decided(
            unplaced=tuple(
                Unplaced(pod, held[pod.key], prices[pod.key], QUEUE_LIMIT, more_nodes_help=False)
                for pod in pending
                if pod.key in held
            )
        )
        others = tuple(pod for pod in pending if pod.key not in held)
        return problem.with_snapshot(replace(problem.snapshot, pending=others))

    def invert(self, candidate: Candidate) -> Candidate:
        """The candidate with these pods, and what they cost."""
        return candidate.with_decided(self._decided)


def _fitting(problem: Problem) -> dict[str, bool]:
    return {pod.key: bool(demand.counts.any()) for demand in problem.demands for pod in demand.group.pods}
