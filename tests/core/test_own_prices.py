"""Prices of single nodes from those of their states: a bound from prices of classes is never worse by them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.costs.model import Float64s
from flowcore.planning.methods.own_prices import own_prices


def _lost(prices: Float64s, requests: Float64s, worth: Float64s, most: Float64s, spare: Float64s) -> Float64s:
    """float64[M]: the price of a node's room, and what its pods are worth beyond what they pay."""
    gained = np.maximum(worth - requests @ prices.T, 0) * most
    lost: Float64s = gained.sum(axis=0) + (prices * spare).sum(axis=1)
    return lost


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 5))
def test_no_node_loses_by_its_own_prices(seed: int, nodes: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    prices = random.random((nodes, 3)) * random.integers(0, 2, (nodes, 3)) * 1e3
    requests = random.integers(0, 5, (classes, 3)).astype(np.float64)
    worth, most = random.random((classes, nodes)) * 1e4 - 1e3, random.integers(0, 4, (classes, nodes))
    spare = random.integers(0, 20, (nodes, 3))
    before, own = prices.copy(), own_prices(prices, requests, worth, most, spare)
    assert (prices == before).all()
    assert (own >= 0).all()
    given_up = _lost(prices, requests, worth, most, spare)
    assert (_lost(own, requests, worth, most, spare) <= given_up * (1 + 1e-4) + 1.0).all()


def test_room_that_no_pod_can_pay_for_gets_cheap() -> None:
    """One node has room for one pod and a half, another for two: the half of the first is worth nothing."""
    prices, requests = np.full((2, 1), 100.0), np.array([[2.0]])
    worth, most, spare = np.full((1, 2), 200.0), np.array([[1, 2]]), np.array([[3], [4]])
    own = own_prices(prices, requests, worth, most, spare)
    assert own[0, 0] == 0.0
    lost = _lost(own, requests, worth, most, spare)
    assert lost[0] == 200.0
    assert lost[1] == 400.0
