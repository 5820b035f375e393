"""The first look of a round at moves for gain: which pods may gain by one.

One pod of a kind on a node stands for all of them. What they gain is judged exactly later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs import CostModel
from flowcore.costs.model import Load
from flowcore.model.policies import Policy
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.gains.movable_kinds import MovableKind, movable_kinds
from flowcore.planning.evictions.gains.move_prices import prices_of_leaving
from flowcore.planning.evictions.gains.terminating_pods import TerminatingPods
from flowcore.planning.problem.placements.plans import Plan


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


class FirstLook:
    """The offers of a round; nothing is decided yet."""

    def __init__(
        self,
        state: Plan,
        policies: Mapping[str, Policy],
        models: Mapping[str, CostModel],
        destinations: Destinations,
        terminating: TerminatingPods,
    ) -> None:
        self._state, self._residents, self._policies = state, state.residents, policies
        self._models, self._destinations = models, destinations
        self._snapshot = terminating.gone_from(state.snapshot())
        self._room = np.minimum(state.free_now(), state.free) + terminating.room

    def offers(self, movable: Int64s, kept: Bools) -> list[GainOffer]:
        """Pods whose home is dear enough at a first look.

        Args:
            movable: numbers of the residents that policies let go.
            kept: bool[N], nodes that no pod goes to.
        """
        snapshot, residents, load = self._snapshot, self._residents, Load.of(self._snapshot)
        kinds = movable_kinds(residents, movable, snapshot, self._policies, self._models, self._destinations)
        values = {potential: potential.values(load) for potential in {kind.costs.potential for kind in kinds}}
        offers: list[GainOffer] = []
        for kind in kinds:
            asked = kind.usage > 0
            usable = (self._room[:, asked] >= kind.usage[asked]).all(axis=1) & ~kept
            offers += self._of_kind(kind, kind.apparent_gains(snapshot, load, values[kind.costs.potential], usable))
        return offers

    def _of_kind(self, kind: MovableKind, gains: Int64s) -> list[GainOffer]:
        """Offers of the pods of a kind: one for each node; ``gains``: int64[N], of one that runs on each node."""
        nodes, least = self._residents.nodes[kind.residents], kind.policy.rescheduling.min_gain
        gaining = kind.residents[gains[nodes] >= least]
        if not len(gaining):
            return []
        nodes = self._residents.nodes[gaining]
        prices = prices_of_leaving(self._residents, gaining, self._policies, self._snapshot)
        surplus = gains[nodes] - prices
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
