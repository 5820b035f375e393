"""The whole part of a flow in fractions: a flow itself, through arcs with gains too."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.declared_networks.programs.ways import Float64s, Ways, gain_of

#: A flow that is so near to a whole number from below is taken for it.
_WHOLE = 1e-6


def whole_part(ways: Ways, chosen: Int64s, values: Float64s) -> Float64s:
    """float64[K]: whole numbers, none above its value, that keep what comes to each state equal to what goes.

    The flow is taken apart into paths, and of each path as much is kept as is whole on all of its ways.

    Args:
        chosen: int64[K], ways.
        values: float64[K], a flow on these.
    """
    left, kept = values.copy(), np.zeros(len(values))
    tails, heads = ways.tails[chosen].tolist(), ways.heads[chosen].tolist()
    is_start = np.isin(ways.tails[chosen], ways.starts)
    onward: dict[int, list[int]] = {}
    for column in np.nonzero(values > _WHOLE)[0].tolist():
        onward.setdefault(tails[column], []).append(column)
    gains = [gain_of(ways, way) for way in chosen.tolist()]
    for first in np.nonzero(is_start & (values > _WHOLE))[0].tolist():
        while left[first] > _WHOLE:
            path, amount = [(first, Fraction(1))], float(left[first])
            while not ways.ends[heads[path[-1][0]]]:
                column, factor = path[-1]
                factor *= gains[column]
                columns = onward.get(heads[column], [])
                while columns and left[columns[-1]] <= _WHOLE:
                    columns.pop()
                if not columns:
                    break
                path.append((columns[-1], factor))
                amount = min(amount, float(left[columns[-1]]) / float(factor))
            ended = bool(ways.ends[heads[path[-1][0]]])
            step = int(np.lcm.reduce([factor.denominator for _, factor in path]))
            whole = int((amount + _WHOLE) // step) * step if ended else 0
            for column, factor in path:
                left[column] -= amount * float(factor)
                kept[column] += int(whole * factor)
    return kept
