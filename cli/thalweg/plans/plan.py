"""``thalweg plan``: the plan of all waiting pods, and how it differs from what another scheduler did."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
from rich.console import Console

from flowcore.model.amount_text import counted
from flowcore.planning.problem.bounds.bound_notes import sentence
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.alternatives.comparison import Comparison
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.observed import ObservedPod
from flowcore.questions.scenario.plan_listing import (
    PlanAnswer,
    PlannedEviction,
    PlannedPod,
    PlanQuery,
    check_policy,
    list_plan,
)
from thalweg.plans.evictions import some, why
from thalweg.plans.local_plan import compare, plan, reasons_by_node
from thalweg.plans.print_comparison import print_comparison
from thalweg.plans.workload_tables import print_evictions_by_workload, print_workloads
from thalweg.sources.asking import tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.tables import MAX_ROWS, print_names, print_table, print_truncated

_INCOMPLETE: Final = "not certified: objects that the plan needs are missing"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What is planned and said of a whole cluster; any of these is planned here.

    Attributes:
        reschedule: as if every policy had ``rescheduling: {mode: Act}``.
        compare: the same pods one by one too.
        nodes: the reason of each node for each pending pod.
    """

    reschedule: bool = False
    compare: bool = False
    nodes: bool = False


class PlanHere(PlanAnswer, frozen=True, rename="camel", kw_only=True):
    """A plan that was made here.

    Attributes:
        seconds: how long it took.
        comparison: the same pods one by one, if asked for.
        nodes_of: key of a pending pod -> node -> reason, if asked for.
    """

    seconds: float
    comparison: Comparison | msgspec.UnsetType = msgspec.UNSET
    nodes_of: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET


def answer_here(options: PlanOptions, scenario: Scenario, query: PlanQuery, context: AnswerContext) -> PlanHere:
    """Plans the waiting pods.

    Raises:
        UnknownName: no policy has the name of the query.
    """
    check_policy(scenario, query)
    planned = plan(scenario, context.now, reschedule=options.reschedule)
    answer = list_plan(scenario, planned.document(planned.seconds), query, context)
    fields = {name: getattr(answer, name) for name in answer.__struct_fields__}
    fields |= {"warnings": [*scenario.warnings, *answer.warnings], "seconds": round(planned.seconds, 6)}
    if options.compare:
        fields["comparison"] = compare(scenario, planned)
    if options.nodes:
        listed = {each.pod for each in answer.waiting}
        fields["nodes_of"] = {key: by_node for key, by_node in reasons_by_node(planned) if key in listed}
    return PlanHere(**fields)


def question(options: PlanOptions) -> SourceOperation[PlanQuery, PlanAnswer]:
    """The plan as a question."""
    return SourceOperation("plan", PlanAnswer, partial(answer_here, options), method="GET")


QUESTION: Final = question(PlanOptions())


@dataclass(frozen=True, slots=True)
class Printed:
    """What is printed of a plan.

    Attributes:
        output: "table", "wide", "name", "json" or "yaml".
        watch: again whenever it changes.
        pods: all pods, not a line for each workload.
        verbose: the plan's cost and what is proven of it.
    """

    output: str = "table"
    watch: bool = False
    pods: bool = False
    verbose: bool = False


def run_plan(
    source: SourceOptions, policy: str, options: PlanOptions, printed: Printed, *, all_namespaces: bool
) -> None:
    """Asks for the plan and prints it."""
    # Two ways of placing are compared for the whole cluster, and so is the line above them.
    everywhere = all_namespaces or options.compare or (source.files and not source.namespace)
    tell(
        source,
        question(options),
        lambda namespace: PlanQuery("" if everywhere else namespace, policy),
        partial(names, pods=printed.pods)
        if printed.output == "name"
        else partial(show, pods=printed.pods, verbose=printed.verbose),
        output=printed.output,
        watch=printed.watch,
    )


def show(answer: PlanAnswer, *, pods: bool = False, verbose: bool = False) -> None:
    """Prints a plan: sums, then a line for each workload, all pods, or both ways of placing them."""
    console = stdout_console()
    for line in summary(answer):
        console.print(line, markup=False)
    console.print()
    if isinstance(answer, PlanHere) and answer.comparison is not msgspec.UNSET:
        print_comparison(console, answer.comparison)
    elif pods:
        _show_pods(console, answer)
        _show_evictions(console, "LEAVES", [each for each in answer.evictions if each.acts])
        would_leave = [*(each for each in answer.evictions if not each.acts), *answer.proposals]
        _show_evictions(console, "WOULD LEAVE", would_leave)
    else:
        print_workloads(console, answer.workloads)
        acting = [each for each in answer.evictions_by_workload if each.acts]
        observed = [each for each in answer.evictions_by_workload if not each.acts]
        print_evictions_by_workload(console, "LEAVES", acting)
        print_evictions_by_workload(console, "WOULD LEAVE", [*observed, *answer.proposals_by_workload])
    _show_observed(console, answer.observed)
    if verbose:
        console.print(_proof(answer), markup=False)


