"""Rounds with a budget in seconds, as the worker process runs them."""

from __future__ import annotations

import time

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.planning.round import Round, RoundResult

#: What the operator gives a round unless it is told otherwise (settings.round_budget).
USUAL = 0.3


def round_within(snapshot: Snapshot, seconds: float = USUAL) -> RoundResult:
    """Takes steps until the CPU time is spent, at least one."""
    until = time.process_time() + seconds
    this = Round(snapshot)
    while this.step() and time.process_time() < until:
        pass
    return this.result()


def fewest_left(result: RoundResult) -> int:
    """Pods that any plan at all must leave out, as the engine proves it."""
    return 0 if result.left_at_least is None else result.left_at_least.pods
