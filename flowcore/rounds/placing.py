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
    return np.array_split(prices.astype(np.float64), min(steps, len(prices))) if len(prices) else []


@dataclass(frozen=True, slots=True, eq=False)
class Bundles:
    """Pods of several classes that are left only together.

    Attributes:
        counts: float64[U, C], pods of each class.
        prices: float64[U], what leaving them costs.
    """

    counts: Float64s
    prices: Float64s


def placing_program(
    pairs: Pairs,
    wanted: Float64s,
    room: Float64s,
    prices: Sequence[Sequence[Float64s]],
    bundles: Bundles | None = None,
    more: Float64s | None = None,
) -> LinearProgram:
    """Columns: a pair each, each class's runs of prices, a bundle each. Rows: a class each, a place's resources each.

    Args:
        wanted: float64[C, R], what a pod of each class asks for.
        room: float64[G, R], what each place has.
        prices: of each class's pods that are in no bundle, in runs.
        bundles: pods that are placed or left together; 1 where they are left.
        more: float64[C], further pods of each class that must be placed; below zero: so many are placed already.
    """
    owner = np.repeat(np.arange(len(prices)), [len(runs) for runs in prices])
    price = np.array([run.mean() for runs in prices for run in runs])
    width = np.array([len(run) for runs in prices for run in runs], dtype=np.float64)
    supply = np.array([sum(map(len, runs)) for runs in prices], dtype=np.float64)
    if bundles is None:
        bundles = Bundles(np.zeros((0, len(prices))), np.zeros(0))
    supply = supply + bundles.counts.sum(axis=0)
    if more is not None:
        supply = supply + more
    bundle, bundled = np.nonzero(bundles.counts)
    count, resources = len(pairs.classes), room.shape[1]
    pair, resource = np.nonzero(wanted[pairs.classes] > 0)
    columns = [np.arange(count), count + np.arange(len(owner)), count + len(owner) + bundle, pair]
    rows = [pairs.classes, owner, bundled, len(prices) + pairs.places[pair] * resources + resource]
    ones = np.ones(count + len(owner))
    return LinearProgram(
        costs=np.concatenate([pairs.costs, price, bundles.prices]),
        most=np.concatenate([pairs.most, width, np.ones(len(bundles.prices))]),
        lower=np.concatenate([supply, np.full(room.size, -np.inf)]),
        upper=np.concatenate([supply, room.ravel()]),
        rows=np.concatenate(rows),
        columns=np.concatenate(columns),
        coefficients=np.concatenate([ones, bundles.counts[bundle, bundled], wanted[pairs.classes[pair], resource]]),
    )
