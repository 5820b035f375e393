"""Pods that come alone get a place by the prices of the last plan, without a round.

A round for a single pod takes the node that costs least. Where no other pod waits, no rule between pods is involved and
the last plan had such a pod, its prices say which node that is. The place is reserved like any other: room is looked at
now, and the next round sees it. Each place takes the price of its node away, so sooner or later a round looks anew.

Where others wait, a round plans them together. If it takes longer than kube-scheduler's first question may wait, a pod
that the plan under way loses nothing by gets the cheapest node of the question likewise: to hold it would cost an
attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest

from flowcore.cluster.cluster import Cluster
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.cost_policy import CostPolicy, UnscheduledPrice
from flowcore.model.pod_index import SpreadMatch
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import Bind, CountPlacement
from thalweg_operator.reservations.ledger.feasibility import infeasible_nodes
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.reserve import is_held_place, reserve
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.nominations import expect_question, was_tried
from thalweg_operator.reservations.steering.records.place_pool import PlaceKey
from thalweg_operator.reservations.steering.records.planned_prices import PlannedPrices, cheapest_nodes
from thalweg_operator.reservations.steering.records.spread_prices import with_spread
from thalweg_operator.reservations.steering.shifts import counted_by_others
from thalweg_operator.reservations.steering.state import SteeringState

#: Seconds that prices of a plan hold: room comes free meanwhile, and costs may follow the time.
PRICES_HOLD = 10.0
#: Seconds between two such pods. Pods that come faster are planned together.
APART = 0.005
#: Seconds that a pod waits for kube-scheduler's first question, until a round plans it.
QUESTION_WITHIN = 0.05
#: Nodes that are looked at closely.
_MOST_NODES = 16
#: Waiting pods that are looked at. Among more of them no pod counts as alone.
_MOST_WAITING = 64


def is_new(ledger: Ledger, pod: Pod) -> bool:
    """Whether no round has looked at a pod in vain, and kube-scheduler was never told to hold it."""
    if was_tried(pod):
        return False
    record = ledger.known_record(pod)
    return record is None or not (
        record.unplaced or record.may_choose or record.backoff_tries or record.held_at is not None
    )


def pod_came(state: SteeringState, pod: Pod) -> bool:
    """Takes a new waiting pod. Returns whether it needs no round: it has a place, or kube-scheduler is to ask first."""
    records, policy = state.nominations, state.policy_of(pod)
    if policy is None:
        return False
    delivery = delivery_of(policy)
    if delivery.owner is not None and not delivery.blocked(policy, pod) and pod.key not in state.ledger.reservations:
        records.under_way.add(pod, policy)
    if not _is_alone(state, pod):
        return False
    if not delivery.steered:
        return _bind(state, pod, policy)
    if _prices(state, pod, policy) is None:
        return False
    records.unasked[pod.key] = state.now + QUESTION_WITHIN
    return True


def reserve_when_asked(state: SteeringState, pod: Pod, nodes: Sequence[str], *, may_wait: bool) -> bool:
    """Reserves the cheapest node for a new pod that kube-scheduler asks about, and returns whether there was one.

    Args:
        nodes: those that pass kube-scheduler's filters.
        may_wait: whether the answer may wait for the pod's round; else others may wait beside it, and the node may be
            dearer than others.
    """
    state.nominations.unasked.pop(pod.key, None)
    if not (_is_alone(state, pod) if may_wait else _may_go_first(state, pod)):
        return False
    policy = state.policy_of(pod)
    assert policy is not None  # noqa: S101 - else it would not be alone
    ledger, records = state.ledger, state.nominations
    for node in _cheap(state, pod, policy, nodes, as_good=may_wait):
        if not infeasible_nodes(state, pod, [node]) and _reserve(state, pod, node, Owner.STEERING):
            # Shifts compare it with the prices of the class.
            own = records.prices_for(pod.pod_class, policy.name)
            saving = None if own is None else own.of(node)
            ledger.change(pod.key, since=state.now, phase=Phase.RESERVED, saving=saving)
            expect_question(state, pod.key, PlaceKey(pod.pod_class, pod.signature, policy.name))
            return True
    return False


def bind_held(state: SteeringState, keys: Sequence[str]) -> None:
    """Binds pods whose places are held since their victims have left, where a round would look at nothing but the room.

    The places of others, and those that a more urgent pod may be given, wait for their round.

    Args:
        keys: of pods that waited for a victim that left just now.
    """
    ledger = state.ledger
    for key in keys:
        held = ledger.reservations.get(key)
        if held is None or held.phase is not Phase.HELD or held.owner is not Owner.BINDER or held.waiting_group:
            continue
        pod = state.cluster.waiting.get(key)
        if pod is None or not is_held_place(held, pod, held.node, Owner.BINDER) or not _may_bind_held(state, pod, held):
            continue
        if reserve(state.cluster, ledger, pod, held.node, Owner.BINDER):
            state.effects.append(CountPlacement("reserved"))
            state.effects.append(Bind(pod, held.node, state.cluster.generation))


def _may_bind_held(state: SteeringState, pod: Pod, held: Reservation) -> bool:
    cluster, policy = state.cluster, state.policy_of(pod)
    return (
        not state.is_delivering
        and not state.ledger.ends
        and not held.taken_up
        and policy is not None
        and delivery_of(policy).owner is Owner.BINDER
        and not delivery_of(policy).blocked(policy, pod)
        and not policy.has_rules
        and not pod.replaces
        and _needs_room_only(pod)
        and not _is_counted(state, pod)
        and not cluster.queues.of(pod, cluster.namespaces)
        and not cluster.node_changed_since(held.node, held.generation)
        and all(
            priority <= pod.pod_class.priority or keys <= state.ledger.reservations.keys()
            for priority, keys in cluster.waiting_by_priority.items()
        )
    )


def unasked(state: SteeringState) -> None:
    """kube-scheduler has not asked about some pods: a round plans them."""
    records = state.nominations
    for key in [key for key, due in records.unasked.items() if due <= state.now]:
        del records.unasked[key]
        if key not in state.ledger.reservations:  # no other round has planned it meanwhile
            state.ledger.round_at_once = True


def _bind(state: SteeringState, pod: Pod, policy: Policy) -> bool:
    prices = _prices(state, pod, policy)
    if prices is None:
        return False
    for node in cheapest_nodes(prices):
        if state.nominations.price(prices, node) is None or state.cluster.node_changed_since(node, prices.generation):
            continue
        if _reserve(state, pod, node, Owner.BINDER):
            state.effects.append(Bind(pod, node, state.cluster.generation))
            return True
    return False


def _reserve(state: SteeringState, pod: Pod, node: str, owner: Owner) -> bool:
    ledger = state.ledger
    if not reserve(state.cluster, ledger, pod, node, owner):
        return False
    # A plan that is being made does not know of it.
    ledger.drift.pods.change(pod.signature, node, 1)
    state.nominations.under_way.drop(pod.key)
    state.nominations.lone_at = state.now
    state.effects.append(CountPlacement("priced"))
    return True


def _prices(state: SteeringState, pod: Pod, policy: Policy, *, as_good: bool = True) -> PlannedPrices | None:
    """The prices of the last plan, with what crowding costs the pod; ``as_good``: if they say what a round would do."""
    records = state.nominations
    prices = records.prices_for(pod.pod_class, policy.name)
    if prices is None or not prices.tolerance or (as_good and (pod.pod_class, policy.name) not in records.firm):
        return None
    return priced_with_spread(state, pod, policy, prices) if state.now - prices.made <= PRICES_HOLD else None


def priced_with_spread(state: SteeringState, pod: Pod, policy: Policy, prices: PlannedPrices) -> PlannedPrices | None:
    """The prices of a class for a pod that is spread beside others; the same ones if it has no others.

    None: only a round can tell.
    """
    cluster, index = state.cluster, state.cluster.occupancy.pod_index
    signature = with_policy_constraints(pod.signature, policy, cluster.services)
    spread = () if signature.constraints is None else signature.constraints.soft_spread
    if not any(index.matching_pods(SpreadMatch(pod.namespace, each.selector)) for each in spread):
        return prices
    table = state.nominations.table(prices, cluster.nodes)
    weight = policy.cost.weights.spread
    return None if table is None else with_spread(prices, pod.pod_class, signature, index, table, weight)


def _cheap(state: SteeringState, pod: Pod, policy: Policy, nodes: Sequence[str], *, as_good: bool) -> Iterator[str]:
    """The cheapest of these nodes; ``as_good``: if they are as good as the cheapest node of the plan."""
    records, prices = state.nominations, _prices(state, pod, policy, as_good=as_good)
    dearest = None if prices is None else prices.dearest
    if prices is None or dearest is None:
        return
    priced = (
        (price, position)
        for position, name in enumerate(nodes)
        if (price := records.price(prices, name)) is not None and (price <= dearest or not as_good)
    )
    for _, position in nsmallest(_MOST_NODES, priced):
        if not state.cluster.node_changed_since(nodes[position], prices.generation):
            yield nodes[position]


def _is_alone(state: SteeringState, pod: Pod) -> bool:
    """Whether the cheapest node is all that a round would look for."""
    return (
        state.now - state.nominations.lone_at >= APART
        and _only_room_counts(state, pod)
        and not _others_wait(state.cluster, state.ledger, pod)
        and not _is_counted(state, pod)
    )


def _may_go_first(state: SteeringState, pod: Pod) -> bool:
    """Whether the plan under way loses nothing by it that a pod gets a place first."""
    cluster, ledger = state.cluster, state.ledger

    def was_in_vain(planned: Pod) -> bool:
        record = ledger.known_record(planned)
        return record is not None and record.unplaced

    return (
        _only_room_counts(state, pod)
        and not _is_counted(state, pod)
        and not state.nominations.under_way.comes_before(pod, cluster.namespaces, was_in_vain)
    )


def _only_room_counts(state: SteeringState, pod: Pod) -> bool:
    """Whether a new pod without a place needs room on a node, and nothing else."""
    cluster, ledger, policy = state.cluster, state.ledger, state.policy_of(pod)
    return (
        policy is not None
        and not state.is_delivering
        and not ledger.ends
        and pod.key not in ledger.reservations
        and is_new(ledger, pod)
        and _is_plain(pod)
        and _is_priced_by_class(policy)
        and not delivery_of(policy).blocked(policy, pod)
        and not cluster.queues.of(pod, cluster.namespaces)
    )


def _is_counted(state: SteeringState, pod: Pod) -> bool:
    """Whether anti-affinity of a pod that has a node, or a rule of a reserved pod, speaks of a pod."""
    anti_affinity = state.cluster.occupancy.pod_index.anti_affinity_terms_for(pod.signature)
    return bool(anti_affinity) or counted_by_others(state, pod.signature)


def _is_plain(pod: Pod) -> bool:
    """Whether a node's room and price are all that counts for a pod."""
    return not pod.replaces and not pod.nominated_node and _needs_room_only(pod)


