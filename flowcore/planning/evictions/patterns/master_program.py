"""The master program: one pattern for each node at most, so that all pods come at the least loss.

It is solved in fractions. There are as many rows across nodes as demands and limits, so few nodes get a fraction; these
are left to the search that goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.evictions.patterns.node_patterns import Patterns
from flowcore.planning.solvers import LinearProgram, solve_lp
from flowcore.planning.solvers.linear import Float64s

#: A pattern is taken that has at least this share of its node.
_WHOLE = 0.999


def choose_patterns(
    patterns: Sequence[Patterns], prices: Sequence[Float64s], wanted: Int64s, limits: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Nodes and their patterns, by number: those that a cheapest plan in fractions uses whole.

    Args:
        patterns: of each node.
        prices: for each node float64[P], what a pattern costs beside its loss: less than one loss in sum.
        wanted: int64[D], pods of each demand that have to come.
        limits: how many may leave that count for each name.
    """
    counts = np.concatenate([each.counts for each in patterns])
    sizes = np.array([len(each.losses) for each in patterns], dtype=np.int64)
    costs = np.concatenate([each.losses for each in patterns]) + np.concatenate(list(prices))
    starts = np.concatenate(([0], np.cumsum(sizes)))
    columns = np.arange(len(counts), dtype=np.int64)
    nodes = np.repeat(np.arange(len(patterns), dtype=np.int64), sizes)
    row_lower, row_upper = [np.full(len(patterns), -np.inf)], [np.ones(len(patterns))]
    rows, entries, values = [nodes], [columns], [np.ones(len(columns))]
    row = len(patterns)

    def add(amounts: Int64s, lower: float, upper: float) -> None:
        nonlocal row
        chosen = np.nonzero(amounts)[0]
        rows.append(np.full(len(chosen), row, dtype=np.int64))
        entries.append(chosen)
        values.append(amounts[chosen].astype(np.float64))
        row_lower.append(np.array([lower]))
        row_upper.append(np.array([upper]))
        row += 1

    for demand, count in enumerate(wanted.tolist()):
        add(counts[:, demand], float(count), np.inf)
    for name, most in limits.items():
        amounts = np.zeros(len(counts), dtype=np.int64)
        for number, known in enumerate(patterns):
            if name in known.limited:
                amounts[starts[number] : starts[number + 1]] = known.limited[name]
        if int(amounts.sum()) > most:
            add(amounts, -np.inf, float(most))
    solved = solve_lp(
        LinearProgram(
            costs.astype(np.float64),
            np.ones(len(counts)),
            np.concatenate(row_lower),
            np.concatenate(row_upper),
            np.concatenate(rows),
            np.concatenate(entries),
            np.concatenate(values),
        )
    )
    if solved is None:
        return []
    chosen = np.nonzero(solved.values >= _WHOLE)[0]
    return [(int(nodes[column]), int(column - starts[nodes[column]])) for column in chosen.tolist()]
