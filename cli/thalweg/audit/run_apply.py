"""``thalweg audit --apply PLAN --dry-run``: the steps of a plan, and who would carry them out."""

from __future__ import annotations

from typing import Final

from flowcore.model.amount_text import as_sentence, counted
from flowcore.model.policies import ReschedulingReason
from flowcore.questions.audit.apply_plan import ApplicableStep, ApplyAnswer, ApplyQuery, answer_apply
from flowcore.questions.audit.finding import StepAction
from thalweg.questions.status import age
from thalweg.sources.asking import tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.tables import MAX_ROWS, print_table, print_truncated

_HEADER: Final = ("STEP", "DO", "POD", "FROM", "TO", "SINCE ITS START OR CHECKPOINT", "BY")


def run_apply(source: SourceOptions, asked: ApplyQuery, output: str) -> None:
    """Shows a plan; nothing is carried out."""
    tell(source, SourceOperation("audit-apply", ApplyAnswer, answer_apply), lambda _: asked, show, output=output)


def show(answer: ApplyAnswer) -> None:
    """Prints a plan for people."""
    console = stdout_console()
    console.print(as_sentence(answer.sentence), markup=False)
    if not answer.steps:
        console.print("There is no plan to carry out.")
        return
    console.print("Nothing is carried out (--dry-run).\n")
    print_table(console, _HEADER, (_row(number, step) for number, step in enumerate(answer.steps[:MAX_ROWS], start=1)))
    print_truncated(console, len(answer.steps))
    by_policies = sum(not step.obstacle for step in answer.steps)
    console.print(f"\nPolicies would carry out {by_policies:,} of {counted(len(answer.steps), 'step')}.")
    for sentence in answer.limits:
        console.print(f"Above a limit: {sentence}", markup=False)
    if answer.reason is ReschedulingReason.GAIN:
        console.print("A policy moves pods for gain by its own costs, and so may choose other moves.")
    for sentence in answer.unknown:
        console.print(f"Not known: {sentence}", markup=False)


def _row(number: int, applicable: ApplicableStep) -> tuple[str, ...]:
    step = applicable.step
    since = "" if step.action is StepAction.PLACE else age(step.lost_seconds)
    policy = f"policy {applicable.policy}" if applicable.policy else "nobody"
    by = f"{policy}: {applicable.obstacle}" if applicable.obstacle else policy
    return str(number), step.action.lower(), step.pod, step.from_node, step.node, since, by
