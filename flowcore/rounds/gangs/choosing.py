"""A round whose gangs are decided: the pods that may be placed, as demands for the methods that know no gangs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flowcore.model.snapshot import Int64s
from flowcore.rounds.commits import Commit
from flowcore.rounds.demands import Demand
from flowcore.rounds.gangs.admission import Choice
from flowcore.rounds.gangs.units import Units

#: Sums of prices of 100,000 pods stay within int64.
_DEAREST = 5 * 10**13


@dataclass(frozen=True, slots=True, eq=False)
class Contenders:
    """What a planner is given once it is decided which units are in.

    Pods of other units are not among them. Those that chosen units need come first in their demand, at a price above
    all others, so that each method places them before anything else; a plan that leaves one of them out is none.

    Attributes:
        demands: those that have any pods left.
        names: number in the round of each of them.
        required: how many pods of each every plan must place.
    """

    demands: tuple[Demand, ...]
    names: tuple[int, ...]
    required: tuple[int, ...]

    @classmethod
    def of(cls, choice: Choice, units: Units) -> Contenders:
        """The contenders of a choice."""
        if not units.all:
            return cls(choice.demands, tuple(range(len(choice.demands))), (0,) * len(choice.demands))
        total = sum(float(demand.prices.sum()) for demand in choice.demands)
        lift = int(min(total, _DEAREST)) + 1
        found = []
        for at, demand in enumerate(choice.demands):
            turns = units.turns(at, choice.chosen)
            if len(turns):
                required = units.required(at, choice.chosen)
                found.append((_kept(demand, turns, required, lift), at, required))
        demands, names, required_of = zip(*found, strict=True) if found else ((), (), ())
        return cls(demands, names, required_of)

    def commits_of(self, commits: Sequence[Commit]) -> list[Commit]:
        """A plan of the round in terms of the contenders."""
        place = {name: at for at, name in enumerate(self.names)}
        return [Commit(place[commit.demand], commit.node, commit.count) for commit in commits]

    def named(self, commits: Sequence[Commit]) -> list[Commit]:
        """A plan of the contenders in terms of the round."""
        return [Commit(self.names[commit.demand], commit.node, commit.count) for commit in commits]


def _kept(demand: Demand, turns: Int64s, required: int, lift: int) -> Demand:
    prices = demand.prices[turns]
    prices[:required] += lift
    pods = demand.group.pods
    group = replace(demand.group, pods=tuple(pods[place] for place in turns.tolist()))
    return replace(demand, group=group, prices=prices)