def names(answer: PlanAnswer, *, pods: bool = False) -> None:
    """Prints the names of what the tables of a plan list first."""
    if pods:
        print_names(
            f"pod/{key}" for key in (*(each.pod for each in answer.placed), *(each.pod for each in answer.waiting))
        )
    else:
        print_names(each.workload for each in answer.workloads if each.pods)


def _show_pods(console: Console, answer: PlanAnswer) -> None:
    if answer.placed:
        shown = answer.placed[:MAX_ROWS]
        header: tuple[str, ...] = ("POD", "NODE", "COST")
        rows: list[tuple[str, ...]] = [(each.pod, each.node, str(each.price)) for each in shown]
        if any(each.devices for each in shown):
            header, rows = (*header, "DEVICES"), [(*row, _devices(pod)) for row, pod in zip(rows, shown, strict=True)]
        if any(remarks := [_remark(each) for each in shown]):
            header, rows = (*header, "REMARK"), [(*row, said) for row, said in zip(rows, remarks, strict=True)]
        _table(console, header, rows, len(answer.placed))
    if answer.waiting:
        _table(
            console,
            ("PENDING", "REASON"),
            [(each.pod, each.reason) for each in answer.waiting[:MAX_ROWS]],
            len(answer.waiting),
        )


def _show_evictions(console: Console, title: str, evictions: list[PlannedEviction]) -> None:
    if evictions:
        rows = [
            (leaver.pod, leaver.node, some(leaver.for_pods) or "-", leaver.to or "-", why(leaver.kind, leaver.reason))
            for leaver in evictions[:MAX_ROWS]
        ]
        _table(console, (title, "NODE", "FOR", "TO", "WHY"), rows, len(evictions))


def _show_observed(console: Console, observed: list[ObservedPod]) -> None:
    different = [each for each in observed if each.elsewhere]
    if different:
        rows = [(pod.pod, pod.policy, pod.node, pod.planned or f"none: {pod.reason}") for pod in different[:MAX_ROWS]]
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


def _devices(placed: PlannedPod) -> str:
    return some([f"{each.pool}/{each.device}" for each in placed.devices]) if placed.devices else "-"


def _remark(placed: PlannedPod) -> str:
    parts = [] if placed.acts else ["not carried out (Observe)"]
    if placed.victims:
        parts.append(f"once {some(placed.victims)} {'has' if len(placed.victims) == 1 else 'have'} left")
    return "; ".join(parts)


def summary(answer: PlanAnswer) -> list[str]:
    """The plan in a few lines: who waits, who leaves, whose pods they are, what no plan can beat."""
    hidden = f", {counted(answer.hidden, 'pod')} of namespaces that you may not read" if answer.hidden else ""
    proof = f"; {proven}" if (proven := _short_proof(answer)) else ""
    lines = (
        f"{counted(answer.nodes, 'node')}; {answer.counts.sentence}{hidden}{proof}",
        answer.leaving.sentence,
        answer.ungoverned.sentence,
        _least_left(answer),
    )
    return [line for line in lines if line]


def _least_left(answer: PlanAnswer) -> str:
    """How many pods every plan leaves; "": nothing is known, or objects are missing that may change that."""
    if answer.left_at_least is None or answer.incomplete:
        return ""
    whole = not (answer.namespace or answer.policy or answer.hidden)
    return answer.left_at_least.sentence if whole else answer.left_at_least.sentence_of_all


def _short_proof(answer: PlanAnswer) -> str:
    """What people should know of the plan without asking; "": nothing."""
    if not answer.placed and not answer.waiting and not answer.hidden:
        return ""
    if not answer.placed and all(each.skipped for each in answer.waiting):
        return "no pending pod can be planned" if answer.waiting else ""
    if answer.incomplete:
        return _INCOMPLETE
    return _certificate(answer) if answer.certified else ""


def _certificate(answer: PlanAnswer) -> str:
    """The bound of a plan that evicts nobody is of such plans only."""
    which = "no plan" if answer.evictions else "no plan that evicts nobody"
    return f"certified: {which} costs less"


def _proof(answer: PlanAnswer) -> str:
    """The cost and what is proven of it."""
    took = f"; planned in {answer.seconds:.3f} s" if isinstance(answer, PlanHere) else ""
    return f"cost {answer.cost}, {_cost_proof(answer)}{took}"


def _cost_proof(answer: PlanAnswer) -> str:
    if answer.incomplete:
        return _INCOMPLETE
    if answer.certified:
        return _certificate(answer)
    why_wide = f" ({weak})" if (weak := sentence(answer.bound_notes)) else ""
    # Rounded up, so that a plan with a gap never shows none.
    return f"not certified: optimality gap <= {math.ceil(answer.gap * 1000) / 10:.1f} %{why_wide}"
