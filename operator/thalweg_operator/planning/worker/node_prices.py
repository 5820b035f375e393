"""Scores and prices of nodes on their way from the worker to the operator.

A price takes two bytes for each node and class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod
from flowcore.model.nodes import Node
from flowcore.planning.round.node_prices import CLOSED, NodePrices
from thalweg_operator.planning.worker.messages import NodePricesEntry, RoundRequest
from thalweg_operator.reservations.steering.records.planned_prices import NO_PRICE

#: Bytes of all prices of a reply. The largest numbers of alike pods come first; pods beyond that are nominated.
_MAX_BYTES = 2**21
#: Cheapest nodes of a class. So many pods may come alone until a round looks anew.
_MOST_CHEAPEST = 64


def encode_names(nodes: Iterable[Node]) -> bytes:
    """Names of nodes, in their order."""
    return msgspec.msgpack.encode([node.name for node in nodes])


def encode_scores(
    request: RoundRequest,
    position_by_key: Mapping[str, int],
    scored: Iterable[tuple[Sequence[PendingPod], Int64s]],
    nodes: Sequence[Node],
) -> Iterator[tuple[int, bytes]]:
    """Position of a pod, and the scores of the nodes by name for its class."""
    for pods, scores in scored:
        encoded = msgspec.msgpack.encode({node.name: score for node, score in zip(nodes, scores.tolist(), strict=True)})
        yield from ((place, encoded) for place in _one_of_each_class(request, position_by_key, pods))


def first_prices(priced: Iterable[NodePrices]) -> Iterator[NodePrices]:
    """The first prices, as many as are sent."""
    size = 0
    for entry in priced:
        size += 2 * len(entry.prices)
        if size > _MAX_BYTES:
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
        open_nodes = entry.prices != CLOSED
        least = int(entry.prices[open_nodes].min()) if open_nodes.any() else 0
        above = np.where(open_nodes, np.minimum(entry.prices - least, NO_PRICE), NO_PRICE).astype("<u2").tobytes()
        for place in _one_of_each_class(request, position_by_key, entry.pods):
            yield NodePricesEntry(place, least, above, entry.tolerance)


def encode_cheapest(
    request: RoundRequest, position_by_key: Mapping[str, int], priced: Iterable[NodePrices], nodes: Sequence[Node]
) -> Iterator[tuple[int, list[str]]]:
    """One pod of each class, and the nodes that cost one more of them about as little as the cheapest node."""
    for entry in priced:
        open_nodes = np.flatnonzero(entry.prices != CLOSED)
        if not entry.tolerance or not len(open_nodes):
            continue
        prices = entry.prices[open_nodes]
        cheap = open_nodes[prices <= prices.min() + entry.tolerance]
        cheap = cheap[np.argsort(entry.prices[cheap], kind="stable")[:_MOST_CHEAPEST]]
        names = [nodes[row].name for row in cheap.tolist()]
        yield from ((place, names) for place in _one_of_each_class(request, position_by_key, entry.pods))


def _one_of_each_class(
    request: RoundRequest, position_by_key: Mapping[str, int], pods: Iterable[PendingPod]
) -> Iterable[int]:
    """Positions of pods: one of each class. Pods of several classes may share one demand."""
    places = (position_by_key[pod.key] for pod in pods)
    return {request.pending[place].pod_class: place for place in places}.values()
