"""Which placements of a round may be taken back for waiting pods of a higher priority."""

from __future__ import annotations

import numpy as np

from flowcore.planning.evictions.revocation.dependents import Dependents
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Placement, RoundResult

#: Placements that are judged again where one that they may need is taken back.
_MOST_DEPENDENTS = 32


def revocable(problem: Problem, result: RoundResult, dependents: Dependents, priority: int) -> list[Placement]:
    """Placements below a priority, in their order; not of policies whose age crosses priorities, or whose network asks.

    A minimum of a network may need any of its pods, also for a dearer pod of the same policy.

    And none that a placement may need which cannot be taken back with it: because it is of a higher priority, or by
    what is said here, or since too many need it. A gang is taken back as a whole, and not if a part of it has begun.
    """
    below = {
        pod.key
        for demand in problem.demands
        if demand.group.pod_class.priority < priority
        and not demand.policy.unscheduled.aging_crosses_priorities
        and not demand.is_of_minimums
        for pod in demand.group.pods
    }
    gangs: dict[str, list[Placement]] = {}
    for placement in result.placements:
        if placement.atomic_group:
            gangs.setdefault(placement.atomic_group, []).append(placement)
    # What a gang needs goes with the most important of its pods.
    highest = {name: max(each.pod.pod_class.priority for each in members) for name, members in gangs.items()}

    def level(placement: Placement) -> int:
        alone = placement.optional or not placement.atomic_group
        return placement.pod.pod_class.priority if alone else highest[placement.atomic_group]

    bound = {group.name for group in problem.atomic_groups.all if any(gang.partially_placed for gang in group.gangs)}
    chosen = [each for each in result.placements if each.pod.key in below and each.pod.victim is None]
    by_rule = [[result.placements[number] for number in numbers] for numbers in dependents.by_rule]
    while True:
        keys = {placement.pod.key for placement in chosen}
        bound |= {name for name, members in gangs.items() if any(each.pod.key not in keys for each in members)}
        # By rule: who may need the pods that it speaks of goes with those of this priority or a higher one.
        least = [
            max(map(level, needing))
            if len(needing) <= _MOST_DEPENDENTS and all(each.pod.key in keys for each in needing)
            else np.inf
            for needing in by_rule
        ]
        kept = [
            placement
            for placement in chosen
            if (placement.optional or placement.atomic_group not in bound)
            and all(level(placement) >= least[rule] for rule in dependents.rules(placement.pod.signature))
        ]
        if len(kept) == len(chosen):
            return kept
        chosen = kept
