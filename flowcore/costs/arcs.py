"""What a pod pays on a node as a constant of the round: the cost model's arc and the parts that a policy adds.

What the author of a pod may write without bound, its data and its preferred node affinity, has a bound here: it decides
between nodes, and never about which pods are placed (docs/decisions/0066).
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable, Snapshot
from flowcore.costs.data_locality import DataPrices
from flowcore.costs.preferences import node_preference, preferences
from flowcore.costs.scale import OMEGA
from flowcore.costs.wishes import wish_nodes
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.pod_index import PodSignature
from flowcore.model.workload_kinds import NORMAL_SPEED, Machines, penalty_match
from flowcore.rules.verdicts.groups import Group

#: What a pod's author writes makes one of its nodes dearer than another by at most so much: half of what the default
#: policy says that leaving a pod pending costs. The other half is for the load of nodes and the rest of an arc.
MOST_WRITTEN = 50_000


def costs_beside_load(group: Group, snapshot: Snapshot, passing: Bools, cost: CostPolicy) -> Int64s:
    """int64[N], none negative: what a pod of the group pays on each node, whatever the cost model and the load.

    Args:
        passing: bool[N], nodes among which preferences are scaled.
    """
    costs = preferences(group.pod_class, group.signature, snapshot, passing, cost)
    if cost.interference is not None:
        costs += interference(group.signature, snapshot)
    if cost.machines is not None:
        costs += machine_costs(group.signature, cost.machines, snapshot.table)
    return costs


def written_costs(
    group: Group, data: DataPrices, allowed: Bools, passing: Bools, cost: CostPolicy, *, bounded: bool
) -> Int64s:
    """int64[N], none negative for allowed nodes: what data, preferred node affinity and wish of a pod cost on it.

    With a wish (costs/wishes.py) any other node costs four fifths of the bound more, and all else a fifth at most.

    Args:
        data: of the snapshot.
        allowed: bool[N], nodes that the group may use; the costs of others have no meaning.
        passing: bool[N], those of them among which preferences are scaled.
        bounded: whether MOST_WRITTEN is the most. A pod that waits for a cheaper node compares the whole cost with the
            price of waiting, which nothing lifts.
    """
    costs = node_preference(group.pod_class, data.snapshot.table, passing, cost)
    if cost.data_locality is not None:
        costs = costs + data.costs(group.pod_class, cost.data_locality)
    named = wish_nodes(group.pod_class, data.snapshot.table) & allowed
    if not named.any():
        return _bounded(costs, allowed) if bounded else costs
    fifth = MOST_WRITTEN // 5
    if bounded:
        costs = np.minimum(np.maximum(costs - costs[allowed].min(), 0), fifth)
    return costs + np.where(named, 0, 4 * fifth)


def _bounded(costs: Int64s, allowed: Bools) -> Int64s:
    """The costs, or where one is above the bound, by how much each is above the least one, scaled down to the bound."""
    if not allowed.any():
        return np.zeros_like(costs)
    most = int(costs[allowed].max())
    if most <= MOST_WRITTEN:
        return costs
    least = int(costs[allowed].min())
    above: Int64s = np.where(allowed, costs - least, 0)
    return above if most - least <= MOST_WRITTEN else above * MOST_WRITTEN // (most - least)


def interference(signature: PodSignature, snapshot: Snapshot) -> Int64s:
    """int64[N], none negative: what a pod and the pods that run on each node suffer from each other.

    Pods of the round are counted as they are placed (costs/soft_constraints.py).
    """
    table = snapshot.table
    cost = np.zeros(len(table.nodes), dtype=np.int64)
    for penalty in signature.constraints.penalties if signature.constraints is not None else ():
        running = snapshot.pod_index.matching_pods(penalty_match(penalty))
        nodes, pods = running.to_arrays(table.index)
        np.add.at(cost, nodes, pods * (penalty.suffered + penalty.inflicted))
    return cost


def machine_costs(signature: PodSignature, machines: Machines, table: NodeTable) -> Int64s:
    """int64[N], none negative: cost of each node for a pod by its kind of workload.

    A pod costs ``1000 * (slowdown - that of its best kind of machine)``. A node of a kind without a slowdown,
    or without the label, counts as the slowest that is known.
    """
    kind = "" if signature.constraints is None else signature.constraints.kind
    slowdowns = {machine: slowdown for of, machine, slowdown in machines.slowdowns if of == kind}
    if not slowdowns:
        return np.zeros(len(table.nodes), dtype=np.int64)
    best, worst = min(slowdowns.values()), max(slowdowns.values())
    column = table.column(machines.label)
    by_code = np.array([*(slowdowns.get(value, worst) for value in column.values), worst], dtype=np.int64)
    costs: Int64s = OMEGA * (by_code[column.codes] - best) // NORMAL_SPEED
    return costs
