"""``thalweg audit``: what placement costs, for people and for pipelines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from flowcore.questions.audit.answer_audit import AuditAnswer, AuditQuery, answer_audit
from flowcore.questions.audit.finding import AuditFinding, FindingKind, StepAction, WitnessStep
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.moment import seconds_of
from thalweg.audit.audit_page import audit_page
from thalweg.audit.closed_table import CLOSED_HEAD, closed_table
from thalweg.questions.status import age
from thalweg.sources.asking import tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.tables import counted, print_table, stdout_console

#: Steps of a plan that are printed; ``-o json`` has all.
_MAX_STEPS: Final = 5


def limits_of(texts: Iterable[str]) -> dict[FindingKind, int]:
    """Limits as the command line has them: ``WaitingPods=0``.

    Raises:
        click.UsageError: one of them is none.
    """
    limits = dict[FindingKind, int]()
    for text in texts:
        name, _, count = text.partition("=")
        if name not in list(FindingKind) or not count.isdecimal():
            kinds = ", ".join(FindingKind)
            raise click.UsageError(
                f'--fail-above "{text}": expected FINDING=COUNT, such as WaitingPods=0; the findings are {kinds}'
            )
        limits[FindingKind(name)] = int(count)
    return limits


def run_audit(
    source: SourceOptions, asked: AuditQuery, limits: Mapping[FindingKind, int], output: str, page: Path | None
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
    above = [sentence for answered in answers for sentence in above_limits(answered, limits)]
    for sentence in above:
        click.echo(f"Above the limit: {sentence}", err=True)
    if above:
        sys.exit(1)


def _write(page: Path, answers: Iterable[AuditAnswer]) -> None:
    try:
        page.write_text("".join(map(audit_page, answers)), encoding="utf-8")
    except OSError as error:
        click.echo(f"Error: --html {page}: {error.strerror}", err=True)
        sys.exit(2)


def above_limits(answer: AuditAnswer, limits: Mapping[FindingKind, int]) -> Iterator[str]:
    """Sentences about findings by more than their limit."""
    for finding in answer.findings:
        limit = limits.get(finding.kind)
        if limit is not None and finding.at_least > limit:
            yield f"{finding.kind} {finding.at_least:,}, limit {limit:,}"


def show(answer: AuditAnswer) -> None:
    """Prints an audit for people."""
    console = stdout_console()
    console.print(f"{counted(answer.nodes, 'node')}, {counted(answer.running, 'running pod')}\n", markup=False)
    rows = [
        (_name(finding), f"{finding.now:,}", f"{finding.at_least:,}", f"{finding.at_most:,}")
        for finding in answer.findings
    ]
    print_table(console, ("FINDING", "NOW", "AT LEAST", "AT MOST"), rows)
    for finding in answer.findings:
        console.print(f"\n{finding.sentence[:1].upper()}{finding.sentence[1:]}.", markup=False)
        for line in _steps(answer.plans.get(finding.plan, [])):
            console.print(f"  {line}", markup=False)
    if closed := closed_table(answer.closed, seconds_of(answer.now)):
        console.print()
        print_table(console, CLOSED_HEAD, closed)
    if answer.unknown or answer.not_judged:
        console.print()
    for sentence in answer.unknown:
        console.print(f"Not known: {sentence}", markup=False)
    if answer.not_judged:
        first = answer.not_judged[0]
        pods = counted(len(answer.not_judged), "waiting pod")
        console.print(f"Not judged: {pods}, such as {first.pod}: {first.reason}", markup=False)


def _name(finding: AuditFinding) -> str:
    return f"{finding.kind} {finding.resource}".rstrip()


def _steps(steps: Sequence[WitnessStep]) -> Iterator[str]:
    for number, step in enumerate(steps[:_MAX_STEPS], start=1):
        yield f"{number}. {_words(step)}"
    if len(steps) > _MAX_STEPS:
        yield f"... and {counted(len(steps) - _MAX_STEPS, 'more step')}; -o json has them all"


def _words(step: WitnessStep) -> str:
    if step.action is StepAction.PLACE:
        return f"place {step.pod} on {step.node}"
    price = f"price {step.price:,}, {age(step.lost_seconds)} of work"
    if step.action is StepAction.MOVE:
        return f"move {step.pod} from {step.from_node} to {step.node} ({price})"
    return f"evict {step.pod} from {step.from_node} ({price})"
