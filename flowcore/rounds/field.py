"""Where all demands of a round stand as it begins: how many pods each node has room for, at which cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.costs.model import Float64s
from flowcore.model.snapshot import Bools, Int64s
from flowcore.rounds.demands import Demand
from flowcore.rounds.room import Room


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """Demands and nodes as matrices. Nothing here changes while a round is planned.

    Attributes:
        counts: int64[C, N], how many pods of each demand each node has room for, alone; rules between pods left aside.
        opening: float64[C, N], what a first pod would pay there, infinite where it does not fit.
        room: when the round begins.
    """

    demands: Sequence[Demand]
    counts: Int64s
    opening: Float64s
    room: Room

    @classmethod
    def of(cls, demands: Sequence[Demand], room: Room) -> Field:
        """For the room that the round begins with; it must not be changed any more."""
        nodes = len(room.free)
        counts = np.zeros((len(demands), nodes), dtype=np.int64)
        opening = np.full((len(demands), nodes), np.inf)
        for at, demand in enumerate(demands):
            counts[at] = demand.counts
            np.copyto(opening[at], demand.arc + demand.first_slot, where=demand.counts > 0)
        return cls(demands, counts, opening, room)

    @property
    def placeable(self) -> Bools:
        """bool[C]: demands that some node has room for."""
        return np.asarray(self.counts.max(axis=1, initial=0) > 0, dtype=np.bool_)
