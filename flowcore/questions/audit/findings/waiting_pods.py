"""Pods that wait though a plan runs them, beside everything that runs now."""

from __future__ import annotations

from collections import Counter

from flowcore.model.amount_text import counted
from flowcore.questions.audit.audited_cluster import AuditedCluster
from flowcore.questions.audit.counted_room import WEIGHT, CountedRoom
from flowcore.questions.audit.finding import AuditFinding, FindingKind, WitnessStep
from flowcore.questions.audit.sentences import do, plan_words
from flowcore.questions.audit.witness import steps_of


def waiting_pods(cluster: AuditedCluster) -> tuple[AuditFinding, list[WitnessStep]]:
    """The finding and its witness."""
    waiting, result = len(cluster.waiting), cluster.keeping_plan
    steps = steps_of(result, cluster.snapshot, cluster.prepared.policies) if result.placements else []
    classes = Counter(pod.pod_class for pod in cluster.waiting)
    room = CountedRoom.of(cluster.snapshot, [*classes.items()], cluster.movable)
    bounds = [(room.most_that_come(prices), prices) for prices in room.prices([WEIGHT] * len(room.coming))]
    at_most, prices = min(bounds, key=lambda bound: bound[0])
    runs = len(result.placements)
    who = f"{counted(waiting, 'pod')} {do(waiting, 'wait')}" if waiting else "no pod waits"
    if cluster.skipped:
        who = f"{waiting:,} of {waiting + len(cluster.skipped):,} pods that wait can be judged"
    sentence = f"{who}; {plan_words(runs, at_most, waiting, steps, 'runs')}" if waiting else who
    return (
        AuditFinding(
            kind=FindingKind.WAITING_PODS,
            now=waiting,
            at_least=runs,
            at_most=at_most,
            sentence=sentence,
            plan=FindingKind.WAITING_PODS if steps else "",
            bound=room.bound(prices),
            counted=[pod.key for pod in cluster.waiting],
        ),
        steps,
    )
