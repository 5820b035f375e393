"""Pods that wait while pods of lower priority run where they could."""

from __future__ import annotations

from collections import Counter

from flowcore.model.amount_text import counted
from flowcore.questions.audit.audited_cluster import AuditedCluster
from flowcore.questions.audit.counted_room import WEIGHT, CountedRoom
from flowcore.questions.audit.finding import AuditFinding, FindingKind, WitnessStep
from flowcore.questions.audit.sentences import do, plan_words
from flowcore.questions.audit.witness import steps_of


def priority_inversions(cluster: AuditedCluster) -> tuple[AuditFinding, list[WitnessStep]]:
    """The finding and its witness.

    Counted are pods that may preempt and that the plan of ``waiting_pods`` leaves, in which everybody stays.
    """
    pods = cluster.scenario.cluster.pods
    leaving = [pod for pod in cluster.running if not pods[pod.key].static]
    lowest = min((pod.priority for pod in leaving), default=0)
    placed = {placement.pod.key for placement in cluster.keeping_plan.placements}
    waiting = [
        pod
        for pod in cluster.waiting
        if leaving and pod.preempts and pod.pod_class.priority > lowest and pod.key not in placed
    ]
    if not waiting:
        nothing = AuditFinding(
            kind=FindingKind.PRIORITY_INVERSIONS,
            now=0,
            at_least=0,
            at_most=0,
            sentence="no pod is left that has a higher priority than pods that run",
        )
        return nothing, []
    result = cluster.evicting_plan
    runs = len({placement.pod.key for placement in result.placements}.intersection(pod.key for pod in waiting))
    steps = steps_of(result, cluster.snapshot, cluster.prepared.policies) if runs else []
    # Whoever waits may evict, also a pod that has room without: then it leaves that room to others.
    highest = max(pod.pod_class.priority for pod in cluster.waiting if pods[pod.key].preempts)
    gone = [pod for pod in leaving if pod.priority < highest]
    away = {pod.key for pod in gone}
    classes = Counter(pod.pod_class for pod in waiting)
    movable = [pod for pod in cluster.movable if pod.key not in away]
    room = CountedRoom.of(cluster.snapshot, [*classes.items()], movable, gone)
    bounds = [(room.most_that_come(prices), prices) for prices in room.prices([WEIGHT] * len(room.coming))]
    at_most, prices = min(bounds, key=lambda bound: bound[0])
    left = f"{counted(len(waiting), 'pod')} that {do(len(waiting), 'have')} a higher priority than pods that run"
    outcome = plan_words(runs, at_most, len(waiting), steps, "runs")
    finding = AuditFinding(
        kind=FindingKind.PRIORITY_INVERSIONS,
        now=len(waiting),
        at_least=runs,
        at_most=at_most,
        sentence=f"{left} {do(len(waiting), 'wait')} if everybody stays; if lower ones leave {outcome}",
        plan=FindingKind.PRIORITY_INVERSIONS if steps else "",
        bound=room.bound(prices),
        counted=[pod.key for pod in waiting],
    )
    return finding, steps
