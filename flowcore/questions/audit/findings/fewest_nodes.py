"""How few nodes hold the pods that run: prices of room that say how many nodes no plan empties.

An empty node is a pod that asks for all room of one. So they come from the round in fractions, in which such pods want
to come and all that run stay. What it says is worth something only through the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.costs.model import Float64s
from flowcore.planning.methods.pod_kinds import PodKind
from flowcore.planning.methods.pooled_room import PooledRoom
from flowcore.planning.methods.relaxation import RoundInFractions
from flowcore.questions.audit.counted_room import CountedRoom, RoomPrices

#: A pod that is left counts for so many nodes: kinds that are one may ask for more than there is.
_LEFT = 10


@dataclass(frozen=True, eq=False)
class FewestNodes:
    """What the program says.

    Attributes:
        in_use: float64[S], how many nodes of each pool of the prices are in use.
    """

    prices: RoomPrices
    in_use: Float64s


def fewest_nodes(room: CountedRoom, may_be_empty: Bools) -> FewestNodes | None:
    """Solves the program; None: nobody needs a node, or the solver found nothing.

    Args:
        may_be_empty: bool[N], nodes without pods that stay; others are in use whatever the plan.
    """
    pooled = PooledRoom.of(room.staying, room.room, may_be_empty)
    if pooled is None:
        return None
    states = pooled.program.states
    free = np.unique(states.of[may_be_empty & (states.of >= 0)])
    nodes = states.sizes[free].astype(np.int64)
    whole = [
        PodKind.of_room(
            len(room.staying) + place, pooled.room[pool] / size, size, states.of == pool, 1 * (states.of == pool)
        )
        for place, (pool, size) in enumerate(zip(free.tolist(), nodes.tolist(), strict=True))
    ]
    program = RoundInFractions.of([*pooled.program.kinds, *whole], states, room.room)
    staying = [np.full(int(kind.pods), _LEFT) for kind in room.staying]
    solved = program.solve([*staying, *(np.full(count, 1) for count in nodes)])
    if solved is None:
        return None
    in_use = states.sizes.copy()
    in_use[free] -= solved.placed[len(pooled.program.kinds) :].sum(axis=1)
    return FewestNodes(RoomPrices.of(states.of, solved.prices), in_use)
