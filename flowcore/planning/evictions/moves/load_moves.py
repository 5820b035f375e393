"""Many moves for gain at once, of pods whose costs follow from the load of nodes and from nothing else of the plan.

What each node saves if one of a kind leaves it, and what it costs one more of them, is known for all nodes and kinds.
In each pass every node offers its best pod, the kinds with the best ones choose their cheapest nodes first, and no node
is touched twice: so each gain is exactly what a look at that pod alone would say. Passes end where none is worth it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs.model import BoundedArcs, Load
from flowcore.costs.potential import NodePotential
from flowcore.planning.evictions.moves.running_costs import MovableKind
from flowcore.rules.topology.soft_affinity import affinity_weights

#: What no pod pays.
NEVER = 2**50
#: A pass takes moves that gain so much of what the best one of their namespace gains: the best come first, and pods
#: that cannot leave hold up nobody else's.
_ENOUGH = 0.85
#: A kind's pods choose among as many of their cheapest nodes for each of them; others may be touched in this pass.
_CHOICES = 2


def follows_load(kind: MovableKind, snapshot: Snapshot) -> bool:
    """Whether the costs of a kind follow from the load alone: it has no neighbours that it prefers or avoids."""
    costs, signature = kind.costs, kind.costs.group.signature
    if signature.constraints is not None or not costs.group.pod_class.fits_by_amounts:
        return False
    if not isinstance(costs.model, BoundedArcs):
        return False
    cheapest, dearest = costs.model.arc_range(costs.size, costs.policy.cost.weights)
    return cheapest == dearest and affinity_weights(signature, snapshot.pod_index, snapshot.table) is None


@dataclass(frozen=True, slots=True)
class LoadMove:
    """A move of one pod of a kind.

    Attributes:
        kind: its number.
        home, node: where the pod is, and where it goes.
        gain: what the one costs it more than the other.
        price: of the move.
    """

    kind: int
    home: int
    node: int
    gain: int
    price: int


class LoadMoves:
    """The costs of all nodes for some kinds, kept up as their pods move.

    Attributes:
        kinds: all of one potential or of several.
        prices: int64[K, N], of the cheapest move of a pod of each kind from each node; NEVER: none is there.
    """

    def __init__(self, kinds: Sequence[MovableKind], snapshot: Snapshot, room: Int64s, kept: Bools) -> None:
        """Costs as they are.

        Args:
            snapshot: the cluster with all decisions.
            room: int64[N, R], that replacements may take.
            kept: bool[N], no pod goes there.
        """
        self.kinds, self._room, self._load = kinds, room.copy(), Load.of(snapshot)
        self._load = Load(
            self._load.table,
            self._load.capacity,
            self._load.taken.copy(order="F"),
            self._load.pods_allowed,
            self._load.pods.copy(),
        )
        shape = len(kinds), len(room)
        self._saved, self._paid = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.prices = np.full(shape, NEVER, dtype=np.int64)
        self._beside = np.array(
            [
                each.costs.model_arcs(self._load) + each.costs.beside_load(snapshot) + each.costs.written
                for each in kinds
            ]
        )
        #: int64[K]: equal for kinds of one namespace.
        self._tenants = np.unique([each.namespace for each in kinds], return_inverse=True)[1]
        self._open = np.array([each.costs.allowed & ~kept for each in kinds])
        self._refresh(np.arange(len(room)))

    def _refresh(self, nodes: Int64s) -> None:
        load, room = self._load.at(nodes), np.ascontiguousarray(self._room[nodes].T)
        values: dict[NodePotential, Int64s] = {}
        known: dict[tuple[NodePotential, bytes], tuple[Int64s, Int64s]] = {}
        for number, kind in enumerate(self.kinds):
            potential, size = kind.costs.potential, kind.costs.size
            key = potential, size.tobytes()
            if key not in known:
                if potential not in values:
                    values[potential] = potential.values(load)
                now = values[potential]
                known[key] = now - potential.values(load.less(size)), potential.increase(load, size, now)
            saved, paid = known[key]
            beside = self._beside[number, nodes]
            self._saved[number, nodes] = saved + beside
            fits = self._open[number, nodes]
            for resource in np.nonzero(kind.usage)[0].tolist():
                fits = fits & (room[resource] >= kind.usage[resource])
            self._paid[number, nodes] = np.where(fits, paid + beside, NEVER)

    def best_moves(self) -> list[LoadMove]:
        """Moves that are each worth their price, the best first; no node is in two."""
        best = np.full(len(self._room), -NEVER, dtype=np.int64)
        kind_of = np.full(len(self._room), -1, dtype=np.int64)
        for number, kind in enumerate(self.kinds):
            surplus = self._saved[number] - self.prices[number] - self._paid[number].min()
            better = (surplus >= kind.policy.rescheduling.min_gain) & (surplus > best)
            best[better], kind_of[better] = surplus[better], number
        homes = np.nonzero(kind_of >= 0)[0]
        tenants = self._tenants[kind_of[homes]]
        most = np.zeros(len(self.kinds), dtype=np.int64)
        np.maximum.at(most, tenants, best[homes])
        homes = homes[best[homes] >= _ENOUGH * most[tenants]]
        homes = homes[np.argsort(-best[homes], kind="stable")]
        touched = np.zeros(len(best), dtype=np.bool_)
        chosen: list[LoadMove] = []
        for number in dict.fromkeys(kind_of[homes].tolist()):
            chosen += self._matched(number, homes[kind_of[homes] == number], touched)
        return sorted(chosen, key=lambda each: (each.price - each.gain, each.home))

    def _matched(self, number: int, homes: Int64s, touched: Bools) -> Iterator[LoadMove]:
        """The best homes of a kind with its cheapest nodes; these are touched then."""
        homes = homes[~touched[homes]]
        paid = np.where(touched, NEVER, self._paid[number])
        most = min(_CHOICES * len(homes), len(paid))
        nodes = np.argpartition(paid, most - 1)[:most] if most else homes
        nodes = nodes[np.lexsort((nodes, paid[nodes]))]
        least = self.kinds[number].policy.rescheduling.min_gain
        waiting = iter(nodes.tolist())
        for home in homes.tolist():
            if touched[home]:
                continue
            node = next((each for each in waiting if not touched[each] and each != home), -1)
            gain = int(self._saved[number, home] - paid[node])
            price = int(self.prices[number, home])
            if node < 0 or gain - price < least:
                break
            touched[[home, node]] = True
            yield LoadMove(number, home, node, gain, price)

    def move(self, moves: Sequence[LoadMove]) -> None:
        """Follows moves, no two of one node."""
        if not moves:
            return
        homes, nodes = np.array([each.home for each in moves]), np.array([each.node for each in moves])
        sizes = np.array([self.kinds[each.kind].costs.size for each in moves])
        self._load.taken[homes] -= sizes
        self._load.taken[nodes] += sizes
        self._load.pods[homes] -= 1
        self._load.pods[nodes] += 1
        self._room[nodes] -= np.array([self.kinds[each.kind].usage for each in moves])
        self._refresh(np.concatenate([homes, nodes]))
