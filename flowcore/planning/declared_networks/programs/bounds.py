"""A cost that no flow through a network goes below, by any prices: weak duality, in arithmetic of our own.

Each unit pays the costs of its arcs and the prices of what it uses, and takes the cheapest way from its pods to an end;
each pod is placed for what that earns or waits at its own price; and what is limited gives its prices back. Source:
Lagrangian relaxation (Ahuja, Magnanti, Orlin: Network Flows, chapter 16). A group is whole in it, or absent.
"""

from __future__ import annotations

from math import ceil, isfinite

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.graph import SupplyGroup
from flowcore.planning.declared_networks.programs.statement import Prices
from flowcore.planning.declared_networks.programs.ways import Float64s, Ways

#: Sums of floats are nearer to the truth than this, as a part of what is summed.
_ERROR = 1e-11


def weights(ways: Ways, prices: Prices, costs: Int64s) -> Float64s:
    """float64[E]: what a unit pays on each way.

    Args:
        costs: int64[A], of the arcs.
    """
    paid = np.where(ways.leaves, 0.0, (costs - prices.arcs)[ways.arcs]) + prices.crowding
    terminal = np.nonzero(ways.nodes >= 0)[0]
    nodes, supplies = ways.nodes[terminal], ways.supplies[terminal]
    requests = np.array([supply.requests for supply in ways.graph.supplies], dtype=np.float64)
    paid[terminal] += (prices.room[nodes] * requests[supplies]).sum(axis=1) + prices.fits[supplies, nodes]
    paid[terminal] -= prices.pods[supplies]
    for group, of_gangs in zip(ways.graph.groups, prices.arrivals, strict=True):
        for (members, domains), of_domains in zip(group.domains, of_gangs, strict=True):
            arriving = terminal[np.isin(supplies, members) & (domains[nodes] >= 0)]
            paid[arriving] += of_domains[domains[ways.nodes[arriving]]]
    return paid


def least_cost(ways: Ways, free: Int64s, prices: Prices, paid: Float64s) -> int:
    """A cost that no flow goes below.

    Args:
        free: int64[N, R], what is free on each node.
        paid: ``weights`` at these prices and the costs of the arcs.
    """
    graph = ways.graph
    counts = np.array([supply.count for supply in graph.supplies], dtype=np.float64)
    of_units = ways.costs(paid)[ways.starts]
    if not np.isfinite(of_units).all():
        return 0  # some pods have no way at all: there is no flow
    earned = -ways.costs(np.minimum(paid, 0.0))[ways.starts]
    room = np.where(ways.units > 0, np.maximum(free, 0) // np.maximum(ways.units, 1) * ways.units, 0)
    fits = np.array([supply.fits for supply in graph.supplies])
    terms: list[float] = [
        *(counts * of_units).tolist(),
        *np.where(prices.arcs > 0, prices.arcs * graph.minimums, prices.arcs * graph.maximums).tolist(),
        -float((prices.room * room).sum()),
        -float((prices.crowding * ways.maximums).sum()),
        -float((prices.fits * fits).sum()),
    ]
    in_groups = {member for group in graph.groups for member in group.members}
    for number, supply in enumerate(graph.supplies):
        if number not in in_groups:
            terms.append(float(np.minimum(supply.prices, prices.pods[number]).sum()))
    for group, of_gangs in zip(graph.groups, prices.arrivals, strict=True):
        terms.append(_of_group(ways, group, prices.pods, of_gangs))
    # A sum is as exact as its parts are large: what ways earn is a part of what they cost.
    error = _ERROR * (sum(map(abs, terms)) + float((counts * (np.abs(of_units) + 2.0 * earned)).sum()))
    least = sum(terms) - error - 1e-6
    return max(0, ceil(least)) if isfinite(least) else 0


def _of_group(ways: Ways, group: SupplyGroup, earns: Float64s, arrivals: tuple[Float64s, ...]) -> float:
    """What the pods of a group cost at least: all wait, or enough of each gang are placed."""
    supplies = ways.graph.supplies
    absent = sum(float(supplies[member].prices.sum()) for member in group.members)
    present = sum(float(np.minimum(supplies[member].prices, earns[member]).sum()) for member in group.members)
    more = [0.0]
    for members, need in group.needs:
        # What it costs more to place a pod than to let it wait; those with the least come first.
        extra = np.sort(np.concatenate([earns[member] - supplies[member].prices for member in members]))
        more.append(float(np.maximum(extra[:need], 0.0).sum()))
    for (members, _), of_domains in zip(group.domains, arrivals, strict=True):
        count = sum(supplies[member].count for member in members)
        present -= count * float(of_domains.max(initial=0.0))
    return min(absent, present + max(more))


def least_alone(ways: Ways) -> int:
    """``least_cost`` at prices that need no solver: each pod has all room, and takes its cheapest way or waits."""
    graph = ways.graph
    costs = np.where(ways.leaves, 0, graph.costs[ways.arcs]).astype(np.float64)
    at_node = ways.nodes >= 0
    placing = ways.costs(np.where(ways.ends[ways.heads] & ~at_node, np.inf, costs))[ways.starts]
    waiting = ways.costs(np.where(at_node, np.inf, costs))[ways.starts]
    dearest = np.array([float(supply.prices.max(initial=0)) for supply in graph.supplies])
    # So a pod pays the same on its way whether it is placed or waits; what cannot wait earns nothing.
    earned = np.zeros(len(dearest))
    can_wait = np.isfinite(waiting)
    earned[can_wait] = np.minimum(placing[can_wait] - waiting[can_wait], dearest[can_wait])
    shape = len(graph.supplies[0].fits), len(graph.supplies[0].requests)
    prices = Prices(
        arcs=np.zeros(len(graph.tails)),
        room=np.zeros(shape),
        pods=earned,
        crowding=np.zeros(len(ways)),
        fits=np.zeros((len(dearest), shape[0])),
        arrivals=tuple(
            tuple(np.zeros(int(domains.max(initial=-1)) + 1) for _, domains in group.domains) for group in graph.groups
        ),
        starts=np.zeros(len(dearest)),
    )
    return least_cost(ways, np.zeros(shape, dtype=np.int64), prices, weights(ways, prices, graph.costs))
