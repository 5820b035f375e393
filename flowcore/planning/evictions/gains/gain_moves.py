"""The search for moves for gain: the best one first, and what is left is judged anew after each.

Most rounds end with the first look: for each kind of pod the cheapest node that has room, and no pod whose home is
dearer than that by the price of its move and the margin of its policy.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.costs import CostModel
from flowcore.costs.model import Load
from flowcore.model.constraint_limits import all_or_none
from flowcore.model.pod_index import AffinityMatch, PodMatch, PodSignature, SpreadMatch
from flowcore.model.policies import Policy
from flowcore.model.running_pods import EvictionKind, RunningPod
from flowcore.model.selectors import Labels
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.eligibility import MoveEligibility
from flowcore.planning.evictions.gains.movable_kinds import MovableKind, movable_kinds, network_policies
from flowcore.planning.evictions.gains.move_prices import move_prices
from flowcore.planning.evictions.gains.terminating_pods import TerminatingPods
from flowcore.planning.evictions.state import EvictionState
from flowcore.planning.problem.demands.demands import node_totals

#: How often a pod is judged exactly in a round. Each look costs as much as to price a class.
_MOST_LOOKS = 128


@dataclass(slots=True)
class _Offer:
    """Pods of a kind on one node that may gain by a move.

    Attributes:
        residents: price of the move and number of each, the cheapest last.
        surplus: by how much the gain of the next is above its price, at the last look.
        looked_after: after how many moves that was; -1: it was the first look, which is not exact.
    """

    kind: MovableKind
    home: int
    residents: list[tuple[int, int]] = field(default_factory=list)
    surplus: int = 0
    looked_after: int = -1

    @property
    def resident(self) -> int:
        """Number of the next."""
        return self.residents[-1][1]

    @property
    def price(self) -> int:
        """What the move of the next costs."""
        return self.residents[-1][0]

    @property
    def namespace(self) -> str:
        """That of all of them."""
        return self.kind.namespace


class _Looks:
    """The looks of a round. A namespace has at most half of what the others left, so that it cannot use up all."""

    def __init__(self, namespaces: Collection[str]) -> None:
        self._is_shared, self._taken, self.left = len(namespaces) > 1, Counter[str](), _MOST_LOOKS

    def take(self, namespace: str) -> bool:
        """Takes one for a pod of a namespace. Returns whether there was one for it."""
        share = self.left + self._taken[namespace]
        if self._taken[namespace] >= (-(-share // 2) if self._is_shared else share):
            return False
        self._taken[namespace] += 1
        self.left -= 1
        return True


class GainMoves:
    """Decides moves for gain; it changes the state."""

    def __init__(
        self,
        state: EvictionState,
        policies: Mapping[str, Policy],
        models: Mapping[str, CostModel],
        moves: MoveEligibility,
        destinations: Destinations,
        placed: Iterable[PodSignature],
    ) -> None:
        """``placed``: of the pods that the first part of the round placed."""
        self._state, self._residents, self._policies, self._models = state, state.residents, policies, models
        self._moves, self._destinations, self._placed = moves, destinations, placed
        snapshot = state.snapshot()
        self._terminating = TerminatingPods.of(snapshot, state.residents.running)
        #: bool[N]: nodes that are neither left nor taken for gain.
        self._unsettled = self._terminating.unsettled.copy()
        #: Pods that would move if the nodes were settled: part of the plan until its end.
        self._held: list[int] = []
        #: ``_is_needed`` by signature and policy of a pod.
        self._needed: dict[tuple[int, str], bool] = {}

    def decide(self, kept: Bools, holds: Callable[[], bool]) -> None:
        """Decides moves until none is worth its price.

        Args:
            kept: bool[N], nodes whose room others wait for: no pod goes there.
            holds: whether every filter still passes for the whole plan; asked after each move.
        """
        movable = np.nonzero(self._moves.gain_mask(network_policies(self._policies, self._models)))[0]
        if not len(movable) or kept.all():
            return
        self._decide(self._offers(movable, kept), kept, holds)
        for resident in self._held:
            self._state.stay(resident)

    def _decide(self, offers: Sequence[_Offer], kept: Bools, holds: Callable[[], bool]) -> None:
        queue = [(-offer.surplus, number, offer) for number, offer in enumerate(offers)]
        heapq.heapify(queue)
        moves, looks = 0, _Looks({offer.namespace for offer in offers})
        while queue and looks.left > 0:
            _, number, offer = heapq.heappop(queue)
            if not self._may_move(offer) or not looks.take(offer.namespace):
                continue
            gain, node = self._best(offer, kept)
            offer.surplus = gain - offer.price
            if node < 0 or offer.surplus < offer.kind.policy.rescheduling.min_gain:
                continue
            if queue and offer.surplus < -queue[0][0] and offer.looked_after < moves:
                offer.looked_after = moves
            elif self._unsettled[[offer.home, node]].any():
                self._hold(offer, node)
                moves += 1
                offer.residents.pop()
            elif self._move(offer, gain, node, holds):
                moves += 1
                offer.residents.pop()
            else:
                continue
            heapq.heappush(queue, (-offer.surplus, number, offer))

    # --- the first look ---

    def _offers(self, movable: Int64s, kept: Bools) -> list[_Offer]:
        """Pods whose home is dear enough at a first look: those of a kind on a node together."""
        state, residents = self._state, self._residents
        snapshot = self._terminating.gone_from(state.snapshot())
        load, room = Load.of(snapshot), np.minimum(state.free_now, state.free) + self._terminating.room
        kinds = movable_kinds(residents, movable, snapshot, self._policies, self._models, self._destinations)
        values = {potential: potential.values(load) for potential in {kind.costs.potential for kind in kinds}}
        offers: dict[tuple[int, int], _Offer] = {}
        for number, kind in enumerate(kinds):
            asked = kind.usage > 0
            usable = (room[:, asked] >= kind.usage[asked]).all(axis=1) & ~kept
            gains = kind.apparent_gains(snapshot, load, values[kind.costs.potential], usable)
            gaining = kind.residents[gains[residents.nodes[kind.residents]] >= kind.policy.rescheduling.min_gain]
            if not len(gaining):
                continue
            homes, prices = residents.nodes[gaining], self._prices(gaining, snapshot)
            surplus = gains[homes] - prices
            for row in np.nonzero(surplus >= kind.policy.rescheduling.min_gain)[0].tolist():
                home = int(homes[row])
                offer = offers.setdefault((number, home), _Offer(kind, home))
                offer.residents.append((int(prices[row]), int(gaining[row])))
                offer.surplus = max(offer.surplus, int(surplus[row]))
        for offer in offers.values():
            offer.residents.sort(reverse=True)
        return list(offers.values())

    def _prices(self, numbers: Int64s, snapshot: Snapshot) -> Int64s:
        """int64[len(numbers)]: what moves of some residents cost."""
        everything, offering = node_totals(snapshot)
        tenths = 10 * (self._residents.usage[numbers] * (offering / everything)).max(axis=1)
        pods = [self._residents.pods[number] for number in numbers.tolist()]
        return move_prices(pods, tenths, self._policies, snapshot.now)

    # --- the second ---

    def _may_move(self, offer: _Offer) -> bool:
        """Whether any pod of an offer may leave: its budgets, its policy's limits, the rules of others."""
        while offer.residents:
            resident = offer.resident
            may_leave = self._moves.may_be_evicted(resident) and self._moves.within_limits(resident)
            if may_leave and not self._is_needed(resident):
                return True
            offer.residents.pop()
        return False

    def _is_needed(self, resident: int) -> bool:
        """Whether a rule may not hold any more once the pod is gone: of its own, of another pod, or of its policy."""
        pod = self._residents.pods[resident]
        key = id(pod.signature), pod.policy
        if key not in self._needed:
            self._needed[key] = self._is_any_needed(pod)
        return self._needed[key]

    def _is_any_needed(self, pod: RunningPod) -> bool:
        constraints = pod.signature.constraints
        if constraints is not None and (constraints.affinity or constraints.spread):
            return True
        if all_or_none(pod.signature.labels, self._policies[pod.policy]):
            return True
        return any(match.includes(pod.signature, self._namespaces) for match in self._counted)

    @cached_property
    def _namespaces(self) -> Mapping[str, Labels]:
        return self._state.snapshot().pod_index.namespaces

    @cached_property
    def _counted(self) -> tuple[PodMatch, ...]:
        """The pods that required rules of pods count which would miss one: pod affinity, and spread."""
        running = {id(pod.signature): pod.signature for pod in self._residents.pods}
        arrivals = (arrival.pod.signature for arrival in self._state.arrivals)
        matches: dict[PodMatch, None] = {}
        for signature in (*running.values(), *self._placed, *arrivals):
            constraints = signature.constraints
            if constraints is not None:
                matches |= dict.fromkeys(AffinityMatch((term,)) for term in constraints.affinity)
                matches |= dict.fromkeys(SpreadMatch(signature.namespace, each.selector) for each in constraints.spread)
        return tuple(matches)

    def _best(self, offer: _Offer, kept: Bools) -> tuple[int, int]:
        """What the next pod gains, exactly, and on which node; -1: on none."""
        resident, kind, home = offer.resident, offer.kind, offer.home
        without = self._terminating.gone_from(self._state.snapshot([resident]))
        costs = kind.costs.one_more(without, Load.of(without))
        avoided = kept | self._left_before(resident, without.table.index)
        usable = self._destinations.usable(resident, avoided | self._unsettled) | self._will_do(offer) & ~avoided
        nodes = np.nonzero(usable & (costs < costs[home]))[0]
        nodes = nodes[np.argsort(costs[nodes], kind="stable")]
        passing = self._destinations.passing(resident, nodes[~self._unsettled[nodes]])
        nodes = nodes[self._unsettled[nodes] | np.isin(nodes, passing)]
        return (int(costs[home] - costs[nodes[0]]), int(nodes[0])) if len(nodes) else (0, -1)

    def _will_do(self, offer: _Offer) -> Bools:
        """bool[N]: unsettled nodes that may have room once they are settled; what the filters say then is not known."""
        asked = offer.kind.usage > 0
        room = (self._state.free + self._terminating.room)[:, asked]
        enough = (room >= offer.kind.usage[asked]).all(axis=1)
        will_do: Bools = offer.kind.costs.allowed & enough & self._unsettled
        return will_do

    def _hold(self, offer: _Offer, node: int) -> None:
        """The next pod stays until its home and its best node are settled: it might leave in vain, or twice.

        Until the end of the plan it counts as moved, or others would go in its stead.
        """
        # Not as a move: it takes nothing of the limits.
        self._state.let_leave(offer.resident, EvictionKind.PREEMPTION, ())
        self._state.reserve_replacement(offer.resident, node, is_move=False)
        self._held.append(offer.resident)
        self._unsettled[[offer.home, node]] = True

    def _left_before(self, resident: int, index: Mapping[str, int]) -> Bools:
        """bool[N]: nodes that a pod of its controller was moved from within the last hour: none goes back there."""
        owner, left = self._residents.pods[resident].owner, np.zeros(len(index), dtype=np.bool_)
        for move in self._residents.running.moves:
            if move.owner == owner and move.node in index:
                left[index[move.node]] = True
        return left

    def _move(self, offer: _Offer, gain: int, node: int, holds: Callable[[], bool]) -> bool:
        """Decides the move of the next pod, unless that would break a rule elsewhere in the plan."""
        state, resident = self._state, offer.resident
        nodes = state.snapshot().table.nodes
        reason = (
            f"it costs {gain:,} less on {nodes[node].name} than on {nodes[offer.home].name}, "
            f"and its move costs {offer.price:,}"
        )
        checkpoint = state.checkpoint()
        state.let_leave(resident, EvictionKind.MIGRATION, (), reason=reason, gain=gain)
        state.reserve_replacement(resident, node, is_move=True)
        if holds():
            return True
        state.roll_back(checkpoint)
        return False
