"""InterPodAffinity as a preference: the pods that run, and what they and the waiting pod think of each other.

Source: kube-scheduler plugins/interpodaffinity/scoring.go, with the default hardPodAffinityWeight of 1.
"""

from __future__ import annotations

import numpy as np

from flowcore.model.neighbours import Crowd, Kind, Neighbours, Together
from flowcore.model.rules import WeightedTerm
from flowcore.model.snapshot import Int64s, NodeTable


def attraction(kind: Kind, neighbours: Neighbours, table: NodeTable) -> Int64s | None:
    """int64[N]: sum of the weights that speak for each node, less those that speak against it; None: nothing does.

    Counted are, for each pod that runs in the same domain of the term's topology:

    - the waiting pod's preferred terms that speak of it,
    - its own preferred terms that speak of the waiting pod, and its required affinity, each term with a weight of 1.
    """
    own = kind.rules.preferred if kind.rules is not None else ()
    found = [(wish, neighbours.crowd(Together((wish.term,)))) for wish in own]
    found += neighbours.attracted(kind)
    if not any(crowd for _, crowd in found):
        return None
    total = np.zeros(len(table.nodes), dtype=np.int64)
    for wish, crowd in found:
        total += _near(wish, crowd, table)
    return total


def _near(wish: WeightedTerm, crowd: Crowd, table: NodeTable) -> Int64s:
    column = table.column(wish.term.topology_key)
    sums: Int64s = np.zeros(len(column.values) + 1, dtype=np.int64)  # the last entry is for nodes without the label
    nodes, counts = crowd.on(table.index)
    np.add.at(sums, column.codes[nodes], counts * wish.weight)
    sums[-1] = 0
    return sums[column.codes]
