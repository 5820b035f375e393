"""For whom running pods may leave, of pods that wait for cheaper nodes: for nobody who would rather wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowcore.planning.evictions.waiting import Waiting
from flowcore.planning.problem.candidate import Candidate
from flowcore.planning.problem.demands import Demand
from flowcore.planning.problem.problem import Problem, priced
from flowcore.planning.problem.waiting import waiting_demands


def affordable(
    problem: Problem, candidate: Candidate, waiting: list[Waiting]
) -> tuple[list[Waiting], tuple[Demand, ...]]:
    """Who waits, without those for whom every node is too dear, and demands kept to nodes that are cheap enough.

    A node counts as dear as one more pod would be there now: once others have left, it costs no more. Of a group each
    pod pays less than its mean price.
    """
    if not waiting_demands(problem):
        return waiting, problem.demands
    demands, found = list(problem.demands), []
    limits: dict[int, float] = {}
    for each in waiting:
        mean = None if each.group < 0 else problem.atomic_groups.all[each.group].mean_price
        kept = []
        for at, pods in each.demands:
            if not problem.demands[at].waits:
                kept.append((at, pods))
                continue
            demand = priced(problem, problem.demands[at])
            prices = dict(zip((pod.key for pod in demand.group.pods), demand.prices.tolist(), strict=True))
            cost = demand.arc + candidate.capacity.next_increase(demand)
            cheapest = float(np.where(demand.allowed, cost, np.inf).min(initial=np.inf))
            worth = tuple(pod for pod in pods if (prices[pod.key] if mean is None else mean) > cheapest)
            if worth:
                kept.append((at, worth))
                limit = min(prices[pod.key] for pod in worth) if mean is None else mean
                limits[at] = min(limits.get(at, np.inf), limit)
                demands[at] = demand.restricted_to(cost < limits[at])
        if kept and (mean is None or [len(pods) for _, pods in kept] == [len(pods) for _, pods in each.demands]):
            found.append(replace(each, demands=tuple(kept)))
    return found, tuple(demands)
