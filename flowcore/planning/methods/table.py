"""The methods of a round, by the name that a plan carries (``RoundResult.method``), and when each runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Searches improve the best plan; the others make a plan of their own. The cheapest plan is taken.
METHODS: Final[Mapping[str, str]] = {
    "fill": "first, unless shares are",
    "one by one": "beside fill, where a pod takes little time; in the order of prices if pods are left",
    "by turns": "in place of one by one, where that takes long or shares came before it",
    "rules first": "pods with rules are left, among at most 3,000 pods",
    "rules by CP-SAT": "pods are left of a round with rules or host ports, few enough for an integer program",
    "packing": "pods without rules are left, few enough for an integer program",
    "flow": "always, unless the plan is close to its bound; last where room is short",
    "shares": "first, for over 3,000 pods of one priority; pods without rules are left, after fill for so many",
    "ruin and rebuild": "after plans made in one go and gangs by price, and last: for pods that are left, and for cost",
    "local search": "pods cost something beside each other",
    "gangs by price": "groups: always, first",
    "gangs by share": "groups: pods are left",
    "gangs by CP-SAT": "groups: for all of them at first and last, for some of them between",
}
