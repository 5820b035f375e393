"""How many choices of domains are tried for groups whose gangs choose them: each looks at all nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from flowcore.model.turns import begun_at, share_left, turn_of
from flowcore.planning.problem.problem import Problem

#: Most tries of each sort in a round, in clusters with up to 20,000 nodes and running pods together. A try takes some
#: tens of milliseconds where pods leave among 100,000 running ones, so larger clusters have fewer.
_MOST, _FEW_OBJECTS = 512, 20_000
#: In each round it is another group's turn. That group alone has a quarter of the tries beside those that all share.
_SHARE_IN_TURN = 4


class DomainTries:
    """The tries of a search through all groups: to find a plan for each, and to find a better one than the first.

    A namespace may use half of the tries that other namespaces have not used, and a group half of what its namespace
    has left. So groups that no domain helps leave tries for others. In each round it is another group's turn. That
    group has tries of its own, so that groups before it in the order cannot keep it waiting for ever.
    """

    def __init__(self, keys: Mapping[int, str], objects: int, turn: int) -> None:
        """``keys``: the number of each group that shares the tries, and the key of one of its pods.

        Args:
            objects: how many nodes and running pods are looked at.
            turn: below 2**32, another one in each round.
        """
        self._keys, self._turn = keys, turn
        self._most = _MOST * _FEW_OBJECTS // max(_FEW_OBJECTS, objects)
        #: Tries that each namespace has used for plans, and for better ones.
        self._used = Counter[str](), Counter[str]()
        self._in_turn, self._left_in_turn = _in_turn(keys, turn), self._most // _SHARE_IN_TURN

    @classmethod
    def of(cls, problem: Problem, groups: Iterable[int], objects: int) -> Self:
        """The tries of a round, for some of its groups."""
        keys = {group: _key_of(problem, group) for group in groups}
        return cls(keys, objects, turn_of(problem.snapshot.now))

    @classmethod
    def for_all(cls, problem: Problem) -> Self:
        """The tries of a search in which no running pod leaves, for all groups that choose domains."""
        groups = problem.atomic_groups.all
        numbers = [n for n, group in enumerate(groups) if not (group.any_domain or group.unschedulable_reason)]
        return cls.of(problem, numbers, len(problem.snapshot.table.nodes))

    def left(self, group: int, *, better: bool = False) -> int:
        """How many tries a group has for a plan, beside one for each of its gangs; 0: it is put off, or has no share.

        Args:
            better: than the plan that it has.
        """
        if group not in self._keys:
            return 0
        beside = self._left_in_turn if group == self._in_turn and not better else 0
        used, own = self._used[better], self._used[better][self._namespace(group)]
        return max(beside, share_left(self._most, own, used.total() - own) // 2, 0)

    def use(self, group: int, count: int, *, better: bool = False) -> None:
        """Counts tries of a group that found nothing, or that looked for a better plan."""
        if group == self._in_turn and not better:
            self._left_in_turn -= count
        elif group in self._keys:
            self._used[better][self._namespace(group)] += count

    def some_of(self, domains: Sequence[int], most: int) -> list[int]:
        """The domains that are tried in this round.

        Half of them are the best ones. The other half changes with each round, so that each domain is tried in some.

        Args:
            domains: the best first.
            most: how many are tried at most.
        """
        if len(domains) <= most:
            return list(domains)
        half = most // 2
        return [*domains[:half], *begun_at(list(domains[half:]), self._turn)[: most - half]]

    def _namespace(self, group: int) -> str:
        return _namespace(self._keys[group])


def _in_turn(keys: Mapping[int, str], turn: int) -> int:
    """The number of the group whose turn it is; -1: there is no group.

    Namespaces take turns, and within a namespace its groups do.
    """
    by_namespace: dict[str, list[tuple[str, int]]] = {}
    for group, key in keys.items():
        by_namespace.setdefault(_namespace(key), []).append((key, group))
    if not by_namespace:
        return -1
    # The rest says which of its groups: else a namespace would always have the same one in its turn.
    place, rest = divmod(turn * len(by_namespace), 2**32)
    groups = sorted(by_namespace[sorted(by_namespace)[place]])
    return groups[rest * len(groups) >> 32][1]


def _key_of(problem: Problem, group: int) -> str:
    members = (entry for members in problem.atomic_groups.all[group].members for entry in members.items())
    return next((problem.demands[demand].group.pods[places[0]].key for demand, places in members), "")


def _namespace(key: str) -> str:
    return key.partition("/")[0]
