"""What nodes cost one more pod of a class after the last plan that had such pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf

import msgspec
import numpy as np
from numpy.typing import NDArray

from flowcore.planning.scores import scores_of

#: The code of a node that the pods may not use.
NOT_ALLOWED = 2**16 - 1
#: Codes from this one on are those of nodes that have no room for one more.
NO_ROOM = 2**15
#: The highest code of a node with room.
MOST_STEPS = 2**15 - 2
#: Cheapest nodes of a class that are kept: as many pods may come alone until the next round prices it.
_MOST_CHEAPEST = 64


class PlannedPrices(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Prices of nodes for one more pod of a class, as of the last plan with such pods.

    Attributes:
        positions: of the nodes, by name, in their order.
        base: the lowest price of a node that the pods may use.
        step: codes are in such steps above that.
        codes: uint16 of each position: steps above the base, NO_ROOM and steps above the base, or NOT_ALLOWED.
        tolerance: how much dearer a node may be than the planned one.
        generation: of the cluster, when the plan was asked for.
        arrival: number of all that the plan places. What came to a node since the plan was asked for has a higher one.
        made: when the plan was made, by the monotonic clock.
        helped: the ledger's number of steps that may have helped pods, when the plan was asked for.
    """

    positions: Mapping[str, int]
    base: int
    step: int
    codes: Sequence[int]
    tolerance: int
    generation: int
    arrival: int
    made: float = 0.0
    helped: int = 0

    def of(self, node: str) -> int | None:
        """The price of a node; None: it has no room for these pods, or the plan did not know it."""
        position = self.positions.get(node)
        code = NOT_ALLOWED if position is None else self.codes[position]
        return None if code >= NO_ROOM else self.base + self.step * code

    def of_all(self, nodes: Sequence[str]) -> list[float]:
        """The price of each node; infinite: it has no room for these pods, or the plan did not know it."""
        base, step, codes, position_of = self.base, self.step, self.codes, self.positions.get
        places = [position_of(node) for node in nodes]
        node_codes = [NOT_ALLOWED if place is None else codes[place] for place in places]
        return [base + step * code if code < NO_ROOM else inf for code in node_codes]

    @property
    def rounded(self) -> int:
        """How much lower the exact price of a node may be."""
        return self.step - 1

    @property
    def dearest(self) -> int | None:
        """The most that a node may cost which is as good as the cheapest one with room; None: no node has room."""
        codes = codes_of(self)
        least = int(codes.min(initial=NOT_ALLOWED))
        return None if least >= NO_ROOM else self.base + self.step * least + self.tolerance


@lru_cache(maxsize=16)
def cheapest_nodes(prices: PlannedPrices) -> Sequence[str]:
    """The nodes with room that are as good as the cheapest one, the cheapest first."""
    dearest, codes = prices.dearest, codes_of(prices)
    if dearest is None:
        return ()
    good = np.flatnonzero(codes <= min((dearest - prices.base) // prices.step, MOST_STEPS))
    names = list(prices.positions)
    return [names[place] for place in good[np.argsort(codes[good], kind="stable")[:_MOST_CHEAPEST]].tolist()]


@lru_cache(maxsize=16)
def has_full_nodes(prices: PlannedPrices) -> bool:
    """Whether the plan left no room for one more pod on a node that the pods may use."""
    codes = codes_of(prices)
    return bool(np.any((codes >= NO_ROOM) & (codes != NOT_ALLOWED)))


@lru_cache(maxsize=16)
def scores_by_node(prices: PlannedPrices) -> Mapping[str, int]:
    """What kube-scheduler is told of each node, 0 to 10, also of those without room: some may have come free."""
    codes = codes_of(prices).astype(np.int64)
    allowed = codes != NOT_ALLOWED
    scores = scores_of(codes & (NO_ROOM - 1), allowed)
    return dict(zip(prices.positions, scores.tolist(), strict=True))


def codes_of(prices: PlannedPrices) -> NDArray[np.uint16]:
    """uint16 of each position: the codes."""
    return np.asarray(prices.codes, dtype=np.uint16)
