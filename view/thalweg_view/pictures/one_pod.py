"""One pod: where it runs, where it is planned to go, or why it waits."""

from __future__ import annotations

import msgspec

from flowcore.model.pods import Pod
from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario import GovernedScenario
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.waiting_counts import ungoverned_pods
from thalweg_view.pictures.pod_claims import PodClaimRow, pod_claims
from thalweg_view.pictures.reasons import Reasons
from thalweg_view.pictures.waiting import waiting_pods
from thalweg_view.view_data import ViewData


class PodQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which pod.

    Attributes:
        namespace: of the pod.
        round: number of a round; 0: the newest.
    """

    namespace: str
    name: str
    round: int = 0


class PodAnswer(msgspec.Struct, rename="camel"):
    """A pod.

    Attributes:
        round: number of the round; 0: there was none yet.
        pod: ``namespace/name``.
        state: "Running" (it has a node), "Planned" (the round has a node for it), "Waiting", or "Finished".
        requests: amounts by resource (flowcore/model/resources.py).
        gangs: that it is of, as its users know them.
        created: seconds since the epoch when it was created.
        since: seconds since the epoch since when it could be placed; 0: unknown.
        node: where it runs, or is planned to go; "": nowhere.
        price: of the planned placement.
        position: its place among the pods that the round left, in the planner's order, from 1; 0: it was not planned.
        code: why it waits, in one word; "": it does not.
        reason: why it waits, leaves or is to move, in a sentence; "": there is nothing to say.
        victims: keys of the pods that leave for it and that may be seen.
        other_victims: how many other pods leave for it.
        leaves: why the pod itself leaves its node ("Preemption", ...); "": it does not.
        leaves_for: keys of the pods that it leaves for and that may be seen.
        leaves_for_others: how many other pods it leaves for.
        leaves_to: the node where room for its replacement is reserved; "": none.
        claims: to devices, of the newest state.
        ungoverned: who binds it, if no policy governs it and it has no node; "": a policy does.
        proposed_to: the node that its policy proposes to move it to; "": none. ``reason`` says why, if it is for gain.
    """

    generation: int
    round: int
    pod: str
    state: str = "Waiting"
    requests: dict[str, int] = {}
    priority: int = 0
    policy: str = ""
    queue: str = ""
    gangs: list[str] = []
    created: float = 0.0
    since: float = 0.0
    node: str = ""
    price: int = 0
    position: int = 0
    code: str = ""
    reason: str = ""
    victims: list[str] = []
    other_victims: int = 0
    leaves: str = ""
    leaves_for: list[str] = []
    leaves_for_others: int = 0
    leaves_to: str = ""
    claims: list[PodClaimRow] = []
    proposed_to: str = ""
    ungoverned: str = ""


def answer_pod(data: ViewData, query: PodQuery, context: AnswerContext) -> PodAnswer:
    """A pod that may be seen.

    Raises:
        UnknownName: there is none of that name, or the round is not kept.
    """
    key = f"{query.namespace}/{query.name}"
    plan = data.rounds.find(query.round)
    known = data.scenario.cluster.pods.get(key) if plan is None or plan.nodes is None else None
    place = (
        None if plan is None else next((position for position, pod in enumerate(plan.pending) if pod.key == key), None)
    )
    evicted = None if plan is None else next((each for each in plan.evictions if each.key == key), None)
    proposed = None if plan is None else next((each for _, each in plan.proposals if each.key == key), None)
    if not context.sees(query.namespace) or (known is None and place is None and evicted is None):
        raise UnknownName("pod", f'"{key}" is not known')
    answer = PodAnswer(data.generation, 0 if plan is None else plan.number, key)
    if known is not None:
        _add_known(answer, known, data)
    if plan is not None and place is not None:
        _add_planned(answer, plan, place, context)
    if plan is not None and evicted is not None:
        gainers = plan.keys(evicted.for_pods)
        answer.leaves_for = context.visible(gainers)
        answer.leaves_for_others = len(gainers) - len(answer.leaves_for)
        answer.state, answer.node = "Running", evicted.node
        answer.leaves, answer.leaves_to = evicted.kind.value, context.node(evicted.to) if evicted.to else ""
        answer.reason = Reasons(data, plan, context).text(evicted.reason)
    elif proposed is not None and answer.state == "Running":
        answer.proposed_to = context.node(proposed.to)
        answer.reason = Reasons(data, plan, context).text(proposed.reason)
    if answer.state in ("Waiting", "Planned"):
        answer.ungoverned = ungoverned_pods(data.scenario, [key]).sentence
    if answer.state == "Waiting":
        waiting = waiting_pods(data, plan, context, newest=not query.round)
        row = next((each for each in waiting if each.pod == key), None)
        if row is not None:
            answer.position, answer.code, answer.reason = row.position, row.code, row.reason
    return answer


def _add_known(answer: PodAnswer, pod: Pod, data: ViewData) -> None:
    cluster = data.scenario.cluster
    answer.requests = dict(pod.pod_class.requests)
    answer.priority = pod.pod_class.priority
    governed = GovernedScenario(data.scenario)
    answer.policy = governed.policy_of(pod).name if governed.governs(pod) else ""
    answer.queue = cluster.queues.of(pod, cluster.namespaces)
    answer.gangs = [] if pod.gang is None else [pod.gang.key.display_name]
    answer.created, answer.since, answer.node = pod.created, pod.unschedulable_since, pod.node_name
    answer.claims = pod_claims(data, pod)
    if pod.terminal:
        answer.state = "Finished"
    elif pod.node_name:
        answer.state = "Running"


def _add_planned(answer: PodAnswer, plan: PlanDocument, place: int, context: AnswerContext) -> None:
    pod = plan.pending[place]
    answer.requests = dict(plan.classes[pod.pod_class].requests)
    answer.priority = plan.classes[pod.pod_class].priority
    answer.policy, answer.queue, answer.gangs = plan.policies[pod.policy].name, pod.queue, list(pod.gangs)
    answer.created, answer.since = pod.created, pod.since or pod.created
    placement = next((each for each in plan.placements if each.pod == place), None)
    if placement is None:
        return
    answer.price = placement.price
    if answer.state == "Waiting":
        answer.state, answer.node = "Planned", placement.node
    victims = [each for each in plan.evictions if place in each.for_pods]
    answer.victims = context.visible(each.key for each in victims)
    answer.other_victims = len(victims) - len(answer.victims)
