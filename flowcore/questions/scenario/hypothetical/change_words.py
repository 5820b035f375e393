"""What two plans side by side come to, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowcore.model.amount_text import counted
from flowcore.questions.scenario.alternatives.workload_changes import WorkloadChange, WorkloadCount


def in_short(changes: Iterable[WorkloadChange]) -> str:
    """The sum of changes: "16 pods move, 3 more wait, 2 of them evicted"; "" where no number differs."""
    moved = moved_before = waiting = evicted = pods = 0
    for change in changes:
        before, after = change.before, change.after
        moved_before += before.moved
        moved += after.moved - before.moved
        waiting += after.waiting - before.waiting
        evicted += after.evicted - before.evicted
        pods += after.pods - before.pods
    return ", ".join(
        text
        for text in (
            _more(moved, "pod moves", "pods move", "more " if moved_before else ""),
            _more(waiting, "waits", "wait"),
            _evicted(evicted, waiting),
            _more(pods, "pod is there", "pods are there"),
        )
        if text
    )


def _evicted(evicted: int, waiting: int) -> str:
    """Evicted pods are among those that wait."""
    if 0 < evicted <= waiting:
        return f"{evicted:,} of them evicted"
    if waiting <= evicted < 0:
        return f"{-evicted:,} fewer of them evicted"
    return _more(evicted, "is evicted", "are evicted")


def change_sentence(change: WorkloadChange) -> str:
    """What becomes of one workload: "with a node 31 -> 28 of 60; 3 moved"."""
    return "; ".join(_parts(change.before, change.after))


def _parts(before: WorkloadCount, after: WorkloadCount) -> Iterator[str]:
    if not after.pods:
        yield f"{counted(before.pods, 'pod')} gone"
        return
    if not before.pods:
        yield f"{counted(after.pods, 'new pod')}, {after.placed:,} with a node"
        return
    gone = before.pods - after.pods
    if gone > 0:
        yield f"{counted(gone, 'pod')} gone"
    elif gone:
        yield counted(-gone, "new pod")
    if before.placed - gone != after.placed:
        yield f"with a node {before.placed:,} -> {after.placed:,} of {after.pods:,}"
    if before.moved != after.moved:
        yield f"moved {before.moved:,} -> {after.moved:,}" if before.moved else f"{after.moved:,} moved"
    if before.evicted != after.evicted:
        yield f"evicted {before.evicted:,} -> {after.evicted:,}" if before.evicted else f"{after.evicted:,} evicted"


def _more(number: int, singular: str, several: str, more: str = "more ") -> str:
    if not number:
        return ""
    word = more if number > 0 else "fewer "
    return f"{abs(number):,} {word}{singular if abs(number) == 1 else several}"
