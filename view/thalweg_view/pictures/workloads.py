"""What waits and what a round placed, by workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario import planned_workloads
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.planned_workloads import PlannedWorkload, by_workload
from thalweg_view.pictures.waiting import PodWithoutNode, workload_name
from thalweg_view.view_data import ViewData


class PlacedWorkload(msgspec.Struct, frozen=True):
    """Pods of a workload that a round placed.

    Attributes:
        workload: ``kind/namespace/name``.
        round: its number.
        time: when it began, seconds since the epoch.
        pods: how many it placed.
        bound: how many of these run on a node by now.
    """

    workload: str
    round: int
    time: float
    pods: int
    bound: int


def workload_rows(
    data: ViewData, plan: PlanDocument | None, waiting: Iterable[PodWithoutNode], context: AnswerContext
) -> list[PlannedWorkload]:
    """Workloads with waiting pods or with pods that the round placed, each with both numbers.

    Args:
        waiting: what still waits, as far as the asker may see it.
    """
    left = (
        planned_workloads.PlannedWaitingPod(pod.workload, pod.code, pod.reason, pod.since, pod.queue, pod.short)
        for pod in waiting
    )
    return by_workload([*left, *_placed(data, plan, context)])


def _placed(
    data: ViewData, plan: PlanDocument | None, context: AnswerContext
) -> Iterator[planned_workloads.PlannedWaitingPod]:
    pending = [] if plan is None else plan.pending
    for placement in () if plan is None else plan.placements:
        pod = pending[placement.pod]
        if context.may_name(pod.key):
            yield planned_workloads.PlannedWaitingPod(workload_name(data, pod.key, pod.gangs), queue=pod.queue)


def placed_lately(data: ViewData, plans: Iterable[PlanDocument], context: AnswerContext) -> Iterator[PlacedWorkload]:
    """What these rounds placed, workload by workload, in their order.

    Args:
        plans: rounds, the newest first.
    """
    pods = data.scenario.cluster.pods
    for plan in plans:
        counts: dict[str, list[int]] = {}
        for placement in plan.placements:
            pod = plan.pending[placement.pod]
            if context.may_name(pod.key):
                count = counts.setdefault(workload_name(data, pod.key, pod.gangs), [0, 0])
                known = pods.get(pod.key)
                count[0] += 1
                count[1] += known is not None and bool(known.node_name)
        for name, (placed, bound) in sorted(counts.items(), key=lambda item: (-item[1][0], item[0])):
            yield PlacedWorkload(name, plan.number, plan.time, placed, bound)
