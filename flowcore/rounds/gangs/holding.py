"""Room that is kept for a gang that has waited long, so that small pods do not take it bit by bit for ever.

Of the units that waited longer than their policy allows (``GangTerms.hold_room_after``) and would fit if nodes were
emptier, the dearest to leave has its turn before all that are cheaper than it: where all that it needs fits then, it is
placed; else as many of its pods as fit keep their room out of the round. It is one unit a round.
"""

from __future__ import annotations

import numpy as np

from flowcore.filters.node_resources_fit import count_fitting
from flowcore.model.snapshot import Snapshot
from flowcore.rounds.gangs.admission import Admission, Contest, before
from flowcore.rounds.gangs.units import Unit


def holding_room(contest: Contest, snapshot: Snapshot) -> Contest:
    """The contest with room kept for a unit that waited for long and is out, where there is one."""
    overdue = [
        (-unit.value, at)
        for at, unit in enumerate(contest.units.all)
        if _overdue(unit, contest, snapshot) and _fits_emptier(unit, contest, snapshot)
    ]
    if not overdue:
        return contest
    out = ~Admission(contest).by_price().chosen
    for _, at in sorted(overdue):
        if out[at]:
            whole, commits = before(contest, at)
            if whole:
                return contest.favouring(at)
            return contest.keeping(at, commits) if commits else contest
    return contest


def _overdue(unit: Unit, contest: Contest, snapshot: Snapshot) -> bool:
    if unit.flaw or not unit.since or not unit.anywhere:
        return False
    terms = [contest.demands[at].policy.gangs.hold_room_after for at in unit.demands]
    return min(terms) > 0 and snapshot.now - unit.since > max(terms)


def _fits_emptier(unit: Unit, contest: Contest, snapshot: Snapshot) -> bool:
    """Whether there would be room for it, class by class, if nothing ran."""
    empty = np.maximum(snapshot.allocatable, 0)
    for at, need in unit.required.items():
        demand = contest.demands[at]
        if int(np.minimum(count_fitting(demand.wanted, empty), need)[demand.allowed].sum()) < need:
            return False
    return True
