"""Prices of nodes on their way from the worker to the operator: two bytes for each node and class.

A price is exact where the prices of a class differ by less than 32 whole nodes, as almost all do. Otherwise it is
rounded up by less than 1/32,766 of the largest difference. So no order is reversed, equal prices stay equal, the least
one is exact, and no node looks cheaper than it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from flowcore.model.nodes import Node
from flowcore.planning.round.node_prices import CLOSED, NodePrices
from thalweg_operator.planning.worker.messages import NodePricesEntry, RoundRequest
from thalweg_operator.reservations.steering.records.planned_prices import MOST_STEPS, NO_ROOM, NOT_ALLOWED

#: Bytes of all prices of a reply. The largest numbers of alike pods come first; pods beyond that are nominated.
_MAX_BYTES = 2**21


def first_prices(priced: Iterable[NodePrices]) -> Iterator[NodePrices]:
    """The first prices, as many as are sent; none where there is no node."""
    size = 0
    for entry in priced:
        size += 2 * len(entry.prices)
        if not size or size > _MAX_BYTES:
            return
        yield entry


def savings_by_pod(priced: Iterable[NodePrices], nodes: Sequence[Node]) -> dict[str, dict[str, int]]:
    """For each pod by key, and there for each node by name: by how much the cost falls if it leaves the node."""
    savings: dict[str, dict[str, int]] = {}
    for entry in priced:
        by_node = {nodes[row].name: saving for row, saving in entry.savings.items()}
        savings.update((pod.key, by_node) for pod in entry.pods)
    return savings


def encode_prices(
    request: RoundRequest, position_by_key: Mapping[str, int], priced: Iterable[NodePrices]
) -> Iterator[NodePricesEntry]:
    """Prices of each class; pods of several classes may share them."""
    for entry in priced:
        least, step, codes = to_codes(entry)
        # One pod of each class.
        places = (position_by_key[pod.key] for pod in entry.pods)
        for place in {request.pending[place].pod_class: place for place in places}.values():
            yield NodePricesEntry(place, least, step, codes, entry.tolerance)


def to_codes(priced: NodePrices) -> tuple[int, int, bytes]:
    """The least price, the step, and a code for each node: see ``NodePricesEntry``."""
    allowed = priced.prices != CLOSED
    known = priced.prices[allowed]
    if not len(known):
        return 0, 1, np.full(len(allowed), NOT_ALLOWED, dtype="<u2").tobytes()
    least, dearest = int(known.min()), int(known.max())
    step = max(1, -((least - dearest) // MOST_STEPS))
    steps = priced.prices - least
    if step > 1:
        steps = -(-steps // step)
    codes = np.where(allowed, np.where(priced.open, steps, NO_ROOM + steps), NOT_ALLOWED)
    return least, step, codes.astype("<u2").tobytes()
