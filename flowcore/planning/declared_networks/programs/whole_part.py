"""The whole part of a flow in fractions: a flow itself, through arcs with gains too."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.planning.declared_networks.programs.ways import Float64s, Ways, gain_of

#: A flow that is so near to a whole number from below is taken for it.
_WHOLE = 1e-6


def whole_part(
    ways: Ways, chosen: Int64s, values: Float64s, *, nodes: Bools | None = None, supplies: Bools | None = None
) -> Float64s:
    """float64[K]: whole numbers, none above its value, that keep what comes to each state equal to what goes.

    The flow is taken apart into paths, and of each path as much is kept as is whole on all of its ways.

    Args:
        chosen: int64[K], ways.
        values: float64[K], a flow on these.
        nodes: bool[N], those of which something is kept; None: all.
        supplies: bool[C], pods of which something is kept; None: all.
    """
    left, kept = values.copy(), np.zeros(len(values))
    tails, heads = ways.tails[chosen].tolist(), ways.heads[chosen].tolist()
    is_start = np.isin(ways.tails[chosen], ways.starts)
    onward: dict[int, list[int]] = {}
    for column in np.nonzero(values > _WHOLE)[0].tolist():
        onward.setdefault(tails[column], []).append(column)
    for first in np.nonzero(is_start & (values > _WHOLE))[0].tolist():
        while left[first] > _WHOLE:
            path, amount = [(first, Fraction(1))], float(left[first])
            while not ways.ends[heads[path[-1][0]]]:
                column, factor = path[-1]
                factor *= gain_of(ways, chosen[column])
                columns = onward.get(heads[column], [])
                while columns and left[columns[-1]] <= _WHOLE:
                    columns.pop()
                if not columns:
                    break
                path.append((columns[-1], factor))
                amount = min(amount, float(left[columns[-1]]) / float(factor))
            last = int(chosen[path[-1][0]])
            node, ended = int(ways.nodes[last]), bool(ways.ends[ways.heads[last]])
            if nodes is not None and node >= 0:
                ended &= bool(nodes[node])
            if supplies is not None:
                ended &= bool(supplies[ways.supplies[last]] and supplies[ways.supplies[chosen[first]]])
            step = lcm(*(factor.denominator for _, factor in path))
            whole = int(amount + _WHOLE) // step * step if ended else 0
            for column, factor in path:
                left[column] -= amount * float(factor)
                kept[column] += int(whole * factor)
    return kept
