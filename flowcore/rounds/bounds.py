"""What no plan of a round can beat, computed by our own code from the demands and the room alone.

A Lagrangian relaxation (Ahuja, Magnanti, Orlin, Network Flows, chapter 16): from any prices for slots and resources,
whichever solver they came from, a lower bound follows. Good prices make it tight, bad ones only weak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s, Load
from flowcore.model.snapshot import Int64s
from flowcore.rounds.demands import Demand
from flowcore.rounds.field import Field
from flowcore.rounds.gangs.units import Unit

#: Slots of a node that are looked at in one go.
_DEPTH = 8


def lower_bound(
    field: Field, *, tolls: Float64s | None = None, worth: Int64s | None = None, units: Sequence[Unit] = ()
) -> int:
    """A cost that no plan of the round goes below, whatever is passed.

    Each pod pays at least the cheaper of its price and of its cheapest node, where a node costs its arc, its worth and
    tolls on what is taken. What that overcharges is at most the tolls on everything that is free, and the worth of each
    slot less the least that a pod can pay for it.

    Args:
        tolls: float64[N, R], not negative; none if not given.
        worth: int64[N], what a slot of each node is taken to cost; the least possible if not given.
        units: pods that are placed together or not at all; without them the bound holds too, and is weaker.
    """
    demands = field.demands
    bounds = _Bounds.of(demands)
    floors = bounds.floors(field.room.load(), np.zeros(1, dtype=np.int64))[:, 0]
    slots = floors if worth is None else np.maximum(worth, floors)
    total = 0.0
    paid = np.full(len(demands), np.inf)
    for at, demand in enumerate(demands):
        cost = (demand.arc + slots).astype(np.float64)
        if tolls is not None:
            asked = demand.wanted > 0
            cost += tolls[:, asked] @ demand.wanted[asked]
        cheapest = cost.min(where=field.counts[at] > 0, initial=np.inf)
        paid[at] = cheapest
        total += float(np.minimum(demand.prices, cheapest).sum())
    total += sum(_more_of_unit(unit, demands, paid) for unit in units)
    over = 0.0
    if tolls is not None:
        over += float((tolls * np.maximum(field.room.free, 0)).sum())
    if worth is not None:
        over += _overcharged(field, bounds, slots, np.nonzero(slots > floors)[0])
    # Sums of floats are off by less than one in 10^12 of what was added up.
    return int(np.floor(total - over - 1e-11 * (abs(total) + over) + 1e-6))


def _more_of_unit(unit: Unit, demands: Sequence[Demand], paid: Float64s) -> float:
    """What a unit's pods pay at least beyond what each would by itself: all are left, or enough of each gang placed.

    Args:
        paid: float64[C], what a placed pod of each demand pays at least.
    """
    places = {(at, place) for members in unit.members for at, found in members.items() for place in found}
    alone = sum(min(float(demands[at].prices[place]), float(paid[at])) for at, place in places)
    left = sum(float(demands[at].prices[place]) for at, place in places)
    if unit.flaw:
        return left - alone
    forced = 0.0
    for gang, members in zip(unit.gangs, unit.members, strict=True):
        dearer = sorted(
            max(float(paid[at]) - float(demands[at].prices[place]), 0.0)
            for at, found in members.items()
            for place in found
        )
        # Pods that several gangs share are forced once: of gangs the one that forces most counts.
        forced = max(forced, sum(dearer[: max(0, gang.least)]))
    return min(left - alone, forced)


@dataclass(frozen=True, slots=True, eq=False)
class _Bounds:
    """What a pod counts for and asks for at least and at most: float64[3], float64[3], int64[R]."""

    demands: Sequence[Demand]
    smallest: Float64s
    largest: Float64s
    wanted: Int64s

    @classmethod
    def of(cls, demands: Sequence[Demand]) -> _Bounds:
        sizes = np.array([demand.size for demand in demands])
        wanted = np.array([demand.wanted for demand in demands], dtype=np.int64)
        return cls(demands, sizes.min(axis=0), sizes.max(axis=0), wanted.min(axis=0))

    def floors(self, load: Load, levels: Int64s, *, rising: bool = False) -> Int64s:
        """int64[N, K]: the least that any pod pays for slots, by the models of all policies in play.

        Args:
            rising: a lower floor that never falls along K.
        """
        shape = load.taken.shape
        smallest = np.broadcast_to(self.smallest, shape)
        largest = np.broadcast_to(self.largest if not rising else np.full(shape[1], np.inf), shape)
        pricing = {(demand.model.name, demand.policy.weights): demand for demand in self.demands}
        found: Int64s = np.minimum.reduce(
            [
                demand.model.slot_floors(load, smallest, largest, levels, demand.policy.weights)
                for demand in pricing.values()
            ]
        )
        return found


def _overcharged(field: Field, bounds: _Bounds, slots: Int64s, dear: Int64s) -> float:
    """The worth of the slots of these nodes less what pods pay for them at least, where that is positive."""
    asked = bounds.wanted > 0
    free = np.maximum(field.room.free[np.ix_(dear, asked)], 0)
    most = np.minimum((free // bounds.wanted[asked]).min(axis=1), sum(demand.count for demand in bounds.demands))
    over, depth = 0.0, 0
    while len(dear):
        # Where even a floor that only rises is above what a slot is worth, deeper ones bring nothing.
        deeper = bounds.floors(field.room.load_at(dear), np.array([depth], dtype=np.int64), rising=True)[:, 0]
        going = (most > depth) & (deeper < slots[dear])
        dear, most = dear[going], most[going]
        levels = np.arange(depth, depth + _DEPTH, dtype=np.int64)
        floors = bounds.floors(field.room.load_at(dear), levels)
        gain = np.where(levels < most[:, np.newaxis], np.maximum(slots[dear, np.newaxis] - floors, 0), 0)
        over += float(gain.sum())
        depth += _DEPTH
    return over
