"""Prints a plan beside the same pods one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console

from flowcore.model.amount_text import counted
from flowcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY
from flowcore.questions.scenario.alternatives.comparison import Comparison
from thalweg.plans.evictions import some
from thalweg.terminal.tables import print_table

_GI: Final = 1024**3
_NO_PREEMPTION: Final = (
    "One by one evicts nobody here. kube-scheduler preempts: it may place more of these pods, and others then leave."
)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Prints a table with one column for each way, which pods only one of them places, and what that comes to."""
    rows = [*_count_rows(comparison), *_use_rows(comparison)]
    print_table(console, ("", "NOW", "THALWEG", "ONE BY ONE"), rows)
    console.print()
    for way, keys in (("Thalweg", comparison.only_thalweg), ("one by one", comparison.only_one_by_one)):
        if keys:
            console.print(f"Placed by {way} only: {counted(len(keys), 'pod')} ({some(keys)}).", markup=False)
    if comparison.thalweg.evicted or comparison.thalweg.moved or comparison.one_by_one.waiting:
        console.print(_NO_PREEMPTION, markup=False)
    console.print(f"{_gain(comparison)}\n", markup=False)


def _count_rows(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    planned, sequential = comparison.thalweg, comparison.one_by_one
    yield "pods placed", "", f"{planned.placed:,}", f"{sequential.placed:,}"
    if planned.placed_after_evictions:
        yield "pods placed once others have left", "", f"{planned.placed_after_evictions:,}", "-"
    yield "pods waiting", "", f"{planned.waiting:,}", f"{sequential.waiting:,}"
    if comparison.gangs:
        yield f"whole gangs, of {comparison.gangs:,}", "", f"{planned.whole_gangs:,}", f"{sequential.whole_gangs:,}"
        without_use = f"{planned.pods_of_incomplete_gangs:,}", f"{sequential.pods_of_incomplete_gangs:,}"
        yield "pods placed in incomplete gangs", "", *without_use


def _use_rows(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    planned, sequential = comparison.thalweg, comparison.one_by_one
    for resource, total in comparison.allocatable.items():
        uses = comparison.used_before, planned.used, sequential.used
        if not any(use[resource] for use in uses):
            continue
        now, by_us, by_them = (f"{100 * use[resource] / total:.1f} %" for use in uses)
        yield f"{resource}, of {_amount(resource, total)}", now, by_us, by_them
        held = [way.held_by_incomplete_gangs.get(resource, 0) for way in (planned, sequential)]
        if any(held):
            by_us, by_them = (_amount(resource, amount) if amount else "0" for amount in held)
            yield "  of these held by incomplete gangs", "", by_us, by_them


def _gain(comparison: Comparison) -> str:
    """What Thalweg's plan is worth beside the other way; pods of incomplete gangs hold room and are of no use.

    A running pod that is evicted without a new node is a pod less that runs.
    """
    planned, sequential = comparison.thalweg, comparison.one_by_one
    facts = (
        [f"{counted(planned.useful, 'pod')} can run, not {sequential.useful:,}"]
        if planned.useful != sequential.useful
        else []
    )
    if planned.whole_gangs != sequential.whole_gangs:
        facts.append(f"{counted(planned.whole_gangs, 'gang')} whole, not {sequential.whole_gangs:,}")
    if not facts:
        facts.append(f"{counted(planned.useful, 'pod')} can run either way")
    facts += [f"{counted(planned.moved, 'running pod')} moved"] if planned.moved else []
    net = planned.useful - planned.evicted
    if planned.evicted:
        more = net - sequential.useful
        run = f"{counted(abs(more), 'pod')} {'more' if more > 0 else 'fewer'}" if more else "as many pods"
        lost = f"{counted(planned.evicted, 'running pod')} evicted without a new node"
        facts.append(f"{lost}: in all {run} {'runs' if abs(more) == 1 else 'run'}")
    better = (net, planned.whole_gangs) > (sequential.useful, sequential.whole_gangs)
    return f"{'Gained' if better else 'In short'}: {'; '.join(facts)}."


def _amount(resource: str, amount: int) -> str:
    """For people: cores, GiB, or pieces."""
    if resource == CPU:
        return f"{amount / 1000:,.0f} cores"
    if resource in (MEMORY, EPHEMERAL_STORAGE):
        return f"{amount / _GI:,.0f} GiB"
    return f"{amount:,}"
