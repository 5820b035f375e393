"""Kinds of machines: what pods cost on nodes that are slow for their kind of workload."""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, NodeTable
from flowcore.costs.scale import OMEGA
from flowcore.model.pod_index import PodSignature
from flowcore.model.workload_kinds import NORMAL_SPEED, Machines


def machine_costs(signature: PodSignature, machines: Machines, table: NodeTable) -> Int64s:
    """int64[N], none negative: cost of each node for a pod by its kind of workload.

    A pod costs ``1000 * weight * (slowdown - that of its best kind of machine)``. A node of a kind without a slowdown,
    or without the label, counts as the slowest that is known.
    """
    kind = "" if signature.constraints is None else signature.constraints.kind
    slowdowns = {machine: slowdown for of, machine, slowdown in machines.slowdowns if of == kind}
    if not slowdowns:
        return np.zeros(len(table.nodes), dtype=np.int64)
    best, worst = min(slowdowns.values()), max(slowdowns.values())
    column = table.column(machines.label)
    by_code = np.array([*(slowdowns.get(value, worst) for value in column.values), worst], dtype=np.int64)
    costs: Int64s = OMEGA * machines.weight * (by_code[column.codes] - best) // NORMAL_SPEED
    return costs
