"""Prints a plan beside the same pods one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console

from flowcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY
from flowcore.questions.scenario.alternatives.comparison import Comparison
from thalweg.plans.evictions import some
from thalweg.terminal.tables import counted, print_table

_GI: Final = 1024**3


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Prints a table with one column for each way, which pods only one of them places, and what that comes to."""
    rows = [*_count_rows(comparison), *_use_rows(comparison)]
    print_table(console, ("", "NOW", "THALWEG", "ONE BY ONE"), rows)
    console.print()
    for way, keys in (("Thalweg", comparison.only_thalweg), ("one by one", comparison.only_one_by_one)):
        if keys:
            console.print(f"Placed by {way} only: {counted(len(keys), 'pod')} ({some(keys)}).", markup=False)
    console.print(f"{_gain(comparison)}\n", markup=False)


def _count_rows(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    ours, theirs = comparison.thalweg, comparison.one_by_one
    yield "pods placed", "", f"{ours.placed:,}", f"{theirs.placed:,}"
    if ours.placed_after_evictions:
        yield "pods placed once others have left", "", f"{ours.placed_after_evictions:,}", "-"
    yield "pods waiting", "", f"{ours.waiting:,}", f"{theirs.waiting:,}"
    if comparison.gangs:
        yield f"whole gangs, of {comparison.gangs:,}", "", f"{ours.whole_gangs:,}", f"{theirs.whole_gangs:,}"
        without_use = f"{ours.pods_of_incomplete_gangs:,}", f"{theirs.pods_of_incomplete_gangs:,}"
        yield "pods placed in incomplete gangs", "", *without_use


def _use_rows(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    ours, theirs = comparison.thalweg, comparison.one_by_one
    for resource, total in comparison.allocatable.items():
        uses = comparison.used_before, ours.used, theirs.used
        if not any(use[resource] for use in uses):
            continue
        now, by_us, by_them = (f"{100 * use[resource] / total:.1f} %" for use in uses)
        yield f"{resource}, of {_amount(resource, total)}", now, by_us, by_them
        held = [way.held_by_incomplete_gangs.get(resource, 0) for way in (ours, theirs)]
        if any(held):
            by_us, by_them = (_amount(resource, amount) if amount else "0" for amount in held)
            yield "  of these held by incomplete gangs", "", by_us, by_them


def _gain(comparison: Comparison) -> str:
    """What Thalweg's plan is worth beside the other way; pods of incomplete gangs hold room and are of no use."""
    ours, theirs = comparison.thalweg, comparison.one_by_one
    facts = [f"{counted(ours.useful, 'pod')} can run, not {theirs.useful:,}"] if ours.useful != theirs.useful else []
    if ours.whole_gangs != theirs.whole_gangs:
        facts.append(f"{counted(ours.whole_gangs, 'gang')} whole, not {theirs.whole_gangs:,}")
    if not facts:
        facts.append(f"{counted(ours.useful, 'pod')} can run either way")
    facts += [f"{counted(ours.moved, 'running pod')} moved"] if ours.moved else []
    facts += [f"{counted(ours.evicted, 'running pod')} evicted"] if ours.evicted else []
    better = (ours.useful, ours.whole_gangs) > (theirs.useful, theirs.whole_gangs)
    return f"{'Gained' if better else 'In short'}: {'; '.join(facts)}."


def _amount(resource: str, amount: int) -> str:
    """For people: cores, GiB, or pieces."""
    if resource == CPU:
        return f"{amount / 1000:,.0f} cores"
    if resource in (MEMORY, EPHEMERAL_STORAGE):
        return f"{amount / _GI:,.0f} GiB"
    return f"{amount:,}"
