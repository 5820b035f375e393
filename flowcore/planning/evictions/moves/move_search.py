"""The search for moves: as few pods as possible leave one node for a waiting pod, each for a place of its own."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.eligibility import MoveEligibility, PossibleEviction
from flowcore.planning.evictions.moves.chains import Chains
from flowcore.planning.evictions.residents import VictimsKey
from flowcore.planning.evictions.search.node_search import NodeSearch
from flowcore.planning.evictions.search.victims import choose_victims
from flowcore.planning.evictions.state import EvictionState

#: Nodes on which sets of moves are looked for, the same in chains, and sets that are really tried.
_MAX_NODES, _MAX_NODES_IN_CHAINS, _MAX_TRIES = 96, 16, 64
#: With so many nodes where moves may help at most, and so many residents that may move, more than one set of a node is
#: tried; and how often in a round.
_FEW_NODES, _FEW_RESIDENTS, _MOST_RETRIES = 8, 16, 32
#: How many pods leave one after the other: one, to a place that is free; more of them, in chains.
FREE_PLACES, CHAINS, ANY_PLACES = range(1, 2), range(2, 4), range(1, 4)

#: How many move, what they are, their node, themselves, and the residents that they were chosen from.
_Moves = tuple[int, VictimsKey, int, tuple[int, ...], tuple[int, ...]]


class MoveSearch:
    """Moves for waiting pods: as few pods as possible leave one node, each for a place of its own.

    Places that are free come first. Where there are none, others make room for the moved pods (``Chains``).
    """

    def __init__(self, state: EvictionState, moves: MoveEligibility, destinations: Destinations) -> None:
        self._state, self._moves, self._destinations = state, moves, destinations
        self._chains = Chains(state, moves, destinations)
        self._retries_left = _MOST_RETRIES
        #: The search that sets are known for. By node, and whether others may make room: all that they follow from, and
        #: the best of them or none.
        self._known_for: NodeSearch | None = None
        self._known: dict[tuple[int, bool], tuple[tuple[int, ...], list[_Moves]]] = {}

    def place(self, this: NodeSearch, pod: PendingPod, waves: range) -> bool:
        """Moves pods off one node for the next pod of a demand, as few as possible. Returns whether it has a node.

        Args:
            waves: which numbers of pods may leave one after the other, the smallest first.
        """
        self._chains.begin(pod.key)
        return any(self._place(this, pod, number) for number in waves)

    def _place(self, this: NodeSearch, pod: PendingPod, waves: int) -> bool:
        """The same; ``waves``: how many pods may leave one after the other, 1: each has a place that is free."""
        state, chains = self._state, self._chains
        if waves > 1:
            if not (chains.may_look and self._may_begin(this.priority)):
                return False
            chains.look()
        candidates = self._candidates(this, in_chains=waves > 1)
        heapq.heapify(candidates)
        few = len(candidates) <= _FEW_NODES
        tried: set[tuple[int, ...]] = set()
        while candidates and len(tried) < _MAX_TRIES and (waves == 1 or chains.may_look):
            _, _, node, members, among = heapq.heappop(candidates)
            if members in tried:
                continue
            tried.add(members)
            if waves > 1:
                chains.look()
            checkpoint = state.checkpoint()
            state.arrive(pod, this.number, node)
            if chains.move(members, pod.key, this.priority, waves, made_on=(node,)):
                moved = list(state.leaving.items())[checkpoint.leaving :]
                homes = {int(state.residents.nodes[resident]) for resident, _ in moved}
                this.changed({node, *homes, *(leaving.to for _, leaving in moved)})
                return True
            state.roll_back(checkpoint)
            # Another set of the same node may have room elsewhere.
            for member in members if few and this.fit_check.by_node and len(among) <= _FEW_RESIDENTS else ():
                if self._retries_left or waves > 1:  # chains have looks of their own
                    self._retries_left -= waves == 1
                    rest = [resident for resident in among if resident != member]
                    for candidate in self._moves_off(this, node, rest):
                        heapq.heappush(candidates, candidate)
        return False

    def _may_begin(self, priority: int) -> bool:
        """Whether any pod could be the first of a chain: it goes where room is free."""
        return bool(self._destinations.may_fit(self._moves.mask(priority)).any())

    def _candidates(self, this: NodeSearch, *, in_chains: bool) -> list[_Moves]:
        """The best set of each node that may be the best one; ``in_chains``: also of pods without a free place.

        Then only of pods whose place resources alone decide: filters would look at all nodes for each of them.
        """
        state, residents, destinations = self._state, self._state.residents, self._destinations
        if self._known_for is not this:
            self._known_for = this
            self._known.clear()
        candidates: list[_Moves] = []
        mask = self._moves.mask(this.priority)
        if not in_chains:
            mask = destinations.may_fit(mask)
        for node in this.bounds(mask).nodes[: _MAX_NODES_IN_CHAINS if in_chains else _MAX_NODES].tolist():
            movable = [
                resident
                for resident in residents.on(node)
                if mask[resident]
                and self._moves.may_move(resident, this.priority)
                and (destinations.allowed(resident)[0] if in_chains else destinations.has_any(resident))
            ]
            if not movable:
                continue
            # Where filters decide, what leaves or comes anywhere may change the verdict.
            version = state.version(node) if this.fit_check.by_node else state.changes
            known = self._known.get((node, in_chains))
            if known is None or known[0] != (version, *movable):
                known = self._known[node, in_chains] = (version, *movable), self._moves_off(this, node, movable)
            candidates += known[1]
        return candidates

    def _moves_off(self, this: NodeSearch, node: int, among: Sequence[int]) -> list[_Moves]:
        """The best set of these residents of a node that makes room for a pod; none: all of them are not enough."""
        each_alone = [PossibleEviction((resident,), (resident,)) for resident in among]
        victims = choose_victims(self._state.residents, this.fit_check, node, [each_alone])
        if victims is None:
            return []
        return [(len(victims.members), victims.key, node, victims.members, tuple(among))]
