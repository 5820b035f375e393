"""The plan of all waiting pods, pod by pod, as a question and its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from flowcore.model.running_pods import EvictionKind
from flowcore.planning.plan_document import PlanDocument, PlanEviction
from flowcore.planning.problem.left_at_least import LeftAtLeast
from flowcore.questions.scenario.context import AnswerContext, UnknownName
from flowcore.questions.scenario.near_names import did_you_mean
from flowcore.questions.scenario.observed import ObservedPod, compare_observed
from flowcore.questions.scenario.plan import plan_scenario
from flowcore.questions.scenario.planned_workloads import (
    PlannedWorkload,
    WorkloadEvictions,
    acting_evictions,
    evictions_by_workload,
    planned_workloads,
)
from flowcore.questions.scenario.reading.moment import moment_text
from flowcore.questions.scenario.redaction import Redaction
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario
from flowcore.questions.scenario.waiting_counts import (
    LeavingCounts,
    Ungoverned,
    WaitingCounts,
    count_leaving,
    count_waiting,
    ungoverned_pods,
    whose,
)


class PlanQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the plan.

    Attributes:
        namespace: of the pods that are listed; "": all that may be seen.
        policy: that governs them; "": any.
    """

    namespace: str = ""
    policy: str = ""


class PlannedDevice(msgspec.Struct, frozen=True):
    """A device, or a share of one, that a planned pod has or gets.

    Attributes:
        claim: name of the ResourceClaim; "": it is yet to be made, for the pod's extended resources.
        request: of the claim: ``request`` or ``request/alternative``.
        driver, pool, device: which one it is.
    """

    claim: str
    request: str
    driver: str
    pool: str
    device: str


class PlannedPod(msgspec.Struct, frozen=True):
    """A waiting pod with a node.

    Attributes:
        price: what the placement costs.
        victims: pods that must leave before it comes.
        policy: that governs it; "(built-in)": it names the scheduler thalweg; "(observed)": no policy governs it.
        acts: whether the plan is carried out; not so under delivery Observe, and for pods of other schedulers.
        devices: what its resource claims have or get, of the first 2,000 pods with claims, for an asker who may read
            nodes.
    """

    pod: str
    node: str
    price: int
    victims: list[str]
    policy: str
    acts: bool
    devices: list[PlannedDevice] = []


class WaitingPod(msgspec.Struct, frozen=True):
    """A waiting pod without a node, and the first line of the reason.

    Attributes:
        skipped: whether no plan may place it, whatever room there is.
    """

    pod: str
    reason: str
    policy: str
    skipped: bool = False


class PlannedEviction(msgspec.Struct, frozen=True, rename="camel"):
    """A running pod that leaves its node.

    Attributes:
        kind: why it leaves.
        for_pods: whom it leaves for.
        to: node where room for its replacement is reserved; "": none.
        reason: a sentence beyond the kind; "": none.
        gain: of a move for gain: by how much it costs less on ``to``; 0: it leaves for others.
        price: what it costs that it leaves, by its policy; the plan's cost has it, less the gain.
        acts: whether it is carried out; not so if it leaves for pods that are only observed, or is only proposed.
    """

    pod: str
    node: str
    kind: EvictionKind
    for_pods: list[str] = msgspec.field(name="for")
    to: str
    reason: str = ""
    gain: int = 0
    price: int = 0
    acts: bool = False


class PlanAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """What an asker may see of a plan document, by name.

    Attributes:
        evictions: running pods that leave their node.
        observed: pods of policies with delivery Observe that another scheduler placed, with the planned node.
        hidden: number of waiting pods that the asker may not see; 0 where one namespace is asked for.
        nodes: number of nodes that were planned for.
        cost, lower_bound: of the whole plan, of pods that are not listed too.
        certified: whether no plan costs less.
        warnings: sentences about what may change the plan.
        now: the moment that the answer is for; "": unknown.
        workloads: the pods of ``placed`` and ``waiting``, and those that leave, by workload.
        evictions_by_workload: the pods of ``evictions``, by workload and by whom they leave for.
        proposals, proposals_by_workload: the same of pods that would leave if their policy's mode were Act.
        gap: how far above the cheapest plan the cost may be, as a part of the cost.
        incomplete: whether objects are missing that may change the plan.
        namespace, policy: whose pods are listed, as asked for; "": all.
        left_at_least: what every plan leaves of all pods, of those that are not listed too; None: the plan leaves none.
        bound_notes: what the lower bound does not count in full, by code: a gap may come of that.
        counts: the pods of ``placed`` and ``waiting``, counted.
        leaving: the pods of ``evictions``, counted.
        ungoverned: those of ``placed`` and ``waiting`` that no policy governs.
    """

    placed: list[PlannedPod]
    waiting: list[WaitingPod]
    evictions: list[PlannedEviction]
    observed: list[ObservedPod]
    hidden: int
    nodes: int
    cost: int
    lower_bound: int
    certified: bool
    warnings: list[str]
    now: str = ""
    workloads: list[PlannedWorkload] = []
    evictions_by_workload: list[WorkloadEvictions] = []
    proposals: list[PlannedEviction] = []
    proposals_by_workload: list[WorkloadEvictions] = []
    gap: float = 0.0
    incomplete: bool = False
    namespace: str = ""
    policy: str = ""
    left_at_least: LeftAtLeast | None = None
    bound_notes: list[str] = []
    counts: WaitingCounts = WaitingCounts()
    leaving: LeavingCounts = LeavingCounts()
    ungoverned: Ungoverned = Ungoverned()


def answer_plan(scenario: Scenario, query: PlanQuery, context: AnswerContext) -> PlanAnswer:
    """Plans the waiting pods.

    Raises:
        UnknownName: no policy has the name.
    """
    check_policy(scenario, query)
    return list_plan(scenario, plan_scenario(scenario, context.now, context.models).document(), query, context)


def check_policy(scenario: Scenario, query: PlanQuery) -> None:
    """Whether the policy of a question exists.

    Raises:
        UnknownName: no policy has the name.
    """
    if query.policy and query.policy not in scenario.policies:
        near = did_you_mean(query.policy, scenario.policies)
        raise UnknownName(f'policy "{query.policy}"', f"no FlowSchedulingPolicy has this name{near}")


