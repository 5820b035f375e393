"""What placements cost as a round begins: arcs, potentials, and the dearest way to place any pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.arcs import MOST_WRITTEN
from flowcore.costs.claim_scores import ClaimCosts
from flowcore.costs.data_locality import DataPrices
from flowcore.costs.model import CostModel, Float64s, Load
from flowcore.costs.pod_costs import PodCosts
from flowcore.costs.potential import NodePotential
from flowcore.model.cost_policy import CostPolicy, Utilisation
from flowcore.model.policies import Policy
from flowcore.model.resources import BANDWIDTH, CPU, MEMORY
from flowcore.planning.problem.demands.charging import Charge
from flowcore.rules.topology.counters import DomainCounter
from flowcore.rules.topology.round_constraints.constraints import TopologyConstraints
from flowcore.rules.verdicts import Group, VerdictCache
from flowcore.rules.verdicts.invalidation import NODE_STATE_EVENTS

#: What the columns of ``Load.taken`` count.
_COLUMNS = (CPU, MEMORY, BANDWIDTH)


@dataclass(frozen=True, slots=True, eq=False)
class PlacementPrices:
    """What pods of each group pay for nodes.

    Attributes:
        arcs, first_increases: int64[N] of each group, as in ``Demand``; and what its claims cost.
        dearest: no pod pays more for a node, beside pods of policies that wait for cheaper nodes. It does not depend on
            what authors of pods write: that counts as the most that it may.
    """

    arcs: Sequence[Int64s]
    first_increases: Sequence[Int64s]
    claims: Sequence[ClaimCosts]
    dearest: int


def price_placements(
    groups: Sequence[Group],
    sizes: Sequence[Float64s],
    allowed: Sequence[Bools],
    passing: Sequence[Bools],
    constraints: Sequence[TopologyConstraints],
    snapshot: Snapshot,
    loads: Mapping[Utilisation, Load],
    unit: tuple[float, ...],
    policies: Mapping[str, Policy],
    models: Mapping[str, CostModel],
    cache: VerdictCache,
    charge: Charge,
) -> PlacementPrices:
    """Prices of groups.

    Args:
        sizes: float64[3] of each group, what a pod counts for.
        allowed: bool[N] of each group, nodes that it may use.
        passing: bool[N] of each group, those of them among which its preferences are scaled.
        constraints: of each group, its rules between pods.
        loads: see ``loads_of``.
        unit: what a pod of mean size counts for (costs/potential.py).
        charge: is called with the pods that the work was for.
    """
    suffered = _most_suffered(groups, constraints, loads[Utilisation.REQUESTED])
    beyond = _most_beyond_requests(groups, sizes, snapshot)
    values: dict[NodePotential, Int64s] = {}
    data = DataPrices(snapshot)
    arcs, written, first_increases, potentials, claims = [], [], [], [], []
    for group, size, nodes, passes in zip(groups, sizes, allowed, passing, strict=True):
        policy = policies[group.policy]
        start = loads[policy.cost.utilisation]
        costs = PodCosts.of(group, policy, size, nodes, passes, models[policy.cost.model], unit, data)
        potential = costs.potential
        if potential not in values:
            values[potential] = _values(potential, snapshot, start, cache)
        # Not remembered: a model may compare nodes with each other, so no arc follows from its own row alone.
        arcs.append(costs.arcs(snapshot, start))
        written.append(costs.written)
        first_increases.append(_first_increase(size, potential, values[potential], snapshot, start, cache))
        potentials.append(potential)
        claims.append(costs.claims(snapshot))
        charge(group.pods)
    slopes = {each: each.steepest(_fullest(beyond, snapshot, loads[each.utilisation])) for each in values}
    dearest = MOST_WRITTEN + max(
        (
            _dearest(
                [
                    _Offer(arcs[index], sizes[index], allowed[index], suffered[index] + claims[index].most)
                    for index, group in enumerate(groups)
                    if potentials[index] == potential and not _may_cost_anything(policies[group.policy])
                ],
                steepest,
            )
            for potential, steepest in slopes.items()
        ),
        default=0,
    )
    whole = [arc + more for arc, more in zip(arcs, written, strict=True)]
    return PlacementPrices(whole, first_increases, claims, dearest)


def price_group(
    group: Group,
    size: Float64s,
    allowed: Bools,
    potential: NodePotential,
    snapshot: Snapshot,
    load: Load,
    policy: Policy,
    models: Mapping[str, CostModel],
    cache: VerdictCache,
) -> tuple[Int64s, Int64s, ClaimCosts]:
    """Arc and first increase of one group, int64[N] each, and what its claims cost, as in ``Demand``.

    Args:
        size, allowed: as above, of the group.
        load: of the snapshot, by what pods request.
    """
    start = loads_of([policy.cost], snapshot, load)[policy.cost.utilisation]
    model, data = models[policy.cost.model], DataPrices(snapshot)
    # No node has room: preferences are scaled over all that it may use.
    costs = PodCosts.of(group, policy, size, allowed, allowed, model, potential.unit, data)
    increase = _first_increase(size, potential, _values(potential, snapshot, start, cache), snapshot, start, cache)
    return costs.arcs(snapshot, start) + costs.written, increase, costs.claims(snapshot)


def loads_of(costs: Sequence[CostPolicy], snapshot: Snapshot, load: Load) -> dict[Utilisation, Load]:
    """Loads of the snapshot by each utilisation that is asked for; ``load``: by what pods request."""
    return {Utilisation.REQUESTED: load} | {
        utilisation: Load.of(snapshot, utilisation)
        for utilisation in dict.fromkeys(cost.utilisation for cost in costs)
        if utilisation is not Utilisation.REQUESTED
    }


def _may_cost_anything(policy: Policy) -> bool:
    """Whether its pods wait rather than pay more than their price: for a cheaper node, or by their network."""
    return policy.unscheduled.wait_for_cheaper_node or policy.network_rules is not None


@dataclass(frozen=True, slots=True, eq=False)
class _Offer:
    """A group's arcs without what authors write, what its pods count for, its nodes, and what other pods add."""

    arc: Int64s
    size: Float64s
    nodes: Bools
    penalties: int


