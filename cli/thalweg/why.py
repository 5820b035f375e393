"""``thalweg why``: an answer as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from flowcore.diagnosis.answers import Fix, WhyAnswer

#: Ten lines at most: the reason, how many wait for it, what to do, and these.
_MAX_EVIDENCE, _MAX_FIXES = 4, 3


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
    for fix in answer.fixes[:_MAX_FIXES]:
        yield f"Fix: {_fix(fix)}"


def _fix(fix: Fix) -> str:
    if not fix.loses:
        return f"{fix.text} Nobody loses a node."
    others = f" and {len(fix.loses) - 1} more" if len(fix.loses) > 1 else ""
    return f"{fix.text} {fix.loses[0]}{others} would lose."
