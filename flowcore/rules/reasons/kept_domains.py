"""Gangs that have begun keep to a domain: which one has no room, and whether another one would fit all of a gang."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable
from flowcore.model.gangs import Gang
from flowcore.rules.topology.domains import Domains


def domain_without_room(gangs: Sequence[Gang], room: Bools, table: NodeTable) -> Gang | None:
    """The gang whose domain has no room for a pod, of several that with the widest; None: each domain has some.

    Args:
        gangs: of the pod; those that have no domain yet are passed over.
        room: bool[N], nodes that would take the pod, were it in no gang.
    """
    kept = [(gang, nodes_of_domain(gang, table)) for gang in gangs if gang.topology_key and gang.domain]
    for gang, nodes in sorted(kept, key=lambda entry: -int(entry[1].sum())):
        room = room & nodes
        if not room.any():
            return gang
    return None


def fits_as_a_whole(gang: Gang, gangs: Sequence[Gang], waiting: int, fits: Int64s, table: NodeTable) -> str:
    """A sentence about another domain with room for all pods of a gang, if all ask for the same; "": not known.

    Args:
        gang: it has a domain, and no slices.
        gangs: of its pods; those that have a domain keep to it.
        waiting: how many of its pods wait.
        fits: int64[N], how many of them each node has room for.
    """
    if not gang.placed:
        return ""
    fits = np.where(nodes_of_domain(gang, table), 0, fits)
    for around in gangs:
        if around.domain and around != gang:
            fits = np.where(nodes_of_domain(around, table), fits, 0)
    size, domains, column = gang.placed + waiting, Domains.of(gang.topology_key, table), table.column(gang.topology_key)
    totals = domains.totals(fits)[: domains.count]
    large_enough = np.nonzero(totals >= size)[0]
    if not len(large_enough):
        return ""
    tightest = int(large_enough[totals[large_enough].argmin()])
    name = column.values[int(column.codes[domains.nodes(tightest)[0]])]
    whole = f"As a whole it would fit {gang.topology_key} {name}, which has room for {size} such pods"
    return f"{whole}: {gang.placed} of its pods would have to move."


def nodes_of_domain(gang: Gang, table: NodeTable) -> Bools:
    """bool[N]: the nodes of its domain."""
    return nodes_in(gang.topology_key, gang.domain, table)


def nodes_in(key: str, domain: str | None, table: NodeTable) -> Bools:
    """bool[N]: the nodes of a domain of a topology; of None: none."""
    column = table.column(key)
    code = column.values.index(domain) if domain in column.values else -2
    nodes: Bools = column.codes == code
    return nodes
