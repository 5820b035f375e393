"""Nodes that are worth nothing now: a plan of the cluster without them has a node for every pod that has one with them.

The plan is the witness. Nothing is said of nodes that are not named: other choices, and more plans, may find more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from flowcore.cluster.assembly import build_snapshot
from flowcore.cluster.running import budgets_left
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.questions.scenario.alternatives.planned_with import planned_with
from flowcore.questions.scenario.alternatives.what_if import Moved, PodsAfterPlan, outcome_of
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import RemoveNode
from flowcore.questions.scenario.plan import ScenarioPlan
from flowcore.questions.scenario.scenario import Scenario
from flowcore.rules.filters import run_filters

T = TypeVar("T")

#: Taints of nodes that run the control plane, today's and the one before.
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

#: Plans that are made at most.
_MOST_PLANS = 8
#: Nodes that are looked at for each one that may be named.
_LOOKED_AT = 4


class UnneededNodes(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes without which, without all of them together, everything still fits.

    Attributes:
        nodes: their names, those that the fewest pods leave first.
        pods: how many pods that run now have another node in the plan without them.
        moves: these pods with their nodes now and then, those that the asker may see.
        plans: how many plans were made.
    """

    nodes: list[str]
    pods: int
    moves: dict[str, Moved]
    plans: int


def unneeded_nodes(
    scenario: Scenario, plan: ScenarioPlan, before: PodsAfterPlan, most: int, context: AnswerContext
) -> UnneededNodes:
    """Looks for such nodes, by plans; the scenario is the same as before when this returns.

    A node is left alone if a pod there may not move (``immovable_reason``), belongs to a gang or has volumes, and if
    PodDisruptionBudgets let too few of the pods go. So is one that an annotation keeps, and one that would have room
    for a pod that waits once its pods are gone: that pod may get it. A cordoned node offers nothing, and one of the
    control plane is not for pods: neither is named.

    Args:
        plan, before: of the scenario as it is.
        most: nodes to name at most.
    """
    search = _Search(scenario, plan, before, context)
    named, fitting = most_together(
        search.candidates()[: most * _LOOKED_AT],
        most,
        search.without,
        lambda: search.plans < _MOST_PLANS and context.patient(),
    )
    after = fitting or before
    then = {key: after.node_of(key) or "" for key in before.ran}
    moves = {key: Moved(node, then[key]) for key, node in before.ran.items() if named and then[key] not in ("", node)}
    return UnneededNodes(named, len(moves), {key: moves[key] for key in context.visible(moves)}, search.plans)


def most_together(
    candidates: Sequence[str], most: int, attempt: Callable[[Sequence[str]], T | None], may_go_on: Callable[[], bool]
) -> tuple[list[str], T | None]:
    """Nodes that may all go together, as trials show, and what the last trial of these gave; None: no node may go.

    The longest beginning of the candidates that goes is looked for, by doublings and halvings. The next candidate does
    not go with it, and is left out. Then the rest follows.

    Args:
        candidates: the best first.
        most: nodes at most.
        attempt: what nodes give together; None: nothing.
        may_go_on: whether there may be one more trial.
    """
    chosen, gained, left = list[str](), None, [*candidates]
    while left and len(chosen) < most and may_go_on():
        goes, fails, size = 0, min(len(left), most - len(chosen)) + 1, 1
        while goes < size < fails and may_go_on():
            given = attempt([*chosen, *left[:size]])
            if given is None:
                fails = size
            else:
                goes, gained = size, given
            size = min(max(1, 2 * goes), (goes + fails) // 2)
        chosen, left = [*chosen, *left[:goes]], left[goes + 1 :]
    return chosen, gained


class _Search:
    """What a plan without some nodes has for the pods that have a node with them.

    Attributes:
        plans: how many were made.
    """

    def __init__(self, scenario: Scenario, plan: ScenarioPlan, before: PodsAfterPlan, context: AnswerContext) -> None:
        self._scenario, self._plan, self._before, self._context = scenario, plan, before, context
        self.plans = 0
        #: Pods that have to leave with their node; those of DaemonSets and static ones go with it.
        self._leaving: dict[str, list[Pod]] = defaultdict(list)
        for pod in scenario.running():
            if not (pod.permanent or pod.static):
                self._leaving[pod.node_name].append(pod)

    def candidates(self) -> list[str]:
        """Nodes that all pods may leave, those first that the fewest leave or are planned for."""
        planned = Counter(node for node in self._before.waiting.values() if node)
        wanted = self._wanted()
        loads = {
            node.name: len(self._leaving[node.name]) + planned[node.name]
            for node in self._scenario.cluster.nodes.values()
            if not (node.unschedulable or node.problem or node.report.keeps_pods or node.name in wanted)
            and not _is_of_control_plane(node)
            and all(map(_may_move, self._leaving[node.name]))
        }
        return sorted(loads, key=lambda name: (loads[name], name))

    def _wanted(self) -> set[str]:
        """Nodes that take a pod that waits, once all pods are gone that may leave."""
        after = self._plan.result.after
        staying = [(pod.node_name, pod.usage, pod.pod_class.host_ports) for pod in self._scenario.permanent()]
        emptied = build_snapshot(generation=0, now=after.now, table=after.table, running=staying, pending=())
        fits = np.zeros(len(after.table.nodes), dtype=np.bool_)
        for pod_class in {each.pod.pod_class for each in self._plan.result.unplaced}:
            # Devices and volumes are judged as they are used now.
            asks_more = pod_class.devices is not None or pod_class.volumes
            fits |= run_filters(pod_class, after if asks_more else emptied).fits
        return {after.table.nodes[i].name for i in np.nonzero(fits)[0].tolist()}

    def without(self, nodes: Sequence[str]) -> PodsAfterPlan | None:
        """The plan without these nodes; None: a pod has none in it that has one with them, or budgets keep pods."""
        if not self._may_leave(nodes):
            return None
        self.plans += 1
        with planned_with(self._scenario, [RemoveNode(name) for name in nodes], self._context) as (plan, _):
            after = outcome_of(self._scenario, plan, self._before)
        lost = any(self._before.node_of(key) and after.node_of(key) == "" for key in self._before.keys)
        return None if lost else after

    def _may_leave(self, nodes: Sequence[str]) -> bool:
        """Whether PodDisruptionBudgets let all pods of these nodes go."""
        cluster = self._scenario.cluster
        allowed = budgets_left(cluster, ())
        gone = Counter(key for name in nodes for pod in self._leaving[name] for key in cluster.budgets.of(pod))
        return all(count <= allowed[key] for key, count in gone.items())


def _is_of_control_plane(node: Node) -> bool:
    return any(taint.key in _CONTROL_PLANE for taint in node.taints)


def _may_move(pod: Pod) -> bool:
    return not (pod.immovable_reason or pod.gang or pod.pod_class.volumes or pod.deleting)
