"""Running pods leave that break a rule of their own, each for a node where its rules hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flowcore.cluster.arrays.node_matching import seconds_before_eviction
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.model.pods import PodClass
from flowcore.model.policies import DuringExecution
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.eligibility import MoveEligibility
from flowcore.planning.evictions.rules.broken_rules import BrokenRule
from flowcore.planning.problem.placements.plans import Plan


def evict_for_rules(
    state: Plan,
    destinations: Destinations,
    moves: MoveEligibility,
    broken: Sequence[BrokenRule],
    costs: Callable[[int], Int64s | None],
) -> None:
    """Decides which of these pods leave, in their order, within the limits of moves and PodDisruptionBudgets.

    A pod without a node to go to stays, unless it is to be evicted in any case.

    Args:
        costs: of the nodes for the replacement of a resident, int64[N]; None: room decides.
    """
    if not broken:
        return
    numbers = {pod.key: resident for resident, pod in enumerate(state.residents.pods[: state.residents.running_count])}
    table = state.before.table
    for rule in broken:
        resident = numbers[rule.pod.key]
        by_controller = rule.evicted_in is not None
        # The taint-eviction controller deletes pods: it asks no PodDisruptionBudget.
        if not moves.within_limits(resident) or not (by_controller or moves.may_be_evicted(resident)):
            continue
        checkpoint = state.checkpoint()
        state.let_leave(resident, EvictionKind.RULE, (), reason=rule.reason, by_controller=by_controller)
        node = destinations.find(resident, evicting_nodes(rule.pod.pod_class, table), costs(resident))
        if node >= 0:
            state.reserve_replacement(resident, node, is_move=True)
        elif rule.pod.during_execution is DuringExecution.EVICT:
            state.count_move(resident)
        else:
            state.roll_back(checkpoint)


def evicting_nodes(pod_class: PodClass, table: NodeTable) -> Bools:
    """bool[N]: nodes with a taint that would evict the pod again, now or later."""
    if not table.taint_sets:
        return np.zeros(len(table.nodes), dtype=np.bool_)
    evicting = [seconds_before_eviction(pod_class.tolerations, taints) is not None for taints in table.taint_sets]
    return np.array(evicting, dtype=np.bool_)[table.taint_codes]
