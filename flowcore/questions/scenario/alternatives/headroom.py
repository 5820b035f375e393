"""Headroom: how many more pods of a class fit now, and which new nodes would take how many waiting pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.devices import may_be_devices
from flowcore.model.errors import ModelError
from flowcore.model.pods import Pod, PodClass, Toleration
from flowcore.model.policies import SCHEDULER_NAME
from flowcore.model.resource_claims import ExtendedRequest
from flowcore.model.resources import Amounts, is_counted, is_extended, read_list, to_amounts
from flowcore.planning.problem.left_at_least import LeftAtLeast
from flowcore.planning.round import RoundResult, run_round
from flowcore.questions.scenario.alternatives.claim_copies import ClaimCopies
from flowcore.questions.scenario.alternatives.new_nodes.gang import GangNodes, left_of_gang, nodes_for_gang
from flowcore.questions.scenario.alternatives.new_nodes.nodes_needed import NodesNeeded, nodes_needed
from flowcore.questions.scenario.alternatives.new_nodes.offers import Offer, offers
from flowcore.questions.scenario.alternatives.new_nodes.shapes import new_nodes_may_take, waiting_kinds
from flowcore.questions.scenario.alternatives.replanning import PlanDifference, Replanning
from flowcore.questions.scenario.alternatives.unneeded_nodes import UnneededNodes, unneeded_nodes
from flowcore.questions.scenario.alternatives.what_if import outcome_of
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.device_use import asked_for
from flowcore.questions.scenario.hypothetical.change_pods import to_waiting
from flowcore.questions.scenario.near_names import did_you_mean
from flowcore.questions.scenario.plan import ScenarioPlan, plan_scenario
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.reading.missing_objects import check_for_pods, unread_budgets
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.redaction import Redaction
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario
from flowcore.questions.scenario.waiting_counts import WaitingCounts, count_waiting
from flowcore.rules.devices.pod_claims import named_claims

#: Most pods that are tried at once.
MAX_LIMIT = 100_000
#: Most nodes that are worth nothing and are named.
MAX_UNNEEDED = 1_000
_NONE_LEFT = LeftAtLeast(0, 0)
#: How many plans with new nodes are made: they read about this number of pods together, within these bounds.
_PODS_READ, _FEWEST_PLANS, _MOST_PLANS = 600_000, 4, 40
#: A whole one of a resource, in billionths.
_ONE = 1_000_000_000
#: Name of the copy that is planned.
_COPY = "headroom"


class HeadroomQuery(msgspec.Struct, frozen=True, rename="camel"):
    """The question.

    Attributes:
        like: a pod, waiting or running, whose class is meant: ``namespace/name``; "": ``requests`` say the class.
        requests: quantities by resource, of a pod without any rules; {}: no class is asked about. It tolerates taints
            whose key is the name of an extended resource that it requests, as the API server's admission plug-in
            ExtendedResourceToleration lets it.
        tolerate: keys of taints that it tolerates too.
        namespace: of the pod that ``requests`` describe; one that the asker may not see counts as one without labels,
            queue and pods.
        limit: counting stops at this number of pods.
        scale_ups: how many shapes of new nodes to plan.
        unneeded: how many nodes that are worth nothing to name at most; 0: none is looked for.
        gang: ``namespace/name`` of one whose waiting pods are to get new nodes, all or none; "": none.
    """

    like: str = ""
    requests: dict[str, str] = {}
    namespace: str = "default"
    limit: int = 10_000
    scale_ups: int = 3
    tolerate: list[str] = []
    unneeded: int = 0
    gang: str = ""


class ScaleUp(msgspec.Struct, frozen=True, rename="camel"):
    """New nodes that were planned.

    Attributes:
        like: the node that they are like.
        count: how many nodes: the fewest with which a plan places so many pods, more of them do not place more.
        pods: how many waiting pods are placed with them.
        places: keys of those of them that the asker may see.
        cost: of the plan with them.
        amount: how much of the answer's ``resource`` the placed pods ask for.
        pods_by_bound, amount_by_bound: by how much the bound on what every plan leaves falls with them: their price
            there. Where the plan without them leaves as few as its bound, no plan with them places more.
        at_most: fewer nodes may do as well: there was no time to plan with fewer.
    """

    like: str
    count: int
    pods: int
    places: list[str]
    cost: int
    amount: int = 0
    pods_by_bound: int = 0
    amount_by_bound: int = 0
    at_most: bool = False


class HeadroomAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer.

    Attributes:
        fits: how many more pods of the class are placed beside what the plan places now, while nobody leaves for
            them; None: no class was asked about.
        at_least: counting stopped at the limit, so more may fit.
        reason: why one more is not placed; "": unknown, because counting stopped.
        nodes: how many of them each node takes.
        requests: what one of them asks for, in milli-cores of cpu, else in whole units.
        waiting: how many pods wait in the plan.
        more_nodes_help: how many of them another node may take.
        cost: of the plan.
        scale_ups: new nodes that help, the best first.
        notes: what is not known of the cluster.
        now: the moment that the answer is for; "": unknown.
        tolerates: keys of the taints that a pod described by requests tolerates.
        tried: whether new nodes were tried.
        claims: what the claims of one of them ask for: "2 of class gpu".
        resource: the extended resource that the pods left ask for most; "": none.
        left_at_least: what the plan leaves, and every plan; None: it leaves none.
        unneeded: nodes that are worth nothing now; None: none was looked for.
        gang: new nodes for the gang; None: none was asked about.
        counts: what becomes of the pods that wait.
    """

    fits: int | None
    at_least: bool
    reason: str
    nodes: dict[str, int]
    requests: dict[str, int]
    waiting: int
    more_nodes_help: int
    cost: int
    scale_ups: list[ScaleUp]
    notes: list[str] = []
    now: str = ""
    tolerates: list[str] = []
    tried: bool = True
    claims: list[str] = []
    resource: str = ""
    left_at_least: LeftAtLeast | None = None
    unneeded: UnneededNodes | None = None
    gang: GangNodes | None = None
    counts: WaitingCounts = WaitingCounts()


