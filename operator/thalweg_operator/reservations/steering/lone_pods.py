"""New pods get a place by the prices of the last plan, without a round.

A round for a single pod takes the node that costs least. Where no other pod waits, the prices of the last plan say
which node that is, and the rules between pods say which nodes it may not have. The place is reserved like any other:
room and rules are looked at now, with all that is reserved, and the next round sees it. Each place takes the price of
its node away, so sooner or later a round looks anew.

kube-scheduler schedules no other pod while it waits for an answer. So a pod that it asks about gets the best node of
the question at once, whoever waits beside it, unless the plan under way loses by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice
from math import inf

from flowcore.cluster.cluster import Cluster
from flowcore.model.constraint_limits import all_or_none
from flowcore.model.cost_policy import CostPolicy, UnscheduledPrice
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature, SpreadMatch
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.resources import CPU, MEMORY
from flowcore.rules.filters import closed_by_rules
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import Bind, CountPlacement
from thalweg_operator.reservations.ledger.feasibility import infeasible_nodes
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.reserve import is_held_place, reserve
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.nominations import expect_question, was_tried
from thalweg_operator.reservations.steering.records.place_pool import PlaceKey
from thalweg_operator.reservations.steering.records.planned_prices import PlannedPrices, cheapest_nodes, has_full_nodes
from thalweg_operator.reservations.steering.records.prices_beside_others import with_others
from thalweg_operator.reservations.steering.shifts import are_rules_at_hand, counted_by_others, read_later
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
    if not _is_alone(state, pod, policy):
        return False
    if not delivery.steered:
        return _bind(state, pod, policy)
    if _firm_prices(state, pod, policy) is None:
        return False
    records.unasked[pod.key] = state.now + QUESTION_WITHIN
    return True


def reserve_when_asked(state: SteeringState, pod: Pod, nodes: Sequence[str]) -> bool:
    """Reserves the best node for a new pod that kube-scheduler asks about, and returns whether there was one.

    Args:
        nodes: those that pass kube-scheduler's filters.
    """
    state.nominations.unasked.pop(pod.key, None)
    policy = state.policy_of(pod)
    if policy is None or not _may_go_first(state, pod, policy):
        return False
    ledger, records = state.ledger, state.nominations
    for node in _best(state, pod, policy, nodes):
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
        and pod.constraints is None
        and _is_by_itself(pod)
        and not cluster.occupancy.pod_index.anti_affinity_terms_for(pod.signature)
        and not counted_by_others(state, pod.signature)
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
    firm = _firm_prices(state, pod, policy)
    prices = None if firm is None else priced_with_others(state, pod, policy, firm)
    if firm is None or prices is None:
        return False
    if _prefers_nodes(pod, firm, prices) and has_full_nodes(firm) and state.ledger.helped.total != firm.helped:
        return False  # it might prefer a node where room came free
    for node in filter(_open_to(state, pod, policy), cheapest_nodes(prices)):
        if state.nominations.price(prices, node) is None or state.cluster.node_changed_since(node, prices.generation):
            continue
        if _reserve(state, pod, node, Owner.BINDER):
            state.nominations.counted_pods.forget()  # its rules count until it is bound
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


def _firm_prices(state: SteeringState, pod: Pod, policy: Policy) -> PlannedPrices | None:
    """The prices of the pod's class, if no node changed since they were made."""
    records = state.nominations
    prices = records.prices_for(pod.pod_class, policy.name)
    is_firm = prices is not None and _hold(state, prices) and (pod.pod_class, policy.name) in records.firm
    return prices if is_firm else None


def _hold(state: SteeringState, prices: PlannedPrices) -> bool:
    return bool(prices.tolerance) and state.now - prices.made <= PRICES_HOLD


def priced_with_others(state: SteeringState, pod: Pod, policy: Policy, prices: PlannedPrices) -> PlannedPrices | None:
    """The prices of a class for a pod that prefers nodes by what runs there; the same ones if nothing does.

    None: only a round can tell.
    """
    cluster, index = state.cluster, state.cluster.occupancy.pod_index
    signature = cluster.policies.with_policy_rules(pod.signature, policy, cluster.services)
    constraints = signature.constraints
    if constraints is None or not (
        constraints.preferred
        or any(index.matching_pods(SpreadMatch(pod.namespace, each.selector)) for each in constraints.soft_spread)
    ):
        return prices
    table = state.nominations.node_table.in_order(cluster.nodes, prices.positions)
    return None if table is None else with_others(prices, pod.pod_class, signature, index, table, policy.cost)


def _best(state: SteeringState, pod: Pod, policy: Policy, nodes: Sequence[str]) -> Iterator[str]:
    """The nodes of a question that no rule closes to the pod, the cheapest first; at most so many.

    By the prices of the pod's class; where no plan had such a pod, by those of a class that wants and prefers the same
    nodes. What came to a node since makes it dearer. Nodes whose price is not known come after the others, or a round
    decides.
    """
    records = state.nominations
    prices = records.prices_for(pod.pod_class, policy.name)
    if prices is None or not _hold(state, prices):
        prices = records.prices_of_like(pod.pod_class, policy.name)
    if prices is None or not _hold(state, prices):
        return
    known = priced_with_others(state, pod, policy, prices)
    if known is None:
        return  # what it prefers only a round can tell
    costs, is_open = known.of_all(nodes), _open_to(state, pod, policy)
    if _prefers_nodes(pod, prices, known) and any(
        cost == inf and is_open(node) for cost, node in zip(costs, nodes, strict=True)
    ):
        return  # it might prefer that node
    yield from islice(filter(is_open, _cheapest_now(state, known, nodes, costs)), _MOST_NODES)


