"""Plans the pending pods of a scenario in this process, with the installed cost models."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass

import msgspec

from flowcore.questions.scenario import Scenario, ScenarioPlan, plan_scenario
from flowcore.questions.scenario.alternatives.comparison import Comparison, compare_one_by_one
from flowcore.rules.reasons import node_reasons
from flowcore.rules.verdicts import group
from thalweg_cost_models import find_models


@dataclass(frozen=True, slots=True)
class TimedPlan(ScenarioPlan):
    """A plan and its time.

    Attributes:
        seconds: how long it took.
    """

    seconds: float = 0.0


def plan(scenario: Scenario, now: float, *, reschedule: bool = False, only: Collection[str] = ()) -> TimedPlan:
    """Plans with the installed cost models and takes the time (flowcore/questions/scenario/plan.py)."""
    started = time.perf_counter()
    with redirect_stdout(sys.stderr):  # output of plug-ins must not mix with the plan
        models = find_models().usable
        planned = plan_scenario(scenario, now, models, reschedule=reschedule, only=only)
    return TimedPlan(
        planned.result,
        planned.before,
        planned.policies,
        planned.skipped,
        planned.gaps,
        planned.warnings,
        planned.awaiting,
        time.perf_counter() - started,
    )


def compare(scenario: Scenario, planned: TimedPlan) -> Comparison:
    """The plan beside the same pods one by one, with the installed cost models."""
    with redirect_stdout(sys.stderr):
        return compare_one_by_one(scenario, planned, find_models().usable)


def reasons_by_node(planned: TimedPlan) -> Iterator[tuple[str, msgspec.Raw]]:
    """Key of each pending pod, and node -> reason as JSON. Equal pods share it: it is as large as the cluster."""
    result = planned.result
    # Pods with a victim may use the victim's node only, and pods that are skipped none: all nodes get their reason.
    own = planned.skipped | {each.pod.key: each.reason for each in result.unplaced if each.pod.victim is not None}
    names = [node.name for node in result.after.table.nodes]
    same = {reason: _encoded(dict.fromkeys(names, reason)) for reason in set(own.values())}
    yield from ((key, same[reason]) for key, reason in own.items())
    others = [unplaced.pod for unplaced in result.unplaced if unplaced.pod.key not in own]
    for pod_group in group(others, result.after.pod_index):
        reasons = _encoded(node_reasons(pod_group.pod_class, result.after, pod_group.signature))
        yield from ((pod.key, reasons) for pod in pod_group.pods)


def _encoded(reasons: dict[str, str]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(reasons))
