"""How many choices of domains a round tries for groups whose gangs choose several: each looks at all nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from flowcore.model.turns import turn_of
from flowcore.planning.evictions.residents import Residents
from flowcore.planning.evictions.waiting import Waiting
from flowcore.planning.problem.problem import Problem

#: Tries of a round, of each sort, with so many nodes and running pods at most. A try takes some tens of milliseconds
#: with 100 000 running pods, so that larger clusters have fewer.
_MOST, _FEW_OBJECTS = 512, 20_000
#: One group of a round is in turn: it has this part of as many for itself, one of four.
_SHARE_IN_TURN = 4


class Tries:
    """The tries of a round: to find a plan, and to find a better one than the first.

    A namespace has half of those that others have not used, and a group half of what is left then, so that groups that
    nothing helps leave some for others. In each round another group is in turn. It has tries of its own, so that those
    before it in the order of groups cannot keep it waiting for ever.
    """

    def __init__(self, groups: Sequence[Waiting], objects: int, turn: int) -> None:
        """``groups``: those that share the tries.

        Args:
            objects: how many nodes and running pods there are.
            turn: below 2**32, another one in each round.
        """
        self._most = _MOST * _FEW_OBJECTS // max(_FEW_OBJECTS, objects)
        self._used, self._used_for_better = Counter[str](), Counter[str]()
        self._in_turn, self._left_in_turn = _in_turn(groups, turn), self._most // _SHARE_IN_TURN

    @classmethod
    def of(cls, problem: Problem, residents: Residents, waiting: Iterable[Waiting]) -> Self:
        """Those of a round."""
        groups, snapshot = problem.atomic_groups.all, problem.snapshot
        # A single gang chooses one domain.
        several = [each for each in waiting if each.needs_domain and len(groups[each.group].gangs) > 1]
        return cls(several, len(snapshot.table.nodes) + len(residents.pods), turn_of(snapshot.now))

    def begin(self, waiting: Waiting) -> int:
        """How many tries a group has for a plan, beside one for each of its gangs; 0: it is put off."""
        own = self._left_in_turn if waiting.group == self._in_turn else 0
        return max(own, self._share(self._used, waiting), 0)

    def use(self, waiting: Waiting, count: int) -> None:
        """So many tries found nothing."""
        if waiting.group == self._in_turn:
            self._left_in_turn -= count
        else:
            self._used[_namespace(waiting)] += count

    def for_better(self, waiting: Waiting) -> int:
        """How many tries a group has for a better plan."""
        return max(self._share(self._used_for_better, waiting), 0)

    def use_for_better(self, waiting: Waiting, count: int) -> None:
        """So many tries were made beside a plan."""
        self._used_for_better[_namespace(waiting)] += count

    def _share(self, used: Counter[str], waiting: Waiting) -> int:
        own = used[_namespace(waiting)]
        return ((self._most - used.total() + own) // 2 - own) // 2


def _in_turn(groups: Sequence[Waiting], turn: int) -> int:
    """The number of a group: of one of the namespaces, whose turns are alike, one of its groups; -1: there is none."""
    by_namespace: dict[str, list[tuple[str, int]]] = {}
    for waiting in groups:
        by_namespace.setdefault(_namespace(waiting), []).append((_key(waiting), waiting.group))
    if not by_namespace:
        return -1
    # The rest says which of its groups: else a namespace would always have the same one in its turn.
    place, rest = divmod(turn * len(by_namespace), 2**32)
    own = sorted(by_namespace[sorted(by_namespace)[place]])
    return own[rest * len(own) >> 32][1]


def _key(waiting: Waiting) -> str:
    return waiting.demands[0][1][0].key


def _namespace(waiting: Waiting) -> str:
    return _key(waiting).partition("/")[0]
