"""Plans a scenario again with changes, and says who gains and who loses a node by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from flowcore.scenario import Scenario, ScenarioPlan, plan_scenario
from flowcore.scenario.apply_changes import applied
from flowcore.scenario.changes import Change
from flowcore.scenario.context import AnswerContext


@dataclass(frozen=True, slots=True)
class Outcome:
    """What changes make of a plan.

    Attributes:
        places: keys of waiting pods that get a node only with the changes.
        loses: keys of pods that have or get a node only without them.
        moves: keys of running pods that leave for another node only with them.
        plan: with the changes.
    """

    places: tuple[str, ...]
    loses: tuple[str, ...]
    moves: tuple[str, ...]
    plan: ScenarioPlan


class Replanning:
    """Plans with changes, for as many plans as it may and as long as the asker is patient.

    Attributes:
        left: how many plans it may still make.
    """

    def __init__(self, scenario: Scenario, plan: ScenarioPlan, context: AnswerContext, budget_plans: int) -> None:
        self._scenario, self._context, self.left = scenario, context, budget_plans
        self._waiting = list(scenario.cluster.waiting)
        self._running = {pod.key: pod.node_name for pod in scenario.running()}
        self._held = nodes_held(scenario, plan)
        self._known: dict[bytes, Outcome] = {}

    def outcome(self, changes: Sequence[Change]) -> Outcome | None:
        """What these changes bring; None: no plan is left, or no time."""
        key = msgspec.json.encode(changes)
        if key in self._known:
            return self._known[key]
        if self.left <= 0 or not self._context.patient():
            return None
        self.left -= 1
        with applied(self._scenario, changes, self._context):
            plan = plan_scenario(self._scenario, self._context.now, self._context.models)
            held = nodes_held(self._scenario, plan)
        found = self._known[key] = Outcome(
            places=tuple(pod for pod in self._waiting if pod in held and pod not in self._held),
            loses=tuple(pod for pod in self._held if pod not in held),
            moves=tuple(self._moved(held)),
            plan=plan,
        )
        return found

    def _moved(self, held: dict[str, str]) -> Iterable[str]:
        for key, node in self._running.items():
            now = held.get(key)
            if now is not None and now != node and self._held.get(key) == node:
                yield key


def nodes_held(scenario: Scenario, plan: ScenarioPlan) -> dict[str, str]:
    """The node of each pod that has one after a plan, by key: pods that stay, pods that move, pods that come."""
    held = {pod.key: pod.node_name for pod in scenario.running() if not pod.deleting}
    for eviction in plan.result.evictions:
        if eviction.to:
            held[eviction.pod.key] = eviction.to
        else:
            held.pop(eviction.pod.key, None)
    held.update((placement.pod.key, placement.node) for placement in plan.result.placements)
    return held
