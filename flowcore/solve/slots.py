"""The slot network: classes -> nodes -> slots -> sink, with an unscheduled arc for each class.

Source: seeds "CPU-Memory cost model overview": a node has slots of rising cost, so that a min-cost flow fills them in
order and spreads load over nodes. Interchangeable pods are one network node with their count as supply.
Slots of one level are one arc.

Network nodes: 0..C-1 the classes, C..C+N-1 the cluster's nodes that any class may use, C+N the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.snapshot import Int64s


@dataclass(frozen=True, slots=True)
class FlowNetwork:
    """Arcs as parallel int64 arrays, and what is needed to read flows back.

    Attributes:
        tails, heads, capacities, costs: int64[A].
        supplies: int64[V], what enters at each network node (negative at the sink).
        placement_arcs: how many of the first arcs go from a class to a node; the rest are slots and unscheduled arcs.
        arc_class, arc_node: int64[placing], class and cluster node of each of those.
    """

    tails: Int64s
    heads: Int64s
    capacities: Int64s
    costs: Int64s
    supplies: Int64s
    placement_arcs: int
    arc_class: Int64s
    arc_node: Int64s


def slot_levels(deepest: int) -> tuple[Int64s, Int64s]:
    """Slot levels and how many slots each stands for: single ones up to 16, then doubling.

    Beyond 16 pods of one round on one node the exact step no longer changes where they should go; a coarser
    ladder keeps the network small.

    Returns:
        levels int64[K] (pods already there when the level starts), widths int64[K], summing to at least ``deepest``.
    """
    widths = [1] * min(max(deepest, 1), 16)
    while sum(widths) < deepest:
        widths.append(max(2, widths[-1] * 2))
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]]).astype(np.int64)
    return starts, np.array(widths, dtype=np.int64)


def build_network(
    *,
    node_count: int,
    candidates: Sequence[Int64s],
    arc_costs: Sequence[Int64s],
    arc_capacities: Sequence[Int64s],
    unscheduled: Sequence[Int64s],
    slots_of: Callable[[Int64s], Int64s],
    slot_widths: Int64s,
    slot_limits: Int64s,
) -> FlowNetwork:
    """The network of one solve.

    Args:
        candidates: per class, int64[k] nodes it may use.
        arc_costs, arc_capacities: per class, int64[k] beside its candidates.
        unscheduled: per class, prices of its pods, falling; their count is the class's supply.
        slots_of: for int64[M] nodes int64[M, K], what their slots cost, rising along K; asked once, for the nodes that
            any class may use.
        slot_widths: int64[K], slots at each level.
        slot_limits: int64[N], slots that each node has.
    """
    classes = len(candidates)
    supply = np.array([len(prices) for prices in unscheduled], dtype=np.int64)
    sink = classes + node_count
    arc_class = np.repeat(np.arange(classes, dtype=np.int64), [len(c) for c in candidates])
    arc_node = _join(candidates)
    used = np.unique(arc_node)
    before = np.concatenate([[0], np.cumsum(slot_widths)[:-1]]).astype(np.int64)
    widths = np.clip(slot_limits[used, np.newaxis] - before[np.newaxis, :], 0, slot_widths[np.newaxis, :])
    row, level = np.nonzero(widths)
    price_class, price, price_count = _runs(unscheduled)
    return FlowNetwork(
        tails=np.concatenate([arc_class, classes + used[row], price_class]),
        heads=np.concatenate([classes + arc_node, np.full(len(row) + len(price), sink, dtype=np.int64)]),
        capacities=np.concatenate([_join(arc_capacities), widths[row, level], price_count]),
        costs=np.concatenate([_join(arc_costs), slots_of(used)[row, level], price]),
        supplies=np.concatenate([supply, np.zeros(node_count, dtype=np.int64), [-int(supply.sum())]]),
        placement_arcs=len(arc_class),
        arc_class=arc_class,
        arc_node=arc_node,
    )


def decode_flows(network: FlowNetwork, flows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """From flows int64[A] to class, node and number of pods of each arc that places any."""
    placing = flows[: network.placement_arcs]
    chosen = np.nonzero(placing)[0]
    return network.arc_class[chosen], network.arc_node[chosen], placing[chosen]


def _runs(prices: Sequence[Int64s]) -> tuple[Int64s, Int64s, Int64s]:
    """Class, price and count of each run of equal prices."""
    owner, value, count = [], [], []
    for at, each in enumerate(prices):
        values, counts = np.unique(each, return_counts=True)
        owner.append(np.full(len(values), at, dtype=np.int64))
        value.append(values)
        count.append(counts.astype(np.int64))
    return _join(owner), _join(value), _join(count)


def _join(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
