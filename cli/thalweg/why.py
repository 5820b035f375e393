"""``thalweg why``: why a pod waits, in at most ten lines."""

from __future__ import annotations

from collections.abc import Iterator

from flowcore.questions.diagnosis.answers import WhyAnswer, WhyQuery
from flowcore.questions.diagnosis.why import answer_why
from thalweg.asking import tell
from thalweg.source import SourceOperation, SourceOptions, target_of
from thalweg.tables import stdout_console

_QUESTION = SourceOperation("why", WhyAnswer, answer_why)

#: Ten lines at most: the reason, how many wait for it, what to do, and these.
_MAX_EVIDENCE, _MAX_FIXES = 4, 3


def run_why(source: SourceOptions, target: str, output: str, *, fixes: bool, watch: bool) -> None:
    """Asks why and prints it."""
    tell(
        source,
        _QUESTION,
        lambda namespace: WhyQuery(target_of(target, namespace), fixes),
        show,
        output=output,
        watch=watch,
    )


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
    for evidence in answer.evidence[:_MAX_EVIDENCE]:
        yield f"  {evidence}"
    if answer.next:
        yield f"Next: {answer.next}"
    others = [fix.text for fix in answer.fixes if fix.text != answer.next]
    for text in others[:_MAX_FIXES]:
        yield f"Or: {text}"
