"""The placement of pods as a linear program: pods of each class at each place, and the others at their price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import Float64s
from flowcore.planning.solvers import LinearProgram


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Classes and places that fit, what a pod of the class pays there, and how many pods may go there at most."""

    classes: Int64s
    places: Int64s
    costs: Float64s
    max_pods: Float64s


def price_runs(prices: Int64s, steps: int) -> list[Float64s]:
    """Prices in at most ``steps`` runs, in their order; a program uses the mean of each run."""
    return np.array_split(prices.astype(np.float64), min(steps, len(prices))) if len(prices) else []


def pods_per_run(runs: Sequence[Float64s], pending: int) -> list[float]:
    """How many pods of each run stay pending if ``pending`` of all do: the cheapest first, which come last."""
    pods: list[float] = []
    for run in reversed(runs):
        pods.append(float(min(pending, len(run))))
        pending -= int(pods[-1])
    return pods[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class AtomicBundles:
    """Pods of several classes that are placed or left pending together.

    Attributes:
        counts: float64[U, C], pods of each class.
        prices: float64[U], what leaving a bundle pending costs.
    """

    counts: Float64s
    prices: Float64s


def assignment_program(
    pairs: Pairs,
    requests: Float64s,
    capacity: Float64s,
    prices: Sequence[Sequence[Float64s]],
    bundles: AtomicBundles | None = None,
    extra: Float64s | None = None,
) -> LinearProgram:
    """Columns: pairs, the runs of prices of each class, bundles. Rows: classes, the resources of each place.

    Args:
        requests: float64[C, R], what a pod of each class asks for.
        capacity: float64[G, R], what each place has.
        prices: for each class the runs of its pods that are in no bundle.
        bundles: their columns are 1 if they are left pending.
        extra: float64[C], further pods of each class that must be placed; negative: minus the number placed already.
    """
    owner = np.repeat(np.arange(len(prices)), [len(runs) for runs in prices])
    price = np.array([run.mean() for runs in prices for run in runs])
    width = np.array([len(run) for runs in prices for run in runs], dtype=np.float64)
    supply = np.array([sum(map(len, runs)) for runs in prices], dtype=np.float64)
    if bundles is None:
        bundles = AtomicBundles(np.zeros((0, len(prices))), np.zeros(0))
    supply = supply + bundles.counts.sum(axis=0)
    if extra is not None:
        supply = supply + extra
    bundle, bundled = np.nonzero(bundles.counts)
    count, resources = len(pairs.classes), capacity.shape[1]
    pair, resource = np.nonzero(requests[pairs.classes] > 0)
    columns = [np.arange(count), count + np.arange(len(owner)), count + len(owner) + bundle, pair]
    rows = [pairs.classes, owner, bundled, len(prices) + pairs.places[pair] * resources + resource]
    ones = np.ones(count + len(owner))
    return LinearProgram(
        costs=np.concatenate([pairs.costs, price, bundles.prices]),
        variable_upper=np.concatenate([pairs.max_pods, width, np.ones(len(bundles.prices))]),
        row_lower=np.concatenate([supply, np.full(capacity.size, -np.inf)]),
        row_upper=np.concatenate([supply, capacity.ravel()]),
        rows=np.concatenate(rows),
        columns=np.concatenate(columns),
        coefficients=np.concatenate([ones, bundles.counts[bundle, bundled], requests[pairs.classes[pair], resource]]),
    )
