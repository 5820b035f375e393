"""The first look of a round at moves for gain: which pods may gain by one, and which pods of a node only together.

One pod of a kind on a node stands for all of them. A pod that leaves a node frees GPUs there that nobody can use while
others stay; so for nodes with such GPUs the pods are chosen one after the other that free the most for their price, and
as many leave as gain the most together. What they gain is judged exactly later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs import CostModel
from flowcore.costs.model import Load
from flowcore.model.policies import Policy
from flowcore.model.turns import turn_of
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.gains.movable_kinds import NO_GAIN, MovableKind, movable_kinds
from flowcore.planning.evictions.gains.move_prices import prices_of_leaving
from flowcore.planning.evictions.gains.stranded_gpus import StrandedGPUs
from flowcore.planning.evictions.gains.terminating_pods import TerminatingPods
from flowcore.planning.evictions.state import EvictionState

#: Nodes with stranded GPUs that a round looks at for pods that gain together. Each costs a millisecond of CPU time.
_MOST_NODES = 64
#: Most pods of a node that leave together.
_MOST_TOGETHER = 10


@dataclass(frozen=True, slots=True)
class PossibleMove:
    """A pod that may leave for gain.

    Attributes:
        resident: its number.
        key: what orders equal pods: numbers follow the order in which pods are read.
        price: of its move.
    """

    resident: int
    key: str
    kind: MovableKind
    price: int


@dataclass(slots=True)
class GainOffer:
    """Pods of a kind on one node that may each gain by a move.

    Attributes:
        residents: price of the move, key and number of each, the cheapest last.
        surplus: by how much the gain of the next is above its price, at the last look.
        looked_after: after how many moves that was; -1: it was the first look, which is not exact.
    """

    kind: MovableKind
    home: int
    residents: list[tuple[int, str, int]] = field(default_factory=list)
    surplus: int = 0
    looked_after: int = -1

    @property
    def cheapest(self) -> PossibleMove:
        """The next of them."""
        price, key, resident = self.residents[-1]
        return PossibleMove(resident, key, self.kind, price)

    @property
    def key(self) -> str:
        """What orders offers that are worth the same: the key of the next of them; "": there is none."""
        return self.residents[-1][1] if self.residents else ""

    @property
    def namespaces(self) -> set[str]:
        """Those of the pods."""
        return {self.kind.namespace}


@dataclass(frozen=True, slots=True)
class JointOffer:
    """Pods of one node that may gain together.

    Attributes:
        moves: in the order in which they leave.
        surplus: by how much their gains are above their prices, by the first look and for each of them.
    """

    home: int
    moves: tuple[PossibleMove, ...]
    surplus: int

    @property
    def key(self) -> str:
        """What orders offers that are worth the same: the key of the first to leave."""
        return self.moves[0].key

    @property
    def namespaces(self) -> set[str]:
        """Those of the pods."""
        return {move.kind.namespace for move in self.moves}


class FirstLook:
    """The offers of a round; nothing is decided yet."""

    def __init__(
        self,
        state: EvictionState,
        policies: Mapping[str, Policy],
        models: Mapping[str, CostModel],
        destinations: Destinations,
        terminating: TerminatingPods,
        stranded: StrandedGPUs,
    ) -> None:
        self._state, self._residents, self._policies = state, state.residents, policies
        self._models, self._destinations, self._stranded = models, destinations, stranded
        self._snapshot = terminating.gone_from(state.snapshot())
        self._room = np.minimum(state.free_now, state.free) + terminating.room

    def offers(self, movable: Int64s, kept: Bools, may_leave: Callable[[int], bool]) -> list[GainOffer | JointOffer]:
        """Pods whose home is dear enough at a first look.

        Args:
            movable: numbers of the residents that policies let go.
            kept: bool[N], nodes that no pod goes to.
            may_leave: whether a resident may, with all rules and limits.
        """
        snapshot, residents, load = self._snapshot, self._residents, Load.of(self._snapshot)
        kinds = movable_kinds(residents, movable, snapshot, self._policies, self._models, self._destinations)
        values = {potential: potential.values(load) for potential in {kind.costs.potential for kind in kinds}}
        fragmented = self._fragmented(kinds, movable)
        offers: list[GainOffer | JointOffer] = []
        #: By node and price of a stranded GPU: pods with what they gain beside what comes free at home.
        beside: defaultdict[tuple[int, int], list[tuple[PossibleMove, int]]] = defaultdict(list)
        for kind in kinds:
            asked = kind.usage > 0
            usable = (self._room[:, asked] >= kind.usage[asked]).all(axis=1) & ~kept
            gains = kind.apparent_gains(snapshot, load, values[kind.costs.potential], usable, self._stranded)
            offers += self._alone(kind, gains)
            if kind.stranded_price in fragmented:
                nodes = residents.nodes[kind.residents]
                beside_others = kind.residents[fragmented[kind.stranded_price][nodes] & (gains[nodes] > NO_GAIN)]
                for move in self._possible(kind, beside_others, may_leave):
                    home = int(residents.nodes[move.resident])
                    beside[home, kind.stranded_price].append((move, int(gains[home])))
        joint = (self._together(home, price, moves) for (home, price), moves in beside.items())
        return [*offers, *(offer for offer in joint if offer is not None)]

    def _alone(self, kind: MovableKind, gains: Int64s) -> list[GainOffer]:
        """Offers of pods that gain each by itself: those on a node together."""
        nodes, least = self._residents.nodes[kind.residents], kind.policy.rescheduling.min_gain
        # Each once, in order: numbers of nodes are small, so to count them is faster than to sort them.
        homes = np.flatnonzero(np.bincount(nodes))
        with_freed = gains.copy()
        with_freed[homes] += kind.freed(self._snapshot, homes, self._stranded)
        gaining = kind.residents[with_freed[nodes] >= least]
        if not len(gaining):
            return []
        nodes, prices = self._residents.nodes[gaining], self._prices(gaining)
        surplus = with_freed[nodes] - prices
        offers: dict[int, GainOffer] = {}
        for row in np.nonzero(surplus >= least)[0].tolist():
            home = int(nodes[row])
            offer = offers.setdefault(home, GainOffer(kind, home))
            resident = int(gaining[row])
            offer.residents.append((int(prices[row]), self._residents.pods[resident].key, resident))
            offer.surplus = max(offer.surplus, int(surplus[row]))
        for offer in offers.values():
            offer.residents.sort(reverse=True)
        return list(offers.values())

    def _prices(self, numbers: Int64s) -> Int64s:
        """int64[len(numbers)]: what moves of some residents cost."""
        return prices_of_leaving(self._residents, numbers, self._policies, self._snapshot)

    # --- pods that gain together ---

    def _fragmented(self, kinds: Sequence[MovableKind], movable: Int64s) -> dict[int, Bools]:
        """By price of a stranded GPU, bool[N]: nodes where such GPUs cost as much as a margin. Many take turns."""
        priced = [kind for kind in kinds if kind.stranded_price] if self._stranded.kinds else []
        if not priced:
            return {}
        snapshot, homes = self._snapshot, np.flatnonzero(np.bincount(self._residents.nodes[movable]))
        least: dict[int, int] = {}
        for kind in priced:
            margin = kind.policy.rescheduling.min_gain
            least[kind.stranded_price] = min(margin, least.get(kind.stranded_price, margin))
        fragmented: dict[int, Bools] = {}
        for price, margin in least.items():
            nodes = homes[self._stranded.costs(snapshot.free[homes], homes, price) >= margin]
            if len(nodes):
                start = turn_of(snapshot.now) * len(nodes) >> 32 if len(nodes) > _MOST_NODES else 0
                fragmented[price] = np.zeros(len(snapshot.free), dtype=np.bool_)
                fragmented[price][np.roll(nodes, -start)[:_MOST_NODES]] = True
        return fragmented

    def _possible(self, kind: MovableKind, numbers: Int64s, may_leave: Callable[[int], bool]) -> list[PossibleMove]:
        allowed = np.array([number for number in numbers.tolist() if may_leave(number)], dtype=np.int64)
        if not len(allowed):
            return []
        return [
            PossibleMove(number, self._residents.pods[number].key, kind, price)
            for number, price in zip(allowed.tolist(), self._prices(allowed).tolist(), strict=True)
        ]

    def _together(self, home: int, price: int, moves: Sequence[tuple[PossibleMove, int]]) -> JointOffer | None:
        """Pods of a node that gain the most together; None: no two or more of them gain anything.

        Args:
            price: of a stranded GPU there.
            moves: with the gains of each beside what comes free at home.
        """
        by_kind: defaultdict[int, list[tuple[int, PossibleMove]]] = defaultdict(list)
        for move, gain in moves:
            margin = move.price + move.kind.policy.rescheduling.min_gain
            by_kind[id(move.kind)].append((gain - margin, move))
        # Of equal ones the same go in every round, whatever the order of the pods.
        queues = [sorted(queue, key=lambda item: (item[0], item[1].key)) for queue in by_kind.values()]
        free, chosen = self._snapshot.free[home], list[PossibleMove]()
        before = int(self._stranded.costs(free[np.newaxis], np.array([home]), price)[0])
        most = np.cumsum(sorted((gain for queue in queues for gain, _ in queue), reverse=True))[1:_MOST_TOGETHER]
        if before + most.max(initial=NO_GAIN) < 0:  # no more than that can come free
            return None
        total = best = count = 0
        while queues and len(chosen) < _MOST_TOGETHER:
            nexts = [queue[-1] for queue in queues]
            without = free + np.array([move.kind.usage for _, move in nexts])
            after = self._stranded.costs(without, np.full(len(nexts), home), price)
            surplus = np.array([gain for gain, _ in nexts]) + before - after
            ranked = enumerate(zip(surplus.tolist(), nexts, strict=True))
            *_, row = max((worth, move.key, row) for row, (worth, (_, move)) in ranked)
            free, before, total = without[row], int(after[row]), total + int(surplus[row])
            chosen.append(queues[row].pop()[1])
            queues = [queue for queue in queues if queue]
            if len(chosen) > 1 and total >= best:
                best, count = total, len(chosen)
        if not count:
            return None
        least = sum(move.kind.policy.rescheduling.min_gain for move in chosen[:count])
        return JointOffer(home, tuple(chosen[:count]), (best + least) // count)
