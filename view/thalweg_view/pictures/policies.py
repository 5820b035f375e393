"""Policies and the pods that they govern; queues and their shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container

import msgspec

from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.costs.network_model import network_models
from flowcore.model.constraints import Constraint
from flowcore.model.policies import OBSERVED, Policy
from flowcore.model.resources import Amounts
from flowcore.model.selectors import LabelSelector
from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario.context import AnswerContext
from thalweg_view.pictures.shapes import Picture, RoundQuery
from thalweg_view.view_data import ViewData


class PolicyRow(msgspec.Struct, rename="camel"):
    """One policy.

    Attributes:
        selects: which pods it governs, in words.
        constraints: kind, name and topology key, in words.
        running: number of pods with a node that it governs; None: unknown.
        waiting: number of pods without a node, once the round's plan is carried out.
        placed: how many of its pods the round placed.
        left: how many of its pods the round left pending.
        price: sum of the prices of the placements.
        draws: whether it, or its cost model, draws a network for its pods.
        held: where new pods wait and why, with ``waiting: Auto``; "": not known, or the policy says it.
    """

    name: str
    precedence: int | None = None
    delivery: str = ""
    selects: str = ""
    constraints: list[str] = []
    running: int | None = None
    waiting: int = 0
    placed: int = 0
    left: int = 0
    price: int = 0
    held: str = ""
    draws: bool = False


class PoliciesAnswer(Picture, frozen=True, rename="camel"):
    """All policies in force, those of the highest precedence first, then the built-in default.

    Where pods that no policy governs are planned, as in a dump, the last row is theirs: "(observed)".
    """

    policies: list[PolicyRow]


class QueueRow(msgspec.Struct, rename="camel"):
    """One queue; shares as in ``flowcore.model.queues.QueueShare``, with the plan carried out.

    Attributes:
        parent: name of the queue above it; "": none.
        weight: by which it shares what the queue above it has.
        guarantee: amounts by resource that are its own.
        limit: amounts by resource that it may use at most.
        used: amounts by resource that its pods hold.
        used_share: the largest part that its pods hold of what all queues can have of a resource.
        fair_share: the part that it is due.
        borrowed_share: the part that it would give back if all queues asked for more than they are due.
        placed: how many of its own pods the round placed.
        waiting: how many of its own pods the round left pending.
    """

    name: str
    parent: str = ""
    weight: int = 1
    guarantee: dict[str, int] = {}
    limit: dict[str, int] = {}
    used: dict[str, int] = {}
    used_share: float = 0.0
    fair_share: float = 0.0
    borrowed_share: float = 0.0
    problem: str = ""
    placed: int = 0
    waiting: int = 0


class QueuesAnswer(Picture, frozen=True, rename="camel"):
    """All queues, parents before those below them."""

    queues: list[QueueRow]


def answer_policies(data: ViewData, query: RoundQuery, context: AnswerContext) -> PoliciesAnswer:
    """The policies.

    Raises:
        UnknownName: the round is not kept.
    """
    plan = data.rounds.find(query.round)
    known = plan is None or plan.nodes is None
    rows = _of_state(data, network_models(context.models)) if known else {}
    if plan is not None:
        _add_round(rows, plan, data.scenario.cluster.waiting if known else None)
    return PoliciesAnswer(data.generation, 0 if plan is None else plan.number, list(rows.values()))


def _of_state(data: ViewData, models: Collection[str]) -> dict[str, PolicyRow]:
    cluster = data.scenario.cluster
    index = PolicyIndex(data.scenario.policies.values())
    rows = {policy.name: _row(policy) for policy in index.ordered}
    for (namespace, labels, scheduler_name), population in cluster.populations.items():
        matching = index.governing(scheduler_name, labels, cluster.namespaces.get(namespace, ()))
        if not matching and data.scenario.complete:
            continue
        policy = matching[0] if matching else OBSERVED
        row = rows.setdefault(policy.name, _row(policy))
        row.running = (row.running or 0) + population.placed
        row.waiting += population.waiting
    for policy in index.ordered:
        rows[policy.name].draws = policy.draws(models)
    for name, text in data.scenario.held.items():
        rows[name].held = text
    return rows


def _row(policy: Policy) -> PolicyRow:
    selects = policy.selects
    parts = [f"scheduler {' or '.join(selects.scheduler_names)}" if selects.scheduler_names else "any scheduler"]
    if selects.pods is not None:
        parts.append(f"pods with {selector_text(selects.pods)}")
    if selects.namespaces is not None:
        parts.append(f"namespaces with {selector_text(selects.namespaces)}")
    text = "nothing" if selects.nothing else ", ".join(parts)
    if policy.name == OBSERVED.name:
        text = "pods that no policy governs"
    constraints = [_constraint_text(each) for each in policy.constraints]
    return PolicyRow(policy.name, policy.precedence, policy.delivery.value, text, constraints, 0)


def selector_text(selector: LabelSelector) -> str:
    """A selector as kubectl writes it."""
    texts = []
    for requirement in selector.requirements:
        match requirement.operator:
            case "In" if len(requirement.values) == 1:
                texts.append(f"{requirement.key}={requirement.values[0]}")
            case "In" | "NotIn":
                texts.append(f"{requirement.key} {requirement.operator.lower()} ({','.join(requirement.values)})")
            case "DoesNotExist":
                texts.append(f"!{requirement.key}")
            case _:
                texts.append(requirement.key)
    return ",".join(texts) or "any labels"


def _constraint_text(constraint: Constraint) -> str:
    key = getattr(constraint, "topology_key", "")
    return f"{type(constraint).__name__} {constraint.name}" + (f" by {key}" if key else "")


def _add_round(rows: dict[str, PolicyRow], plan: PlanDocument, state: Container[str] | None) -> None:
    """Adds what the round says.

    Args:
        state: keys of the pods that the rows count as waiting; None: they count none, the round alone knows the pods.
    """
    used = {pod.policy for pod in plan.pending}
    for place, policy in enumerate(plan.policies):
        if place in used or policy.name != OBSERVED.name:  # a row only where it has pods
            rows.setdefault(policy.name, PolicyRow(policy.name, delivery=policy.delivery.value))
    names = [plan.policies[pod.policy].name for pod in plan.pending]
    for placement in plan.placements:
        row = rows[names[placement.pod]]
        row.waiting -= state is not None and plan.pending[placement.pod].key in state
        row.placed += 1
        row.price += placement.price
    for place, _ in plan.unplaced:
        rows[names[place]].left += 1
        rows[names[place]].waiting += state is None


def answer_queues(data: ViewData, query: RoundQuery, _context: AnswerContext) -> QueuesAnswer:
    """The queues.

    Raises:
        UnknownName: the round is not kept.
    """
    plan = data.rounds.find(query.round)
    rows: dict[str, QueueRow] = {}
    for queue in data.scenario.cluster.queues.tree.queues.values():
        amounts = _amounts(queue.guarantee), _amounts(queue.limit)
        rows[queue.name] = QueueRow(queue.name, queue.parent, queue.weight, *amounts)
    for name, problem in data.scenario.cluster.queues.tree.problems.items():
        rows[name] = QueueRow(name, problem=problem.message)
    if plan is None:
        return QueuesAnswer(data.generation, 0, list(rows.values()))
    for share in plan.queue_shares:
        row = rows.setdefault(share.name, QueueRow(share.name))
        row.used, row.used_share = _amounts(share.used), share.used_share
        row.fair_share, row.borrowed_share = share.fair_share, share.borrowed_share
        row.problem = row.problem or share.problem[1]
    placed = Counter(plan.pending[each.pod].queue for each in plan.placements)
    waiting = Counter(plan.pending[place].queue for place, _ in plan.unplaced)
    for row in rows.values():
        row.placed, row.waiting = placed[row.name], waiting[row.name]
    return QueuesAnswer(data.generation, plan.number, list(rows.values()))


def _amounts(amounts: Amounts) -> dict[str, int]:
    return dict(amounts)
