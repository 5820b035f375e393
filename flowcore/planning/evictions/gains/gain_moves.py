"""The search for moves for gain: the best one first, and what is left is judged anew after each.

Most rounds end with the first look: for each kind of pod the cheapest node that has room, and no pod whose home is
dearer than that by the price of its move and the margin of its policy.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools
from flowcore.costs import CostModel
from flowcore.model.constraint_limits import all_or_none
from flowcore.model.pod_index import AffinityMatch, PodMatch, PodSignature, SpreadMatch
from flowcore.model.policies import Policy
from flowcore.model.running_pods import EvictionKind, RunningPod
from flowcore.model.selectors import Labels
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.eligibility import MoveEligibility
from flowcore.planning.evictions.gains.first_look import FirstLook, GainOffer, PossibleMove
from flowcore.planning.evictions.gains.movable_kinds import network_policies
from flowcore.planning.evictions.gains.terminating_pods import TerminatingPods
from flowcore.planning.problem.placements.plans import Plan

#: How often a pod is judged exactly in a round. Each look costs as much as to price a class.
_MOST_LOOKS = 128


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
        state: Plan,
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
        # Beside a move for gain a pod that leaves for others might have stayed: the next round looks at its node.
        self._unsettled[self._residents.nodes[list(state.leaving)]] = True
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
        first_look = FirstLook(self._state, self._policies, self._models, self._destinations, self._terminating)
        self._decide(first_look.offers(movable, kept), kept, holds)
        for resident in self._held:
            self._state.stay(resident)

    def _decide(self, offers: Sequence[GainOffer], kept: Bools, holds: Callable[[], bool]) -> None:
        # Equal offers are never compared: no two have a key in common.
        queue = [(-offer.surplus, offer.key, offer) for offer in offers]
        heapq.heapify(queue)
        looks, moves = _Looks({offer.kind.namespace for offer in offers}), 0
        while queue:
            *_, offer = heapq.heappop(queue)
            if not looks.left or not self._may_any_leave(offer) or not looks.take(offer.kind.namespace):
                continue
            move = offer.cheapest
            gain, node = self._best(move, kept)
            offer.surplus = gain - move.price
            if node < 0 or offer.surplus < offer.kind.policy.rescheduling.min_gain:
                continue
            if queue and offer.surplus < -queue[0][0] and offer.looked_after < moves:
                offer.looked_after = moves
            elif self._unsettled[[offer.home, node]].any():
                self._hold(move, node)
                moves += 1
                offer.residents.pop()
            elif self._move(move, gain, node, holds):
                moves += 1
                offer.residents.pop()
            else:
                continue
            if offer.residents:
                heapq.heappush(queue, (-offer.surplus, offer.key, offer))

    # --- who may leave ---

    def _may_any_leave(self, offer: GainOffer) -> bool:
        """Whether any pod of an offer may; those that may not are dropped."""
        while offer.residents:
            if self._may_leave(offer.cheapest.resident):
                return True
            offer.residents.pop()
        return False

    def _may_leave(self, resident: int) -> bool:
        """Whether a pod may leave: its budgets, its policy's limits, the rules of others."""
        may_leave = self._moves.may_be_evicted(resident) and self._moves.within_limits(resident)
        return may_leave and not self._is_needed(resident)

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

    # --- the second look ---

    def _best(self, move: PossibleMove, kept: Bools) -> tuple[int, int]:
        """What a pod gains, exactly, and on which node; -1: on none."""
        resident, kind, home = move.resident, move.kind, int(self._residents.nodes[move.resident])
        without = self._terminating.gone_from(self._state.snapshot([resident]))
        costs = kind.one_more(without)
        avoided = kept | self._left_before(resident, without.table.index)
        usable = self._destinations.usable(resident, avoided | self._unsettled) | self._will_do(move) & ~avoided
        nodes = np.nonzero(usable & (costs < costs[home]))[0]
        nodes = nodes[np.argsort(costs[nodes], kind="stable")]
        passing = self._destinations.passing(resident, nodes[~self._unsettled[nodes]])
        nodes = nodes[self._unsettled[nodes] | np.isin(nodes, passing)]
        return (int(costs[home] - costs[nodes[0]]), int(nodes[0])) if len(nodes) else (0, -1)

    def _will_do(self, move: PossibleMove) -> Bools:
        """bool[N]: unsettled nodes that may have room once they are settled; what the filters say then is not known."""
        kind, asked = move.kind, move.kind.usage > 0
        room = (self._state.free + self._terminating.room)[:, asked]
        enough = (room >= kind.usage[asked]).all(axis=1)
        will_do: Bools = kind.costs.allowed & enough & self._unsettled
        will_do[self._residents.nodes[move.resident]] = False
        return will_do

    def _left_before(self, resident: int, index: Mapping[str, int]) -> Bools:
        """bool[N]: nodes that a pod of its controller was moved from within the last hour: none goes back there."""
        owner, left = self._residents.pods[resident].owner, np.zeros(len(index), dtype=np.bool_)
        for move in self._residents.running.moves:
            if move.owner == owner and move.node in index:
                left[index[move.node]] = True
        return left

    # --- decisions ---

    def _hold(self, move: PossibleMove, node: int) -> None:
        """A pod stays until its home and its best node are settled: it might leave in vain, or twice.

        Until the end of the plan it counts as moved, or others would go in its stead.
        """
        # Not as a move: it takes nothing of the limits.
        self._state.let_leave(move.resident, EvictionKind.PREEMPTION, ())
        self._state.reserve_replacement(move.resident, node, is_move=False)
        self._held.append(move.resident)
        self._unsettled[[self._residents.nodes[move.resident], node]] = True

    def _move(self, move: PossibleMove, gain: int, node: int, holds: Callable[[], bool]) -> bool:
        """Decides the move of a pod, unless that would break a rule elsewhere in the plan."""
        nodes, home = self._state.before.table.nodes, self._residents.nodes[move.resident]
        reason = (
            f"it costs {gain:,} less on {nodes[node].name} than on {nodes[home].name}, "
            f"and its move costs {move.price:,}"
        )
        checkpoint = self._state.checkpoint()
        self._state.let_leave(move.resident, EvictionKind.MIGRATION, (), reason=reason, gain=gain)
        self._state.reserve_replacement(move.resident, node, is_move=True)
        if not holds():
            self._state.roll_back(checkpoint)
            return False
        return True
