"""What leaving a pod pending costs, by its policy, size, priority, waiting time and the share of its queue.

By size, as is the default, with ``share`` of a mean node, of the resource of which the pod takes the largest::

    share * (base + perPriority * priority + 100 * perWaitingSecond * seconds)

So two pods are as dear to leave as one of the same age that asks for as much as both, and what has waited for
``base / (100 * perWaitingSecond)`` seconds, 200 by default, is as dear as what is new and twice as large
(docs/decisions/0136). By pod, with ``size`` in tenths of a mean node, at least 1::

    base + perPriority * priority + perWaitingSecond * seconds * size

Without this arc an oversubscribed network is infeasible; with a constant cost no pod would age
(design: predecessors, hole 13).

Waiting lifts no pod over one of a higher priority, unless its policy says so. Instead of holding the older pod down,
which would end ageing among its equals, all pods of higher priorities are lifted by as much as age lifts any that could
be placed, so that they keep their order among themselves (docs/decisions/0023).

Pods of a policy with ``waitForCheaperNode`` keep the price that their own terms say: nothing lifts it. It decides for
how long they wait for a node that costs less.

Where pods have queues, those within the fair share of their queue are dearer than those beyond it, whatever their sizes
and ages. This too stays within one priority (docs/decisions/0041).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.model.cost_policy import UnscheduledPrice
from flowcore.model.policies import Policy
from flowcore.rules.verdicts.groups import Group

#: Keeps sums of prices over 100,000 pods within int64: of what policy and priority make of a price, and of the rest.
_LIMIT = 10**13
#: No pod ages faster than one that takes a hundred mean nodes would.
_MAX_SIZE = 1000.0
_MAX_WAIT = 10**8
#: Smallest size that a pod counts with, in tenths of a mean node.
_SMALLEST = 0.01
#: Tenths of a mean node; and how much faster a pod ages by size than one of a tenth of a node ages by pod.
_NODE, _AGEING = 10.0, 100
_NO_URGENCIES: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class UnscheduledPrices:
    """Of groups of pods.

    Attributes:
        prices: int64[pods] a group, of leaving each pod pending, falling: the longest waiting first.
        weights: float64[groups], how often a pod counts: how many times as large it is as the smallest. Prices over
            weights say who comes first, whatever their sizes. 1.0 where pods count and not sizes.
        lifts: float64[groups], what each price has, for what the pod counts, because of priorities: of its own, and
            what makes up for the age of lower ones. Prices without it compare pods of one priority as if no others
            waited.
    """

    prices: tuple[Int64s, ...]
    weights: tuple[float, ...]
    lifts: tuple[float, ...]


def unscheduled_prices(
    groups: tuple[Group, ...],
    sizes: Sequence[float],
    placeable: Sequence[bool],
    policies: Mapping[str, Policy],
    now: float,
    floor: int,
    urgencies: Mapping[str, float] = _NO_URGENCIES,
    holdable: Sequence[bool] | None = None,
) -> UnscheduledPrices:
    """Prices of leaving pods pending.

    A large pod ages as fast as the small ones that would fill its place do together. Else a stream of small pods, each
    new and each cheap to leave, would always be dearer than the one large pod that waits.

    Args:
        sizes: of a pod of each group, in tenths of a mean node.
        placeable: whether any node has room for a pod of each group: others take no room from anybody.
        now: seconds since the epoch.
        floor: no pod of the round that does not wait for a cheaper node pays more for a node. Prices of all sizes are
            multiplied by one number, so that the smallest pod is as dear as its policy says of a mean node; then all
            are lifted together, by size, until the lowest is above the floor. So a pod that has room is never left out
            for being cheap to leave, and the order of pods stays. The floor must not depend on what a pod's author
            writes: what lifts each pod by the same makes many pods worth more than one of a high priority
            (docs/decisions/0066).
        urgencies: of the pods of queues, 0..1.25, by key (shares/shares.py); others count as 1. Empty: no queues.
        holdable: whether an empty node could hold a pod of each group: sizes of others do not count. None: those that
            have room.
    """
    terms = [policies[group.policy].unscheduled for group in groups]
    weights = _weights(groups, sizes, placeable if holdable is None else holdable, terms)
    limit = int(_LIMIT / max(weights, default=1.0))
    scales = [_in_tenths(size) if price.counts_pods else 1.0 for size, price in zip(sizes, terms, strict=True)]
    ages = [_aged(*each, now, limit) for each in zip(groups, scales, terms, strict=True)]
    due = [np.zeros_like(each) for each in ages]
    if urgencies:
        due = _due(groups, sizes, weights, terms, ages, urgencies)
    aged, made_up = _lifted(groups, scales, placeable, terms, ages, due, limit)
    prices, lifts = [], []
    for group, price, own, extra, made in zip(groups, terms, ages, aged, made_up, strict=True):
        fixed = max(-limit, min(limit, price.base + price.per_priority * group.pod_class.priority))
        prices.append((own if price.wait_for_cheaper_node else extra) + fixed)
        lifts.append(0.0 if price.wait_for_cheaper_node else float(made + fixed - min(limit, price.base)))
    waits = [price.wait_for_cheaper_node for price in terms]
    lowest = min((int(p.min()) for p, kept in zip(prices, waits, strict=True) if len(p) and not kept), default=0)
    lift = max(0, floor + 1 - lowest)
    sorted_prices = [
        np.sort(_times(np.maximum(p, 0) if kept else p + lift, weight))[::-1]
        for p, kept, weight in zip(prices, waits, weights, strict=True)
    ]
    return UnscheduledPrices(tuple(sorted_prices), tuple(weights), tuple(lifts))


def price_growth(price: UnscheduledPrice, size: float) -> float:
    """By how much the price of a pod that waits for a cheaper node rises in a second.

    Args:
        size: in tenths of a mean node.
    """
    if price.counts_pods:
        return work_price(price, size)
    return price.per_waiting_second * _AGEING * _share(size)


def work_price(price: UnscheduledPrice, size: float) -> float:
    """What a second of a running pod's work is worth: as much as a second of waiting by pod.

    Args:
        size: in tenths of a mean node.
    """
    return price.per_waiting_second * _in_tenths(size)


def _in_tenths(size: float) -> float:
    return max(1.0, min(size, _MAX_SIZE))


def _share(size: float) -> float:
    """Of a mean node."""
    return max(_SMALLEST, min(size, _MAX_SIZE)) / _NODE


def _times(prices: Int64s, weight: float) -> Int64s:
    return prices if weight == 1.0 else (prices * weight).astype(np.int64)


def _weights(
    groups: Sequence[Group], sizes: Sequence[float], holdable: Sequence[bool], terms: Sequence[UnscheduledPrice]
) -> list[float]:
    """How often a pod of each group counts: by its size over the smallest that a node could hold, at least once.

    Pods that count whatever their size count as the mean of them. What waits for a cheaper node counts as its terms
    say.
    """
    shares = [_share(size) for size in sizes]
    equal = [index for index, price in enumerate(terms) if price.counts_pods and not price.wait_for_cheaper_node]
    if equal:
        pods = sum(len(groups[index].pods) for index in equal)
        mean = sum(shares[index] * len(groups[index].pods) for index in equal) / pods
        for index in equal:
            shares[index] = mean
    compared = [
        share
        for share, fits, price in zip(shares, holdable, terms, strict=True)
        if fits and not price.wait_for_cheaper_node
    ]
    smallest, largest = min(compared, default=1.0), max(compared, default=1.0)
    return [
        (1.0 if price.counts_pods else share)
        if price.wait_for_cheaper_node
        else max(smallest, min(share, largest)) / smallest
        for share, price in zip(shares, terms, strict=True)
    ]


def _aged(group: Group, scale: float, price: UnscheduledPrice, now: float, limit: int) -> Int64s:
    """int64[pods]: what waiting adds to the price of each pod of a group, beside its weight."""
    since = np.array([pod.waiting_since or now for pod in group.pods])
    waited = np.clip(now - since, 0.0, _MAX_WAIT)
    rate = price.per_waiting_second * (scale if price.counts_pods else _AGEING)
    return np.minimum(waited * rate, limit).astype(np.int64)


def _due(
    groups: Sequence[Group],
    sizes: Sequence[float],
    weights: Sequence[float],
    terms: Sequence[UnscheduledPrice],
    ages: Sequence[Int64s],
    urgencies: Mapping[str, float],
) -> list[Int64s]:
    """int64[pods] a group: what the share of its queue adds to the price of each pod, by size, beside its weight.

    The urgencies of pods that are due to their queue and of other pods are at least a half apart. So a pod that
    is due adds twice as much as smaller ones cost that are not due and take the same room.
    """
    due: list[Int64s] = [np.zeros(0, dtype=np.int64)] * len(groups)
    widths = [max(_SMALLEST, min(size, _MAX_SIZE)) for size in sizes]
    for tier in {each.pod_class.priority for each in groups}:
        indices = [index for index, group in enumerate(groups) if group.pod_class.priority == tier]
        dearest = max(
            weights[index]
            * (max(0, terms[index].base + terms[index].per_priority * tier) + int(ages[index].max(initial=0)))
            for index in indices
        )
        unit = min(
            8.0 * dearest / min(widths[index] for index in indices),
            _LIMIT / (8 * max(widths[index] for index in indices)),
        )
        for index in indices:
            wanted = np.array([urgencies.get(pod.key, 1.0) for pod in groups[index].pods])
            due[index] = (wanted * (unit * widths[index] / weights[index])).astype(np.int64)
    return due


def _lifted(
    groups: Sequence[Group],
    scales: Sequence[float],
    placeable: Sequence[bool],
    terms: Sequence[UnscheduledPrice],
    aged: Sequence[Int64s],
    due: Sequence[Int64s],
    highest: int,
) -> tuple[list[Int64s], list[int]]:
    """int64[pods] a group: what age and shares add to each price, and what makes up for that of lower priorities.

    The latter of each group by itself, too.

    Args:
        highest: no pod gets more.
    """
    tiers = sorted({group.pod_class.priority for group in groups})
    if len(tiers) < 2:
        return [age + more for age, more in zip(aged, due, strict=True)], [0] * len(groups)
    ratio = 1
    while True:
        # Ages saturate where the highest price would not fit, those of the lowest priorities most.
        most = [highest // (len(tiers) * ratio**above) for above in reversed(range(len(tiers)))]
        limits = dict(zip(tiers, most, strict=True))
        lifted = _lifted_within(limits, groups, scales, placeable, terms, aged, due, highest)
        if lifted is not None:
            return lifted
        ratio *= 10


def _lifted_within(
    limits: Mapping[int, int],
    groups: Sequence[Group],
    scales: Sequence[float],
    placeable: Sequence[bool],
    terms: Sequence[UnscheduledPrice],
    aged: Sequence[Int64s],
    due: Sequence[Int64s],
    highest: int,
) -> tuple[list[Int64s], list[int]] | None:
    """The same with ages up to a limit for each priority, lowest first; None where a price does not fit."""
    lifted: list[Int64s] = [np.zeros(0, dtype=np.int64)] * len(groups)
    made_up_for = [0] * len(groups)
    most, of_gang = 0, dict[str, int]()
    for tier, limit in limits.items():
        indices = [index for index, group in enumerate(groups) if group.pod_class.priority == tier]
        made_up = 0
        for index in indices:
            made = math.ceil(most * scales[index])
            own = np.minimum(aged[index] + due[index], limit)
            if made + int(own.max(initial=0)) > highest:
                return None
            lifted[index], made_up_for[index] = own + made, made
            if not placeable[index]:
                continue
            # What a policy lets cross is not made up for.
            kept = np.minimum(due[index], limit) + made
            counted = kept if terms[index].aging_crosses_priorities else lifted[index]
            made_up = max(made_up, int(counted.max()))
            if not terms[index].counts_pods:
                continue  # a gang is as large as its pods together, and ages as one of them
            for pod, extra in zip(groups[index].pods, np.sort(counted)[::-1].tolist(), strict=True):
                for name in pod.gangs:
                    of_gang[name] = of_gang.get(name, 0) + extra
        most = max(most, made_up, max(of_gang.values(), default=0))
    return lifted, made_up_for
