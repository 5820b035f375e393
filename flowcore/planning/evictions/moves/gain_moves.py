"""The search for moves for gain: the best one first, and what is left is judged anew after each.

A pod's gain is what its node costs now less what the other node costs then: the costs are those of a waiting pod of its
policy, in the cluster without it. So the way back would gain as much less than nothing.

Pods whose costs follow from the load alone are decided all at once (``load_moves``). The others are looked at one by
one. Most rounds end with the first look: for each kind of pod the cheapest node that has room, and no pod whose home is
dearer than that by the price of its move and the margin of its policy.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Load
from flowcore.model.constraint_limits import all_or_none
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import Policy
from flowcore.model.running_pods import EvictionKind
from flowcore.model.turns import share_left
from flowcore.planning.evictions.moves.destinations import enough
from flowcore.planning.evictions.moves.load_moves import NEVER, LoadMove, LoadMoves, follows_load
from flowcore.planning.evictions.moves.move_prices import move_prices
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.evictions.moves.running_costs import MovableKind
from flowcore.planning.evictions.revocation.dependents import Dependents
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.placements.residents import Residents

#: How often a pod is judged exactly in a round. Each look costs as much as to price a class.
_MOST_LOOKS = 128
#: Passes over all nodes in a round. Each costs some vectors over the nodes for each kind.
_MOST_PASSES = 32


@dataclass(slots=True)
class _Offer:
    """Pods of a kind on one node that may each gain by a move.

    Attributes:
        residents: price of the move, key and number of each, the cheapest last. Numbers follow the order in which pods
            are read, keys do not.
        surplus: by how much the gain of the next is above its price, at the last look.
        looked_after: after how many moves that was; -1: it was the first look, which is not exact.
    """

    kind: MovableKind
    home: int
    residents: list[tuple[int, str, int]] = field(default_factory=list)
    surplus: int = 0
    looked_after: int = -1

    @property
    def entry(self) -> tuple[int, str, _Offer]:
        """In a heap, the best first. No two have a key in common: offers themselves are never compared."""
        return -self.surplus, self.residents[-1][1], self


class _PodsOfKind:
    """The pods of a kind by their node.

    Attributes:
        homes: int64[H], nodes where there are any.
        cheapest: int64[H], price of the cheapest move from each.
    """

    def __init__(self, residents: Residents, kind: MovableKind, prices: Int64s) -> None:
        """``prices``: int64[V], of the move of each resident."""
        order = kind.residents[np.lexsort((prices[kind.residents], residents.nodes[kind.residents]))]
        self.homes, first = np.unique(residents.nodes[order], return_index=True)
        self.cheapest = prices[order][first]
        self._residents, self._prices = residents, prices
        self._order, self._first = order, np.append(first, len(order))
        self._known: dict[int, list[tuple[int, str, int]]] = {}

    def at(self, home: int) -> list[tuple[int, str, int]]:
        """Price, key and number of each pod on a node that is left there, the cheapest last."""
        if home not in self._known:
            place = int(np.searchsorted(self.homes, home))
            here = self._order[self._first[place] : self._first[place + 1]].tolist()
            pods = self._residents.pods
            self._known[home] = sorted(((int(self._prices[each]), pods[each].key, each) for each in here), reverse=True)
        return self._known[home]


class GainMoves:
    """Decides moves for gain; it changes the state."""

    def __init__(
        self,
        state: Plan,
        policies: Mapping[str, Policy],
        movers: Movers,
        placed: Iterable[PodSignature],
    ) -> None:
        """``placed``: of the pods that the first part of the round placed."""
        self._state, self._residents, self._policies = state, state.residents, policies
        self._movers, self._destinations = movers, movers.destinations
        arrived = (arrival.pod.signature for arrival in state.arrivals)
        kinds = (kind.signature for kind in state.residents.kind_list)
        #: Whose rules count a pod.
        self._dependents = Dependents((*kinds, *placed, *arrived), state.before.pod_index.namespaces)
        self._terminating = movers.destinations.costs.terminating
        #: bool[N]: nodes that are neither left nor taken for gain.
        self._unsettled = self._terminating.unsettled.copy()
        # Beside a move for gain a pod that leaves for others might have stayed: the next round looks at its node.
        self._unsettled[self._residents.nodes[list(state.leaving)]] = True

    def decide(self, kept: Bools, holds: Callable[[], bool]) -> None:
        """Decides moves until none is worth its price.

        Args:
            kept: bool[N], nodes whose room others wait for: no pod goes there.
            holds: whether every filter still passes for the whole plan; asked after each move.
        """
        movable = self._movers.gaining.copy()
        movable[list(self._state.leaving)] = False
        if not movable.any() or kept.all():
            return
        kinds = self._move_by_load(np.nonzero(movable)[0], kept)
        queue = [offer.entry for offer in self._first_look(kinds, kept)]
        heapq.heapify(queue)
        is_shared = len({offer.kind.namespace for *_, offer in queue}) > 1
        looks, moves = Counter[str](), 0
        while queue and looks.total() < _MOST_LOOKS:
            *_, offer = heapq.heappop(queue)
            own = looks[offer.kind.namespace]
            is_left = share_left(_MOST_LOOKS, own, looks.total() - own, is_shared=is_shared) > 0
            if not (is_left and self._may_any_leave(offer)):
                continue
            looks[offer.kind.namespace] += 1
            price, _, resident = offer.residents[-1]
            gain, node = self._best(resident, offer.kind, kept)
            offer.surplus = gain - price
            if node < 0 or offer.surplus < offer.kind.policy.rescheduling.min_gain:
                continue
            if queue and offer.surplus < -queue[0][0] and offer.looked_after < moves:
                offer.looked_after = moves
            elif self._unsettled[[offer.home, node]].any():
                # It might leave in vain, or twice. Nor do others leave in its stead, or take its place.
                self._unsettled[[offer.home, node]] = True
                continue
            elif self._move(resident, price, gain, node, holds):
                moves += 1
                offer.residents.pop()
            else:
                continue
            if offer.residents:
                heapq.heappush(queue, offer.entry)

    # --- all at once, where costs follow from the load ---

    def _move_by_load(self, movable: Int64s, kept: Bools) -> list[MovableKind]:
        """Moves pods whose costs follow from the load alone; returns kinds of which single pods are to be looked at.

        Args:
            movable: numbers of the residents that policies let go.
        """
        state, snapshot = self._state, self._terminating.gone_from(self._state.snapshot())
        kinds = self._destinations.costs.kinds(movable, snapshot)
        together = [each for each in kinds if follows_load(each, snapshot) and self._is_free(int(each.residents[0]))]
        if not together:
            return kinds
        room = np.minimum(state.free_now(), state.free)
        room[self._unsettled] = (state.free + self._terminating.room)[self._unsettled]
        moves = LoadMoves(together, snapshot, room, kept)
        pods = [_PodsOfKind(self._residents, kind, self._prices) for kind in together]
        for prices, of_kind in zip(moves.prices, pods, strict=True):
            prices[of_kind.homes] = of_kind.cheapest
        moves.prices[~np.array([kind.costs.allowed for kind in together])] = NEVER
        again: set[int] = set()
        for _ in range(_MOST_PASSES):
            best = moves.best_moves()
            if not best:
                break
            moves.move([each for each in best if self._take(each, pods[each.kind].at(each.home), moves, again)])
            for policy in {kind.policy.name for kind in together}:
                if not self._movers.moves_left(policy):
                    moves.prices[[kind.policy.name == policy for kind in together]] = NEVER
        decided = {id(kind) for number, kind in enumerate(together) if number not in again}
        return [kind for kind in kinds if id(kind) not in decided]

    def _is_free(self, resident: int) -> bool:
        """Whether a pod and all like it may go to any node with room, whatever the rules of others say."""
        pod = self._residents.pods[resident]
        is_grouped = all_or_none(pod.signature.labels, self._policies[pod.policy])
        plain, _ = self._destinations.allowed(resident)
        return plain and not is_grouped and not self._dependents.topology_keys(pod.signature)

    def _take(self, move: LoadMove, pods: list[tuple[int, str, int]], moves: LoadMoves, again: set[int]) -> bool:
        """Decides a move of the cheapest pod that may leave, if its price is as known; whether it did.

        Args:
            pods: of the kind on that node, as in ``_Offer``; those that may not leave are dropped.
            again: kinds with a pod that may go to another node than the cheapest.
        """
        ends, is_made = (move.home, move.node), False
        while pods and not self._movers.may_go(pods[-1][2]):
            pods.pop()
        if pods and pods[-1][0] == move.price:
            resident = pods[-1][2]
            if any(self._unsettled[end] for end in ends):
                # It might leave in vain, or twice. Nor do others leave in its stead, or take its place.
                self._unsettled[list(ends)] = True
                pods.clear()
            elif move.node in self._nodes_left.get(self._residents.pods[resident].owner, ()):
                again.add(move.kind)
                pods.pop()
            else:
                pods.pop()
                self._decide_move(resident, move.price, move.gain, move.node)
                is_made = True
        moves.prices[move.kind, move.home] = pods[-1][0] if pods else NEVER
        return is_made

    @cached_property
    def _prices(self) -> Int64s:
        """int64[V]: of a move of each resident that policies let go for gain; 0: of others."""
        residents, gaining = self._residents, np.nonzero(self._movers.gaining)[0]
        prices = np.zeros(len(residents.pods), dtype=np.int64)
        pods = [residents.pods[number] for number in gaining.tolist()]
        prices[gaining] = move_prices(pods, residents.usage[gaining], self._policies, self._state.before)
        return prices

    @cached_property
    def _nodes_left(self) -> dict[str, set[int]]:
        """By controller the nodes that a pod of it was moved from within the last hour: none goes back there."""
        index, left = self._state.before.table.index, dict[str, set[int]]()
        for move in self._residents.running.moves:
            if move.node in index:
                left.setdefault(move.owner, set()).add(index[move.node])
        return left

    # --- the first look ---

    def _first_look(self, kinds: Sequence[MovableKind], kept: Bools) -> Sequence[_Offer]:
        """Pods whose home is dear enough. One pod of a kind on a node stands for all of them; nothing is exact yet."""
        if not kinds:
            return ()
        snapshot = self._terminating.gone_from(self._state.snapshot())
        load, room = Load.of(snapshot), np.minimum(self._state.free_now(), self._state.free) + self._terminating.room
        values = {potential: potential.values(load) for potential in {kind.costs.potential for kind in kinds}}
        offers: list[_Offer] = []
        for kind in kinds:
            usable = enough(room, kind.usage) & ~kept
            offers += self._of_kind(kind, kind.apparent_gains(snapshot, load, values[kind.costs.potential], usable))
        return offers

    def _of_kind(self, kind: MovableKind, gains: Int64s) -> Iterable[_Offer]:
        """Offers of the pods of a kind: one for each node; ``gains``: int64[N], of one that runs on each node."""
        residents, least = self._residents, kind.policy.rescheduling.min_gain
        gaining = kind.residents[gains[residents.nodes[kind.residents]] >= least]
        prices, homes = self._prices[gaining], residents.nodes[gaining]
        surplus = gains[homes] - prices
        offers: dict[int, _Offer] = {}
        for row in np.nonzero(surplus >= least)[0].tolist():
            resident, home = int(gaining[row]), int(homes[row])
            offer = offers.setdefault(home, _Offer(kind, home))
            offer.residents.append((int(prices[row]), residents.pods[resident].key, resident))
            offer.surplus = max(offer.surplus, int(surplus[row]))
        for offer in offers.values():
            offer.residents.sort(reverse=True)
        return offers.values()

    # --- who may leave ---

    def _may_any_leave(self, offer: _Offer) -> bool:
        """Whether any pod of an offer may; those that may not are dropped."""
        while offer.residents:
            resident = offer.residents[-1][2]
            if self._movers.may_go(resident) and self._may_go(resident).any():
                return True
            offer.residents.pop()
        return False

    def _may_go(self, resident: int) -> Bools:
        """bool[N]: nodes of the same domains for all rules that count a pod, so that they hold as before.

        None of a pod that its policy places with others or not at all.
        """
        pod, home = self._residents.pods[resident], int(self._residents.nodes[resident])
        is_grouped = all_or_none(pod.signature.labels, self._policies[pod.policy])
        may_go = np.full(len(self._state.free), not is_grouped)
        for key in self._dependents.topology_keys(pod.signature):
            codes = self._state.before.table.column(key).codes
            may_go &= codes == codes[home]
        may_go[home] = False
        return may_go

    # --- the second look ---

    def _best(self, resident: int, kind: MovableKind, kept: Bools) -> tuple[int, int]:
        """What a pod gains, exactly, and on which node; -1: on none.

        Of unsettled nodes only their room once they are settled is known, not what the filters say then.
        """
        destinations, home = self._destinations, int(self._residents.nodes[resident])
        costs = destinations.costs.of(resident, kind)
        wanted = self._may_go(resident) & ~kept & (costs < costs[home])
        wanted[list(self._nodes_left.get(self._residents.pods[resident].owner, ()))] = False
        node = destinations.find(resident, wanted & ~self._unsettled, costs)
        later = wanted & self._unsettled & destinations.allowed(resident)[1]
        later &= enough(self._state.free + self._terminating.room, kind.usage)
        nodes = [*np.nonzero(later)[0].tolist(), *([] if node < 0 else [node])]
        best = min(nodes, key=lambda each: (costs[each], each), default=-1)
        return (int(costs[home] - costs[best]), best) if nodes else (0, -1)

    def _move(self, resident: int, price: int, gain: int, node: int, holds: Callable[[], bool]) -> bool:
        """Decides the move of a pod, unless that would break a rule elsewhere in the plan."""
        checkpoint = self._state.checkpoint()
        self._decide_move(resident, price, gain, node)
        if holds():
            return True
        self._state.roll_back(checkpoint)
        return False

    def _decide_move(self, resident: int, price: int, gain: int, node: int) -> None:
        nodes = self._state.before.table.nodes
        home = nodes[self._residents.nodes[resident]].name
        reason = f"it costs {gain:,} less on {nodes[node].name} than on {home}, and its move costs {price:,}"
        self._state.let_leave(resident, EvictionKind.MIGRATION, (), reason=reason, gain=gain)
        self._state.reserve_replacement(resident, node, is_move=True)
