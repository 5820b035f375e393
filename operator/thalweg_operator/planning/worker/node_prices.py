"""Prices of nodes on their way from the worker to the operator: two bytes for each node and class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from flowcore.model.nodes import Node
from flowcore.planning.node_prices import CLOSED, NodePrices
from thalweg_operator.planning.worker.messages import NodePricesEntry, RoundRequest

#: Stands for a price above all others, and for a node that is closed to the pods.
_NONE = 2**16 - 1
#: Bytes of all prices of a reply. The largest numbers of alike pods come first; pods beyond that are nominated.
_MAX_BYTES = 2**21


def encode_names(nodes: Iterable[Node]) -> bytes:
    """Names of nodes, in their order."""
    return msgspec.msgpack.encode([node.name for node in nodes])


def encode_prices(
    request: RoundRequest, position_by_key: Mapping[str, int], priced: Iterable[NodePrices]
) -> Iterator[NodePricesEntry]:
    """Prices of each class; pods of several classes may share them."""
    size = 0
    for each in priced:
        size += 2 * len(each.prices)
        if size > _MAX_BYTES:
            return
        open_nodes = each.prices != CLOSED
        least = int(each.prices[open_nodes].min()) if open_nodes.any() else 0
        above = np.where(open_nodes, np.minimum(each.prices - least, _NONE), _NONE).astype("<u2").tobytes()
        first = {request.pending[place].pod_class: place for place in (position_by_key[pod.key] for pod in each.pods)}
        for place in first.values():
            yield NodePricesEntry(place, least, above, each.tolerance)
