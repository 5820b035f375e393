"""What the pods of a demand cost at least, one after the other, if its own rules are capacities of domains.

Nodes have a cost for each pod. Domains are inside each other or apart, so taking the cheapest place that no full domain
is around gives the cheapest plan for every number of pods (a matroid), and its costs rise.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.topology.capacities import DomainCapacities


def rising_costs(cost: Float64s, fit_counts: Int64s, domains: DomainCapacities, pods: int) -> Float64s:
    """float64[pods]: what each further pod costs in the cheapest plans of 1, 2, ... pods; infinite without a place.

    Args:
        cost: float64[N], of a pod on each node.
        fit_counts: int64[N], how many pods each node has room for.
    """
    most = np.minimum(np.minimum(fit_counts, domains.by_node), pods)
    nodes = np.nonzero(most > 0)[0]
    if not len(domains.parents) and len(nodes) > pods:
        nodes = nodes[np.argpartition(cost[nodes], pods - 1)[:pods]]
    nodes = nodes[np.argsort(cost[nodes], kind="stable")]
    taken, domain = most[nodes], domains.domain_of[nodes]
    parents, depths = np.append(domains.parents, -1), domains.depths
    for depth in range(int(depths.max(initial=0)), 0, -1):
        # From the inside out: a place that a full outer domain refuses takes nothing from an inner one that counts.
        here = np.append(depths, 0)[domain] == depth
        taken[here] = _within(taken[here], domain[here], domains.capacities)
        domain[here] = parents[domain[here]]
    found = np.full(pods, np.inf)
    places = np.repeat(cost[nodes], taken)[:pods]
    found[: len(places)] = places
    return found


def _within(taken: Int64s, domain: Int64s, capacities: Int64s) -> Int64s:
    """The first of each domain's pods, as many as it takes."""
    order = np.argsort(domain, kind="stable")
    ordered = taken[order]
    before = np.cumsum(ordered) - ordered
    first = np.diff(domain[order], prepend=-1) != 0
    before -= np.maximum.accumulate(np.where(first, before, 0))
    found = np.empty_like(taken)
    found[order] = np.clip(capacities[domain[order]] - before, 0, ordered)
    return found
