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
#: Of the latter this much is kept for the first units of each namespace: those that spend much leave it to others.
KEPT_OF_ROUND, FIRST_OF_NAMESPACE = 1_000_000, 125_000
#: Units of other work than steps of CEL: to look up what is remembered of a node, to search one, to ask a selector
#: about a device, to choose a device, to compile a character.
LOOK_UP, NODE, DEVICE, CHOICE, CHARACTER = 2, 100, 4, 12, 6
#: Nodes of which a unit says whether a term of what a claim has selects them.
SELECTED_BY_UNIT = 16

REASON_LATER: Final = "devices not searched yet: claims of the namespace cost more than a round spends on them"
REASON_OTHERS_FIRST: Final = "devices not planned in this round: others that need them by preemption go first"

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
        self._kept_spent = self._common_spent = 0

    def begin_round(self, number: int) -> None:
        """From here on the limits of one round hold; 0: none."""
        self.rounds = number
        self._spent.clear()
        self._kept_spent = self._common_spent = 0

    def of(self, namespace: str) -> Spend:
        """Spends for the claims of a namespace; see ``spend``."""
        return partial(self.spend, namespace)

    def spend(self, namespace: str, units: int) -> None:
        """Counts work. The last piece may go beyond the limits.

        Raises:
            EffortSpentError: a limit was reached before.
        """
        spent = self._spent[namespace]
        is_kept = spent < FIRST_OF_NAMESPACE and self._kept_spent < KEPT_OF_ROUND
        has_common = self._common_spent < MOST_OF_ROUND - KEPT_OF_ROUND
        if self.rounds and (spent >= MOST_OF_NAMESPACE or not (is_kept or has_common)):
            raise EffortSpentError
        self._spent[namespace] += units
        if is_kept:
            self._kept_spent += units
        else:
            self._common_spent += units
