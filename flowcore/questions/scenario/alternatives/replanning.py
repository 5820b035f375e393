"""Plans a scenario again with changes, and says who gains and who loses a node by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from flowcore.model.workloads import workload_of
from flowcore.questions.scenario.alternatives.planned_with import planned_with
from flowcore.questions.scenario.alternatives.workload_changes import workload_changes
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import Change, EvictPods, RemoveTaint, Uncordon
from flowcore.questions.scenario.plan import ScenarioPlan
from flowcore.questions.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """What changes make of a plan. Pods of one workload that exchange their nodes neither gain nor lose.

    Attributes:
        places: keys of waiting pods that get a node only with the changes.
        loses: keys of pods that have or get a node only without them: of each workload as many as it loses.
        moves: keys of running pods that leave for another node only with them: of each workload as many as more move.
        workloads: workload of each of these pods, by key.
        comes: node of each pod that comes to a node which the changes open or add, by key.
        gained: workload -> how many pods fewer of it wait.
        plan: with the changes.
    """

    places: tuple[str, ...]
    loses: tuple[str, ...]
    moves: tuple[str, ...]
    workloads: Mapping[str, str]
    comes: Mapping[str, str]
    gained: Mapping[str, int]
    plan: ScenarioPlan

    @property
    def new_nodes_used(self) -> int:
        """How many of the nodes that the changes open or add get a pod."""
        return len(set(self.comes.values()))

    def places_all(self, keys: Collection[str]) -> bool:
        """Whether all of these pods get a node."""
        return set(keys) <= set(self.places)

    def left(self, keys: Collection[str]) -> int:
        """How many of these pods wait on: a workload gains no more nodes than by which fewer of its pods wait."""
        placed = Counter(self.workloads[key] for key in set(keys).intersection(self.places))
        return len(keys) - sum(min(count, max(0, self.gained.get(name, 0))) for name, count in placed.items())


class Replanning:
    """Plans with changes, for as many plans as it may and as long as the asker is patient.

    Attributes:
        left: how many plans it may still make.
        may_use_nodes: how many new nodes may be of use at most: one for each pod that waits or leaves its node.
    """

    def __init__(self, scenario: Scenario, plan: ScenarioPlan, context: AnswerContext, budget_plans: int) -> None:
        self._scenario, self._context, self.left = scenario, context, budget_plans
        self.may_use_nodes = len(plan.result.unplaced) + len(plan.result.evictions)
        self._nodes = frozenset(scenario.cluster.nodes)
        self._waiting = list(scenario.cluster.waiting)
        self._running = {pod.key: pod.node_name for pod in scenario.running()}
        self._held = _nodes_meant(scenario, plan)
        self._all = _with_waiting(scenario, self._held)
        self._workloads = {key: workload_of(scenario.cluster.pods[key]) for key in self._all}
        self._known: dict[bytes, PlanDifference] = {}

    def outcome(self, changes: Sequence[Change]) -> PlanDifference | None:
        """What these changes bring; None: no plan is left, or no time."""
        key = msgspec.json.encode(changes)
        if key in self._known:
            return self._known[key]
        if self.left <= 0 or not self._context.patient():
            return None
        self.left -= 1
        with planned_with(self._scenario, changes, self._context) as (plan, _):
            held = _nodes_meant(self._scenario, plan)
            for name in _never_anew(self._scenario, changes):
                held.pop(name, None)
            nodes = _with_waiting(self._scenario, held)
            workloads = self._workloads | {
                name: workload_of(self._scenario.cluster.pods[name]) for name in nodes if name not in self._workloads
            }
        difference = self._known[key] = self._compared(held, nodes, workloads, changes, plan)
        return difference

    def _compared(
        self,
        held: dict[str, str],
        nodes: dict[str, str],
        workloads: dict[str, str],
        changes: Sequence[Change],
        plan: ScenarioPlan,
    ) -> PlanDifference:
        compared = {change.workload: change for change in workload_changes(workloads, self._running, self._all, nodes)}
        lost = {name: change.lost for name, change in compared.items()}
        moved = {name: change.after.moved - change.before.moved for name, change in compared.items()}
        stayed = (key for key, node in self._running.items() if self._held.get(key) == node)
        opened = {change.node for change in changes if isinstance(change, RemoveTaint | Uncordon)}
        return PlanDifference(
            places=tuple(key for key in self._waiting if key in held and key not in self._held),
            loses=_as_many(lost, (key for key in self._held if key not in held), workloads),
            moves=_as_many(
                moved, (key for key in stayed if held.get(key, self._running[key]) != self._running[key]), workloads
            ),
            workloads=workloads,
            comes={
                key: node
                for key, node in held.items()
                if (node in opened or node not in self._nodes) and self._held.get(key) != node and key in self._all
            },
            gained={name: change.gained for name, change in compared.items()},
            plan=plan,
        )


def _as_many(counts: Mapping[str, int], keys: Iterable[str], workloads: Mapping[str, str]) -> tuple[str, ...]:
    """The first of these pods: of each workload as many as it is counted with."""
    left = dict(counts)
    chosen = []
    for key in keys:
        name = workloads[key]
        if left.get(name, 0) > 0:
            left[name] -= 1
            chosen.append(key)
    return tuple(chosen)


def _with_waiting(scenario: Scenario, held: Mapping[str, str]) -> dict[str, str]:
    """The node of each pod that has one or wants one; "": it waits. Pods that are being deleted have no say."""
    pods = (pod for pod in scenario.cluster.pods.values() if not pod.terminal and not pod.deleting)
    return {pod.key: held.get(pod.key, "") for pod in pods}


def _never_anew(scenario: Scenario, changes: Sequence[Change]) -> Iterator[str]:
    """Keys of evicted pods without a controller: they are planned, and nobody creates them."""
    for change in changes:
        if isinstance(change, EvictPods):
            yield from (key for key in change.pods if not scenario.cluster.pods[key].owner)


def _nodes_meant(scenario: Scenario, plan: ScenarioPlan) -> dict[str, str]:
    """``nodes_held``, and the nodes on which room is kept for nominated pods."""
    return nodes_held(scenario, plan) | {key: room.node for key, room in plan.awaiting.items()}


def nodes_held(scenario: Scenario, plan: ScenarioPlan) -> dict[str, str]:
    """The node of each pod that has one after a plan, by key: pods that stay, pods that move, pods that come.

    Moves for gain are left out: no waiting pod has its node by them.
    """
    held = {pod.key: pod.node_name for pod in scenario.running() if not pod.deleting}
    for eviction in plan.result.evictions:
        if eviction.gain:
            continue
        if eviction.to:
            held[eviction.pod.key] = eviction.to
        else:
            held.pop(eviction.pod.key, None)
    held.update((placement.pod.key, placement.node) for placement in plan.result.placements)
    return held
