"""Which pods of a round are decided together: all of them, where they are few and only priorities are between them."""

from __future__ import annotations

from collections.abc import Sequence

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.policies import VictimOrder
from flowcore.planning.evictions.eligibility import may_preempt
from flowcore.planning.evictions.waiting import Waiting
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.candidate import Candidate
from flowcore.planning.problem.problem import Problem
from flowcore.planning.problem.result import RoundResult
from flowcore.rules.filters import static_fits

#: Pods that are decided together; of more, one is decided after the other.
_MOST_PODS = 8


def preempting(problem: Problem, waiting: Sequence[Waiting]) -> list[PendingPod]:
    """Waiting pods for which others may leave and that some node could hold."""
    now = problem.snapshot.now
    return [pod for number, pod in _possible(problem, waiting) if may_preempt(pod, problem.demands[number].policy, now)]


def _possible(problem: Problem, waiting: Sequence[Waiting]) -> list[tuple[int, PendingPod]]:
    """Waiting pods, each with its demand, that some node could hold: who keeps them out may leave."""
    pods, snapshot = [], problem.snapshot
    for number, members in (entry for each in waiting for entry in each.demands):
        demand, group = problem.demands[number], problem.demands[number].group
        allowed = static_fits(group.pod_class, group.signature, snapshot, problem.cache.run_filter)
        if (allowed & demand.could_be_held(snapshot)).any():
            pods += [(number, pod) for pod in members]
    return pods


def is_small(problem: Problem, result: RoundResult, candidate: Candidate, waiting: Sequence[Waiting]) -> bool:
    """Whether all placements of a result may be decided again with the pods that wait.

    Not with gangs, queues, networks, volumes or NUMA zones, with pods that replace others or wait for a cheaper node,
    and with policies whose age crosses priorities or that count lost work.
    """
    if not waiting or len(result.placements) >= _MOST_PODS:
        return False
    elsewhere = candidate.held is not None or candidate.decided.before is not None
    if elsewhere or problem.atomic_groups.all or problem.snapshot.queues is not None:
        return False
    coming = _possible(problem, waiting)
    if not (coming and 1 < len(result.placements) + len(coming) <= _MOST_PODS):
        return False
    numbers = {pod.key: number for number, demand in enumerate(problem.demands) for pod in demand.group.pods}
    if any(each.pod.victim is not None or each.pod.key not in numbers for each in result.placements):
        return False
    placed = [problem.demands[numbers[each.pod.key]] for each in result.placements]
    others = [problem.demands[number] for number, _ in coming]
    return all(_is_simple(problem, demand) for demand in (*placed, *others))


def _is_simple(problem: Problem, demand: Demand) -> bool:
    pod_class, policy = demand.group.pod_class, demand.policy
    has_zones = pod_class.numa is not None and problem.snapshot.numa is not None
    is_aged = policy.unscheduled.aging_crosses_priorities
    counts_lost_work = policy.preemption.victims is VictimOrder.LEAST_LOST_WORK
    claims = pod_class.volumes or pod_class.devices is not None
    return not (claims or has_zones or is_aged or counts_lost_work or demand.waits)
