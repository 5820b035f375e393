"""What nodes cost one more pod of a class after the last plan that had such pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

#: Stands for a node that is closed to the pods (planning/worker/node_prices.py).
_CLOSED = 2**16 - 1


class PlannedPrices(msgspec.Struct, frozen=True, gc=False):
    """See the module.

    Attributes:
        positions: of the nodes, by name.
        least: the lowest price.
        above: for each position, by how much the price is above that.
        tolerance: how much dearer a node may be than the planned one.
        generation: of the cluster, when the plan was asked for.
        arrival: number of the last reservation of the plan.
    """

    positions: Mapping[str, int]
    least: int
    above: Sequence[int]
    tolerance: int
    generation: int
    arrival: int

    def of(self, node: str) -> int | None:
        """The price of a node; None: it is closed to the pods, or the plan did not know it."""
        position = self.positions.get(node)
        above = _CLOSED if position is None else self.above[position]
        return None if above == _CLOSED else self.least + above
