"""Prices on their way from the worker to the ledger: what two bytes for each node keep of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from thalweg_operator.planning.worker.node_prices import to_codes
from thalweg_operator.reservations.steering.records.planned_prices import (
    MOST_STEPS,
    PlannedPrices,
    cheapest_nodes,
    scores_by_node,
)
from thalweg_operator.reservations.steering.shifts import _costs_as_much

from flowcore.planning.round.node_prices import CLOSED, NodePrices
from flowcore.planning.scores import scores_of

#: A node's price, and whether it has room; CLOSED: it is not for the pods.
PRICED_NODE = st.tuples(
    st.one_of(st.just(CLOSED), st.integers(0, 50), st.integers(0, 70_000), st.integers(0, 10**9)), st.booleans()
)


def told(nodes: Sequence[tuple[int, bool]], tolerance: int = 10) -> PlannedPrices:
    """What the ledger keeps of the prices of nodes 0, 1, ..."""
    prices, fits = (np.array(column) for column in zip(*nodes, strict=True))
    base, step, codes = to_codes(NodePrices((), prices, fits & (prices != CLOSED), {}, tolerance))
    positions = {str(position): position for position in range(len(nodes))}
    return PlannedPrices(positions, base, step, array("H", codes), tolerance, generation=1, arrival=0)


@given(st.lists(PRICED_NODE, min_size=1, max_size=30))
@example([(7, True), (7 + MOST_STEPS, True), (6, False)])
@example([(0, True), (MOST_STEPS, True), (MOST_STEPS + 1, False)])
def test_what_two_bytes_keep_of_a_price(nodes: list[tuple[int, bool]]) -> None:
    """Order and equality; the price itself where the prices differ by 32,766 at most, else less than a step more.

    A node without room has no price for a place, as a node has none that is not for the pods.
    """
    prices = told(nodes)
    allowed = [price for price, _ in nodes if price != CLOSED]
    spread = max(allowed, default=0) - min(allowed, default=0)
    assert (prices.step == 1) == (spread <= MOST_STEPS)
    assert prices.step <= 1 + spread / MOST_STEPS
    known: list[tuple[int, int]] = []
    for position, (price, fits) in enumerate(nodes):
        found = prices.of(str(position))
        assert (found is not None) == (fits and price != CLOSED)
        if found is not None:
            assert price <= found < price + prices.step
            known.append((price, found))
    for price, found in known:
        for other, found_other in known:
            assert price >= other or found <= found_other
            assert price != other or found == found_other


@given(st.lists(PRICED_NODE, min_size=1, max_size=100), st.integers(0, 100))
def test_the_cheapest_nodes_are_as_good_as_the_cheapest(nodes: list[tuple[int, bool]], tolerance: int) -> None:
    """The cheapest first, of equal ones the first in the order of the nodes; where prices are exact all of them."""
    prices = told(nodes, tolerance)
    with_room = [(price, position) for position, (price, fits) in enumerate(nodes) if fits and price != CLOSED]
    least = min(with_room, default=(0, 0))[0]
    good = [str(position) for price, position in sorted(with_room) if price <= least + tolerance + prices.step - 1]
    if prices.step == 1:
        assert list(cheapest_nodes(prices)) == good[:64]
    else:
        assert set(cheapest_nodes(prices)) <= set(good)
        assert len(cheapest_nodes(prices)) > 0 or not with_room


@given(st.lists(PRICED_NODE, min_size=1, max_size=30))
def test_scores_are_those_of_the_prices(nodes: list[tuple[int, bool]]) -> None:
    """Of nodes without room too; of nodes that are not for the pods 0. Where prices are rounded, one less at most."""
    prices = told(nodes)
    exact = scores_of(np.array([price for price, _ in nodes]), np.array([price != CLOSED for price, _ in nodes]))
    off = exact - np.array(list(scores_by_node(prices).values()))
    assert ((off == 0) | ((prices.step > 1) & (abs(off) == 1))).all()


@given(
    st.lists(st.integers(0, 2000), min_size=2, max_size=2),
    st.lists(st.integers(0, 2000), min_size=2, max_size=2),
    st.sampled_from([0, 10**5, 10**6, 10**7]),
    st.integers(1, 1000),
)
@example([0, 62], [0, 32], 10**6, 10)
def test_an_exchange_costs_what_is_allowed_at_most(own: list[int], other: list[int], far: int, tolerance: int) -> None:
    """Also where prices are rounded, because a third node is far dearer."""
    prices, others = (told([*((price, True) for price in of), (far, True)], tolerance) for of in (own, other))
    costs = own[1] - own[0] + other[0] - other[1]
    allowed = _costs_as_much("0", prices, "1", others)
    assert costs <= tolerance or not allowed
    if prices.step == others.step == 1:
        assert allowed == (costs <= tolerance)
