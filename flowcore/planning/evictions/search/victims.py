"""Whom one node loses for a waiting pod: kube-scheduler's choice and fewer where possible, or who loses least work.

Source: SelectVictimsOnNode of plugins/defaultpreemption: all that may leave do, the pod must fit; then the most
important first is taken back as long as the pod fits. What that leaves is not always the least: two small victims may
stay where one large one would do. So smaller sets are tried after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.planning.evictions.eligibility import PossibleEviction
from flowcore.planning.evictions.fit_checks import FitCheck, ResourceFit
from flowcore.planning.evictions.patterns.node_patterns import LeavingKind, NodePatterns
from flowcore.planning.plan_key import Loss
from flowcore.planning.problem.placements.residents import Residents, loss_of

#: Sets that are tried on one node for fewer victims than kube-scheduler's.
_MAX_TRIES = 500
#: Sums of amounts stay below this.
_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class Victims:
    """Residents that leave for pods on a node, compared by what it is to lose them.

    Attributes:
        members: wherever they are; none: there is room already.
        count: for how many pods.
    """

    node: int
    members: tuple[int, ...]
    count: int
    loss: Loss

    def __lt__(self, compared: Victims) -> bool:
        return self.loss < compared.loss


def choose_victims(
    residents: Residents,
    fit_check: FitCheck,
    node: int,
    choices: Sequence[Sequence[PossibleEviction]],
    count: int = 1,
    lost_work: Int64s | None = None,
) -> Victims | None:
    """The best victims on a node; None: the pods do not fit, whichever residents leave.

    Args:
        choices: sets of evictions, each the most important first; all of one set may leave together.
        count: pods that are to fit.
        lost_work: int64[V], what the victims are to lose least of, after the highest priority; None: kube-scheduler's
            order.
    """
    options: list[Victims] = []
    for evictions in choices:
        leaving = _take_back(fit_check, node, evictions, count)
        if leaving is None:
            continue
        victims = _victims(residents, node, leaving, count, lost_work)
        if lost_work is not None:
            victims = _losing_least(residents, fit_check, evictions, victims, lost_work)
        elif len(victims.members) > 1 and isinstance(fit_check, ResourceFit):
            victims = _fewer(residents, fit_check, node, evictions, leaving, count)
        options.append(victims)
    return min(options, default=None)


def _victims(
    residents: Residents,
    node: int,
    evictions: Sequence[PossibleEviction],
    count: int,
    lost_work: Int64s | None = None,
) -> Victims:
    members = tuple(dict.fromkeys(member for eviction in evictions for member in eviction.members))
    return Victims(node, members, count, loss_of(residents, members, count, lost_work))


def _take_back(
    fit_check: FitCheck, node: int, evictions: Sequence[PossibleEviction], count: int
) -> list[PossibleEviction] | None:
    """Who must leave, after the most important that may stay are taken back; None: the pods do not fit."""
    leaving = list(evictions)
    if not fit_check.fits(node, here_of(leaving), count):
        return None
    for eviction in evictions:
        rest = [kept for kept in leaving if kept is not eviction]
        if fit_check.fits(node, here_of(rest), count):
            leaving = rest
    return leaving


def _losing_least(
    residents: Residents,
    fit_check: FitCheck,
    evictions: Sequence[PossibleEviction],
    known: Victims,
    lost_work: Int64s,
) -> Victims:
    """Of the sets of no higher priority than the known one those that lose the least work, or hardly more."""
    node, count, priorities = known.node, known.count, residents.priorities
    allowed = [each for each in evictions if int(priorities[list(each.members)].max()) <= known.loss.highest]
    # At least 1: nobody leaves in vain because it loses nothing.
    prices = {id(each): 1 + int(lost_work[list(each.members)].sum()) for each in allowed}
    shares = _shares_of_missing(residents, fit_check, allowed, node, count)
    # What is lost for all that is missing: a large pod may be cheaper than many small ones.
    rate_first = sorted(allowed, key=lambda eviction: prices[id(eviction)] / shares[id(eviction)])
    price_first = sorted(allowed, key=lambda eviction: prices[id(eviction)])
    sets = [_take_back(fit_check, node, order[::-1], count) for order in (rate_first, price_first)]
    for eviction in price_first:
        if fit_check.fits(node, here_of([eviction]), count):
            sets.append([eviction])
            break
    if isinstance(fit_check, ResourceFit):
        sets.append(_exact_set(fit_check, rate_first, prices, node, count))
    options = [_victims(residents, node, chosen, count, lost_work) for chosen in sets if chosen is not None]
    return min([known, *options])


def _shares_of_missing(
    residents: Residents, fit_check: FitCheck, evictions: Sequence[PossibleEviction], node: int, count: int
) -> dict[int, float]:
    """How much of what is missing each eviction frees, by its ``id``; positive, 1 at most."""
    if not isinstance(fit_check, ResourceFit):
        totals = np.maximum(residents.usage[list(residents.on(node))].sum(axis=0, dtype=np.float64), 1.0)
        usages = ((each, residents.usage[here_of([each])].sum(axis=0, dtype=np.float64)) for each in evictions)
        return {id(each): max(1e-9, float((usage / totals).mean())) for each, usage in usages}
    missing = [(place, amount) for place, amount in enumerate(fit_check.missing(node, count)) if amount > 0]
    shares = {}
    for eviction in evictions:
        parts = [
            min(1.0, sum(fit_check.usage(member)[place] for member in eviction.here) / amount)
            for place, amount in missing
        ]
        shares[id(eviction)] = max(1e-9, sum(parts) / max(1, len(parts)))
    return shares


def _exact_set(
    fit_check: ResourceFit, order: Sequence[PossibleEviction], prices: Mapping[int, int], node: int, count: int
) -> list[PossibleEviction] | None:
    """The cheapest set of the first evictions of an order; None: it is not known."""
    missing = fit_check.missing(node, count)
    usages = [[sum(amounts) for amounts in zip(*map(fit_check.usage, each.here), strict=True)] for each in order]
    if max((abs(amount) for row in (missing, *usages) for amount in row), default=0) * (len(order) + 1) > _LARGEST:
        return None
    kinds = [
        LeavingKind((place,), np.array(usage, dtype=np.int64), prices[id(eviction)], ())
        for place, (eviction, usage) in enumerate(zip(order, usages, strict=True))
    ]
    places = NodePatterns(np.zeros(len(missing), dtype=np.int64), kinds, {}).members(np.array(missing, dtype=np.int64))
    chosen = [order[place] for place in places or ()]
    return chosen if fit_check.fits(node, here_of(chosen), count) else None


def here_of(evictions: Sequence[PossibleEviction]) -> list[int]:
    """Residents of the node, once each: a pod may leave alone or with its gang."""
    return list(dict.fromkeys(member for eviction in evictions for member in eviction.here))


def _fewer(
    residents: Residents,
    fit_check: ResourceFit,
    node: int,
    evictions: Sequence[PossibleEviction],
    known: Sequence[PossibleEviction],
    count: int,
) -> Victims:
    """The best of the smaller sets of no higher priority, or the known one."""
    best = _victims(residents, node, known, count)
    priorities = residents.priorities
    allowed = [each for each in evictions if int(priorities[list(each.members)].max()) <= best.loss.highest]
    missing = [amount for amount in fit_check.missing(node, count) if amount > 0]
    columns = [place for place, amount in enumerate(fit_check.missing(node, count)) if amount > 0]
    freed = {
        id(eviction): [sum(fit_check.usage(member)[place] for member in eviction.here) for place in columns]
        for eviction in allowed
    }
    fewest = max(
        _at_least(amount, [freed[id(eviction)][place] for eviction in allowed]) for place, amount in enumerate(missing)
    )
    if fewest >= len(best.members):
        return best
    # The largest first: sets that suffice are found early. Of equal ones the least important goes first.
    least_important_first = allowed[::-1]
    order = sorted(least_important_first, key=lambda eviction: [-amount for amount in freed[id(eviction)]])
    tries = 0

    def search(start: int, chosen: list[PossibleEviction], lacking: Sequence[int], most: int) -> None:
        """Tries sets that begin with the chosen ones; ``most``: pods that may still leave."""
        nonlocal best, tries
        leaving = {member for eviction in chosen for member in eviction.members}
        for turn in range(start, len(order)):
            tries += 1
            this, before = order[turn], order[turn - 1]
            # Those that come later free no more of the first resource.
            if tries > _MAX_TRIES or freed[id(this)][0] * most < lacking[0]:
                return
            if len(this.members) > most or not leaving.isdisjoint(this.members):
                continue
            is_like_before = turn > start and freed[id(this)] == freed[id(before)] and _alike(residents, this, before)
            if is_like_before and leaving.isdisjoint(before.members):
                continue  # the same set but for a pod that is as good
            left = [amount - less for amount, less in zip(lacking, freed[id(this)], strict=True)]
            if all(amount <= 0 for amount in left):
                best = min(best, _victims(residents, node, [*chosen, this], count))
            elif len(this.members) < most:
                search(turn + 1, [*chosen, this], left, most - len(this.members))

    for most in range(fewest, len(best.members)):
        search(0, [], missing, most)
        if len(best.members) <= most:
            break
    return best


def _at_least(missing: int, freed: Sequence[int]) -> int:
    """How many of the largest amounts make up for what is missing; all of them suffice."""
    for count, total in enumerate(accumulate(sorted(freed, reverse=True)), start=1):
        if total >= missing:
            return count
    return len(freed)


def _alike(residents: Residents, first: PossibleEviction, second: PossibleEviction) -> bool:
    """Whether two differ in nothing but their start."""
    return [residents.pods[member].priority for member in first.members] == [
        residents.pods[member].priority for member in second.members
    ]
