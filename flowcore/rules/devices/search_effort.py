"""How much a round spends on searching devices: claims of one namespace do not hold up the pods of others.

A selector may cost as much as the API server lets it, devices may be many, and so may be the ways to choose some of
them. What was searched is remembered, so the next round goes on where this one stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

#: Units for the claims of one namespace, and for all, in a round. A unit is a step of CEL, about a microsecond.
MOST_OF_NAMESPACE, MOST_OF_ROUND = 1_000_000, 2_000_000
#: Units of other work than steps of CEL: to look up what is remembered of a node, to search one, to ask a selector
#: about a device, to choose a device, to compile a character.
LOOK_UP, NODE, DEVICE, CHOICE, CHARACTER = 2, 100, 4, 12, 6

REASON_LATER: Final = "devices not searched yet: claims of the namespace cost more than a round spends on them"

#: Counts units of work that begins or is done.
Spend = Callable[[int], None]


class EffortSpentError(Exception):
    """A round has nothing left to spend on the claims of a namespace."""


def unlimited(_units: int) -> None:
    """Work that has to be done."""


class SearchEffort:
    """What the searches of a round have cost. There is no limit before the first round begins.

    Attributes:
        rounds: the number of the round; 0 before the first.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self._spent = Counter[str]()
        self._spent_by_all = 0

    def begin_round(self, number: int) -> None:
        """From here on the limits of one round hold; 0: none."""
        self.rounds = number
        self._spent.clear()
        self._spent_by_all = 0

    def of(self, namespace: str) -> Spend:
        """Spends for the claims of a namespace; see ``spend``."""
        return partial(self.spend, namespace)

    def spend(self, namespace: str, units: int) -> None:
        """Counts work. The last piece may go beyond the limits.

        Raises:
            EffortSpentError: a limit was reached before.
        """
        if self.rounds and (self._spent[namespace] >= MOST_OF_NAMESPACE or self._spent_by_all >= MOST_OF_ROUND):
            raise EffortSpentError
        self._spent[namespace] += units
        self._spent_by_all += units
