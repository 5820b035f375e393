"""``thalweg plan``: the plan of all waiting pods, and how it differs from what another scheduler did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from rich.console import Console

from flowcore.scenario.observed import ObservedPod
from flowcore.scenario.plan_listing import PlanAnswer, PlanQuery, answer_plan
from thalweg.asking import tell
from thalweg.evictions import some
from thalweg.source import SourceOperation, SourceOptions
from thalweg.tables import MAX_ROWS, counted, print_table, print_truncated, stdout_console
from thalweg.workload_tables import print_leaving, print_workloads

QUESTION = SourceOperation("plan", PlanAnswer, answer_plan, method="GET")


def run_plan(
    source: SourceOptions, policy: str, output: str, *, all_namespaces: bool, watch: bool, pods: bool = False
) -> None:
    """Asks for the plan and prints it."""
    everywhere = all_namespaces or (source.files and not source.namespace)
    tell(
        source,
        QUESTION,
        lambda namespace: PlanQuery("" if everywhere else namespace, policy),
        partial(show, pods=pods),
        output=output,
        watch=watch,
    )


def show(answer: PlanAnswer, *, pods: bool = False) -> None:
    """Prints a plan: sums, then a line for each workload, or all pods."""
    console = stdout_console()
    for warning in answer.warnings:
        console.print(f"Warning: {warning}", markup=False)
    console.print(f"{_summary(answer)}\n", markup=False)
    if pods:
        _show_pods(console, answer)
        _show_leaving(console, answer)
    else:
        print_workloads(console, answer.workloads)
        print_leaving(console, "LEAVES", answer.leaving_workloads)
    _show_observed(console, answer.observed)


def _show_pods(console: Console, answer: PlanAnswer) -> None:
    if answer.placed:
        rows = [
            (each.pod, each.node, str(each.price), _remark(each.victims, acts=each.acts))
            for each in answer.placed[:MAX_ROWS]
        ]
        _table(console, ("POD", "NODE", "COST", "REMARK"), rows, len(answer.placed))
    if answer.waiting:
        _table(
            console,
            ("PENDING", "REASON"),
            [(each.pod, each.reason) for each in answer.waiting[:MAX_ROWS]],
            len(answer.waiting),
        )


def _show_leaving(console: Console, answer: PlanAnswer) -> None:
    if answer.leaving:
        leaving = [
            (each.pod, each.node, some(each.for_pods) or "-", each.to or "-", each.kind)
            for each in answer.leaving[:MAX_ROWS]
        ]
        _table(console, ("LEAVES", "NODE", "FOR", "TO", "KIND"), leaving, len(answer.leaving))


def _show_observed(console: Console, observed: list[ObservedPod]) -> None:
    different = [each for each in observed if each.elsewhere]
    if different:
        rows = [
            (each.pod, each.policy, each.node, each.planned or f"none: {each.reason}") for each in different[:MAX_ROWS]
        ]
        _table(console, ("OBSERVED", "POLICY", "RUNS ON", "PLANNED FOR"), rows, len(different))
    counts, others = Counter(each.policy for each in observed), Counter(each.policy for each in different)
    for policy, count in sorted(counts.items()):
        console.print(
            f"policy {policy} (Observe): {others[policy]:,} of {counted(count, 'running pod')} would be elsewhere",
            markup=False,
        )


def _table(console: Console, header: tuple[str, ...], rows: Sequence[tuple[str, ...]], count: int) -> None:
    print_table(console, header, rows)
    print_truncated(console, count)
    console.print()


def _remark(victims: list[str], *, acts: bool) -> str:
    parts = ["" if acts else "not carried out (Observe)"]
    if victims:
        parts.append(f"once {some(victims)} {'has' if len(victims) == 1 else 'have'} left")
    return "; ".join(filter(None, parts))


def _summary(answer: PlanAnswer) -> str:
    hidden = f", {counted(answer.hidden, 'pod')} of namespaces that you may not read" if answer.hidden else ""
    proof = "; certified: no plan costs less" if answer.certified and (answer.placed or answer.waiting) else ""
    return (
        f"{len(answer.placed):,} placed, {len(answer.waiting):,} pending{hidden} on "
        f"{counted(answer.nodes, 'node')}{proof}"
    )
