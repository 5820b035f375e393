"""Rounds with a budget in seconds, as the worker process runs them."""

from __future__ import annotations

import time
from collections import Counter

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.planning.round import Round, RoundResult

#: What the operator gives a round unless it is told otherwise (settings.round_budget).
USUAL = 0.3


def round_within(snapshot: Snapshot, seconds: float = USUAL) -> tuple[RoundResult, Counter[str]]:
    """Takes steps until the CPU time is spent, at least one: the result, and by how much each method lowered the cost.

    The method of the first plan comes first; its gain is over no plan at all.
    """
    until = time.process_time() + seconds
    this = Round(snapshot)
    while this.step() and time.process_time() < until:
        pass
    return this.result(), this.gains


def shares(gains: Counter[str], cost: int) -> dict[str, float]:
    """Gains of all methods after the first plan, as parts of what the plan costs in the end."""
    return {method: gain / cost for method, gain in [*gains.items()][1:] if cost}
