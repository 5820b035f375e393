"""What is looked at, in a few numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from flowcore.model.resources import PODS
from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.planned_workloads import NOT_PLANNED, acting_evictions
from flowcore.questions.scenario.waiting_counts import (
    LeavingCounts,
    Ungoverned,
    WaitingCounts,
    count_leaving,
    count_waiting,
    ungoverned_pods,
    whose,
)
from thalweg_view.pictures.names import unit_of
from thalweg_view.pictures.node_list import nodes_of, planned_usage
from thalweg_view.pictures.shapes import RoundQuery
from thalweg_view.pictures.waiting import NEW, PodWithoutNode, waiting_pods
from thalweg_view.rounds import RoundRow
from thalweg_view.view_data import ViewData


class ResourceSum(msgspec.Struct, frozen=True):
    """One resource over all nodes; see ``nodes.ResourceColumns``."""

    name: str
    unit: str
    allocatable: int
    used: int
    planned: int


class OverviewAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """A cluster and a round.

    Attributes:
        source: "live", "dump", "record", or "listing": objects of an API server, planned by who asks.
        name: of the cluster, the file or the folder.
        version: of Thalweg.
        nodes, running: numbers of nodes, and of pods with a node.
        waiting: number of pods that the round leaves without a node, and of those that it did not plan.
        codes: how many pods wait for which code of reason, the most first.
        resources: each resource over all nodes.
        round: the round in the timeline; None: there was none yet.
        rounds: number of rounds in the timeline.
        counts: all pods without a node now: those of ``waiting``, and those that the round gives a node.
        ungoverned: those of them that no policy governs.
        leaving: running pods that leave by the round.
    """

    generation: int
    source: str
    name: str
    version: str
    nodes: int
    running: int
    waiting: int
    codes: dict[str, int]
    resources: list[ResourceSum]
    round: RoundRow | None
    rounds: int
    counts: WaitingCounts = WaitingCounts()
    ungoverned: Ungoverned = Ungoverned()
    leaving: LeavingCounts = LeavingCounts()


def answer_overview(data: ViewData, query: RoundQuery, context: AnswerContext) -> OverviewAnswer:
    """The overview.

    Raises:
        UnknownName: the round is not kept.
    """
    plan = data.rounds.find(query.round)
    nodes = nodes_of(data, plan)
    allocatable: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for node in nodes:
        for name, amount in node.allocatable:
            allocatable[name] += amount
        for name, amount in node.used:
            used[name] += amount
        used[PODS] += node.pods
    planned: Counter[str] = Counter()
    for added in planned_usage(data, plan).values():
        planned.update(added)
    waiting = waiting_pods(data, plan, context, newest=not query.round)
    placed = placed_pods(data, plan)
    return OverviewAnswer(
        data.generation,
        data.source.kind,
        data.source.name,
        data.source.version,
        len(nodes),
        used[PODS],
        len(waiting),
        codes_of(waiting),
        [
            ResourceSum(name, unit_of(name), allocatable[name], used[name], planned[name])
            for name in sorted(allocatable)
        ],
        None if plan is None else data.rounds.row(plan.number),
        len(data.rounds.rows),
        counts_of(data, placed, waiting),
        ungoverned_pods(data.scenario, [*placed, *(each.pod for each in waiting)]),
        leaving_by(data, plan),
    )


def leaving_by(data: ViewData, plan: PlanDocument | None) -> LeavingCounts:
    """The running pods that leave by a plan."""
    if plan is None:
        return LeavingCounts()
    acting = acting_evictions(data.scenario, plan)
    return count_leaving((bool(each.to), each.key in acting) for each in plan.evictions)


def placed_pods(data: ViewData, plan: PlanDocument | None) -> list[str]:
    """Keys of the pods that have no node now and get one by a plan; of a record all that it places."""
    keys = [] if plan is None else [plan.pending[each.pod].key for each in plan.placements]
    state = data.scenario.cluster.waiting
    return [key for key in keys if data.source.kind == "record" or key in state]


def counts_of(
    data: ViewData, placed: Iterable[str], waiting: Iterable[PodWithoutNode], namespace: str = ""
) -> WaitingCounts:
    """How many pods have no node now, and what a round does with them.

    Args:
        placed: keys of those that the round gives a node.
        waiting: the others.
        namespace: of all of them; "": any.
    """
    keys = defaultdict[str, list[str]](list)
    for row in waiting:
        keys[row.code if row.code in (NOT_PLANNED, NEW) else ""].append(row.pod)
    return count_waiting(
        data.scenario.cluster.pods,
        placed=placed,
        left=keys[""],
        new=keys[NEW],
        unplanned=keys[NOT_PLANNED],
        whose=whose(namespace),
    )


def codes_of(pods: Iterable[PodWithoutNode]) -> dict[str, int]:
    """How many of these pods wait for which code of reason, the most first."""
    codes = Counter(each.code for each in pods)
    return dict(sorted(codes.items(), key=lambda each: (-each[1], each[0])))