def answer_headroom(scenario: Scenario, query: HeadroomQuery, context: AnswerContext) -> HeadroomAnswer:
    """Counts by planning copies; the scenario is the same as before when this returns.

    Raises:
        UnknownName: there is no pod of that name.
        ModelError: a quantity cannot be read, a number is out of range, new nodes would not help the gang, or there is
            no pod in a dump.
    """
    if not 0 <= query.unneeded <= MAX_UNNEEDED:
        raise ModelError("unneeded", f"{query.unneeded}: give a number from 0 to {MAX_UNNEEDED}")
    if not 1 <= query.limit <= MAX_LIMIT:
        raise ModelError("limit", f"{query.limit}: give a number from 1 to {MAX_LIMIT}")
    check_for_pods(scenario)
    copy = _copy(scenario, query, context)
    plan = plan_scenario(scenario, context.now, context.models)
    before = outcome_of(scenario, plan)
    count = Count()
    if copy is not None:
        template, reason = _template(scenario, copy, context)
        count = Count(reason=reason)
        if template is not None:
            count = _CopyCounter(scenario, context, plan.result.after, template).count(query.limit)
    permanent = scenario.permanent()
    may_be_placed = new_nodes_may_take(plan.result.unplaced, permanent, plan)
    gang = None
    if query.gang:
        left = left_of_gang(scenario, query.gang, plan, context)
        offered = offers(waiting_kinds(left, plan), plan.result.after, permanent)
        gang = nodes_for_gang(scenario, plan, left, offered, context)
    redacted, least = Redaction(scenario, context), plan.result.left_at_least or _NONE_LEFT
    planned = list[ScaleUp]()
    if query.scale_ups > 0:
        ranked = offers(waiting_kinds(may_be_placed, plan), plan.result.after, permanent)
        planned = _scale_ups(scenario, plan, ranked, query.scale_ups, context)
    unneeded = unneeded_nodes(scenario, plan, before, query.unneeded, context) if query.unneeded else None
    leave = unneeded is not None and unneeded.pods > 0
    return HeadroomAnswer(
        fits=None if copy is None else count.fits,
        at_least=count.at_least,
        reason=redacted(count.reason),
        nodes=dict(count.nodes),
        requests={} if copy is None else dict(copy.pod_class.requests),
        waiting=before.summary.waiting - before.summary.evicted,
        more_nodes_help=len(may_be_placed),
        cost=before.summary.cost,
        scale_ups=sorted(planned, key=lambda shape: (-shape.pods, shape.cost, shape.count)),
        notes=[*map(redacted, before.warnings), *(unread_budgets(scenario) if leave else ())],
        now=moment_text(context.now),
        tolerates=list(dict.fromkeys(each.key for each in _tolerations(query))),
        tried=query.scale_ups > 0,
        claims=[] if copy is None else _claims(copy, scenario),
        resource=least.resource,
        left_at_least=plan.result.left_at_least,
        unneeded=unneeded,
        gang=gang,
        counts=count_waiting(
            scenario.cluster.pods,
            placed=(each.pod.key for each in plan.result.placements),
            left=(each.pod.key for each in plan.result.unplaced),
            unplanned=plan.skipped,
        ),
    )


