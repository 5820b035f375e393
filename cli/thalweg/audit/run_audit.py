"""``thalweg audit``: what placement costs, for people and for pipelines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from flowcore.model.amount_text import as_sentence, counted, exact_amount
from flowcore.model.errors import ModelError
from flowcore.model.quantities import NANO, nanos
from flowcore.questions.audit.answer_audit import AuditAnswer, AuditQuery, answer_audit
from flowcore.questions.audit.finding import AuditFinding, FindingKind, StepAction, WitnessStep
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.moment import seconds_of
from thalweg.audit.audit_page import audit_page
from thalweg.audit.closed_table import CLOSED_HEAD, closed_table
from thalweg.audit.figure_texts import AVOIDED, figure_texts
from thalweg.questions.status import age
from thalweg.sources.asking import tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.tables import print_table
from thalweg.terminal.telling import tell_error

#: Steps of a plan that are printed; ``-o json`` has all.
_MAX_STEPS: Final = 5
#: Sentences about what is not known that are printed.
_MAX_UNKNOWN: Final = 8


def limits_of(texts: Iterable[str]) -> dict[str, int]:
    """Limits by name of the finding, as the command line has them: ``WaitingPods=0``, ``StrandedRoom/memory=64Gi``.

    Raises:
        click.UsageError: one of them is none.
    """
    limits, counted_kinds = dict[str, int](), [kind for kind in FindingKind if kind is not FindingKind.STRANDED_ROOM]
    for text in texts:
        name, _, amount = text.partition("=")
        kind, _, resource = name.partition("/")
        if name not in counted_kinds and not (kind == FindingKind.STRANDED_ROOM and resource):
            raise click.UsageError(
                f'--fail-above "{text}": expected FINDING=AMOUNT, such as WaitingPods=0; the findings are '
                f"{', '.join(counted_kinds)}, and {FindingKind.STRANDED_ROOM}/RESOURCE such as StrandedRoom/memory"
            )
        limits[name] = _whole(text, amount)
    return limits


def _whole(text: str, amount: str) -> int:
    try:
        limit = nanos(amount)
    except ModelError as error:
        raise click.UsageError(f'--fail-above "{text}": {error.problem}') from error
    if limit < 0 or limit % NANO:
        raise click.UsageError(f'--fail-above "{text}": expected a whole number, not below zero')
    return limit // NANO


def run_audit(
    source: SourceOptions, asked: AuditQuery, limits: Mapping[str, int], output: str, page: Path | None
) -> None:
    """Audits and prints; exit code 1 where a finding is above its limit.

    Args:
        page: a file that is written for a browser; None: none is.
    """
    answers = list[AuditAnswer]()

    def answer(scenario: Scenario, query: AuditQuery, context: AnswerContext) -> AuditAnswer:
        answers.append(answer_audit(scenario, query, context))
        return answers[-1]

    tell(source, SourceOperation("audit", AuditAnswer, answer), lambda _: asked, show, output=output)
    if page is not None:
        _write(page, answers)
    for answered in answers:
        _tell_unused(answered, limits)
    above = [sentence for answered in answers for sentence in above_limits(answered, limits)]
    for sentence in above:
        click.echo(f"Above the limit: {sentence}", err=True)
    if above:
        sys.exit(1)


def _write(page: Path, answers: Iterable[AuditAnswer]) -> None:
    try:
        page.write_text("".join(map(audit_page, answers)), encoding="utf-8")
    except OSError as error:
        tell_error(f"--html {page}: {error.strerror}")
        sys.exit(2)


def _tell_unused(answer: AuditAnswer, limits: Mapping[str, int]) -> None:
    """Says which limits are of findings that this audit does not have, such as room that nobody asks for."""
    names = [finding.name for finding in answer.findings]
    for name in limits:
        if name not in names:
            click.echo(f"No finding {name}, so its limit is kept; there are {', '.join(names)}", err=True)


def above_limits(answer: AuditAnswer, limits: Mapping[str, int]) -> Iterator[str]:
    """Sentences about findings by more than their limit."""
    for finding in answer.findings:
        limit = limits.get(finding.name)
        if limit is not None and finding.at_least > limit:
            reached, most = (exact_amount(finding.resource, amount) for amount in (finding.at_least, limit))
            yield f"{finding.name} {reached}, limit {most}"


def show(answer: AuditAnswer) -> None:
    """Prints an audit for people."""
    console = stdout_console()
    size = f"{counted(answer.nodes, 'node')}, {counted(answer.running, 'running pod')}"
    console.print(f"{size}; {answer.counts.sentence}\n", markup=False)
    rows = [
        (finding.name, *figure_texts(finding.resource, (finding.now, finding.at_least, finding.at_most)))
        for finding in answer.findings
    ]
    print_table(console, ("FINDING", "NOW", *AVOIDED), rows)
    for finding, lines in _with_plans(answer):
        console.print(f"\n{as_sentence(finding.sentence)}", markup=False)
        for line in lines:
            console.print(f"  {line}", markup=False)
    if closed := closed_table(answer.closed, seconds_of(answer.now)):
        console.print()
        print_table(console, CLOSED_HEAD, closed)
    if answer.unknown or answer.not_judged:
        console.print()
    for sentence in answer.unknown[:_MAX_UNKNOWN]:
        console.print(f"Not known: {sentence}", markup=False)
    if len(answer.unknown) > _MAX_UNKNOWN:
        console.print(f"Not known: {len(answer.unknown) - _MAX_UNKNOWN:,} more; -o json has them all")
    if answer.not_judged:
        first = answer.not_judged[0]
        pods = counted(len(answer.not_judged), "waiting pod")
        console.print(f"Not judged: {pods}, such as {first.pod}: {first.reason}", markup=False)


def _with_plans(answer: AuditAnswer) -> Iterator[tuple[AuditFinding, list[str]]]:
    """The findings and lines about their plans. A plan that two findings have is printed once."""
    first_of = dict[tuple[WitnessStep, ...], str]()
    for finding in answer.findings:
        steps = tuple(answer.plans.get(finding.plan, ()))
        first = first_of.setdefault(steps, finding.name)
        lines = [*_steps(steps)] if first == finding.name else [f"its plan is that of {first}, above"]
        yield finding, lines if steps else []


def _steps(steps: Sequence[WitnessStep]) -> Iterator[str]:
    for number, step in enumerate(steps[:_MAX_STEPS], start=1):
        yield f"{number}. {_words(step)}"
    if len(steps) > _MAX_STEPS:
        yield f"... and {counted(len(steps) - _MAX_STEPS, 'more step')}; -o json has them all"


def _words(step: WitnessStep) -> str:
    if step.action is StepAction.PLACE:
        return f"place {step.pod} on {step.node}"
    runs = f"{age(step.lost_seconds)} since its start or last checkpoint"
    if step.action is StepAction.MOVE:
        return f"move {step.pod} from {step.from_node} to {step.node} ({runs})"
    return f"evict {step.pod} from {step.from_node} ({runs})"
