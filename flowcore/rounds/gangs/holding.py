"""Room that is kept for a gang that has waited long, so that small pods do not take it bit by bit for ever.

Of the units that waited longer than their policy allows (``GangTerms.hold_room_after``) and would fit if all that can
leave had left, the dearest to leave has its turn before all that are cheaper than it: where all that it needs fits
then, it is placed; else as many of its pods as fit keep their room out of the round. Room is kept for one unit a round,
up to a share of the cluster, until a deadline (``model/holds.py``), and never from a pod of a higher priority.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flowcore.filters.node_resources_fit import count_fitting
from flowcore.model.holds import Holds
from flowcore.model.policies import GangTerms
from flowcore.model.resources import PODS
from flowcore.model.snapshot import Bools, Int64s, Snapshot
from flowcore.rounds.commits import Commit
from flowcore.rounds.gangs.admission import Admission, Contest, before
from flowcore.rounds.gangs.units import Unit


def holding_room(contest: Contest, snapshot: Snapshot) -> Contest:
    """The contest with room kept for a unit that waited for long and is out, where there is one."""
    holds = snapshot.holds.settled()
    rests, resting = holds.rests, holds.resting
    overdue = [
        (rests.get(unit.name, 0.0), -unit.value, at)
        for at, unit in enumerate(contest.units.all)
        if _overdue(unit, contest, snapshot) and resting.isdisjoint((unit.name, *_namespaces(unit, contest)))
    ]
    if not overdue:
        return contest
    out, emptied = ~Admission(contest).by_price().chosen, _Emptied(contest, snapshot)
    for *_, at in sorted(overdue):
        if out[at] and emptied.can_hold(contest.units.all[at]):
            whole, commits = before(contest, at)
            if whole:
                return contest.favouring(at)
            commits = _within_share(commits, contest, snapshot, _share(contest.units.all[at], contest))
            return contest.keeping(at, commits) if commits else contest
    return contest


def holds_after(contest: Contest, chosen: Bools, snapshot: Snapshot) -> Holds:
    """What is to be remembered of a round.

    Args:
        chosen: bool[U], units that are placed.
    """
    holds = snapshot.holds.settled()
    for at in np.nonzero(chosen)[0].tolist() if holds.known else ():
        unit = contest.units.all[at]
        holds = holds.ended(unit.name, _namespaces(unit, contest))
    if contest.keeper >= 0:
        unit = contest.units.all[contest.keeper]
        longest = min(terms.hold_room_for for terms in _terms(unit, contest))
        holds = holds.begun(unit.name, sorted(_namespaces(unit, contest)), longest)
    return holds


def _terms(unit: Unit, contest: Contest) -> Iterator[GangTerms]:
    return (contest.demands[at].policy.gangs for at in unit.demands)


def _share(unit: Unit, contest: Contest) -> int:
    return min(terms.hold_room_share for terms in _terms(unit, contest))


def _namespaces(unit: Unit, contest: Contest) -> set[str]:
    """Those of its pods, by the names that their holds have."""
    pods = (
        contest.demands[at].group.pods[place]
        for members in unit.members
        for at, places in members.items()
        for place in places
    )
    return {f"namespace {pod.key.partition('/')[0]}" for pod in pods}


def _overdue(unit: Unit, contest: Contest, snapshot: Snapshot) -> bool:
    if unit.flaw or not unit.since or not unit.anywhere:
        return False
    after = [terms.hold_room_after for terms in _terms(unit, contest)]
    longest = min(terms.hold_room_for for terms in _terms(unit, contest))
    return min(after) > 0 and longest > 0 and snapshot.now - unit.since > max(after)


class _Emptied:
    """What there would be room for if all had left that can. Any number of units may ask, and many are alike."""

    def __init__(self, contest: Contest, snapshot: Snapshot) -> None:
        self._contest, self._snapshot = contest, snapshot
        self._room: dict[int, Int64s] = {}
        self._known: dict[tuple[int, frozenset[tuple[int, int]]], bool] = {}

    def can_hold(self, unit: Unit) -> bool:
        """Whether there would be room for all that it needs: for each class by itself, and in sum."""
        priority = self._contest.priority_of(unit)
        asked = priority, frozenset(unit.required.items())
        if asked not in self._known:
            if priority not in self._room:
                self._room[priority] = _emptied(self._snapshot, priority)
            self._known[asked] = self._has_room(unit, self._room[priority])
        return self._known[asked]

    def _has_room(self, unit: Unit, empty: Int64s) -> bool:
        asked, usable = np.zeros(empty.shape[1]), np.zeros(len(empty), dtype=np.bool_)
        for at, need in unit.required.items():
            demand = self._contest.demands[at]
            if int(np.minimum(count_fitting(demand.wanted, empty), need)[demand.allowed].sum()) < need:
                return False
            asked += need * demand.wanted.astype(np.float64)
            usable |= demand.allowed
        total = empty[usable].astype(np.float64).sum(axis=0)
        return bool(((asked <= total) | (asked == 0)).all())


def _emptied(snapshot: Snapshot, priority: int) -> Int64s:
    """int64[N, R]: room on each node if all had left but what stays for a unit of this priority."""
    if snapshot.lasting is None:
        return np.maximum(snapshot.free, 0)
    column = {name: at for at, name in enumerate(snapshot.resources)}
    empty = snapshot.allocatable.copy()
    for each in snapshot.lasting:
        at = snapshot.table.index.get(each.node)
        if at is None or each.priority <= priority:
            continue
        empty[at, column[PODS]] -= each.pods
        for name, amount in each.amounts:
            if name in column:
                empty[at, column[name]] -= amount
    return np.maximum(empty, 0)


def _within_share(commits: Sequence[Commit], contest: Contest, snapshot: Snapshot, share: int) -> tuple[Commit, ...]:
    """As many of the pods as take at most so many hundredths of what all nodes have of each resource."""
    left = np.maximum(snapshot.allocatable, 0).astype(np.float64).sum(axis=0) * share / 100
    found = []
    for commit in commits:
        wanted = contest.demands[commit.demand].wanted.astype(np.float64)
        asked = wanted > 0
        count = min(commit.count, int((left[asked] / wanted[asked] + 1e-9).min()))
        if count > 0:
            left -= count * wanted
            found.append(Commit(commit.demand, commit.node, count))
    return tuple(found)
