"""Running pods leave that break a rule which must hold while they run: as few as mend it.

Each leaves for a reserved place where its rules hold; where its policy says so, without one too. For a rule that only
its policy has hold it leaves only if fewer pods break a rule afterwards. So rounds that repeat this come to an end: no
pod goes to and fro.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.model.policies import DuringExecution
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.moves.lasting_rules import LastingRules, Verdicts
from flowcore.planning.evictions.moves.movers import Movers
from flowcore.planning.problem.placements.plans import Plan

#: How many pods a round tries in vain, one of equal ones each. Each try judges rules anew, for milliseconds in a large
#: cluster. So many in their order, then as many from another place in each round: nobody keeps the others from leaving.
_MOST_FAILED_IN_ORDER = _MOST_FAILED_IN_TURN = 64
_GOLDEN_RATIO = (1 + 5**0.5) / 2


def evict_for_rules(state: Plan, movers: Movers, rules: LastingRules) -> None:
    """Decides which of these pods leave, within the limits of moves, PodDisruptionBudgets and minAge."""
    if rules.broken.any():
        search = _Search(state, movers, rules)
        while search.let_one_leave():
            pass


class _Search:
    """What is known of the pods after the decisions so far; P pods as in ``LastingRules``."""

    def __init__(self, state: Plan, movers: Movers, rules: LastingRules) -> None:
        self._state, self._movers, self._rules = state, movers, rules
        numbers = {pod.key: number for number, pod in enumerate(state.residents.pods[: state.residents.running_count])}
        self._residents = [numbers[pod.key] for pod in rules.pods]
        #: int64[P], the node that each pod has or will have; -1: none.
        self._nodes = rules.nodes.copy()
        #: bool[P], pods that have been looked at.
        self._done = np.zeros(len(rules.pods), dtype=np.bool_)
        self._verdicts = rules.all_verdicts(state.snapshot())
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
        """Pods that break a rule: of their author first, lower priorities, the most crowded domains, the youngest."""
        excess = self._rules.excess(self._verdicts, self._nodes)
        most = self._rules.weigh(excess)
        broken = np.nonzero((most > 0) & ~self._done)[0]
        ranks = -self._started[broken], -most[broken], self._priorities[broken], excess[1, broken] == 0
        return [int(place) for place in broken[np.lexsort(ranks)]]

    def _leaves(self, place: int) -> bool:
        """Lets a pod leave if it may, has somewhere to go and the rules are better kept afterwards."""
        state, rules, resident = self._state, self._rules, self._residents[place]
        pod, kind, node = rules.pods[place], int(rules.kinds[place]), int(self._nodes[place])
        broken = [verdict for verdict in self._verdicts[kind] if verdict.excess[node] > 0]
        first = broken[0]
        if not self._movers.may_go(resident, by_controller=first.by_controller):
            return False
        checkpoint, nodes = state.checkpoint(), self._nodes
        self._nodes = nodes.copy()
        reason = first.reason(node)
        state.let_leave(resident, EvictionKind.RULE, (), reason=reason, by_controller=first.by_controller)
        best = next((verdict.best for verdict in broken if verdict.best is not None), None)
        if self._movers.destinations.reserve(resident, is_move=True, best=best):
            self._nodes[place] = state.leaving[resident].to
        elif first.required and pod.during_execution is DuringExecution.EVICT:
            state.count_move(resident)
            self._nodes[place] = -1
        else:
            self._failed += 1
            state.roll_back(checkpoint)
            # Its equals have no other nodes to go to. They are not asked, for there may be thousands.
            self._done |= rules.alike == rules.alike[place]
            return False
        affected = rules.affected(pod.signature)
        after = state.snapshot() if affected else state.before
        verdicts = {**self._verdicts, **{number: rules.verdicts(number, after) for number in affected}}
        if not first.required and self._count_broken(verdicts, self._nodes) >= self._count_broken(
            self._verdicts, nodes
        ):
            self._failed += 1
            self._nodes = nodes
            self._done[self._equals(place)] = True
            state.roll_back(checkpoint)
            return False
        self._verdicts = verdicts
        return True

    def _equals(self, place: int) -> list[int]:
        """Pods of the same node that would go to the same one, and for which the same rules count the same."""
        pods, rules = self._rules.pods, self._rules
        alike = (rules.alike == rules.alike[place]) & (self._nodes == self._nodes[place]) & ~self._done
        known = pods[place].signature, pods[place].policy
        return [
            number for number in np.nonzero(alike)[0].tolist() if (pods[number].signature, pods[number].policy) == known
        ]

    def _count_broken(self, verdicts: Verdicts, nodes: Int64s) -> int:
        """How many pods break a rule, where they are on these nodes."""
        return int(np.count_nonzero(self._rules.excess(verdicts, nodes).any(axis=0)))
