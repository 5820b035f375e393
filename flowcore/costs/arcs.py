"""What a pod pays on a node as a constant of the round: the cost model's arc and the parts that a policy adds."""

from __future__ import annotations

from flowcore.classes.groups import Group
from flowcore.cluster.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.data_locality import data_costs
from flowcore.costs.interference import interference
from flowcore.costs.machines import machine_costs
from flowcore.costs.model import CostModel, Float64s, Load
from flowcore.costs.preferences import preferences
from flowcore.model.cost_policy import CostPolicy


def arc_costs(
    group: Group, size: Float64s, load: Load, snapshot: Snapshot, allowed: Bools, cost: CostPolicy, model: CostModel
) -> Int64s:
    """int64[N], positive: what a pod of the group pays on each node beside the increase of its potential.

    Args:
        size: float64[3], what one pod counts for, in the columns of ``Load.taken``.
        load: of all nodes, as the round begins.
        allowed: bool[N], nodes that the group may use; the costs of others have no meaning.
        model: the one that ``cost`` names.
    """
    found = model.arc_costs(group.pod_class, size, load, cost.weights)
    found = found + preferences(group.pod_class, group.signature, snapshot, allowed, cost.weights)
    if cost.data_locality is not None:
        found += data_costs(group.pod_class, snapshot, cost.data_locality)
    if cost.interference is not None:
        found += interference(group.signature, snapshot)
    if cost.machines is not None:
        found += machine_costs(group.signature, cost.machines, snapshot.table)
    return found
