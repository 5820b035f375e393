"""Interference: what pods cost for their neighbours, as a cost of each node.

A pod that arrives costs, for each pod of a kind on its node, what it suffers from it, and what that one suffers from
it. Pods that run are counted here, as a constant of the round. Pods of the round are counted as they are placed
(costs/soft_constraints.py).
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.model.pod_index import PodSignature
from flowcore.model.workload_kinds import penalty_match


def interference(signature: PodSignature, snapshot: Snapshot) -> Int64s:
    """int64[N], none negative: cost of a pod for those that run on each node."""
    table = snapshot.table
    cost = np.zeros(len(table.nodes), dtype=np.int64)
    for penalty in signature.constraints.penalties if signature.constraints is not None else ():
        running = snapshot.pod_index.matching_pods(penalty_match(penalty))
        nodes, pods = running.to_arrays(table.index)
        np.add.at(cost, nodes, pods * (penalty.suffered + penalty.inflicted))
    return cost
