"""Evictions of a plan, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from rich.console import Console

from flowcore.model.running_pods import EvictionKind
from flowcore.planning.round import Eviction
from flowcore.questions.scenario.plan_listing import PlannedEviction
from thalweg.terminal.tables import MAX_ROWS, print_table, print_truncated

#: Why running pods leave.
WHY: Final = {
    EvictionKind.PREEMPTION: "a pod of a higher priority needs its room",
    EvictionKind.MIGRATION: "it can run on another node, and its room is needed",
    EvictionKind.RULE: "a rule that it requires does not hold any more",
    EvictionKind.RECLAIM: "its queue uses more than its fair share",
}
#: Pods named in a cell of the table; ``-o json`` has all.
_MAX_NAMES = 3


def as_planned(evictions: Iterable[Eviction]) -> list[PlannedEviction]:
    """Evictions in the shape that a plan has them in."""
    return [
        PlannedEviction(
            eviction.pod.key,
            eviction.pod.node,
            eviction.kind,
            list(eviction.for_pods),
            eviction.to,
            eviction.reason,
            eviction.gain,
            eviction.price,
        )
        for eviction in evictions
    ]


def print_evictions(console: Console, title: str, evictions: Sequence[Eviction]) -> None:
    """Prints who leaves, from where, for whom, where to and why; nothing if no pod leaves.

    Args:
        title: of the column with the pods that leave.
    """
    if not evictions:
        return
    rows = (
        (
            eviction.pod.key,
            eviction.pod.node,
            some(eviction.for_pods) or "-",
            eviction.to or "-",
            why(eviction.kind, eviction.reason),
        )
        for eviction in islice(evictions, MAX_ROWS)
    )
    print_table(console, (title, "NODE", "FOR", "TO", "WHY"), rows)
    print_truncated(console, len(evictions))
    console.print()


def why(kind: EvictionKind, reason: str) -> str:
    """Why a pod leaves: the kind and a sentence.

    Args:
        reason: the plan's own sentence; "": it has none.
    """
    return f"{kind.value}: {reason or WHY[kind]}"


def some(keys: Sequence[str]) -> str:
    """The first of these keys, and how many more there are."""
    more = len(keys) - _MAX_NAMES
    return ", ".join(keys[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