def _prefers_nodes(pod: Pod, prices: PlannedPrices, known: PlannedPrices) -> bool:
    """Whether a pod prefers nodes by their labels, or by what runs there (``priced_with_others``)."""
    return known is not prices or bool(pod.pod_class.preferred_affinity)


def _cheapest_now(
    state: SteeringState, prices: PlannedPrices, nodes: Sequence[str], costs: Sequence[float]
) -> Iterator[str]:
    """The nodes by what they cost and by what came there since, which only makes them dearer.

    Args:
        costs: of each node by the prices; infinite: that is not known.
    """
    cluster, arrivals = state.cluster, state.nominations.arrivals
    #: What each node costs at least, its place, and whether that is what it costs.
    least = [(cost, place, False) for place, cost in enumerate(costs)]
    heapify(least)
    while least:
        cost, place, is_known = least[0]
        node = nodes[place]
        taken = None if is_known else arrivals.since(node, prices.arrival)
        if taken is None:
            heappop(least)
            yield node
        else:
            heapreplace(least, (cost + _rise(taken, cluster.nodes.get(node), prices), place, True))


def _rise(taken: tuple[int, int], node: Node | None, prices: PlannedPrices) -> float:
    """By about how much the price of a node rises with pods that take so much of its cpu and memory.

    A hundredth of a node is as much as the tolerance.
    """
    offered = {} if node is None else dict(node.allocatable)
    shares = [amount / offered[name] for name, amount in zip((CPU, MEMORY), taken, strict=True) if offered.get(name)]
    return 100 * prices.tolerance * sum(shares) / 2


def _open_to(state: SteeringState, pod: Pod, policy: Policy) -> Callable[[str], bool]:
    """Whether no rule between pods closes a node to the pod, with all pods that are reserved."""
    cluster, index = state.cluster, state.cluster.occupancy.pod_index
    signature = cluster.policies.with_policy_rules(pod.signature, policy, cluster.services)
    if signature.constraints is None and not index.anti_affinity_terms_for(signature):
        return lambda _: True
    table = state.nominations.node_table.of(cluster.nodes)
    closed = closed_by_rules(pod.pod_class, signature, index, table)
    row_of = table.index.get
    return lambda node: (row := row_of(node)) is not None and not closed[row]


def _is_alone(state: SteeringState, pod: Pod, policy: Policy) -> bool:
    """Whether the cheapest open node is all that a round would look for."""
    return (
        state.now - state.nominations.lone_at >= APART
        and _is_placed_by_price(state, pod, policy)
        and not _others_wait(state.cluster, state.ledger, pod)
    )


def _may_go_first(state: SteeringState, pod: Pod, policy: Policy) -> bool:
    """Whether the plan under way loses nothing by it that a pod gets a place first."""
    cluster, ledger = state.cluster, state.ledger

    def was_in_vain(planned: Pod) -> bool:
        record = ledger.known_record(planned)
        return record is not None and record.unplaced

    records = state.nominations
    return (
        _is_placed_by_price(state, pod, policy)
        and not _room_came_for_others(state, pod)
        and not records.under_way.comes_before(pod, policy, cluster, was_in_vain)
    )


def _room_came_for_others(state: SteeringState, pod: Pod) -> bool:
    """Whether a pod that no plan had a node for may have one since the last plan was asked for, and comes first.

    Such pods wait longer: of one priority they are first, as in kube-scheduler's queue.
    """
    highest = state.ledger.in_vain.highest
    if highest is None or highest < pod.pod_class.priority:
        return False
    return state.ledger.helped.total != state.nominations.under_way.helped


def _is_placed_by_price(state: SteeringState, pod: Pod, policy: Policy) -> bool:
    """Whether a new pod without a place goes to the cheapest node with room that no rule closes.

    No rule of reserved pods that kube-scheduler is still to ask about may count it: they come first.
    """
    cluster, ledger = state.cluster, state.ledger
    signature = cluster.policies.with_policy_rules(pod.signature, policy, cluster.services)
    return (
        not state.is_delivering
        and not ledger.ends
        and pod.key not in ledger.reservations
        and is_new(ledger, pod)
        and not pod.replaces
        and not pod.nominated_node
        and _is_by_itself(pod)
        and not all_or_none(pod.labels, policy)
        and _never_waits(state, policy)
        and not delivery_of(policy).blocked(policy, pod)
        and not cluster.queues.of(pod, cluster.namespaces)
        and _may_look_at_rules(state, signature)
        and not counted_by_others(state, signature)
    )


def _may_look_at_rules(state: SteeringState, signature: PodSignature) -> bool:
    """Whether the rules of a pod are at hand; else they are read later, for the pods to come."""
    if are_rules_at_hand(state, signature):
        return True
    read_later(state, signature)
    return False


def _is_by_itself(pod: Pod) -> bool:
    """Whether room and rules between pods are all that a pod needs of its node."""
    return (
        pod.gang is None
        and not pod.grows
        and not pod.gated
        and not (pod.unsupported_reason or pod.over_limit)
        and not pod.pod_class.volumes
        and pod.pod_class.devices is None
        and pod.pod_class.numa is None
    )


def _never_waits(state: SteeringState, policy: Policy) -> bool:
    """Whether pods of a class cost the same but for what they prefer of others, and any node is better than to wait."""
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
        and not policy.draws(state.nominations.networks)
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
