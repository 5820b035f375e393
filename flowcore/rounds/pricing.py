"""What a sequence of commits costs, whichever method made it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowcore.costs.model import Load
from flowcore.model.snapshot import Int64s
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand


def pod_prices(commits: Sequence[Commit], demands: Sequence[Demand], load: Load) -> Int64s:
    """int64[P]: price of each committed pod, in commit order.

    A pod pays for the node as the pods of the round that are dearer to leave than it make it, whichever was committed
    first: a placement has one cost, however it was found.

    Args:
        load: how full the nodes were before the first commit.
    """
    counts = np.array([commit.count for commit in commits], dtype=np.int64)
    demand = np.repeat(np.array([commit.demand for commit in commits], dtype=np.int64), counts)
    node = np.repeat(np.array([commit.node for commit in commits], dtype=np.int64), counts)
    if not len(node):
        return np.zeros(0, dtype=np.int64)
    size = np.array([each.size for each in demands])[demand]
    turn = np.array([each.turn for each in demands], dtype=np.int64)[demand]
    order = np.lexsort((turn, node))
    running = np.cumsum(size[order], axis=0) - size[order]
    first = np.concatenate([[True], node[order][1:] != node[order][:-1]])
    group = np.cumsum(first) - 1
    running -= running[first][group]
    before, pods_before = np.empty_like(running), np.empty_like(node)
    before[order] = running
    pods_before[order] = np.arange(len(node)) - np.nonzero(first)[0][group]
    prices = np.empty(len(node), dtype=np.int64)
    for at, each in enumerate(demands):
        mine = demand == at
        if mine.any():
            where = node[mine]
            there = load.at(where, before[mine], pods_before[mine])
            slot = each.model.slot_costs(there, size[mine], np.zeros(1, dtype=np.int64), each.policy.weights)
            prices[mine] = slot[:, 0] + each.arc[where]
    return prices


def unplaced(commits: Sequence[Commit], demands: Sequence[Demand]) -> list[int]:
    """How many pods of each demand the commits leave out."""
    left = [demand.count for demand in demands]
    for commit in commits:
        left[commit.demand] -= commit.count
    return left


def total_cost(commits: Sequence[Commit], demands: Sequence[Demand], load: Load) -> int:
    """Cost of a plan: its placements and what it leaves out."""
    left = unplaced(commits, demands)
    waiting = sum(int(demand.prices_of_last(count).sum()) for demand, count in zip(demands, left, strict=True))
    return int(pod_prices(commits, demands, load).sum()) + waiting
