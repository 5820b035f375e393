"""The search for moves: as few pods as possible leave one node for a waiting pod, each for a place that is free."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.pod_index import AffinityMatch
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.eligibility import MoveEligibility, PossibleEviction
from flowcore.planning.evictions.search.node_search import NodeSearch
from flowcore.planning.evictions.search.victims import choose_victims
from flowcore.planning.plan_key import PlanKey
from flowcore.planning.problem.placements.plans import Plan

#: Nodes on which sets of moves are looked for, and sets that are really tried.
_MAX_NODES, _MAX_TRIES = 96, 64
#: With so many nodes where moves may help at most, and so many residents that may move, more than one set of a node is
#: tried; and how often in a round.
_FEW_NODES, _FEW_RESIDENTS, _MOST_RETRIES = 8, 16, 32

#: What plans with these moves are compared by, their node, themselves, and the residents that they were chosen from.
_Moves = tuple[PlanKey, int, tuple[int, ...], tuple[int, ...]]


class MoveSearch:
    """Moves for waiting pods; it changes the state."""

    def __init__(self, state: Plan, moves: MoveEligibility, destinations: Destinations) -> None:
        self._state, self._moves, self._destinations = state, moves, destinations
        self._retries_left = _MOST_RETRIES
        #: The search that sets are known for. By node: all that they follow from, and the best of them or none.
        self._known_for: NodeSearch | None = None
        self._known: dict[int, tuple[tuple[int, ...], list[_Moves]]] = {}

    def place(self, this: NodeSearch, pod: PendingPod) -> bool:
        """Moves pods off one node for the next pod of a demand, as few as possible. Returns whether it has a node."""
        state = self._state
        candidates = self._candidates(this)
        heapq.heapify(candidates)
        few = len(candidates) <= _FEW_NODES
        tried: set[tuple[int, ...]] = set()
        while candidates and len(tried) < _MAX_TRIES:
            _, node, members, among = heapq.heappop(candidates)
            if members in tried:
                continue
            tried.add(members)
            checkpoint = state.checkpoint()
            state.arrive(pod, this.number, node)
            if self._move(members, pod.key, this.priority):
                moved = list(state.leaving.items())[checkpoint.leaving :]
                homes = {int(state.residents.nodes[resident]) for resident, _ in moved}
                this.changed({node, *homes, *(leaving.to for _, leaving in moved)})
                return True
            state.roll_back(checkpoint)
            # Another set of the same node may have room elsewhere.
            for member in members if few and this.fit_check.by_node and len(among) <= _FEW_RESIDENTS else ():
                if self._retries_left:
                    self._retries_left -= 1
                    rest = [resident for resident in among if resident != member]
                    for candidate in self._moves_off(this, node, rest):
                        heapq.heappush(candidates, candidate)
        return False

    def _move(self, members: Sequence[int], key: str, priority: int) -> bool:
        """Decides moves one by one, so that each counts for the limits of the next. Returns whether all have a place.

        Args:
            key: of the waiting pod that they leave for.
            priority: of that pod, which none of them is above.
        """
        usage = self._state.residents.usage
        for resident in sorted(members, key=lambda resident: -int(usage[resident].max())):
            if not self._moves.may_move(resident, priority):
                return False
            self._state.let_leave(resident, self._moves.kind, [key])
            if not self._destinations.reserve(resident, is_move=True):
                return False
        return True

    def _candidates(self, this: NodeSearch) -> list[_Moves]:
        """The best set of each node that may be the best one."""
        state, residents, destinations = self._state, self._state.residents, self._destinations
        if self._known_for is not this:
            self._known_for = this
            self._known.clear()
        candidates: list[_Moves] = []
        mask = destinations.may_fit(self._moves.mask(this.priority))
        for node in this.bounds(mask).nodes[:_MAX_NODES].tolist():
            movable = [
                resident
                for resident in residents.on(node)
                if mask[resident] and self._moves.may_move(resident, this.priority) and destinations.has_any(resident)
            ]
            if not movable:
                continue
            # Where filters decide, what leaves or comes anywhere may change the verdict.
            version = state.version(node) if this.fit_check.by_node else state.changes
            known = self._known.get(node)
            if known is None or known[0] != (version, *movable):
                known = self._known[node] = (version, *movable), self._moves_off(this, node, movable)
            candidates += known[1]
        return candidates

    def _moves_off(self, this: NodeSearch, node: int, among: Sequence[int]) -> list[_Moves]:
        """The best set of these residents of a node that makes room for a pod; none: there is none.

        If the pod does not fit without all of them, one that its affinity wants near it stays.
        """
        each_alone = [PossibleEviction((resident,), (resident,)) for resident in among]
        partners = self._partners(this, among)
        beside = ([each for each in each_alone if each.members != (partner,)] for partner in partners)
        for choices in ([each_alone], list(beside)):
            victims = choose_victims(self._state.residents, this.fit_check, node, choices)
            if victims is not None:
                return [(PlanKey(moves=len(victims.members), moved=victims.loss), node, victims.members, tuple(among))]
        return []

    def _partners(self, this: NodeSearch, among: Sequence[int]) -> list[int]:
        """Residents of these that the required affinity of a demand's pods wants near them."""
        state, constraints = self._state, self._state.demands[this.number].group.signature.constraints
        if constraints is None or not constraints.affinity:
            return []
        wanted, namespaces = AffinityMatch(constraints.affinity), state.before.pod_index.namespaces
        pods = state.residents.pods
        return [resident for resident in among if wanted.includes(pods[resident].signature, namespaces)]
