"""A plan told pod by pod: who goes where, who stays and why, and what each of that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from flowcore.classes import VerdictCache
from flowcore.explain.reasons import no_domain, reason_for
from flowcore.filters import judge
from flowcore.model.gangs import Gang
from flowcore.model.snapshot import Snapshot
from flowcore.rounds.gangs.admission import Choice, Contest
from flowcore.rounds.gangs.units import Unit, pods
from flowcore.rounds.plan import Left, Placement
from flowcore.rounds.pricing import pod_prices
from flowcore.rounds.waves import waves_of


class Account:
    """What became of each pending pod.

    Attributes:
        placements: in commit order.
        left: by demand.
        after: the snapshot with the placements counted and nothing pending.
    """

    def __init__(
        self, snapshot: Snapshot, contest: Contest, choice: Choice, fitting: Mapping[int, int], cache: VerdictCache
    ) -> None:
        """A plan of a snapshot, and how many pods of each unit that is not in would find room beside it."""
        self._snapshot, self._contest, self._choice, self._cache = snapshot, contest, choice, cache
        self._fitting = fitting
        units, nodes = contest.units, snapshot.table.nodes
        prices = iter(pod_prices(choice.commits, contest.demands, contest.load).tolist())
        waves = waves_of(choice.commits, contest.demands)
        turns = [units.turns(at, choice.chosen) for at in range(len(contest.demands))]
        next_of = [iter(each.tolist()) for each in turns]
        waiting = [np.ones(demand.count, dtype=np.bool_) for demand in contest.demands]
        placements = []
        for commit in choice.commits:
            at = commit.demand
            for _ in range(commit.count):
                place = next(next_of[at])
                waiting[at][place] = False
                owner = int(units.owner[at][place])
                chain, wave = next(waves)
                placements.append(
                    Placement(
                        contest.demands[at].group.pods[place],
                        nodes[commit.node].name,
                        next(prices),
                        wave,
                        chain,
                        units.all[owner].name if owner >= 0 else "",
                        owner >= 0 and not units.needed[at][place],
                    )
                )
        self.placements = tuple(placements)
        there = [(each.node, each.pod.kind) for each in placements]
        self.after = contest.given_back(choice.room).as_snapshot(there)
        #: As it looks to pods that room is kept from.
        self._kept = choice.room.as_snapshot(there) if contest.kept else self.after
        self.left = tuple(
            each
            for at, mine in enumerate(waiting)
            if mine.any()
            for each in self._left(at, np.nonzero(mine)[0].tolist())
        )

    def _left(self, at: int, places: list[int]) -> Iterator[Left]:
        demand, owner = self._contest.demands[at], self._contest.units.owner[at]
        plain = ""
        for place in places:
            unit = int(owner[place])
            if unit >= 0 and not self._choice.chosen[unit] and (demand.counts.any() or self._flaw(unit)):
                reason = self._of_unit(unit)
            else:
                reason = plain = plain or self._of_pod(at)
            yield Left(demand.group.pods[place], reason, int(demand.prices[place]))

    def _of_pod(self, at: int) -> str:
        demand = self._contest.demands[at]
        for name in demand.group.pods[0].gangs:
            gang = self._snapshot.gangs.get(name)
            if gang is not None and gang.topology:
                return self._of_domain(gang, at)
        found, ask = demand.group, self._cache.ask
        if self._contest.kept and judge(found.pod_class, self.after, found.kind, ask).fits.any():
            keeper = self._contest.units.all[self._contest.keeper].name
            reason = reason_for(found, before=self._kept, after=self._kept, ask=ask)
            return f"{reason} Room is kept for {keeper}, which has waited long."
        return reason_for(found, before=self._snapshot, after=self._kept, ask=ask)

    def _of_domain(self, gang: Gang, at: int) -> str:
        """Why a pod finds no node in the domain of its gang."""
        nowhere = no_domain(gang, self._snapshot.table)
        if nowhere:
            return f"{_sentence(nowhere)}."
        if gang.domain:
            return f"{gang.name} keeps to {gang.topology} {gang.domain}, where no node has room for it."
        column = self._snapshot.table.column(gang.topology)
        chosen = set(column.codes[self._choice.demands[at].allowed].tolist())
        if len(chosen) == 1 and self._contest.demands[at].counts.any():
            domain = column.values[chosen.pop()]
            return f"{gang.name} is planned for {gang.topology} {domain}, where no further node has room for it."
        found, ask = self._contest.demands[at].group, self._cache.ask
        if not judge(found.pod_class, self._snapshot, found.kind, ask).fits.any():
            # No domain is at fault where the pod fits no node at all.
            return reason_for(found, before=self._snapshot, after=self._kept, ask=ask)
        return f"{gang.name} keeps to one domain of {gang.topology}, and no node that has this label has room for it."

    def _flaw(self, at: int) -> str:
        return self._contest.units.all[at].flaw

    def _of_unit(self, at: int) -> str:
        unit = self._contest.units.all[at]
        if unit.flaw:
            return f"{_sentence(unit.flaw)}."
        needs = f"{unit.name} needs {pods(unit.size)} at once"
        fitting = self._fitting.get(at, 0)
        for gang in unit.gangs:
            if gang.topology and not gang.domain:
                return f"{needs} in one domain of {gang.topology}, {self._domains(unit)}."
        if at == self._contest.keeper:
            kept = sum(commit.count for commit in self._contest.kept)
            return f"{needs}, and room for {kept} is kept for it until there is more."
        return f"{needs}, and there is room for {fitting} beside what is placed."

    def _domains(self, unit: Unit) -> str:
        """What is the matter with the domains that a unit may choose from."""
        if self._contest.fits_empty(unit):
            return "and none has room for them beside what is placed"
        return "and none can hold them even when empty"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
