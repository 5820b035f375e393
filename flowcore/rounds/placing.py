"""Placing pods as a linear program: of each class so many to each place, or left at their price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Int64s
from flowcore.solve import LinearProgram


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Classes and places that go together, with what a pod of the class pays there and how many may go at most."""

    classes: Int64s
    places: Int64s
    costs: Float64s
    most: Float64s


def merged(prices: Int64s, steps: int) -> list[Float64s]:
    """Prices in at most so many runs, in their order; a program takes the mean of each."""
    return np.array_split(prices.astype(np.float64), min(steps, len(prices)))


def placing_program(
    pairs: Pairs, wanted: Float64s, room: Float64s, prices: Sequence[Sequence[Float64s]]
) -> LinearProgram:
    """Columns: a pair each, then each run of prices of each class. Rows: a class each, then a place's resources each.

    Args:
        wanted: float64[C, R], what a pod of each class asks for.
        room: float64[G, R], what each place has.
        prices: of each class's pods, in runs.
    """
    owner = np.repeat(np.arange(len(prices)), [len(runs) for runs in prices])
    price = np.array([run.mean() for runs in prices for run in runs])
    width = np.array([len(run) for runs in prices for run in runs], dtype=np.float64)
    supply = np.array([sum(map(len, runs)) for runs in prices], dtype=np.float64)
    count, resources = len(pairs.classes), room.shape[1]
    pair, resource = np.nonzero(wanted[pairs.classes] > 0)
    return LinearProgram(
        costs=np.concatenate([pairs.costs, price]),
        most=np.concatenate([pairs.most, width]),
        lower=np.concatenate([supply, np.full(room.size, -np.inf)]),
        upper=np.concatenate([supply, room.ravel()]),
        rows=np.concatenate([pairs.classes, owner, len(prices) + pairs.places[pair] * resources + resource]),
        columns=np.concatenate([np.arange(count), count + np.arange(len(owner)), pair]),
        coefficients=np.concatenate([np.ones(count + len(owner)), wanted[pairs.classes[pair], resource]]),
    )
