"""What of a flow is committed: a flow is a proposal, and the free capacity lets in what truly fits, by every rule."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.methods.supplies import FlowSupply
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.decisions import Commit
from flowcore.planning.problem.placements.plans import Plan


def commit_flow(
    supplies: Sequence[FlowSupply], classes: Int64s, nodes: Int64s, pods: Int64s, capacity: Plan
) -> list[Commit]:
    """Commits what fits: nodes that can take all of their arcs first, then the others arc by arc.

    Args:
        classes, nodes, pods: int64[M], the arcs that the flow uses; ``classes`` indexes ``supplies``.
    """
    demands = [supply.demand for supply in supplies]
    whole = capacity.place_all(demands, classes, nodes, pods)
    arcs = list(zip(classes.tolist(), nodes.tolist(), pods.tolist(), strict=True))
    commits = [
        Commit(supplies[number].index, node, count)
        for (number, node, count), took in zip(arcs, whole, strict=True)
        if took
    ]

    def by_unscheduled_cost(arc: tuple[int, int, int]) -> tuple[float, ...]:
        # Dearest to leave first, among equals the largest.
        supply = supplies[arc[0]]
        return (-float(supply.prices[0]), -supply.demand.dominant_share, *arc)

    rest = sorted((arc for arc, took in zip(arcs, whole, strict=True) if not took), key=by_unscheduled_cost)
    spreading = [arc for arc in rest if demands[arc[0]].constraints.may_unblock]
    for number, node, count in rest:
        taken = 0 if demands[number].constraints.may_unblock else capacity.place(demands[number], node, count)
        if taken:
            commits.append(Commit(supplies[number].index, node, taken))
    commits += [Commit(supplies[number].index, node, 1) for number, node in _place_evenly(spreading, demands, capacity)]
    return commits


def _place_evenly(
    arcs: Sequence[tuple[int, int, int]], demands: Sequence[Demand], capacity: Plan
) -> list[tuple[int, int]]:
    """Commits arcs of demands that spread, the emptiest domains first: no domain gets far ahead of the others."""
    heights: dict[tuple[int, int], int] = {}
    pods = []
    for number, node, count in arcs:
        spread = demands[number].constraints.spreads[0]
        domain = int(spread.counter.domains.codes[node])
        height = heights.get((number, domain), int(capacity.domain_counts.of(spread.counter)[domain]))
        pods += [(height + more, number, node) for more in range(count)]
        heights[number, domain] = height + count
    # Another spread constraint may let a pod in only later.
    waiting, placed = sorted(pods), []
    while waiting:
        left = []
        for height, number, node in waiting:
            if capacity.place(demands[number], node, 1):
                placed.append((number, node))
            else:
                left.append((height, number, node))
        if len(left) == len(waiting):
            break
        waiting = left
    return placed
