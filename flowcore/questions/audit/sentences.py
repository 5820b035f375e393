"""Words of findings."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.model.amount_text import counted
from flowcore.questions.audit.finding import StepAction, WitnessStep


def do(number: int, verb: str) -> str:
    """The verb for so many: "1 pod waits", "2 pods wait", "1 pod has"."""
    return {"have": "has"}.get(verb, f"{verb}s") if number == 1 else verb


def steps_words(steps: Sequence[WitnessStep]) -> str:
    """Who leaves a node in a plan: ", with 2 moves and 1 eviction"; "": nobody."""
    moves, evictions = (sum(step.action is action for step in steps) for action in (StepAction.MOVE, StepAction.EVICT))
    parts = [counted(number, noun) for number, noun in ((moves, "move"), (evictions, "eviction")) if number]
    return f", with {' and '.join(parts)}" if parts else ""


def plan_words(number: int, at_most: int, now: int, steps: Sequence[WitnessStep], does: str) -> str:
    """What a plan does to some of so many, and what no plan does.

    Args:
        number: to how many the plan at hand does it.
        at_most: no plan does it to more.
        now: how many there are.
        does: such as "runs".
    """
    if now == 1:
        if number:
            return f"a plan {does} it{steps_words(steps)}"
        return f"no plan was found that {does} it; whether one does is not known" if at_most else f"no plan {does} it"
    if not at_most:
        return f"no plan {does} any of them"
    here = f"no plan was found that {does} any of them"
    if number:
        here = f"a plan {does} {number:,} of them{steps_words(steps)}"
    if number < now <= at_most:
        return f"{here}; whether one {does} all is not known"
    return f"{here}; no plan {does} more" + ("" if number == at_most else f" than {at_most:,}")
