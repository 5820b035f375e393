"""The room of a cluster and who wants it, as the bounds of an audit count them.

A plan is any choice of nodes for the pods that come, and for those that run and may be moved: all of these keep a node.
What pods cannot change keeps nodes from them: labels, taints, names. Rules between pods, volumes, devices, gangs,
budgets and limits of moves only remove plans, so no bound needs them. By weak duality (Ahuja, Magnanti, Orlin, Network
Flows, chapter 16) any prices of room give a bound: all room is given back at its price, and every pod pays for what it
takes where that is cheapest.

All sums are of Python's integers: nothing is rounded, and whoever has the prices finds the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs.model import Float64s
from flowcore.model.devices import device_resources
from flowcore.model.pod_index import EMPTY_SIGNATURE
from flowcore.model.pods import PodClass
from flowcore.model.resources import PODS, Amounts
from flowcore.model.running_pods import RunningPod
from flowcore.planning.methods.pod_kinds import PodKind
from flowcore.planning.methods.pooled_room import PooledRoom
from flowcore.planning.problem.bounds.least_cost import cheapest_places
from flowcore.questions.audit.finding import PARTS, PriceBound, PricedPool
from flowcore.rules.filters import node_affinity, node_name, node_unschedulable, taint_toleration
from flowcore.rules.filters.node_resources_fit import count_fitting
from flowcore.rules.filters.registry import IN_ORDER, run_filter

#: What keeps a node from a pod whatever runs there. Others that read nothing but the node are left out on purpose: a
#: bound is to be checked by who knows labels and taints only.
_NODE_RULES = (node_unschedulable.NAME, node_name.NAME, taint_toleration.NAME, node_affinity.NAME)
#: What one that is counted weighs in the round in fractions. Weights are whole, and so are parts of this.
WEIGHT = 720_720
#: There a running pod is worth so many of those that wait: with much more its numbers get rough.
_MOST_WAITING = 1_000


@dataclass(frozen=True, eq=False)
class RoomPrices:
    """Prices of room.

    Attributes:
        pools: int64[N], the pool of each node; -1: its room costs nothing.
        of_pools: parts of one for a unit of each resource, by pool.
    """

    pools: Int64s
    of_pools: Sequence[Sequence[int]]

    @classmethod
    def of(cls, pools: Int64s, prices: Float64s) -> RoomPrices:
        """Prices float64[S, R] of pools, rounded."""
        return cls(pools, [[round(price * PARTS) for price in row] for row in prices.tolist()])

    @classmethod
    def nothing(cls, nodes: int) -> RoomPrices:
        """Room that costs nothing: the bound is what wants room at all."""
        return cls(np.full(nodes, -1, dtype=np.int64), ())


@dataclass(frozen=True, eq=False)
class CountedRoom:
    """N nodes, R resources that are counted, and kinds of pods.

    Attributes:
        names: of the nodes.
        resources: that pods ask for. What devices stand for is not counted.
        room: int64[N, R], what pods that come or move can take, wherever these are.
        coming: kinds of pods that want to come.
        staying: kinds of pods that run and may be moved.
        number_of: number of the coming kind of a class.
    """

    names: Sequence[str]
    resources: tuple[str, ...]
    room: Int64s
    coming: tuple[PodKind, ...]
    staying: tuple[PodKind, ...]
    number_of: Mapping[PodClass, int]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        coming: Sequence[tuple[PodClass, int]],
        movable: Iterable[RunningPod],
        gone: Iterable[RunningPod] = (),
    ) -> CountedRoom:
        """The room of a snapshot.

        Args:
            coming: classes of pods that want to come, and how many there are of each. Where there are none, what the
                movable pods ask for is counted.
            movable: running pods that keep a node, whichever it is.
            gone: running pods whose room counts as free.
        """
        movable = [*movable]
        asking = [pod_class for pod_class, _ in coming] or [pod.pod_class for pod in movable]
        resources = _counted(asking, device_resources(snapshot.devices.classes.values()))
        columns = [snapshot.resources.index(name) if name in snapshot.resources else -1 for name in resources]
        offered, used = (_columns(amounts, columns) for amounts in (snapshot.allocatable, snapshot.used))
        index, nodes_of = snapshot.table.index, _NodeRules(snapshot)
        for pod in gone:
            used[index[pod.node]] -= _vector(pod.usage, resources)
        # Kinds are alike by what they ask for and by the nodes that they may use: so does who checks the bound.
        homes: dict[tuple[tuple[int, ...], bytes], Counter[int]] = {}
        held = np.zeros_like(used)
        kinds: dict[tuple[PodClass, Amounts], tuple[Int64s, Int64s, tuple[tuple[int, ...], bytes]]] = {}
        for pod in movable:
            if (pod.pod_class, pod.usage) not in kinds:
                # While it is resized it may hold more here than its replacement asks for elsewhere.
                holds = _vector(pod.usage, resources)
                least = np.minimum(_vector(pod.pod_class.requests, resources), holds)
                kinds[pod.pod_class, pod.usage] = holds, least, (tuple(least.tolist()), nodes_of(pod.pod_class))
            holds, least, kind = kinds[pod.pod_class, pod.usage]
            home = index[pod.node]
            used[home] -= holds
            held[home] += least
            homes.setdefault(kind, Counter())[home] += 1
        wanted = Counter[tuple[tuple[int, ...], bytes]]()
        kind_of: dict[PodClass, tuple[tuple[int, ...], bytes]] = {}
        for pod_class, pods in coming:
            kind_of[pod_class] = tuple(_vector(pod_class.requests, resources).tolist()), nodes_of(pod_class)
            wanted[kind_of[pod_class]] += pods
        asked = [requests for requests, _ in (*wanted, *homes)]
        units = np.array([gcd(*column) or 1 for column in zip(*asked, strict=True)] or 1, dtype=np.int64)
        # Where a node holds more than it offers, its pods may stay all the same.
        room = np.maximum(offered - used, held).clip(0) // units * units
        numbers = {kind: number for number, kind in enumerate(wanted)}
        return cls(
            [node.name for node in snapshot.table.nodes],
            resources,
            room,
            tuple(
                _kind(place, requests, pods, nodes, room)
                for place, ((requests, nodes), pods) in enumerate(wanted.items())
            ),
            tuple(
                _kind(len(wanted) + place, requests, at_home.total(), nodes, room, [*at_home])
                for place, ((requests, nodes), at_home) in enumerate(homes.items())
            ),
            {pod_class: numbers[kind] for pod_class, kind in kind_of.items()},
        )

    def prices(self, weights: Sequence[int]) -> list[RoomPrices]:
        """Prices that show how much of what comes has no room, for any of which a bound holds.

        Args:
            weights: of a pod of each coming kind, in ``WEIGHT``-ths of what is counted.
        """
        nothing = RoomPrices.nothing(len(self.names))
        if not self.coming:
            return [nothing]
        room = PooledRoom.of((*self.coming, *self.staying), self.room)
        if room is None:
            return [nothing]
        # One that runs and is left counts for more than what waits and could have its room.
        total = sum(weight * int(kind.pods) for weight, kind in zip(weights, self.coming, strict=True))
        most = min(total + 1, _MOST_WAITING * max(weights))
        prices = room.prices(np.array([*weights, *[most] * len(self.staying)], dtype=np.int64))
        return [nothing, RoomPrices.of(room.program.states.of, prices / WEIGHT)]

    def paid(self, kind: PodKind, prices: RoomPrices) -> NDArray[np.object_]:
        """What pods of a kind pay at least, rising, in parts; of those that fit."""
        in_pool = np.bincount(prices.pools + 1, kind.most, len(prices.of_pools) + 1).astype(np.int64)
        requests: list[int] = kind.requests.tolist()
        costs = np.array([0, *(_times(row, requests) for row in prices.of_pools)], dtype=object)
        return cheapest_places(costs, in_pool, int(kind.pods))

    def net_price(self, prices: RoomPrices) -> int:
        """The price of all room, less what those pay that run already, in parts."""
        return sum(self.worth_of_nodes(prices)) - sum(int(self.paid(kind, prices).sum()) for kind in self.staying)

    def worth_of_nodes(self, prices: RoomPrices) -> list[int]:
        """The price of all room of each node, in parts."""
        rows = zip(prices.pools.tolist(), self.room.tolist(), strict=True)
        return [_times(prices.of_pools[pool], amounts) if pool >= 0 else 0 for pool, amounts in rows]

    def most_that_come(self, prices: RoomPrices) -> int:
        """No plan lets more pods come than this."""
        gained = sum(int(np.maximum(PARTS - self.paid(kind, prices), 0).sum()) for kind in self.coming)
        return (gained + self.net_price(prices)) // PARTS

    def bound(self, prices: RoomPrices) -> PriceBound:
        """The prices for an answer."""
        pools = [
            PricedPool(
                [self.names[node] for node in np.nonzero(prices.pools == pool)[0].tolist()],
                {name: price for name, price in zip(self.resources, row, strict=True) if price},
            )
            for pool, row in enumerate(prices.of_pools)
        ]
        return PriceBound(list(self.resources), [pool for pool in pools if pool.prices])


def _kind(
    place: int, requests: tuple[int, ...], pods: int, nodes: bytes, room: Int64s, homes: Sequence[int] = ()
) -> PodKind:
    """Pods on the nodes that their rules let them use (``_NodeRules``), or where they are.

    Args:
        room: int64[N, R], of the nodes.
    """
    usable = np.frombuffer(nodes, dtype=np.bool_).copy()
    usable[[*homes]] = True
    asked = np.array(requests, dtype=np.int64)
    return PodKind.of_room(
        place, asked, pods, usable, np.where(usable, np.minimum(count_fitting(asked, room), pods), 0)
    )


class _NodeRules:
    """Which nodes the labels, taints and names of a class let it use, each asked once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[PodClass, bytes] = {}

    def __call__(self, pod_class: PodClass) -> bytes:
        """bool[N] as bytes: to compare, and to keep."""
        key = PodClass(
            node_selector=pod_class.node_selector,
            required_affinity=pod_class.required_affinity,
            tolerations=pod_class.tolerations,
            node_name=pod_class.node_name,
        )
        nodes = self._known.get(key)
        if nodes is None:
            usable = np.ones(len(self._snapshot.table.nodes), dtype=np.bool_)
            for which in IN_ORDER:
                if which.name in _NODE_RULES:
                    for rejection in run_filter(which, key, EMPTY_SIGNATURE, self._snapshot):
                        usable &= ~rejection.nodes
            nodes = self._known[key] = usable.tobytes()
        return nodes


def _counted(classes: Iterable[PodClass], devices: Collection[str]) -> tuple[str, ...]:
    """The resources that classes ask for, but for those that devices may stand for."""
    asked = {name for pod_class in classes for name, amount in pod_class.requests if amount}
    return tuple(sorted((asked | {PODS}).difference(devices)))


def _vector(amounts: Amounts, resources: Sequence[str]) -> Int64s:
    by_name = dict(amounts) | {PODS: 1}
    return np.array([by_name.get(name, 0) for name in resources], dtype=np.int64)


def _columns(amounts: Int64s, columns: Sequence[int]) -> Int64s:
    """int64[N, len(columns)]: a copy of these columns; -1: zeros."""
    zeros = np.zeros(len(amounts), dtype=np.int64)
    return np.array([zeros if column < 0 else amounts[:, column] for column in columns]).T.copy()


def _times(prices: Sequence[int], amounts: Sequence[int]) -> int:
    return sum(price * amount for price, amount in zip(prices, amounts, strict=True))