def _scale_ups(
    scenario: Scenario, plan: ScenarioPlan, ranked: Sequence[Offer], most: int, context: AnswerContext
) -> list[ScaleUp]:
    """The fewest new nodes of each shape that a plan shows to help.

    Args:
        ranked: the shapes to try, the best first.
        most: how many shapes that help are enough.
    """
    budget = max(_FEWEST_PLANS, min(_MOST_PLANS, _PODS_READ // max(1, len(scenario.cluster.pods))))
    replanning = Replanning(scenario, plan, context, budget)
    scale_ups = list[ScaleUp]()
    for offer in ranked:
        if len(scale_ups) == most or replanning.left <= 0:
            break
        fewest = nodes_needed(replanning, offer, _more_placed, every=len(plan.result.unplaced))
        if fewest is not None:
            scale_ups.append(_scale_up(scenario, fewest, plan.result.left_at_least or _NONE_LEFT, context))
    return scale_ups


def _more_placed(outcome: PlanDifference) -> int:
    """How many more pods have a node."""
    return len(outcome.places) - len(outcome.loses)


def _scale_up(scenario: Scenario, fewest: NodesNeeded, least: LeftAtLeast, context: AnswerContext) -> ScaleUp:
    """What was planned, in numbers.

    Args:
        least: what every plan leaves without the nodes.
    """
    pods, placed, after = scenario.cluster.pods, fewest.outcome.places, fewest.outcome.plan.result
    with_them = after.left_at_least or _NONE_LEFT
    # Of what is left with them another resource may be asked for most.
    known_amount = with_them.resource in ("", least.resource)
    return ScaleUp(
        fewest.added.like,
        fewest.added.count,
        len(placed),
        context.visible(placed),
        after.cost,
        amount=sum(dict(pods[key].pod_class.requests).get(least.resource, 0) for key in placed),
        pods_by_bound=max(0, least.pods - with_them.pods),
        amount_by_bound=max(0, least.amount - with_them.amount) if known_amount else 0,
        at_most=not fewest.proven,
    )


# -- the class ---------------------------------------------------------------------------------------------------------


def _copy(scenario: Scenario, query: HeadroomQuery, context: AnswerContext) -> Pod | None:
    """A waiting pod of the class; None: no class is asked about."""
    if query.like and query.requests:
        raise ModelError("", "give either a pod that the new ones are like or what they request, not both")
    if query.tolerate and not query.requests:
        raise ModelError("tolerate", "only a pod described by what it requests can be made to tolerate taints")
    if query.like:
        pod = scenario.cluster.pods.get(query.like)
        if pod is None or not context.may_name(query.like):
            near = did_you_mean(query.like, context.visible(scenario.cluster.pods))
            raise UnknownName("", f"there is no pod {query.like}{near}")
        return copy_of(pod, context.now)
    if not query.requests:
        return None
    requests = _amounts(query.requests)
    return Pod(
        # Labels and queue of a namespace, and rules of its pods, are not for an asker who may not see it.
        query.namespace if context.sees(query.namespace) else "",
        _COPY,
        _COPY,
        PodClass(requests=requests, tolerations=_tolerations(query)),
        scheduler_name=SCHEDULER_NAME,
        usage=requests,
        created=context.now,
        extended=tuple(
            ExtendedRequest(name, ((f"container-0-request-{place}", amount),))
            for place, (name, amount) in enumerate(requests)
            if may_be_devices(name)
        ),
    )


def _tolerations(query: HeadroomQuery) -> tuple[Toleration, ...]:
    """Tolerations of a pod described by its requests."""
    devices = (Toleration(name, "Exists", effect="NoSchedule") for name in query.requests if is_extended(name))
    return (*devices, *(Toleration(key, "Exists") for key in query.tolerate))


def copy_of(pod: Pod, now: float) -> Pod:
    """A waiting pod of the same class by itself: without a gang, and without a pod whose place it takes.

    Args:
        now: seconds since the epoch.
    """
    return msgspec.structs.replace(
        to_waiting(pod, now),
        name=_COPY,
        uid=_COPY,
        gang=None,
        replaces=None,
        blocked_reason="" if pod.deleting else pod.blocked_reason,
        deleting=False,
        terminal=False,
        succeeded=False,
    )


def _claims(copy: Pod, scenario: Scenario) -> list[str]:
    claiming = copy.pod_class.devices
    claims = {} if claiming is None else named_claims(claiming, scenario.cluster.devices.claims)
    return [asked_for(request) for claim in claims.values() for request in claim.requests]


def _amounts(requests: dict[str, str]) -> Amounts:
    for name in requests:
        if not is_counted(name):
            raise ModelError(f"requests.{name}", "nodes are not scheduled by this resource; give its full name")
    read = read_list(requests, "requests")
    for name, amount in read.items():
        if is_extended(name) and amount % _ONE:
            raise ModelError(f"requests.{name}", f'"{requests[name]}" is no whole number: devices are not divided')
    return to_amounts(read)


def _template(scenario: Scenario, copy: Pod, context: AnswerContext) -> tuple[PendingPod | None, str]:
    """The copy as a round sees it; None and the reason where it is not planned."""
    edits = Edits(scenario)
    try:
        edits.put_pod(copy)
        plan = plan_scenario(scenario, context.now, context.models, only=(copy.key,))
        if copy.key in plan.skipped:
            return None, plan.skipped[copy.key]
        (pending,) = plan.before.pending
        return msgspec.structs.replace(pending, preempts=False), ""
    finally:
        edits.undo()


# -- counting ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Count:
    """How many copies fit; see HeadroomAnswer."""

    fits: int = 0
    at_least: bool = False
    reason: str = ""
    nodes: Mapping[str, int] = field(default_factory=dict)


class _CopyCounter:
    """Counts copies of one pod that find room beside a plan."""

    def __init__(self, scenario: Scenario, context: AnswerContext, after: Snapshot, template: PendingPod) -> None:
        self._claims = ClaimCopies(replace(after, pending=(), gangs={}, running=None), template.pod_class)
        self._space = self._claims.snapshot
        self._template, self._models = template, context.models
        self._policies = GovernedScenario(scenario).policies

    def count(self, limit: int) -> Count:
        """The number of copies that are all placed, while one more is not."""
        #: All of ``low`` copies are placed, and not all of ``high``.
        low, high, guess = 0, 0, min(self._room(), limit)
        placed: RoundResult | None = None
        rejected: RoundResult | None = None
        while rejected is None or low + 1 < high:
            middle = guess if low < guess and (rejected is None or guess < high) else (low + high) // 2
            tried = self._plan(middle)
            guess = len(tried.placements)
            if guess < middle:
                high, rejected = middle, tried
            else:
                low, placed, guess = middle, tried, middle + 1
                if low == limit:
                    break
        nodes = Counter(each.node for each in (placed.placements if placed is not None else ()))
        if rejected is None or low == limit:
            return Count(low, at_least=low == limit, nodes=nodes)
        # One more beside those that fit: what keeps it out is no other copy that waits with it.
        alone = rejected if placed is None else self._plan(1, placed.after, low)
        return Count(low, at_least=False, reason=(alone.unplaced or rejected.unplaced)[0].reason, nodes=nodes)

    def _plan(self, copies: int, space: Snapshot | None = None, first: int = 0) -> RoundResult:
        """Plans so many copies, with numbers from ``first`` on."""
        key = self._template.key
        pending = tuple(
            msgspec.structs.replace(
                self._template,
                key=f"{key}-{number}",
                uid=f"{key}-{number}",
                pod_class=self._claims.pod_class(number),
            )
            for number in range(first, first + copies)
        )
        return run_round(replace(space or self._space, pending=pending), self._policies, self._models)

    def _room(self) -> int:
        """More copies than this find no room for what they request, whatever other rules say."""
        devices = self._template.pod_class.devices
        extended = () if devices is None else devices.extended_resources
        requests = tuple(each for each in self._template.pod_class.requests if each[0] not in extended)
        if not {name for name, _ in requests} <= set(self._space.resources):
            return 0
        wanted = self._space.vector(requests)
        asks = wanted > 0
        per_node = (self._space.free[:, asks] // wanted[asks]).min(axis=1) if len(self._space.free) else np.zeros(0)
        room = int(np.maximum(per_node, 0).sum())
        if devices is None:
            return room
        # Most pods with claims get a device at least.
        return min(room, sum(len(each.devices) for each in self._space.devices.slices.values()))
