"""The cheapest slots if the number of pods in each domain has a limit.

The slots of a node rise in cost. Taking slots from the cheapest on, without those whose domain is full, gives the
cheapest plan of a demand if domains are nested (a matroid; figure 11 of the seed pod-affinity-and-gangs.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s


def cheapest_per_domain(cost: Float64s, domains: Int64s, remaining: Int64s) -> Bools:
    """bool[M]: the nodes that a demand may need: of each domain the cheapest, as many as the domain takes pods.

    Args:
        cost: float64[M], of the next pod on each node.
        domains: int64[M], domain of each node; remaining: int64[D], how many pods each domain takes.
    """
    return _rank(np.argsort(cost, kind="stable"), domains) < remaining[domains]


def capped_greedy(cost: Float64s, caps: Sequence[tuple[Int64s, Int64s]], count: int) -> Int64s:
    """int64[M]: how many of at most ``count`` pods each node gets.

    Args:
        cost: float64[M, L], of each slot of each node, rising; infinite for slots that do not exist.
        caps: one or more pairs: int64[M] the domain of each node, int64[D] how many pods each domain takes.
    """
    nodes, depth = cost.shape
    order = np.argsort(cost, axis=None, kind="stable")
    order = order[: int(np.isfinite(cost).sum())]
    if len(caps) == 1:
        domains, remaining = caps[0]
        slot_nodes = order // depth
        slot_domains = domains[slot_nodes]
        chosen = slot_nodes[_rank(np.arange(len(slot_nodes)), slot_domains) < remaining[slot_domains]][:count]
        return np.bincount(chosen, minlength=nodes)
    pods: Int64s = np.zeros(nodes, dtype=np.int64)
    remaining_by_cap = [remaining.tolist() for _, remaining in caps]
    domains_of_node = list(zip(*(domains.tolist() for domains, _ in caps), strict=True))
    for node in (order // depth).tolist():
        if not count:
            break
        pairs = list(zip(remaining_by_cap, domains_of_node[node], strict=True))
        if all(remaining[domain] for remaining, domain in pairs):
            count -= 1
            pods[node] += 1
            for remaining, domain in pairs:
                remaining[domain] -= 1
    return pods


def _rank(order: Int64s, domains: Int64s) -> Int64s:
    """int64[M]: rank of each entry within its domain, in this order."""
    rank: Int64s = np.empty(len(order), dtype=np.int64)
    grouped = order[np.argsort(domains[order], kind="stable")]
    starts = np.flatnonzero(np.diff(domains[grouped], prepend=-1))
    rank[grouped] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return rank