def _needs_room_only(pod: Pod) -> bool:
    return (
        pod.gang is None
        and not pod.grows
        and not pod.gated
        and pod.constraints is None
        and not (pod.unsupported_reason or pod.over_limit)
        and not pod.pod_class.volumes
        and pod.pod_class.devices is None
        and pod.pod_class.numa is None
    )


def _is_priced_by_class(policy: Policy) -> bool:
    """Whether all pods of a class cost the same, and any node is better than to wait."""
    cost = policy.cost
    plain = CostPolicy(
        model=cost.model,
        weights=cost.weights,
        preferences=cost.preferences,
        data_locality=cost.data_locality,
        default_spread=cost.default_spread,
    )
    return (
        delivery_of(policy).owner is not None
        and not policy.has_rules
        and cost == plain
        and policy.unscheduled == UnscheduledPrice()
    )


def _others_wait(cluster: Cluster, ledger: Ledger, pod: Pod) -> bool:
    """Whether another pod waits for a round."""
    if ledger.held or len(cluster.waiting) > _MOST_WAITING:
        return True
    for key, waiting_pod in cluster.waiting.items():
        if key != pod.key and key not in ledger.reservations:
            policy = cluster.policies.of(waiting_pod, cluster.namespaces)
            if (
                policy is not None
                and delivery_of(policy).owner is not None
                and not delivery_of(policy).blocked(policy, waiting_pod)
            ):
                return True
    return False
