"""Metrics and traces of rounds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.reports.phases import RoundPhase, Stopwatch
from thalweg_operator.planning.worker.messages import RoundReply


@dataclass(frozen=True, slots=True)
class RoundTrace:
    """A round that ended.

    Attributes:
        number: of the request.
        ended: seconds since the epoch.
        seconds: how long it took.
        phases: phases on the side of the operator: collect, worker, deliver.
        pods: number of pods to plan.
        reply: what the worker answered; None: the round failed.
        problem: why it failed; "": it did not.
    """

    number: int
    ended: float
    seconds: float
    phases: tuple[RoundPhase, ...]
    pods: int
    reply: RoundReply | None
    problem: str = ""


class RoundTracer(Protocol):
    """Takes the trace of each round. It must return at once, and never fail."""

    def round_ended(self, trace: RoundTrace) -> None:
        """A round ended."""


class RoundMetrics:
    """Keeps the metrics of rounds, and passes each round on to the tracer."""

    def __init__(self, metrics: Metrics, tracer: RoundTracer | None = None) -> None:
        self._metrics, self._tracer = metrics, tracer

    def planned(self, number: int, pods: int, stopwatch: Stopwatch, reply: RoundReply) -> None:
        """A round ended with a plan, and the plan was delivered."""
        metrics, phase_seconds = self._metrics, self._metrics.round_phase_seconds
        metrics.rounds.labels(reply.method).inc()
        metrics.round_seconds.observe(reply.seconds)
        if pods:
            metrics.round_pods.observe(pods)
            metrics.plan_left_at_least.set(0 if reply.left_at_least is None else reply.left_at_least.pods)
            metrics.plan_cost.set(reply.cost)
            metrics.plan_gap.set(reply.gap)
        for name, _, seconds in stopwatch.phases:
            if name == "worker":
                phase_seconds.labels("transfer").observe(max(0.0, seconds - reply.seconds))
            else:
                phase_seconds.labels(name).observe(seconds)
        for name, _, seconds in reply.phases:
            phase_seconds.labels(name).observe(seconds)
        phase_seconds.labels("filters").observe(reply.filter_seconds)
        for name, hits, refreshed, misses, rows in reply.cache_tallies:
            metrics.verdicts.labels(name, "hit").inc(hits)
            metrics.verdicts.labels(name, "refreshed").inc(refreshed)
            metrics.verdicts.labels(name, "miss").inc(misses)
            metrics.verdict_rows.labels(name).inc(rows)
        self._trace(number, pods, stopwatch, reply, "")

    def failed(self, number: int, pods: int, stopwatch: Stopwatch, problem: str) -> None:
        """A round ended without a plan."""
        self._trace(number, pods, stopwatch, None, problem)

    def _trace(self, number: int, pods: int, stopwatch: Stopwatch, reply: RoundReply | None, problem: str) -> None:
        if self._tracer is not None:
            phases = tuple(stopwatch.phases)
            self._tracer.round_ended(RoundTrace(number, time.time(), stopwatch.seconds, phases, pods, reply, problem))
