"""The pods of a scenario and its plan in a few numbers: one meaning of each for every command and every picture.

A pod has a node or waits for one; "pending" says the same as "waiting". A pod that has finished is neither. The plan
gives some of the waiting pods a node, and takes it from some of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from flowcore.scenario.plan import ScenarioPlan
from flowcore.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True)
class PlanCounts:
    """Numbers of pods.

    Attributes:
        running: pods that have a node before the plan.
        placed: pods that wait before the plan and get a node by it.
        waiting: pods that wait before the plan and get none.
        not_planned: of these, how many the plan may not place, whatever room there is.
        leaving: pods that have a node before the plan and leave it.
        moved: of these, how many have room reserved on another node.
    """

    running: int
    placed: int
    waiting: int
    not_planned: int
    leaving: int
    moved: int

    @property
    def with_node(self) -> int:
        """Pods that have a node once the plan is carried out."""
        return self.running - self.leaving + self.moved + self.placed


def counts_of(scenario: Scenario, plan: ScenarioPlan) -> PlanCounts:
    """Counts the pods of a plan."""
    result = plan.result
    return PlanCounts(
        running=len(scenario.running()),
        placed=len(result.placements),
        waiting=len(result.unplaced) + len(plan.skipped),
        not_planned=len(plan.skipped),
        leaving=len(result.evictions),
        moved=sum(bool(each.to) for each in result.evictions),
    )
