"""Rules between pods in a lower bound of plans in which pods on nodes leave or move: what holds whoever does.

Pods that may leave count as gone where they stand against others, for anti-affinity, caps and full domains. In the
emptiest domain of a spread constraint they count as there: with all of them, and with their replacements, it is as full
as any plan makes it. So each rule leaves room for at least as many pods as in any plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.inter_pod_constraints import SpreadConstraint
from flowcore.model.pod_index import SpreadMatch
from flowcore.planning.problem.demands.demands import Demand
from flowcore.rules.topology.round_constraints.build_constraints import topology_constraints_of
from flowcore.rules.topology.round_constraints.capacities import pods_by_counter, water_level
from flowcore.rules.topology.round_constraints.constraints import UNCONSTRAINED, TopologyConstraints
from flowcore.rules.topology.spread import Spread


def rules_beside(
    demands: Sequence[Demand], before: Snapshot, emptied: Snapshot, *, more: bool
) -> tuple[TopologyConstraints, ...]:
    """What the rules of each demand leave room for, whoever leaves.

    Affinity to other pods is not in it: who comes may be who it asks for.

    Args:
        before: with all pods that may leave.
        emptied: without them.
        more: whether other pods may come than those of the demands and replacements of those that leave.
    """
    groups = [(demand.group.pod_class, demand.group.signature) for demand in demands]
    without = topology_constraints_of(groups, emptied)
    if not any(each.constrained for each in without):
        return (UNCONSTRAINED,) * len(groups)
    with_all = topology_constraints_of(groups, before)
    raised = pods_by_counter([(each, demand.count) for each, demand in zip(without, demands, strict=True)])
    rules = []
    for demand, least, most in zip(demands, without, with_all, strict=True):
        written = demand.group.signature.constraints
        spreads: tuple[Spread, ...] = ()
        if written is not None and not more:
            spreads = tuple(
                _beside(
                    emptiest, fullest, raised.get(emptiest.counter, 0), _leavers(constraint, demand, before, emptied)
                )
                for emptiest, fullest, constraint in zip(least.spreads, most.spreads, written.spread, strict=True)
            )
        rules.append(replace(least, spreads=spreads, affinity=(), self_affinity=False, soft_constraints=None))
    return tuple(rules)


def _beside(emptiest: Spread, fullest: Spread, raised: int, leavers: int) -> Spread:
    """A spread constraint whose domains are as empty as they can be, and its emptiest one as full.

    Args:
        raised: pods of the round that its counter may come to count.
        leavers: pods that it may count and that may leave.
    """
    if emptiest.fixed_minimum is not None or not leavers:
        return emptiest
    eligible = fullest.counter.initial[fullest.eligible_domains]
    # Each that leaves may come back in another domain.
    return replace(emptiest, fixed_minimum=water_level(eligible, raised + leavers))


def _leavers(constraint: SpreadConstraint, demand: Demand, before: Snapshot, emptied: Snapshot) -> int:
    """How many pods a spread constraint of a demand may count that may leave."""
    counted = SpreadMatch(demand.group.signature.namespace, constraint.selector)
    total, rest = (
        int(np.sum(each.pod_index.matching_pods(counted).to_arrays(each.table.index)[1])) for each in (before, emptied)
    )
    return total - rest