def list_plan(scenario: Scenario, plan: PlanDocument, query: PlanQuery, context: AnswerContext) -> PlanAnswer:
    """A plan of the scenario as an answer; all of it is in the document, but who may see what."""
    governed = GovernedScenario(scenario)
    policies = {pod.key: governed.policy_of(pod) for pod in scenario.waiting()}
    listed = _listed(query, context, lambda key: governed.policy_of(scenario.cluster.pods[key]).name)
    observed = compare_observed(scenario, context.now, context.models)
    redacted = Redaction(scenario, context)
    keys = [pod.key for pod in plan.pending]
    acts = acting_evictions(scenario, plan)
    leavers, proposals = (
        [each for each in all_of_them if _concerns(each, plan, query, context)]
        for all_of_them in (plan.evictions, [move for _, move in plan.proposals])
    )
    evictions = [
        msgspec.structs.replace(_eviction(each, plan, context, redacted), acts=each.key in acts) for each in leavers
    ]
    placed = [key for key in (keys[placement.pod] for placement in plan.placements) if listed(key)]
    waiting = {key: reason for key, reason in plan.reasons_by_pod().items() if listed(key)}
    return PlanAnswer(
        placed=[
            PlannedPod(
                keys[placement.pod],
                context.node(placement.node),
                placement.price,
                _named((plan.evictions[place].key for place in placement.victims), context),
                policies[keys[placement.pod]].name,
                policies[keys[placement.pod]].delivery.acts,
                [PlannedDevice(*msgspec.structs.astuple(each)) for each in placement.devices] if context.nodes else [],
            )
            for placement in plan.placements
            if listed(keys[placement.pod])
        ],
        waiting=[
            WaitingPod(key, redacted(_first_line(reason)), policies[key].name, skipped=key in plan.skipped)
            for key, reason in waiting.items()
        ],
        evictions=evictions,
        observed=[
            msgspec.structs.replace(
                observed_pod,
                node=context.node(observed_pod.node),
                planned=_node(observed_pod.planned, context),
                reason=redacted(observed_pod.reason),
            )
            for observed_pod in observed
            if context.may_name(observed_pod.pod)
            and query.namespace in ("", _namespace(observed_pod.pod))
            and query.policy in ("", observed_pod.policy)
        ],
        hidden=0 if query.namespace else sum(not context.may_name(key) for key in policies),
        nodes=len(scenario.cluster.nodes),
        cost=plan.cost,
        lower_bound=plan.lower_bound,
        certified=plan.certified,
        warnings=[
            *unknown_namespace(scenario, query.namespace, context),
            *(redacted(each) for each in (*plan.warnings, *plan.gaps)),
        ],
        now=moment_text(context.now),
        workloads=[
            msgspec.structs.replace(workload, reason=redacted(_first_line(workload.reason)))
            for workload in planned_workloads(scenario, plan, listed)
        ],
        evictions_by_workload=evictions_by_workload(scenario, plan, leavers, context, acts),
        proposals=[_eviction(each, plan, context, redacted) for each in proposals],
        proposals_by_workload=evictions_by_workload(scenario, plan, proposals, context),
        gap=round(plan.gap, 6),
        incomplete=bool(plan.gaps),
        namespace=query.namespace,
        policy=query.policy,
        left_at_least=plan.left_at_least,
        bound_notes=plan.bound_notes,
        counts=count_waiting(
            scenario.cluster.pods,
            placed=placed,
            left=(key for key in waiting if key not in plan.skipped),
            unplanned=(key for key in waiting if key in plan.skipped),
            whose=whose(query.namespace, query.policy),
        ),
        leaving=count_leaving((bool(each.to), each.acts) for each in evictions),
        ungoverned=ungoverned_pods(scenario, [*placed, *waiting]),
    )


def unknown_namespace(scenario: Scenario, namespace: str, context: AnswerContext) -> list[str]:
    """A warning about the namespace of a question, if nothing of it is known: it may be a typing error.

    Args:
        namespace: "": all.
    """
    if not namespace or (context.sees(namespace) and scenario.has_namespace(namespace)):
        return []
    names = {pod.namespace for pod in scenario.cluster.pods.values()} | scenario.cluster.namespaces.keys()
    near = did_you_mean(namespace, filter(context.sees, names))
    return [f'there is no namespace "{namespace}", or none whose pods you may see{near}']


def _listed(query: PlanQuery, context: AnswerContext, policy_of: Callable[[str], str]) -> Callable[[str], bool]:
    return lambda key: (
        context.may_name(key) and query.namespace in ("", _namespace(key)) and query.policy in ("", policy_of(key))
    )


def _concerns(eviction: PlanEviction, plan: PlanDocument, query: PlanQuery, context: AnswerContext) -> bool:
    keys = (eviction.key, *plan.keys(eviction.for_pods))
    return any(context.may_name(key) and query.namespace in ("", _namespace(key)) for key in keys)


def _eviction(
    eviction: PlanEviction, plan: PlanDocument, context: AnswerContext, redacted: Redaction
) -> PlannedEviction:
    return PlannedEviction(
        context.name(eviction.key),
        context.node(eviction.node),
        eviction.kind,
        _named(plan.keys(eviction.for_pods), context),
        _node(eviction.to, context),
        redacted(eviction.reason),
        eviction.gain,
        eviction.price,
    )


def _node(name: str, context: AnswerContext) -> str:
    """A node for a text; "": none."""
    return context.node(name) if name else ""


def _named(keys: Iterable[str], context: AnswerContext) -> list[str]:
    return [context.name(key) for key in keys]


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _first_line(reason: str) -> str:
    return reason.partition("\n")[0]
