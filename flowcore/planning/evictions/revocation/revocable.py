"""Which placements of a round may be taken back for waiting pods of a higher priority."""

from __future__ import annotations

import numpy as np

from flowcore.planning.evictions.revocation.dependents import Dependents
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import Placement, RoundResult

#: Placements that are judged again where one that they may need is taken back.
_MOST_DEPENDENTS = 32


def revocable(problem: Problem, result: RoundResult, dependents: Dependents, priority: int) -> list[Placement]:
    """Placements below a priority, in their order; not of gangs, nor of policies whose age crosses priorities.

    And none that a placement may need which cannot be taken back with it: because it is of a higher priority, or by
    what is said above, or since too many need it.
    """
    below = {
        pod.key
        for demand in problem.demands
        if demand.group.pod_class.priority < priority and not demand.policy.unscheduled.aging_crosses_priorities
        for pod in demand.group.pods
    }
    chosen = [
        placement
        for placement in result.placements
        if placement.pod.key in below and not placement.atomic_group and placement.pod.victim is None
    ]
    while True:
        keys = {placement.pod.key for placement in chosen}
        # By rule: who may need the pods that it speaks of goes with those of this priority or a higher one.
        least = [
            max(each.pod.pod_class.priority for each in needing)
            if len(needing) <= _MOST_DEPENDENTS and all(each.pod.key in keys for each in needing)
            else np.inf
            for needing in dependents.by_rule
        ]
        kept = [
            placement
            for placement in chosen
            if all(
                placement.pod.pod_class.priority >= least[rule] for rule in dependents.rules(placement.pod.signature)
            )
        ]
        if len(kept) == len(chosen):
            return kept
        chosen = kept
