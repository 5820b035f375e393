"""The shortest proof that a pod fits on no node, and the shortest way out: sets of filters.

kube-scheduler names the first filter that rejects each node, so its message may name filters that do not matter: a node
that lacks room is of no more use without its taint. Here every filter's verdict on every node counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.rules.filters import Verdicts


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Filters that together reject every node.

    Attributes:
        filters: their names, in kube-scheduler's order. No smaller set of filters rejects every node; of several sets
            of this size it is the first in kube-scheduler's order.
        nodes: how many nodes each of them rejects, by itself.
    """

    filters: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WayOut:
    """Filters without which a node would take the pod.

    Attributes:
        filters: their names, in kube-scheduler's order. Without fewer of them no node would.
        nodes: bool[N], the nodes that nothing else rejects.
    """

    filters: tuple[str, ...]
    nodes: Bools


def smallest_exclusion(verdicts: Verdicts) -> Exclusion:
    """The fewest filters that reject every node; none where a node fits, or where there are no nodes."""
    names, rejected = _rejected(verdicts)
    if not len(verdicts.table.nodes) or verdicts.fits.any():
        return Exclusion()
    patterns = _patterns(rejected)[0].tolist()
    # What rejects the nodes of a pattern rejects those of every larger pattern too.
    least = [
        pattern for pattern in patterns if not any(smaller & pattern == smaller != pattern for smaller in patterns)
    ]
    sets = (chosen for size in range(1, len(names) + 1) for chosen in combinations(range(len(names)), size))
    # All of them together reject every node.
    chosen = next(chosen for chosen in sets if all(pattern & sum(1 << index for index in chosen) for pattern in least))
    return Exclusion(tuple(names[index] for index in chosen), tuple(int(rejected[index].sum()) for index in chosen))


def way_out(verdicts: Verdicts, hopeless: Bools | None = None) -> WayOut | None:
    """The fewest filters without which a node fits, of several sets that which opens most nodes; None: a node fits.

    Args:
        hopeless: bool[N], nodes that are no use even so, such as those too small when empty: they do not count, as
            long as there are others.
    """
    names, rejected = _rejected(verdicts)
    if not len(verdicts.table.nodes) or verdicts.fits.any():
        return None
    patterns, of_node = _patterns(rejected)
    weights = None if hopeless is None else np.where(hopeless, 0, 1)
    opened = np.bincount(of_node, weights, minlength=len(patterns))
    best = min(
        range(len(patterns)),
        key=lambda index: (not opened[index], int(patterns[index]).bit_count(), -opened[index], int(patterns[index])),
    )
    filters = tuple(name for index, name in enumerate(names) if int(patterns[best]) >> index & 1)
    return WayOut(filters, of_node == best)


def _rejected(verdicts: Verdicts) -> tuple[list[str], list[Bools]]:
    """Filters that reject a node, in order, and bool[N] for each: the nodes that it rejects."""
    rejected: dict[str, Bools] = {}
    for name, rejections in verdicts.by_filter:
        for rejection in rejections:
            if rejection.nodes.any():
                rejected[name] = rejected[name] | rejection.nodes if name in rejected else rejection.nodes
    return list(rejected), list(rejected.values())


def _patterns(rejected: list[Bools]) -> tuple[Int64s, Int64s]:
    """The sets of filters that reject some node, as bits; and which of them each node has."""
    bits = np.zeros(len(rejected[0]), dtype=np.int64)
    for bit, nodes in enumerate(rejected):
        bits |= nodes.astype(np.int64) << bit
    patterns, of_node = np.unique(bits, return_inverse=True)
    return patterns, of_node
