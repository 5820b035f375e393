"""The plan of a changed scenario: what-if, headroom, why and the audit ask all of it here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from flowcore.model.errors import ModelError
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.apply_changes import applied
from flowcore.questions.scenario.hypothetical.changes import Change
from flowcore.questions.scenario.plan import ScenarioPlan, plan_scenario
from flowcore.questions.scenario.reading.missing_objects import unknown_namespace
from flowcore.questions.scenario.scenario import Scenario


@contextmanager
def planned_with(
    scenario: Scenario, changes: Iterable[Change], context: AnswerContext
) -> Iterator[tuple[ScenarioPlan, list[str]]]:
    """Plans all waiting pods with these changes, which hold until the end of the ``with`` block.

    Yields:
        the plan, and sentences about what the changes would meet in a real cluster.

    Raises:
        UnknownName: a change names an object that is not there, or that the asker may not see.
        ModelError: an object to be put cannot be read, or the namespace that it needs is unknown.
    """
    with applied(scenario, changes, context) as notes:
        if problem := "" if scenario.complete else unknown_namespace(scenario):
            raise ModelError("", problem)
        yield plan_scenario(scenario, context.now, context.models), notes