def _dearest(offers: Sequence[_Offer], steepest: Float64s) -> int:
    """No pod of these groups, which are priced alike, pays more for a node, however full the round makes it.

    Args:
        steepest: float64[N, 4], bounds on the slopes of nodes.
    """
    sizes = [np.append(each.size, 1.0) for each in offers]
    highest = np.array([column.max(initial=0.0) for column in steepest.T])
    # No node is as steep as the steepest ones together: most groups need no closer look.
    bounds = np.array([
        float(offer.arc.max(initial=0)) + float(highest @ size) + offer.penalties
        for offer, size in zip(offers, sizes, strict=True)
    ])  # fmt: skip
    dearest = 0
    for number in np.argsort(-bounds, kind="stable").tolist():
        if bounds[number] + 2 < dearest:
            break
        offer = offers[number]
        if offer.nodes.any():
            rise = steepest @ sizes[number]
            dearest = max(dearest, int(offer.arc[offer.nodes].max() + rise[offer.nodes].max()) + 1 + offer.penalties)
    return dearest


def _values(potential: NodePotential, snapshot: Snapshot, load: Load, cache: VerdictCache) -> Int64s:
    """int64[N]: the potential of all nodes."""

    def value(part: Snapshot, rows: Int64s | None) -> Int64s:
        return potential.values(load if rows is None else replace(load.at(rows), table=part.table))

    return cache.values("first slots", ("potential", potential), NODE_STATE_EVENTS, snapshot, value)


def _first_increase(
    size: Float64s, potential: NodePotential, before: Int64s, snapshot: Snapshot, load: Load, cache: VerdictCache
) -> Int64s:
    def price(part: Snapshot, rows: Int64s | None) -> Int64s:
        if rows is None:
            return potential.increase(load, size, before)
        return potential.increase(replace(load.at(rows), table=part.table), size)

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
    for group, size in zip(groups, sizes, strict=True):
        requests = dict(group.pod_class.requests)
        asked = [requests.get(name, 0) if name in snapshot.resources else 0 for name in _COLUMNS]
        more = size - np.array(asked)
        if (more > 0).any():
            beyond, pods = np.maximum(beyond, more), pods + len(group.pods)
    return _Beyond(tuple(beyond.tolist()), pods)


def _fullest(beyond: _Beyond, snapshot: Snapshot, load: Load) -> Load:
    """No node is fuller than this after the round: requests take what is free, and pods may count for more."""
    taken, room = load.taken.copy("F"), np.maximum(load.pods_allowed - load.pods, 0)
    for column, name in enumerate(_COLUMNS):
        if name in snapshot.resources:
            taken[:, column] += np.maximum(snapshot.free[:, snapshot.resources.index(name)], 0)
    if beyond.pods:
        taken += np.minimum(room, beyond.pods)[:, np.newaxis] * np.array(beyond.amounts)
    return replace(load, taken=taken, pods=load.pods + room)


def _most_suffered(groups: Sequence[Group], constraints: Sequence[TopologyConstraints], load: Load) -> list[int]:
    """What a pod of each group costs at most beside pods of the round on its node."""
    raised = Counter[DomainCounter]()
    for group, terms in zip(groups, constraints, strict=True):
        for counter in terms.increments:
            raised[counter] += len(group.pods)
    room = int(np.maximum(load.pods_allowed - load.pods, 0).max(initial=0))
    penalties = [each.soft_constraints.penalties if each.soft_constraints else () for each in constraints]
    return [
        sum(cost * min(raised[counter], room) for counter, cost in each) + sum(price.highest for price in terms.rising)
        for each, terms in zip(penalties, constraints, strict=True)
    ]
