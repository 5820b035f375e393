"""What leaving a pod pending costs, by its policy, priority, waiting time and the share of its queue.

Without this arc an oversubscribed network is infeasible; with a constant cost no pod would age
(design: predecessors, hole 13).

Waiting lifts no pod over one of a higher priority, unless its policy says so. Instead of holding the older pod down,
which would end ageing among its equals, all pods of higher priorities are lifted by as much as age lifts any that could
be placed: by size, as pods age, so that they keep their order among themselves (docs/decisions/0023).

Pods of a policy with ``waitForCheaperNode`` keep the price that their own terms say: nothing lifts it. It decides for
how long they wait for a node that costs less.

Where pods have queues, those within the fair share of their queue are dearer than those beyond it, whatever their sizes
and ages. This too stays within one priority (docs/decisions/0041).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
#: Smallest size that a pod counts with where queues share, in tenths of a mean node.
_SMALLEST = 0.01
_NO_URGENCIES: Mapping[str, float] = {}


def unscheduled_prices(
    groups: tuple[Group, ...],
    sizes: Sequence[float],
    placeable: Sequence[bool],
    policies: Mapping[str, Policy],
    now: float,
    floor: int,
    urgencies: Mapping[str, float] = _NO_URGENCIES,
) -> tuple[Int64s, ...]:
    """Price of leaving each pod pending, int64[pods] a group, falling: the longest waiting first.

    A large pod ages as fast as the small ones that would fill its place do together. Else a stream of small pods, each
    new and each cheap to leave, would always be dearer than the one large pod that waits.

    Args:
        sizes: of a pod of each group, in tenths of a mean node; below 1 counts as 1.
        placeable: whether any node has room for a pod of each group: others take no room from anybody.
        now: seconds since the epoch.
        floor: no pod of the round that does not wait for a cheaper node pays more for a node. All prices are lifted
            together until the lowest is above it: a pod that has room is never left out for being cheap to leave, and
            the order of pods stays. It must not depend on what a pod's author writes: what lifts each pod by the same
            makes many pods worth more than one of a high priority (docs/decisions/0066).
        urgencies: of the pods of queues, 0..1.25, by key (shares/shares.py); others count as 1. Empty: no queues.
    """
    terms = [policies[group.policy].unscheduled for group in groups]
    scales = [max(1.0, min(size, _MAX_SIZE)) for size in sizes]
    ages = [_aged(*each, now) for each in zip(groups, scales, terms, strict=True)]
    due = _due(groups, sizes, terms, ages, urgencies) if urgencies else [np.zeros_like(each) for each in ages]
    aged = _lifted(groups, scales, placeable, terms, ages, due)
    prices = []
    for group, price, own, extra in zip(groups, terms, ages, aged, strict=True):
        fixed = price.base + price.per_priority * group.pod_class.priority
        prices.append((own if price.wait_for_cheaper_node else extra) + max(-_LIMIT, min(_LIMIT, fixed)))
    waits = [price.wait_for_cheaper_node for price in terms]
    lowest = min((int(p.min()) for p, kept in zip(prices, waits, strict=True) if len(p) and not kept), default=0)
    lift = max(0, floor + 1 - lowest)
    return tuple(np.sort(np.maximum(p, 0) if kept else p + lift)[::-1] for p, kept in zip(prices, waits, strict=True))


def price_growth(price: UnscheduledPrice, size: float) -> float:
    """By how much the price of a pod of a policy rises in a second; ``size`` as in ``unscheduled_prices``."""
    return price.per_waiting_second * max(1.0, min(size, _MAX_SIZE))


def _aged(group: Group, scale: float, price: UnscheduledPrice, now: float) -> Int64s:
    """int64[pods]: what waiting adds to the price of each pod of a group."""
    since = np.array([pod.waiting_since or now for pod in group.pods])
    waited = np.clip(now - since, 0.0, _MAX_WAIT)
    return np.minimum(waited * price.per_waiting_second * scale, _LIMIT).astype(np.int64)


def _due(
    groups: Sequence[Group],
    sizes: Sequence[float],
    terms: Sequence[UnscheduledPrice],
    ages: Sequence[Int64s],
    urgencies: Mapping[str, float],
) -> list[Int64s]:
    """int64[pods] a group: what the share of its queue adds to the price of each pod, by size.

    The urgencies of pods that are due to their queue and of other pods are at least a half apart. So a pod that
    is due adds twice as much as smaller ones cost that are not due and take the same room.
    """
    due: list[Int64s] = [np.zeros(0, dtype=np.int64)] * len(groups)
    widths = [max(_SMALLEST, min(size, _MAX_SIZE)) for size in sizes]
    for tier in {each.pod_class.priority for each in groups}:
        indices = [index for index, group in enumerate(groups) if group.pod_class.priority == tier]
        dearest = max(
            max(0, terms[index].base + terms[index].per_priority * tier) + int(ages[index].max(initial=0))
            for index in indices
        )
        unit = min(
            8.0 * dearest / min(widths[index] for index in indices),
            _LIMIT / (8 * max(widths[index] for index in indices)),
        )
        for index in indices:
            wanted = np.array([urgencies.get(pod.key, 1.0) for pod in groups[index].pods])
            due[index] = (wanted * unit * widths[index]).astype(np.int64)
    return due


def _lifted(
    groups: Sequence[Group],
    scales: Sequence[float],
    placeable: Sequence[bool],
    terms: Sequence[UnscheduledPrice],
    aged: Sequence[Int64s],
    due: Sequence[Int64s],
) -> list[Int64s]:
    """int64[pods] a group: what age and shares add to each price, and what makes up for that of lower priorities."""
    tiers = sorted({group.pod_class.priority for group in groups})
    if len(tiers) < 2:
        return [age + more for age, more in zip(aged, due, strict=True)]
    ratio = 1
    while True:
        # Ages saturate where the highest price would not fit, those of the lowest priorities most.
        most = [_LIMIT // (len(tiers) * ratio**above) for above in reversed(range(len(tiers)))]
        lifted = _lifted_within(dict(zip(tiers, most, strict=True)), groups, scales, placeable, terms, aged, due)
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
) -> list[Int64s] | None:
    """The same with ages up to a limit for each priority, lowest first; None where a price does not fit."""
    lifted: list[Int64s] = [np.zeros(0, dtype=np.int64)] * len(groups)
    most, of_gang = 0, dict[str, int]()
    for tier, limit in limits.items():
        indices = [index for index, group in enumerate(groups) if group.pod_class.priority == tier]
        made_up = 0
        for index in indices:
            made = math.ceil(most * scales[index])
            own = np.minimum(aged[index] + due[index], limit)
            if made + int(own.max(initial=0)) > _LIMIT:
                return None
            lifted[index] = own + made
            if not placeable[index]:
                continue
            # What a policy lets cross is not made up for.
            kept = np.minimum(due[index], limit) + made
            counted = kept if terms[index].aging_crosses_priorities else lifted[index]
            made_up = max(made_up, int(counted.max()))
            for pod, extra in zip(groups[index].pods, np.sort(counted)[::-1].tolist(), strict=True):
                for name in pod.gangs:
                    of_gang[name] = of_gang.get(name, 0) + extra
        most = max(most, made_up, max(of_gang.values(), default=0))
    return lifted
