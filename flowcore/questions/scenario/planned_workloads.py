"""What a plan does with waiting pods, workload by workload: a Job of 60 pods is one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from flowcore.model.running_pods import EvictionKind
from flowcore.model.workloads import workload_of
from flowcore.planning.plan_document import PlanDocument, PlanEviction
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario
from flowcore.rules.reasons.short_words import short_words, without_amounts

#: Code of pods that no plan may place, beside those of rounds (flowcore/rules/reasons/codes.py).
NOT_PLANNED: Final = "NotPlanned"


class PlannedWaitingPod(NamedTuple):
    """A pod that waits before a plan, and what the plan does with it.

    Attributes:
        workload: ``kind/namespace/name`` (flowcore/model/workloads.py).
        code: why it still waits; "": it is placed.
        reason: the same in a sentence.
        short: the same in a few words: what it lacks.
        since: seconds since the epoch since when it could be placed.
    """

    workload: str
    code: str = ""
    reason: str = ""
    since: float = 0.0
    queue: str = ""
    short: str = ""


class PlannedWorkload(msgspec.Struct, frozen=True, rename="camel"):
    """The waiting pods of a workload and what a plan does with them.

    Attributes:
        workload: ``kind/namespace/name``, as ``thalweg why`` takes it.
        pods: how many wait before the plan.
        placed: how many of these get a node.
        waiting: how many get none.
        codes: how many of them wait for which code of reason, the most first; NotPlanned: no plan may place them.
        reason: the sentence of one that waits for the commonest code; "": none waits.
        since: seconds since the epoch: when the first pod without a planned node could be placed; 0: none waits.
        queue: FlowQueue of its pods; "": none, or several.
        evicted: how many of its running pods leave.
        short: how many of them lack what, in a few words, the most first: what is short, and how much on the best node.
    """

    workload: str
    pods: int
    placed: int
    waiting: int
    codes: dict[str, int] = {}
    reason: str = ""
    since: float = 0.0
    queue: str = ""
    evicted: int = 0
    short: dict[str, int] = {}

    @property
    def namespace(self) -> str:
        """Namespace of the workload."""
        return self.workload.split("/")[1]

    @property
    def why(self) -> str:
        """What pods of it wait for, in few words, with numbers if that differs; the reason of what is not planned."""
        if len(self.short) > 1:
            return ", ".join(f"{words} {count:,}" for words, count in self.short.items())
        return self.reason if NOT_PLANNED in self.codes else "".join(self.short)

    @property
    def is_gang(self) -> bool:
        """Whether its pods start together or not at all."""
        return self.workload.startswith("gang/")


class WorkloadEvictions(msgspec.Struct, frozen=True, rename="camel"):
    """Running pods of a workload that leave for the same reason.

    Attributes:
        workload: ``kind/namespace/name``.
        kind: why they leave.
        for_workloads: the workloads that they leave for.
        pods: how many leave.
        moved: of these, how many have room reserved on another node.
        gain: of moves for gain: by how much all of them cost less there; 0: they leave for others.
        acts: whether the plan is carried out; not so if they leave for pods that are only observed.
    """

    workload: str
    kind: EvictionKind
    for_workloads: tuple[str, ...] = msgspec.field(name="for")
    pods: int
    moved: int
    gain: int = 0
    acts: bool = False


def by_workload(pods: Iterable[PlannedWaitingPod], evicted: Mapping[str, int] | None = None) -> list[PlannedWorkload]:
    """Groups pods by workload: first the workloads with waiting pods, the most pods first.

    Args:
        evicted: how many running pods leave, by workload.
    """
    evicted = evicted or {}
    groups: dict[str, list[PlannedWaitingPod]] = {name: [] for name in evicted}
    for pod in pods:
        groups.setdefault(pod.workload, []).append(pod)
    rows = (_row(name, members, evicted.get(name, 0)) for name, members in groups.items())
    return sorted(rows, key=lambda row: (-row.waiting, -row.pods, row.workload))


def _row(name: str, members: list[PlannedWaitingPod], evicted: int) -> PlannedWorkload:
    left = [each for each in members if each.code]
    codes = _counted(each.code for each in left)
    commonest, queues = next(iter(codes), ""), {each.queue for each in members}
    return PlannedWorkload(
        workload=name,
        pods=len(members),
        placed=len(members) - len(left),
        waiting=len(left),
        codes=codes,
        reason=next((each.reason for each in left if each.code == commonest), ""),
        since=min((each.since for each in left), default=0.0),
        queue=next(iter(queues)) if len(queues) == 1 else "",
        evicted=evicted,
        short=_counted(each.short for each in left),
    )


def _counted(words: Iterable[str]) -> dict[str, int]:
    """How often each comes, the most first."""
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def what_is_short(workloads: Iterable[PlannedWorkload]) -> dict[str, int]:
    """How many pods of all workloads wait for what, the most first, without amounts."""
    counts = Counter[str]()
    for row in workloads:
        for words, pods in row.short.items():
            counts[without_amounts(words)] += pods
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def acting_evictions(scenario: Scenario, plan: PlanDocument) -> set[str]:
    """Keys of the pods that leave by a plan and whose eviction somebody carries out.

    A pod leaves for others: then their policies decide. Else its own does.
    """
    governed, pods = GovernedScenario(scenario), scenario.cluster.pods

    def acts(eviction: PlanEviction) -> bool:
        if eviction.by_controller:
            return True
        if eviction.for_pods:
            return any(plan.policies[plan.pending[place].policy].delivery.acts for place in eviction.for_pods)
        return eviction.key not in pods or governed.policy_of(pods[eviction.key]).delivery.acts

    return {eviction.key for eviction in plan.evictions if acts(eviction)}


def evictions_by_workload(
    scenario: Scenario,
    plan: PlanDocument,
    evictions: Iterable[PlanEviction],
    context: AnswerContext | None = None,
    acting: Collection[str] = (),
) -> list[WorkloadEvictions]:
    """Evictions by workload, those with the most pods first.

    Args:
        evictions: of the plan.
        context: of an asker who may not see everything.
        acting: keys of the pods whose eviction is carried out.
    """
    pods = scenario.cluster.pods

    def named(key: str) -> str:
        return workload_of(pods[key]) if context is None or context.may_name(key) else context.name(key)

    groups: dict[tuple[tuple[str, EvictionKind, tuple[str, ...]], bool, bool], list[PlanEviction]] = {}
    for eviction in evictions:
        wanting = tuple(sorted({named(key) for key in plan.keys(eviction.for_pods)}))
        key = named(eviction.key), eviction.kind, wanting
        groups.setdefault((key, bool(eviction.gain), eviction.key in acting), []).append(eviction)
    rows = (
        WorkloadEvictions(
            *key, len(alike), sum(bool(each.to) for each in alike), sum(each.gain for each in alike), acts
        )
        for (key, _, acts), alike in groups.items()
    )
    return sorted(rows, key=lambda row: (-row.pods, row.workload, row.kind, row.for_workloads))


def planned_workloads(
    scenario: Scenario, plan: PlanDocument, counts: Callable[[str], bool] = lambda _: True
) -> list[PlannedWorkload]:
    """The workloads of the pods that wait before a plan or leave by it.

    Args:
        counts: whether a pod counts, by key; default: all do.
    """
    cluster = scenario.cluster
    reasons = {key: (NOT_PLANNED, reason) for key, reason in plan.skipped.items()}
    reasons |= {plan.pending[pod].key: (plan.codes[reason], plan.reasons[reason]) for pod, reason in plan.unplaced}
    told = reasons.keys() | plan.nodes_by_pod().keys()
    pods = (
        PlannedWaitingPod(
            workload_of(pod),
            *reasons.get(pod.key, ("", "")),
            pod.unschedulable_since or pod.created,
            cluster.queues.of(pod, cluster.namespaces),
            short_words(*reasons[pod.key], plan.lacks.get(pod.key, ""), gated=pod.held_by_gates)
            if pod.key in reasons
            else "",
        )
        for pod in scenario.waiting()
        if pod.key in told and counts(pod.key)
    )
    leaves = (each.key for each in plan.evictions)
    evicted = Counter(workload_of(cluster.pods[key]) for key in leaves if counts(key))
    return by_workload(pods, evicted)
