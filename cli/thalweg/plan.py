"""``thalweg plan``: the plan of all waiting pods, and how it differs from what another scheduler did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from flowcore.scenario.observed import ObservedPod
from flowcore.scenario.plan_listing import PlanAnswer, PlanQuery, answer_plan
from thalweg.asking import tell
from thalweg.evictions import some
from thalweg.source import AskedOperation, SourceOptions
from thalweg.tables import MAX_ROWS, counted, print_table, print_truncated, stdout_console

QUESTION = AskedOperation("plan", PlanAnswer, answer_plan, method="GET")


def run_plan(source: SourceOptions, policy: str, output: str, *, all_namespaces: bool, watch: bool) -> None:
    """Asks for the plan and prints it."""
    everywhere = all_namespaces or (source.files and not source.namespace)
    tell(
        source,
        QUESTION,
        lambda namespace: PlanQuery("" if everywhere else namespace, policy),
        show,
        output=output,
        watch=watch,
    )


def show(answer: PlanAnswer) -> None:
    """Prints a plan as tables."""
    console = stdout_console()
    for warning in answer.warnings:
        console.print(f"Warning: {warning}", markup=False)
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
    if answer.leaving:
        leaving = [
            (each.pod, each.node, some(each.for_pods) or "-", each.to or "-", each.kind)
            for each in answer.leaving[:MAX_ROWS]
        ]
        _table(console, ("LEAVES", "NODE", "FOR", "TO", "KIND"), leaving, len(answer.leaving))
    _show_observed(console, answer.observed)
    console.print(_summary(answer), markup=False)


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
    proof = "certified: no plan costs less" if answer.certified else f"no plan costs less than {answer.lower_bound}"
    return (
        f"{len(answer.placed):,} placed, {len(answer.waiting):,} pending{hidden} on "
        f"{counted(answer.nodes, 'node')}; the whole plan costs {answer.cost}, {proof}"
    )
