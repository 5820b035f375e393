"""An audit as a question and its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from flowcore.api.kinds import DEVICE_CLASS
from flowcore.model.amount_text import counted
from flowcore.model.devices import may_be_devices
from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME
from flowcore.model.regret import ClosedRoom
from flowcore.questions.audit.audited_cluster import AuditedCluster
from flowcore.questions.audit.closed_rooms import closed_rooms
from flowcore.questions.audit.finding import AuditFinding, FindingKind, StepAction, WitnessStep
from flowcore.questions.audit.findings.empty_nodes import empty_nodes
from flowcore.questions.audit.findings.priority_inversions import priority_inversions
from flowcore.questions.audit.findings.stranded_room import stranded_room
from flowcore.questions.audit.findings.waiting_gangs import waiting_gangs
from flowcore.questions.audit.findings.waiting_pods import waiting_pods
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.reading.missing_objects import check_for_pods, unread_budgets
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.scenario import Scenario
from flowcore.questions.scenario.waiting_counts import WaitingCounts, count_waiting

#: Ends the sentence of a witness where objects may be missing.
AS_FAR_AS_SHOWN: Final = ", as far as the dump shows"
#: Schedulers that have no queues, or those that a dump has: kube-scheduler, and ours.
_WITHOUT_QUEUES: Final = ("default-scheduler", SCHEDULER_NAME, STEERED_NAME)


class AuditQuery(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Asks what placement costs.

    Attributes:
        most_moves: how many pods the plan of each finding may move at most.
    """

    most_moves: int = 100


class NotJudged(msgspec.Struct, frozen=True):
    """A waiting pod that no finding counts, and why."""

    pod: str
    reason: str


class AuditAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The audit of a cluster.

    Attributes:
        now: the moment that it is for; "": unknown.
        nodes: how many nodes there are.
        running: how many pods run on them.
        most_moves: how many pods the plan of each finding may move at most.
        findings: what could be better.
        plans: the steps of each witness, by its name.
        closed: whose placements closed the rooms of pods that the plans run.
        unknown: what the dump does not tell of the witnesses.
        not_judged: waiting pods that no finding counts.
        counts: all waiting pods, those that are judged and those that are not.
        warnings: sentences about what may change the answer.
    """

    now: str
    nodes: int
    running: int
    most_moves: int
    findings: list[AuditFinding]
    plans: dict[str, list[WitnessStep]]
    closed: list[ClosedRoom]
    unknown: list[str]
    not_judged: list[NotJudged]
    counts: WaitingCounts = WaitingCounts()
    warnings: list[str]


def answer_audit(scenario: Scenario, query: AuditQuery, context: AnswerContext) -> AuditAnswer:
    """Audits a cluster; the scenario is the same as before when this returns.

    Raises:
        ModelError: a dump has no pods.
    """
    check_for_pods(scenario)
    cluster = AuditedCluster(scenario, context.now, query.most_moves, context.models)
    findings, plans = list[AuditFinding](), dict[str, list[WitnessStep]]()
    for finding, steps in _found_in(cluster):
        findings.append(finding)
        if steps:
            plans[finding.plan] = steps
    urgent = {key for finding in findings if finding.kind is FindingKind.PRIORITY_INVERSIONS for key in finding.counted}
    leave = any(step.action is not StepAction.PLACE for steps in plans.values() for step in steps)
    unknown = [
        *cluster.prepared.gaps,
        *(unread_budgets(scenario) if leave else ()),
        *_unread_device_classes(cluster),
        *_unread_queues(cluster),
    ]
    if unknown:
        findings = [
            msgspec.structs.replace(finding, sentence=finding.sentence + AS_FAR_AS_SHOWN) if finding.plan else finding
            for finding in findings
        ]
    return AuditAnswer(
        now=moment_text(context.now),
        nodes=len(scenario.cluster.nodes),
        running=len(cluster.running),
        most_moves=query.most_moves,
        findings=findings,
        plans=plans,
        closed=closed_rooms(cluster, urgent),
        unknown=unknown,
        not_judged=[NotJudged(key, reason.partition("\n")[0]) for key, reason in cluster.skipped.items()],
        counts=count_waiting(
            scenario.cluster.pods,
            placed=(room.pod.key for room in cluster.prepared.kept if not room.awaited),
            judged=[pod.key for pod in cluster.waiting],
            unplanned=[*cluster.skipped, *(room.pod.key for room in cluster.prepared.kept if room.awaited)],
        ),
        warnings=list(cluster.prepared.warnings),
    )


def _found_in(cluster: AuditedCluster) -> Iterator[tuple[AuditFinding, list[WitnessStep]]]:
    """All findings, each with its witness."""
    yield waiting_pods(cluster)
    yield waiting_gangs(cluster)
    yield priority_inversions(cluster)
    yield from stranded_room(cluster)
    yield empty_nodes(cluster)


def _unread_queues(cluster: AuditedCluster) -> Iterator[str]:
    """That a scheduler with queues of its own may have its reasons to let pods wait."""
    pods = cluster.scenario.cluster.pods
    names = {pods[pod.key].scheduler_name for pod in cluster.waiting}.difference(_WITHOUT_QUEUES)
    if names:
        more = f" and {counted(len(names) - 1, 'other')}" if len(names) > 1 else ""
        yield (
            f"pods that wait are for the scheduler {min(names)}{more}: if it has queues or quotas of its own, these "
            "are not read, and may keep out pods that a plan runs"
        )


def _unread_device_classes(cluster: AuditedCluster) -> Iterator[str]:
    """That devices may serve what pods ask for and no node offers: the one kind whose absence makes a bound too low."""
    scenario, offered = cluster.scenario, cluster.snapshot.resources
    if scenario.complete or scenario.cluster.devices.classes:
        return
    requests = {request for pod in cluster.waiting for request in pod.pod_class.requests}
    asked = {name for name, amount in requests if amount and may_be_devices(name)}
    lacking = min(asked.difference(offered), default="")
    if not lacking:
        return
    what = f"pods ask for {lacking}, which no node offers. Devices may serve them, so more may run than the bounds say:"
    if scenario.unread is None:
        yield f"{what} the files contain no DeviceClass. Add them if there are any: kubectl get deviceclasses -o json"
    elif DEVICE_CLASS.kind in scenario.unread:
        yield f"{what} you may not list DeviceClasses"
