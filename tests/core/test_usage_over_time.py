"""Measured load over many rounds, where the true use of pods is known: it is spread better than by requests."""

from __future__ import annotations

import functools

import pytest
from support.model import GI, node, pod
from support.simulated_use import Row, simulate

from flowcore.model.cost_policy import Utilisation

_SEEDS = (1, pytest.param(2, marks=pytest.mark.slow))


@functools.cache
def _row(utilisation: Utilisation, seed: int, *, samples_alone: bool = False) -> Row:
    """300 pods of twelve sizes in 50 rounds, on 16 nodes; about 90 run at a time."""
    nodes = [node(f"n{at:02}", 32_000, 128 * GI) for at in range(16)]
    sizes = range(1000, 7000, 500)
    pods = [pod(f"p{at}", sizes[at % len(sizes)], GI) for at in range(300)]
    return simulate(pods, nodes, utilisation, arrivals=6, ticks=15.0, seed=seed, samples_alone=samples_alone)


@pytest.mark.parametrize("seed", _SEEDS)
def test_the_busiest_node_is_less_busy(seed: int) -> None:
    """In the mean over the rounds, with the same pods that use the same; and all of them are placed, as by requests."""
    by_requests, by_use = (_row(each, seed) for each in (Utilisation.REQUESTED, Utilisation.MEASURED))
    assert by_use.busiest < by_requests.busiest
    assert by_use.placed == by_requests.placed == 300


@pytest.mark.parametrize("seed", _SEEDS)
def test_samples_alone_do_not_do(seed: int) -> None:
    """Without what is foreseen, and pods that no sample contains yet, an idle node gets one pod after the other."""
    alone = _row(Utilisation.MEASURED, seed, samples_alone=True)
    assert alone.busiest > 1.05 * _row(Utilisation.MEASURED, seed).busiest
