"""What if: two plans of a cluster side by side, as it is and with hypothetical changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from flowcore.model.resources import PODS
from flowcore.model.workloads import workload_of
from flowcore.questions.scenario.alternatives.planned_with import planned_with
from flowcore.questions.scenario.alternatives.workload_changes import WorkloadChange, workload_changes
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.device_use import device_use, devices_of
from flowcore.questions.scenario.hypothetical.change_words import in_short
from flowcore.questions.scenario.hypothetical.changes import Change, check_size
from flowcore.questions.scenario.plan import ScenarioPlan, plan_scenario
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.redaction import Redaction
from flowcore.questions.scenario.scenario import Scenario


class WhatIfQuery(msgspec.Struct, frozen=True, rename="camel"):
    """The question: what becomes of the plan with these changes, made one after the other.

    Attributes:
        changes: each by its ``kind``.
    """

    changes: list[Change] = []


class ResourceUse(msgspec.Struct, frozen=True, rename="camel"):
    """Sums over all nodes, in milli-cores of cpu, else in whole units.

    Attributes:
        requested: what pods request.
        allocatable: what nodes offer.
    """

    requested: int
    allocatable: int

    @property
    def share(self) -> float:
        """The part of the allocatable amount that is requested; 0 where no node offers any."""
        return self.requested / self.allocatable if self.allocatable else 0.0


class PlanSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One of the two plans.

    Attributes:
        nodes: number of nodes.
        with_node: number of pods that have a node once the plan is carried out, running pods among them.
        placed: number of pods that wait now and have a node then.
        waiting: number of pods that have none then.
        evicted: number of those of them that run now.
        moved: number of pods that run now and have another node then.
        cost: of the plan.
        bound: no plan costs less.
        certified: the cost is proven to be the least.
        resources: what pods request of all nodes once the plan is carried out, by resource; ``DRIVER devices`` are
            those that claims have of all in ResourceSlices of a driver.
    """

    nodes: int
    with_node: int
    placed: int
    waiting: int
    moved: int
    evicted: int
    cost: int
    bound: int
    certified: bool
    resources: dict[str, ResourceUse]


class Moved(msgspec.Struct, frozen=True, rename={"from_node": "from", "to_node": "to"}):
    """The nodes of a pod in the two plans."""

    from_node: str
    to_node: str


class WhatIfAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer. Pods that the asker may not see are counted and not named.

    Attributes:
        placed: pods that wait in the first plan, or are not in it, and have a node in the second.
        waiting: pods that have a node in the first plan, or are not in it, and wait in the second.
        moved: running pods that the two plans have on different nodes.
        before: the plan without the changes.
        after: the plan with them.
        replanned: waiting pods for which the two plans have different nodes.
        gone: pods of the first plan that are not in the second.
        nodes: the node of each pod in ``placed``.
        reasons: why each pod in ``waiting`` waits.
        hidden: how many pods these lists leave out, because the asker may not see them.
        notes: what the changes would meet in a real cluster, and what does not count.
        workloads: what becomes of each workload that the plans treat differently, those that lose most first.
        now: the moment that the answer is for; "": unknown.
        in_short: the same summed up, such as "16 pods move, 3 more wait"; "": no number differs.
    """

    placed: list[str]
    waiting: list[str]
    moved: dict[str, Moved]
    before: PlanSummary
    after: PlanSummary
    replanned: dict[str, Moved] = {}
    gone: list[str] = []
    nodes: dict[str, str] = {}
    reasons: dict[str, str] = {}
    hidden: int = 0
    notes: list[str] = []
    workloads: list[WorkloadChange] = []
    now: str = ""
    in_short: str = ""

    @property
    def same(self) -> bool:
        """Whether the changes change nothing of the plan."""
        return self.before == self.after and not (
            self.placed or self.waiting or self.moved or self.replanned or self.gone or self.hidden
        )


@dataclass(frozen=True, slots=True)
class PodsAfterPlan:
    """Where pods are once a plan is carried out.

    Attributes:
        summary: of the plan.
        ran: node of each pod that ran before the plan.
        running: node of each of them after it; "": it is evicted and waits.
        waiting: node of each pod that waited before the plan; "": it waits.
        reasons: why pods wait, for pods that waited before the plan.
        warnings: what is not known of the cluster.
        workloads: of each pod.
    """

    summary: PlanSummary
    ran: Mapping[str, str]
    running: Mapping[str, str]
    waiting: Mapping[str, str]
    reasons: Mapping[str, str]
    warnings: tuple[str, ...]
    workloads: Mapping[str, str]

    def node_of(self, key: str) -> str | None:
        """The node of a pod; "": it waits; None: there is no such pod."""
        return self.waiting.get(key, self.running.get(key))

    @property
    def keys(self) -> Iterable[str]:
        """Keys of all pods."""
        yield from self.waiting
        yield from self.running


def answer_what_if(scenario: Scenario, query: WhatIfQuery, context: AnswerContext) -> WhatIfAnswer:
    """Plans the scenario as it is and as it might be; it is the same as before when this returns.

    Raises:
        UnknownName: a change names an object that is not there.
        ModelError: an object to be put cannot be read, or there are too many changes or new nodes.
    """
    check_size(query.changes)
    before = outcome_of(scenario, plan_scenario(scenario, context.now, context.models))
    with planned_with(scenario, query.changes, context) as (plan, notes):
        after, redacted = outcome_of(scenario, plan, before), Redaction(scenario, context)
    return compare(before, after, context, redacted, notes)


def outcome_of(scenario: Scenario, plan: ScenarioPlan, now: PodsAfterPlan | None = None) -> PodsAfterPlan:
    """Reads a plan; nothing of the outcome changes when the scenario does.

    Args:
        now: what the scenario was before changes: which pods run now; None: nothing is changed.
    """
    result = plan.result
    waiting = dict.fromkeys(scenario.cluster.waiting, "")
    waiting |= {each.pod.key: each.node for each in result.placements}
    ran = {pod.key: pod.node_name for pod in scenario.running()}
    running = ran | {each.pod.key: each.to for each in result.evictions}
    reasons = plan.skipped | {each.pod.key: each.reason for each in result.unplaced}
    workloads = {key: workload_of(scenario.cluster.pods[key]) for key in (*waiting, *running)}
    summary = _summary(plan, ran if now is None else now.ran, running, waiting)
    return PodsAfterPlan(summary, ran, running, waiting, reasons, (*plan.gaps, *plan.warnings), workloads)


def _summary(
    plan: ScenarioPlan, ran: Mapping[str, str], running: Mapping[str, str], waiting: Mapping[str, str]
) -> PlanSummary:
    """The plan in numbers.

    Args:
        ran: node of each pod that runs now.
        running, waiting: see ``PodsAfterPlan``; with changes, a pod that runs now may be among those that wait.
    """
    nodes = {**running, **waiting}
    result, after = plan.result, plan.result.after
    placed = sum(bool(node) for key, node in waiting.items() if key not in ran)
    evicted = sum(not node for key, node in nodes.items() if key in ran)
    with_node = sum(map(bool, nodes.values()))
    used, allocatable = (_sums(each) for each in (after.used.tolist(), after.allocatable.tolist()))
    resources = {
        name: ResourceUse(used[column], allocatable[column])
        for column, name in enumerate(after.resources)
        if allocatable and (allocatable[column] or used[column])
    }
    for driver, use in device_use(after.devices, after.takers).items():
        resources[devices_of(driver)] = ResourceUse(use.taken.total(), use.published.total())
    return PlanSummary(
        nodes=len(after.table.nodes),
        with_node=with_node,
        placed=placed,
        waiting=len(nodes) - with_node,
        moved=sum(bool(node) and ran.get(key, node) != node for key, node in nodes.items()),
        evicted=evicted,
        cost=result.cost,
        bound=result.lower_bound,
        certified=plan.certified,
        resources=resources,
    )


def _sums(rows: list[list[int]]) -> list[int]:
    """Sums of columns, as integers without limit."""
    return [sum(column) for column in zip(*rows, strict=True)]


def compare(
    before: PodsAfterPlan, after: PodsAfterPlan, context: AnswerContext, redacted: Redaction, notes: Iterable[str]
) -> WhatIfAnswer:
    """What differs between two outcomes."""
    placed: list[str] = []
    waiting: list[str] = []
    moved: dict[str, Moved] = {}
    replanned: dict[str, Moved] = {}
    gone = [key for key in before.keys if after.node_of(key) is None]
    for key in after.keys:
        old, new = before.node_of(key), after.node_of(key) or ""
        if old == new or (old is None and key in after.running):
            continue  # a new pod that runs already comes with a new node, or with the change itself
        if not new:
            waiting.append(key)
        elif not old:
            placed.append(key)
        else:
            (moved if key in before.running else replanned)[key] = Moved(old, new)
    names = [*placed, *waiting, *moved, *replanned, *gone]
    workloads = workload_changes(
        {**before.workloads, **after.workloads},
        before.ran,
        {**before.running, **before.waiting},
        {**after.running, **after.waiting},
    )
    seen = [each for each in workloads if context.sees(each.namespace)]
    shown = context.visible(placed)
    return WhatIfAnswer(
        placed=shown,
        waiting=(left := context.visible(waiting)),
        moved={key: moved[key] for key in context.visible(moved)},
        before=before.summary,
        after=after.summary,
        replanned={key: replanned[key] for key in context.visible(replanned)},
        gone=context.visible(gone),
        nodes={key: after.node_of(key) or "" for key in shown},
        reasons={key: redacted(after.reasons.get(key, "it leaves its node for other pods")) for key in left},
        hidden=len(names) - len(context.visible(names)),
        notes=[*notes, *map(redacted, dict.fromkeys((*before.warnings, *after.warnings)))],
        workloads=seen,
        in_short=in_short(seen),
        now=moment_text(context.now),
    )


def resource_order(before: PlanSummary, after: PlanSummary) -> list[str]:
    """The resources that pods request in one of two plans, those that every node has first; the number of pods last."""
    asked = (name for summary in (before, after) for name, use in summary.resources.items() if use.requested)
    names = list(dict.fromkeys(asked))
    return [name for name in names if name != PODS] + ([PODS] if PODS in names else [])
