"""Running pods leave that break a rule which their policy has hold while they run: as few as mend it.

Each leaves for a reserved place where its rules hold, and only if fewer pods break such a rule afterwards. So rounds
that repeat this come to an end: no pod goes to and fro.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.eligibility import MoveEligibility
from flowcore.planning.evictions.rules.lasting_rules import LastingRules, NodeVerdict
from flowcore.planning.evictions.rules.rule_evictions import evicting_nodes
from flowcore.planning.problem.placements.plans import Plan

_Verdicts = tuple[NodeVerdict, ...]

#: How many pods a round tries in vain, one of equal ones each. Each try judges rules anew, for milliseconds in a large
#: cluster. So many in their order, then as many from another place in each round: nobody keeps the others from leaving.
_MOST_FAILED_IN_ORDER = _MOST_FAILED_IN_TURN = 64
_GOLDEN_RATIO = (1 + 5**0.5) / 2


def evict_for_lasting_rules(
    state: Plan,
    destinations: Destinations,
    moves: MoveEligibility,
    rules: LastingRules,
    costs: Callable[[int], Int64s | None],
) -> None:
    """Decides which of these pods leave, within the limits of moves, PodDisruptionBudgets and minAge.

    Args:
        costs: see ``evict_for_rules``.
    """
    if rules.any_broken:
        search = _Search(state, destinations, moves, rules, costs)
        while search.let_one_leave():
            pass


class _Search:
    """What is known of the pods after the decisions so far; P pods as in ``LastingRules``."""

    def __init__(
        self,
        state: Plan,
        destinations: Destinations,
        moves: MoveEligibility,
        rules: LastingRules,
        costs: Callable[[int], Int64s | None],
    ) -> None:
        self._costs = costs
        self._state, self._destinations, self._moves, self._rules = state, destinations, moves, rules
        numbers = {pod.key: number for number, pod in enumerate(state.residents.pods[: state.residents.running_count])}
        self._residents = [numbers[pod.key] for pod in rules.pods]
        #: int64[P], the node that each pod has or will have; -1: none.
        self._nodes = rules.nodes.copy()
        #: bool[P], pods that have been looked at, or leave for another reason.
        self._done: Bools = ~rules.old_enough
        for place, resident in enumerate(self._residents):
            if resident in state.leaving:
                self._nodes[place], self._done[place] = state.leaving[resident].to, True
        snapshot = state.snapshot()
        self._verdicts = {kind: rules.verdicts(kind, snapshot) for kind in range(rules.kind_count)}
        self._members = {kind: np.nonzero(rules.kinds == kind)[0] for kind in self._verdicts}
        self._priorities = np.array([pod.priority for pod in rules.pods], dtype=np.int64)
        self._started = np.array([pod.started for pod in rules.pods])
        self._failed = 0

    def let_one_leave(self) -> bool:
        """Finds the next pod that leaves; False: there is none, or too many were tried in vain."""
        most = _MOST_FAILED_IN_ORDER
        if self._first_that_leaves(self._order(), most):
            return True
        return self._failed >= most and self._first_that_leaves(self._in_turn(), most + _MOST_FAILED_IN_TURN)

    def _first_that_leaves(self, order: Iterable[int], most_failed: int) -> bool:
        for place in order:
            if self._failed >= most_failed:
                return False
            if not self._done[place]:
                self._done[place] = True
                if self._leaves(place):
                    return True
        return False

    def _in_turn(self) -> list[int]:
        """The same order from another place in each round, wherever in it that is: by steps of the golden ratio."""
        order = self._order()
        start = int(len(order) * (self._state.before.now * _GOLDEN_RATIO % 1.0))
        return order[start:] + order[:start]

    def _order(self) -> list[int]:
        """Pods that break a rule: lower priorities first, then the most crowded domains, then the youngest pods."""
        excess = np.zeros(len(self._nodes), dtype=np.int64)
        for kind, verdicts in self._verdicts.items():
            members = self._members[kind]
            for verdict in verdicts:
                excess[members] = np.maximum(excess[members], verdict.excess[self._nodes[members]])
        broken = np.nonzero((excess > 0) & ~self._done)[0]
        order = np.lexsort((-self._started[broken], -excess[broken], self._priorities[broken]))
        return [int(place) for place in broken[order]]

    def _leaves(self, place: int) -> bool:
        """Lets a pod leave if it may, has somewhere to go and the rules are better kept afterwards."""
        state, resident = self._state, self._residents[place]
        if not (self._moves.within_limits(resident) and self._moves.may_be_evicted(resident)):
            return False
        kind, node = int(self._rules.kinds[place]), int(self._nodes[place])
        broken = [verdict for verdict in self._verdicts[kind] if verdict.excess[node] > 0]
        checkpoint = state.checkpoint()
        state.let_leave(resident, EvictionKind.RULE, (), reason=broken[0].reason(node))
        to = self._destination(resident, next((verdict.best for verdict in broken if verdict.best is not None), None))
        if to < 0:
            self._failed += 1
            state.roll_back(checkpoint)
            # Its equals have no other nodes to go to. They are not asked, for there may be thousands.
            self._done |= self._rules.alike == self._rules.alike[place]
            return False
        state.reserve_replacement(resident, to, is_move=True)
        after = state.snapshot()
        touched = self._rules.affected(self._rules.pods[place].signature) | {kind}
        verdicts = {number: self._rules.verdicts(number, after) for number in touched}
        broken_before = self._count_broken(self._verdicts, touched)
        self._nodes[place] = to
        if self._count_broken(verdicts, touched) >= broken_before:
            self._failed += 1
            self._nodes[place] = node
            state.roll_back(checkpoint)
            self._done[self._equals(place)] = True
            return False
        self._verdicts |= verdicts
        return True

    def _equals(self, place: int) -> list[int]:
        """Pods of the same node that would go to the same one, and for which the same rules count the same."""
        pods, rules = self._rules.pods, self._rules
        alike = (rules.alike == rules.alike[place]) & (self._nodes == self._nodes[place]) & ~self._done
        known = pods[place].signature, pods[place].policy
        return [
            number for number in np.nonzero(alike)[0].tolist() if (pods[number].signature, pods[number].policy) == known
        ]

    def _destination(self, resident: int, best: Bools | None) -> int:
        """The node of a replacement, one of the best if it can be; -1: none."""
        state = self._state
        avoid = evicting_nodes(state.residents.pods[resident].pod_class, state.before.table)
        costs = self._costs(resident)
        to = self._destinations.find(resident, avoid | ~best, costs) if best is not None else -1
        return to if to >= 0 else self._destinations.find(resident, avoid, costs)

    def _count_broken(self, verdicts: Mapping[int, _Verdicts], kinds: Iterable[int]) -> int:
        """How many pods of some kinds break a rule."""
        count = 0
        for kind in kinds:
            nodes: Int64s = self._nodes[self._members[kind]]
            nodes = nodes[nodes >= 0]
            broken = np.zeros(len(nodes), dtype=np.bool_)
            for verdict in verdicts[kind]:
                broken |= verdict.excess[nodes] > 0
            count += int(broken.sum())
        return count
