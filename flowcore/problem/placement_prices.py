"""What placements cost as a round begins: arcs, potentials, and the dearest way to place any pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.classes import Group, VerdictCache
from flowcore.classes.invalidation import NODE_STATE_EVENTS
from flowcore.cluster.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.arcs import arc_costs
from flowcore.costs.model import CostModel, Float64s, Load
from flowcore.costs.potential import NodePotential, mean_size
from flowcore.model.cost_policy import Utilisation
from flowcore.model.policies import Policy
from flowcore.model.resources import BANDWIDTH, CPU, MEMORY
from flowcore.topology.constraints import TopologyConstraints
from flowcore.topology.counters import DomainCounter

#: What the columns of ``Load.taken`` count.
_COLUMNS = (CPU, MEMORY, BANDWIDTH)


@dataclass(frozen=True, slots=True, eq=False)
class PlacementPrices:
    """What pods of each group pay for nodes.

    Attributes:
        arcs, first_increases: int64[N] of each group, as in ``Demand``.
        potentials: of nodes for pods of each group.
        dearest: no pod pays more for a node, beside pods of policies that wait for cheaper nodes.
    """

    arcs: Sequence[Int64s]
    first_increases: Sequence[Int64s]
    potentials: Sequence[NodePotential]
    dearest: int


def price_placements(
    groups: Sequence[Group],
    sizes: Sequence[Float64s],
    allowed: Sequence[Bools],
    constraints: Sequence[TopologyConstraints],
    snapshot: Snapshot,
    load: Load,
    policies: Mapping[str, Policy],
    models: Mapping[str, CostModel],
    cache: VerdictCache,
) -> PlacementPrices:
    """Prices of groups.

    Args:
        sizes: float64[3] of each group, what a pod counts for.
        allowed: bool[N] of each group, nodes that it may use.
        constraints: of each group, its rules between pods.
        load: of the snapshot, by what pods request.
    """
    costs = [policies[found.policy].cost for found in groups]
    loads = {Utilisation.REQUESTED: load} | {
        each: Load.of(snapshot, each)
        for each in dict.fromkeys(cost.utilisation for cost in costs)
        if each is not Utilisation.REQUESTED
    }
    suffered = _most_suffered(groups, constraints, load)
    unit = mean_size(sizes, [len(found.pods) for found in groups], loads.values())
    beyond = _most_beyond_requests(groups, sizes, snapshot)
    values: dict[NodePotential, Int64s] = {}
    steepest: dict[NodePotential, Float64s] = {}
    arcs, first_increases, potentials, dearest = [], [], [], 0
    for found, cost, size, nodes, penalties in zip(groups, costs, sizes, allowed, suffered, strict=True):
        model, start = models[cost.model], loads[cost.utilisation]
        potential = NodePotential.of(model, cost, unit)
        if potential not in values:
            values[potential] = _values(potential, snapshot, start, cache)
        # Not remembered: a model may compare nodes with each other, so no arc follows from its own row alone.
        arc = arc_costs(found, size, start, snapshot, nodes, cost, model)
        arcs.append(arc)
        first_increases.append(_first_increase(size, potential, values[potential], snapshot, start, cache))
        potentials.append(potential)
        if nodes.any() and not policies[found.policy].unscheduled.wait_for_cheaper_node:
            rise = _steepest_rise(size, potential, beyond, steepest, snapshot, start, cache)
            # Most groups cost no more anywhere than others do somewhere.
            if int(arc.max() + rise.max()) + 1 + penalties > dearest:
                dearest = max(dearest, int(arc[nodes].max() + rise[nodes].max()) + 1 + penalties)
    return PlacementPrices(arcs, first_increases, potentials, dearest)


def _values(potential: NodePotential, snapshot: Snapshot, load: Load, cache: VerdictCache) -> Int64s:
    """int64[N]: the potential of all nodes."""

    def value(part: Snapshot, at: Int64s | None) -> Int64s:
        return potential.values(load if at is None else replace(load.at(at), table=part.table))

    return cache.values("first slots", ("potential", potential), NODE_STATE_EVENTS, snapshot, value)


def _first_increase(
    size: Float64s, potential: NodePotential, before: Int64s, snapshot: Snapshot, load: Load, cache: VerdictCache
) -> Int64s:
    def price(part: Snapshot, at: Int64s | None) -> Int64s:
        if at is None:
            return potential.increase(load, size, before)
        return potential.increase(replace(load.at(at), table=part.table), size)

    return cache.values("first slots", (potential, size.tobytes()), NODE_STATE_EVENTS, snapshot, price)


@dataclass(frozen=True, slots=True)
class _Beyond:
    """What pods of a round count for beyond their requests: the most of any, and how many pods count for more.

    Attributes:
        amounts: in the columns of ``Load.taken``.
    """

    amounts: tuple[float, ...]
    pods: int


def _most_beyond_requests(groups: Sequence[Group], sizes: Sequence[Float64s], snapshot: Snapshot) -> _Beyond:
    beyond, pods = np.zeros(3), 0
    for found, size in zip(groups, sizes, strict=True):
        requests = dict(found.pod_class.requests)
        asked = [requests.get(name, 0) if name in snapshot.resources else 0 for name in _COLUMNS]
        more = size - np.array(asked)
        if (more > 0).any():
            beyond, pods = np.maximum(beyond, more), pods + len(found.pods)
    return _Beyond(tuple(beyond.tolist()), pods)


def _steepest_rise(
    size: Float64s,
    potential: NodePotential,
    beyond: _Beyond,
    steepest: dict[NodePotential, Float64s],
    snapshot: Snapshot,
    load: Load,
    cache: VerdictCache,
) -> Float64s:
    """float64[N]: no pod of a size pays more for the potential of a node, however full the round makes it.

    Args:
        steepest: bounds on the slopes of all nodes, as far as they are known.
    """

    def rise(part: Snapshot, at: Int64s | None) -> Float64s:
        if at is not None:
            slopes = potential.steepest(_fullest(beyond, part, replace(load.at(at), table=part.table)))
        elif potential in steepest:
            slopes = steepest[potential]
        else:
            slopes = steepest[potential] = potential.steepest(_fullest(beyond, part, load))
        found: Float64s = slopes @ np.append(size, 1.0)
        return found

    key = "steepest", potential, beyond, size.tobytes()
    return cache.values("first slots", key, NODE_STATE_EVENTS, snapshot, rise)


def _fullest(beyond: _Beyond, snapshot: Snapshot, load: Load) -> Load:
    """No node is fuller than this after the round: requests take what is free, and pods may count for more."""
    taken, room = load.taken.copy("F"), np.maximum(load.pods_allowed - load.pods, 0)
    for at, name in enumerate(_COLUMNS):
        if name in snapshot.resources:
            taken[:, at] += np.maximum(snapshot.free[:, snapshot.resources.index(name)], 0)
    if beyond.pods:
        taken += np.minimum(room, beyond.pods)[:, np.newaxis] * np.array(beyond.amounts)
    return replace(load, taken=taken, pods=load.pods + room)


def _most_suffered(groups: Sequence[Group], constraints: Sequence[TopologyConstraints], load: Load) -> list[int]:
    """What a pod of each group costs at most beside pods of the round on its node."""
    raised = Counter[DomainCounter]()
    for found, each in zip(groups, constraints, strict=True):
        for counter in each.increments:
            raised[counter] += len(found.pods)
    room = int(np.maximum(load.pods_allowed - load.pods, 0).max(initial=0))
    penalties = [each.soft_constraints.penalties if each.soft_constraints else () for each in constraints]
    return [sum(cost * min(raised[counter], room) for counter, cost in each) for each in penalties]
