"""What arcs say of units, said of pods: a unit may be several pods, or a part of one."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, floor

from flowcore.model.networks import NetworkArc, Segment


def most_pods(arc: NetworkArc, size: Fraction) -> int | None:
    """How many pods may pass an arc; None: any number.

    Args:
        size: how many pods a unit is.
    """
    return None if arc.maximum is None else floor(arc.maximum * size)


def least_pods(arc: NetworkArc, size: Fraction) -> int:
    """How many pods must pass an arc."""
    return ceil(arc.minimum * size)


def pod_segments(arc: NetworkArc, size: Fraction) -> tuple[Segment, ...]:
    """What pods pay that enter an arc one after the other, rounded down: for their units, or their part of one."""
    segments = arc.cost.segments
    if size == 1 and len({each.cost for each in segments}) == len(segments):
        return segments
    ends = [each.up_to for each in segments if each.up_to is not None]
    whole = (end - begin for begin, end in pairwise((0, *ends)))
    paid = [0, *accumulate(count * each.cost for count, each in zip(whole, segments, strict=False))]

    def cost_of(pods: int) -> Fraction:
        units = pods / size
        place = bisect_left(ends, units)
        return paid[place] + (units - (0, *ends)[place]) * segments[place].cost

    # A pod whose units are on both sides of an end has a price of its own.
    counts = sorted({each(end * size) for end in ends for each in (floor, ceil)} - {0})
    priced = list[Segment]()
    for begin, end in pairwise((0, *counts)):
        cost = floor((cost_of(end) - cost_of(begin)) / (end - begin))
        if priced and priced[-1].cost == cost:
            priced.pop()
        priced.append(Segment(cost, end))
    last = floor(segments[-1].cost / size)
    if priced and priced[-1].cost == last:
        priced.pop()
    return (*priced, Segment(last))
