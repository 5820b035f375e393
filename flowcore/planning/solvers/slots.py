"""The slot network: classes -> nodes -> slots -> sink, with an unscheduled arc for each class.

Source: seeds "CPU-Memory cost model overview": a node has slots of rising cost, so that a min-cost flow fills them in
order and spreads load over nodes. Interchangeable pods are one network node with their count as supply.
Slots of one level are one arc.

Rules of a class about its own pods are domains with a capacity between the class and the nodes: figures 3, 4 and 11 of
the seed "pod affinity and gangs".

Network nodes: 0..C-1 the classes, C..C+N-1 the cluster's nodes that any class may use, then K domains, those of each
class after those of the class before it, and last the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.rules.topology.round_constraints.capacities import DomainCapacities


@dataclass(frozen=True, slots=True)
class FlowNetwork:
    """Arcs as parallel int64 arrays, and what is needed to read flows back.

    Attributes:
        tails, heads, capacities, costs: int64[A].
        supplies: int64[V], what enters at each network node (negative at the sink).
        placement_arcs: how many of the first arcs go from a class to a node; the rest are slots and unscheduled arcs.
        arc_class, arc_node: int64[placing], class and cluster node of each of those.
        domain_starts: int64[C + 1], number of the first domain of each class; the arcs after the placing ones lead into
            the domains, one into each.
    """

    tails: Int64s
    heads: Int64s
    capacities: Int64s
    costs: Int64s
    supplies: Int64s
    placement_arcs: int
    arc_class: Int64s
    arc_node: Int64s
    domain_starts: Int64s = field(default_factory=lambda: np.zeros(1, dtype=np.int64))


def slot_widths(deepest: int) -> Int64s:
    """How many slots each level of a node stands for: single ones up to 16, then an eighth of all before, at least 2.

    A level costs what its slots cost on average. Beyond 16 pods of one round on one node single steps hardly change
    where pods should go; a coarser ladder keeps the network small.

    Returns:
        int64[K], summing to at least ``deepest``.
    """
    widths = [1] * min(max(deepest, 1), 16)
    while sum(widths) < deepest:
        widths.append(max(2, sum(widths) // 8))
    return np.array(widths, dtype=np.int64)


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
    domains: Sequence[DomainCapacities | None] = (),
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
        domains: per class, capacities of domains, or none at all; its arcs must not pass those of the nodes.
    """
    classes = len(candidates)
    entries = _domain_arcs(classes, node_count, domains)
    sink = classes + node_count + int(entries.starts[-1])
    supply = np.array([len(prices) for prices in unscheduled], dtype=np.int64)
    # Pods that a domain should get start there. They may leave like the pod that is the dearest to leave.
    supply -= entries.started
    wanted = np.nonzero(entries.minimums)[0]
    escape = np.array([unscheduled[owner][0] for owner in entries.owners[wanted].tolist()], dtype=np.int64)
    arc_class = np.repeat(np.arange(classes, dtype=np.int64), [len(c) for c in candidates])
    arc_node = _join(candidates)
    used = np.unique(arc_node)
    before = np.concatenate([[0], np.cumsum(slot_widths)[:-1]]).astype(np.int64)
    widths = np.clip(slot_limits[used, np.newaxis] - before[np.newaxis, :], 0, slot_widths[np.newaxis, :])
    row, level = np.nonzero(widths)
    price_class, price, price_count = _runs(
        [prices[len(prices) - count :] for prices, count in zip(unscheduled, supply.tolist(), strict=True)]
    )
    leaving = len(row) + len(price) + len(wanted)
    return FlowNetwork(
        tails=np.concatenate([
            _tails(arc_class, arc_node, classes + node_count + entries.starts, domains),
            entries.tails, classes + used[row], price_class, entries.heads[wanted],
        ]),
        heads=np.concatenate([classes + arc_node, entries.heads, np.full(leaving, sink, dtype=np.int64)]),
        capacities=np.concatenate([
            _join(arc_capacities), entries.capacities, widths[row, level], price_count, entries.minimums[wanted],
        ]),
        costs=np.concatenate([
            _join(arc_costs), np.zeros_like(entries.heads), slots_of(used)[row, level], price, escape,
        ]),
        supplies=np.concatenate([
            supply, np.zeros(node_count, dtype=np.int64), entries.minimums,
            [-sum(len(prices) for prices in unscheduled)],
        ]),
        placement_arcs=len(arc_class),
        arc_class=arc_class,
        arc_node=arc_node,
        domain_starts=entries.starts,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _DomainArcs:
    """Arcs into domains: int64[K] ends, capacities beside the minimums, minimums and class of each.

    ``starts`` int64[C + 1] as in ``FlowNetwork``; ``started`` int64[C], how many pods of each class start in domains.
    """

    tails: Int64s
    heads: Int64s
    capacities: Int64s
    minimums: Int64s
    owners: Int64s
    starts: Int64s
    started: Int64s


def _domain_arcs(classes: int, node_count: int, domains: Sequence[DomainCapacities | None]) -> _DomainArcs:
    present = [(number, capacities) for number, capacities in enumerate(domains) if capacities is not None]
    counts = np.zeros(classes, dtype=np.int64)
    counts[[number for number, _ in present]] = [len(capacities.parents) for _, capacities in present]
    starts = np.concatenate([[0], np.cumsum(counts)])
    first = classes + node_count + starts
    minimums = _join([capacities.minimums for _, capacities in present])
    started = np.zeros(classes, dtype=np.int64)
    started[[number for number, _ in present]] = [int(capacities.minimums.sum()) for _, capacities in present]
    return _DomainArcs(
        tails=_join(
            [
                np.where(capacities.parents < 0, number, first[number] + capacities.parents)
                for number, capacities in present
            ]
        ),
        heads=np.arange(first[0], first[-1]),
        capacities=_join([capacities.capacities for _, capacities in present]) - minimums,
        minimums=minimums,
        owners=np.repeat(np.arange(classes), counts),
        starts=starts,
        started=started,
    )


def _tails(arc_class: Int64s, arc_node: Int64s, first: Int64s, domains: Sequence[DomainCapacities | None]) -> Int64s:
    """int64[placing]: where each arc to a node begins, at its class or at the smallest domain around the node."""
    tails = arc_class.copy()
    begins = np.searchsorted(arc_class, np.arange(len(domains) + 1))
    for number, capacities in enumerate(domains):
        if capacities is not None:
            arcs = slice(begins[number], begins[number + 1])
            domain = capacities.domain_of[arc_node[arcs]]
            tails[arcs] = np.where(domain < 0, number, first[number] + domain)
    return tails


def most_paid(
    network: FlowNetwork, flows: Int64s, distance: Int64s, number: int, domains: DomainCapacities | None, nodes: int
) -> Int64s:
    """int64[N]: what a new arc of a class to each node may cost, with all behind it, before it is of no use.

    Args:
        distance: int64[V], potentials of the network.
        number: of the class.
        nodes: N.
    """
    if domains is None:
        return np.full(nodes, distance[number], dtype=np.int64)
    start, end = network.domain_starts[number : number + 2].tolist()
    values = distance[len(distance) - 1 - int(network.domain_starts[-1]) :][start:end]
    idle = (flows[network.placement_arcs + start : network.placement_arcs + end] == 0) & (domains.minimums == 0)
    # A domain that nothing goes through says nothing of itself: who comes, comes from around it.
    paid_by_domain = np.append(values, distance[number])
    for domain in np.nonzero(idle)[0].tolist():
        paid_by_domain[domain] = paid_by_domain[domains.parents[domain]]
    paid: Int64s = paid_by_domain[domains.domain_of]
    return paid


def decode_flows(network: FlowNetwork, flows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """From flows int64[A] to class, node and number of pods of each arc that places any."""
    placing = flows[: network.placement_arcs]
    chosen = np.nonzero(placing)[0]
    return network.arc_class[chosen], network.arc_node[chosen], placing[chosen]


def _runs(prices: Sequence[Int64s]) -> tuple[Int64s, Int64s, Int64s]:
    """Class, price and count of each run of equal prices."""
    owner, value, count = [], [], []
    for number, class_prices in enumerate(prices):
        values, counts = np.unique(class_prices, return_counts=True)
        owner.append(np.full(len(values), number, dtype=np.int64))
        value.append(values)
        count.append(counts.astype(np.int64))
    return _join(owner), _join(value), _join(count)


def _join(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
