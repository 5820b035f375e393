"""What nodes cost one more pod of a class after the last plan that had such pods, and which cost least."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from flowcore.cluster.cluster import Cluster
from thalweg_operator.reservations.ledger.records.arrivals import Arrivals

#: Stands for a price above all others, and for a node that is closed to the pods.
NO_PRICE = 2**16 - 1


class PlannedPrices(msgspec.Struct, frozen=True, gc=False):
    """Prices of nodes for one more pod of a class, as of the last plan with such pods.

    Attributes:
        positions: of the nodes, by name.
        least: the lowest price.
        above: for each position, by how much the price is above that.
        tolerance: how much dearer a node may be than the planned one.
        generation: of the cluster, when the plan was asked for.
        arrival: number of all that the plan places. What came to a node since the plan was asked for has a higher one.
        made: when the plan was made, by the monotonic clock.
    """

    positions: Mapping[str, int]
    least: int
    above: Sequence[int]
    tolerance: int
    generation: int
    arrival: int
    made: float = 0.0

    def of(self, node: str) -> int | None:
        """The price of a node; None: it is closed to the pods, or the plan did not know it."""
        position = self.positions.get(node)
        above = NO_PRICE if position is None else self.above[position]
        return None if above == NO_PRICE else self.least + above


class CheapestNodes(msgspec.Struct, frozen=True, gc=False):
    """The nodes that cost one more pod least, all about the same.

    Attributes:
        nodes: the cheapest first.
        generation, arrival, made: as of PlannedPrices.
    """

    nodes: Sequence[str]
    generation: int
    arrival: int
    made: float

    def left(self, cluster: Cluster, arrivals: Arrivals) -> Iterator[str]:
        """The nodes that have not changed, and to which no pod came since."""
        for node in self.nodes:
            if not arrivals.any_since(node, self.arrival) and not cluster.node_changed_since(node, self.generation):
                yield node
