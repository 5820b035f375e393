"""Tables of a plan by workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from flowcore.questions.scenario.planned_workloads import PlannedWorkload, WorkloadEvictions
from thalweg.plans.evictions import WHY, some
from thalweg.terminal.tables import MAX_ROWS, print_table, print_truncated


def print_workloads(console: Console, workloads: Sequence[PlannedWorkload]) -> None:
    """Prints a line for each workload with waiting pods; nothing where there is none."""
    rows = [(each.workload, plan_sentence(each)) for each in workloads if each.pods]
    if not rows:
        return
    print_table(console, ("WORKLOAD", "PLAN"), rows[:MAX_ROWS])
    print_truncated(console, len(rows))
    console.print()


def plan_sentence(row: PlannedWorkload) -> str:
    """What a plan does with a workload, such as "31 of 60 placed; 29 wait: cpu (best node lacks 500m)"."""
    return "; ".join(_parts(row))


def _parts(row: PlannedWorkload) -> Iterator[str]:
    if row.placed:
        yield "placed" if row.pods == 1 else f"{row.placed:,} of {row.pods:,} placed"
    if row.waiting:
        count = "" if row.pods == 1 else f"{row.waiting:,} "
        together = " as a gang" if row.is_gang else ""
        yield f"{count}{'waits' if row.waiting == 1 else 'wait'}{together}: {row.why}"


def print_evictions_by_workload(console: Console, title: str, rows: Sequence[WorkloadEvictions]) -> None:
    """Prints whose running pods leave, how many, for whom and why; nothing if none leaves.

    Args:
        title: of the column with the workloads of the pods that leave.
    """
    if not rows:
        return
    cells = (
        (row.workload, f"{row.pods:,}", f"{row.moved:,}", some(row.for_workloads) or "-", _why(row))
        for row in rows[:MAX_ROWS]
    )
    print_table(console, (title, "PODS", "WITH A NEW NODE", "FOR", "WHY"), cells)
    print_truncated(console, len(rows))
    console.print()


def _why(row: WorkloadEvictions) -> str:
    return f"other nodes cost {row.gain:,} less" if row.gain else WHY[row.kind]
