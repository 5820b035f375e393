"""``thalweg why``: why a pod waits, in at most ten lines, and which nodes it may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from flowcore.questions.diagnosis.answers import WhyAnswer, WhyQuery
from flowcore.questions.diagnosis.why import answer_why
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.plan_listing import PlannedEviction
from thalweg.questions.node_verdicts import Explanation, as_json, explain_one, print_all, print_nodes
from thalweg.sources.asking import read_scenario, tell
from thalweg.sources.source import SourceOperation, SourceOptions, target_of
from thalweg.terminal.consoles import stdout_console

_QUESTION = SourceOperation("why", WhyAnswer, answer_why)

#: Ten lines at most: the reason, how many wait for it, what to do, and these.
_MAX_EVIDENCE, _MAX_FIXES = 4, 3


class WhyWithNodes(WhyAnswer, frozen=True, rename="camel", kw_only=True):
    """The same with the verdicts of all nodes before any other waiting pod is placed. What is not the case is left out.

    Attributes:
        nodes: node -> whether the pod fits, else the filter that rejects the node, and its reason.
        gang: why its gang cannot be placed whatever capacity is free.
        evictions: running pods that would leave for it, if it waited alone.
        nobody_leaves: why none would.
        blocked: why no plan places it.
    """

    nodes: msgspec.Raw
    gang: str | msgspec.UnsetType = msgspec.UNSET
    evictions: list[PlannedEviction] | msgspec.UnsetType = msgspec.UNSET
    nobody_leaves: str | msgspec.UnsetType = msgspec.UNSET
    blocked: str | msgspec.UnsetType = msgspec.UNSET


def run_why(source: SourceOptions, targets: Sequence[str], output: str, *, fixes: bool, watch: bool) -> None:
    """Asks why and prints it, for each target."""
    _ask(source, _QUESTION, show, targets, output=output, fixes=fixes, watch=watch)


def run_why_with_nodes(source: SourceOptions, targets: Sequence[str], output: str, *, fixes: bool, watch: bool) -> None:
    """The same with the nodes that each pod may use."""
    explanations: dict[str, Explanation] = {}

    def answer(scenario: Scenario, query: WhyQuery, context: AnswerContext) -> WhyWithNodes:
        why = answer_why(scenario, query, context)
        explanation = explanations[why.pod] = explain_one(scenario, why.pod, context.now)
        return _with_nodes(why, explanation)

    def show_nodes(why: WhyAnswer) -> None:
        show(why)
        print_nodes(stdout_console(), explanations[why.pod])

    question = SourceOperation("why", WhyAnswer, answer)
    _ask(source, question, show_nodes, targets, output=output, fixes=fixes, watch=watch)


def run_why_of_all(source: SourceOptions, namespace: str, output: str) -> None:
    """Prints a line for each waiting pod.

    Args:
        namespace: of the pods; "": all.
    """
    print_all(read_scenario(source), namespace, output)


def _with_nodes(why: WhyAnswer, explanation: Explanation) -> WhyWithNodes:
    (known,) = as_json([explanation])
    return WhyWithNodes(
        **{name: getattr(why, name) for name in why.__struct_fields__},
        nodes=known["nodes"],
        gang=explanation.gang_reason or msgspec.UNSET,
        evictions=known.get("evictions", msgspec.UNSET),
        nobody_leaves=explanation.nobody_leaves or msgspec.UNSET,
        blocked=explanation.skip_reason or msgspec.UNSET,
    )


def _ask(
    source: SourceOptions,
    question: SourceOperation[WhyQuery, WhyAnswer],
    show: Callable[[WhyAnswer], None],
    targets: Sequence[str],
    *,
    output: str,
    fixes: bool,
    watch: bool,
) -> None:
    def queries(namespace: str) -> list[WhyQuery]:
        return [WhyQuery(target, fixes) for target in dict.fromkeys(target_of(each, namespace) for each in targets)]

    tell(source, question, queries, show, output=output, watch=watch)


def show(answer: WhyAnswer) -> None:
    """Prints an answer."""
    console = stdout_console()
    for line in to_lines(answer):
        console.print(line, markup=False)


def to_lines(answer: WhyAnswer) -> list[str]:
    """At most ten lines."""
    return list(_lines(answer))


def _lines(answer: WhyAnswer) -> Iterator[str]:
    yield f"{answer.pod}: {answer.kind}: {answer.text}"
    if answer.waiting > 1:
        yield f"  {answer.alike} of {answer.waiting} waiting pods wait for this reason."
    yield from (f"  {line}" for line in first_lines(answer.evidence, _MAX_EVIDENCE))
    if answer.next:
        yield f"Next: {answer.next}"
    others = [fix.text for fix in answer.fixes if fix.text != answer.next]
    yield from (f"Or: {line}" for line in first_lines(others, _MAX_FIXES))


def first_lines(lines: Sequence[str], most: int) -> Iterator[str]:
    """The first lines; the last of them says how many more there are."""
    more = len(lines) - most
    for number, line in enumerate(lines[:most], start=1):
        yield f"{line} ({more} more: -o json)" if number == most and more > 0 else line
