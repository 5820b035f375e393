"""Where a planned pod may go of the nodes that kube-scheduler asks about. Nothing here changes anything.

A pod may take the place of an equal pod, which then gets its own, or that of a pod of the same size, which may use its
node. And a place may shift to another node: the node costs about as much in the plan, has room beside all reservations,
and no rule of the plan sees a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain, islice

import msgspec

from flowcore.cluster.cluster import Cluster
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints
from flowcore.model.matching_pods import MatchingPods
from flowcore.model.nodes import Node
from flowcore.model.pod_index import AffinityMatch, PodSignature, SpreadMatch
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.selectors import value_of
from flowcore.rules.rules_at_hand import Reading, lacking
from thalweg_operator.reservations.ledger.feasibility import fits_now, holds, infeasible_nodes
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import NEVER, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.nominations import place_key_of
from thalweg_operator.reservations.steering.records.counted_pods import CountedPods
from thalweg_operator.reservations.steering.records.place_pool import PlaceKey, Size, counting_keys, domains_of
from thalweg_operator.reservations.steering.records.planned_prices import PlannedPrices
from thalweg_operator.reservations.steering.records.waves import UNORDERED
from thalweg_operator.reservations.steering.state import SteeringState
from thalweg_operator.reservations.volume_needs import are_bound

#: Nodes of a question that are looked at closely, the cheapest ones.
_MOST_NODES = 16
#: Anti-affinity terms of running pods about a pod that an answer looks at.
MOST_TERMS = 32
#: A place may shift to a node where the pod costs more by this part of what it saves on its own. Else it is held, and
#: needs a nomination, a second attempt and at least a second.
_DEARER = 10
#: Seconds after which a pod that was let through is mostly bound, or tried again. kube-scheduler's pauses are longer.
_BOUND_SECONDS = 1.0


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a pod may go.

    Attributes:
        holder: key of the pod whose place it takes; this pod then gets its place. It may be the pod itself.
    """

    node: str
    holder: str


def find_place(
    state: SteeringState, pod: Pod, nomination: Reservation, policy: Policy, nodes: Sequence[str]
) -> Place | None:
    """Where, of these nodes, a planned pod may go; its planned node if none of them will do; None: it waits.

    kube-scheduler's own filters let these nodes pass with all that it knows of: so the pod may go there even before its
    wave. Of equal pods in waves, the earliest gives its place, nominated or not: after that each next place is legal,
    in whatever order kube-scheduler asks. A gang may have been let through, and come to nothing: its pods give each
    other their places too.
    """
    ledger, records = state.ledger, state.nominations
    own, phase, in_order = pod.key, nomination.phase, nomination.wave != UNORDERED
    planned = Place(nomination.node, own)
    if nomination.node in nodes and phase not in ((Phase.QUEUED, Phase.RESERVED) if in_order else (Phase.QUEUED,)):
        return planned
    passed = phase is Phase.PASSED or (phase is Phase.WITHDRAWING and ledger.in_flight.is_let_through(own))
    if passed and not in_order:
        return planned
    place_key = records.place_key(own)
    if place_key is None and phase in (Phase.NOMINATED, Phase.PASSED, Phase.WITHDRAWING):
        place_key = place_key_of(state, pod, nomination.node)
    if place_key is not None:
        announced = records.announced.on(place_key, nodes) if in_order else ()
        holder = _earliest(ledger, chain(records.places.on(place_key, nodes), announced))
        if not holder and in_order and not (policy.constraints or place_key.pod_class.numa):
            # Who was let through the longest ago was not asked about in this attempt yet, if any was not.
            until = records.last_question - (0.0 if passed else _BOUND_SECONDS)
            let_through = _let_through(state, pod, place_key, nodes, until)
            holder = min(let_through, key=lambda key: ledger.reservations[key].passed_at, default="")
        if holder:
            node = ledger.reservations[holder].node
            return planned if node == nomination.node else Place(node, holder)
        moved = None
        if not passed:
            moved = _exchanged(state, nomination, policy, place_key, nodes) or _shifted(
                state, pod, nomination, policy, place_key, nodes
            )
        if moved is not None:
            return moved
    return None if phase is Phase.QUEUED else planned


def _let_through(
    state: SteeringState, pod: Pod, place_key: PlaceKey, nodes: Sequence[str], until: float
) -> Iterator[str]:
    """Equal pods of a pod's gang that were let through to these nodes until then, or in vain, and are not bound.

    kube-scheduler may try the pods of a gang as a whole, and then all of them again. If it came to one of them again,
    the attempt that let the others through came to nothing. If one of these pods is on its way after all, there is one
    pod more at its place: kube-scheduler counts it, but not for policies and NUMA zones.
    """
    among, reservations = frozenset(nodes), state.ledger.reservations
    keys = () if pod.gang is None else state.cluster.gangs.members(pod.gang.key)[0]
    let_through = [
        (key, held)
        for key in keys
        if (held := reservations.get(key)) is not None and held.is_nomination and held.phase is Phase.PASSED
    ]
    again = max((held.passed_at for _, held in let_through if held.passed_again), default=NEVER)
    for key, held in let_through:
        node = state.cluster.nodes.get(held.node)
        if (
            node is not None
            and (held.passed_at <= until or held.passed_at < again)
            and node.name in among
            and place_key.fits(held.pod)
            and place_key.admits(node)
            and _displaces_nobody(state, pod, node.name)
        ):
            yield key


def _displaces_nobody(state: SteeringState, pod: Pod, node: str) -> bool:
    """Whether no reservation loses its room if a pod goes to a node while another one may be on its way there.

    There is room for both. Or kube-scheduler has let all pods through that are reserved there: so it knows of them, and
    shows the node because one of them did not go there.
    """
    ledger = state.ledger
    reserved = (ledger.reservations[key] for key in ledger.by_node.get(node, ()))
    return fits_now(state.cluster, pod, node) or all(held.phase is Phase.PASSED for held in reserved)


def _earliest(ledger: Ledger, keys: Iterable[str]) -> str:
    """The pod whose wave comes first, the first of those without a wave; "": there is none."""
    holder, earliest = "", None
    for key in keys:
        wave = ledger.reservations[key].wave
        if wave == UNORDERED:
            return key
        if earliest is None or wave < earliest:
            holder, earliest = key, wave
    return holder


def _exchanged(
    state: SteeringState, before: Reservation, policy: Policy, place_key: PlaceKey, nodes: Sequence[str]
) -> Place | None:
    """The node of another pod of the same size, which may go to the planned one, if that costs about as much.

    Both nodes stay as full as they are. So the prices of one more pod differ by the preferences of the two pods alone.
    Anti-affinity is asked for both: kube-scheduler does not know of pods that are reserved, or that we bound just now.
    """
    cluster, ledger = state.cluster, state.ledger
    size, records, planned = Size.of(place_key), state.nominations, cluster.nodes.get(before.node)
    prices = records.prices_for(place_key.pod_class, policy.name)
    if size is None or prices is None or planned is None or policy.has_rules:
        return None
    if not are_rules_at_hand(state, _read_for_moves(_rules_of(cluster, before.pod))) or _is_spread(state, before.pod):
        return None
    since = prices.generation
    if cluster.node_changed_since(before.node, since) or counted_by_others(state, place_key.signature):
        return None
    if not holds(cluster, ledger, before.pod.key):
        return None  # others took the room meanwhile: the other pod would wait in its stead
    for key in islice(records.places.of_size(size, nodes), _MOST_NODES):
        partner = ledger.reservations[key]
        others, other_node = records.prices_for(partner.pod.pod_class, policy.name), cluster.nodes.get(partner.node)
        if (
            others is not None
            and other_node is not None
            and others.generation == since
            and _costs_as_much(before.node, prices, partner.node, others)
            and partner.pod.usage == before.pod.usage
            and are_rules_at_hand(state, _read_for_moves(_rules_of(cluster, partner.pod)))
            and not _is_spread(state, partner.pod)
            and not cluster.node_changed_since(partner.node, since)
            and not _is_rejected(ledger, partner.pod, before.node)
            and not counted_by_others(state, partner.pod.signature)
            and not _is_kept_apart(cluster, partner.pod.signature, planned, other_node)
            and not _is_kept_apart(cluster, place_key.signature, other_node, planned)
        ):
            return Place(partner.node, key)
    return None


def _is_rejected(ledger: Ledger, pod: Pod, node: str) -> bool:
    """Whether kube-scheduler's filters rejected a node for a pod not long ago. The prices are those of its class."""
    record = ledger.known_record(pod)
    return record is not None and node in record.rejected_nodes


def saving_on(state: SteeringState, pod: Pod, policy: str, held: Reservation) -> int | None:
    """By how much the cost falls if a pod leaves a node where it takes the place of another pod of its size.

    It is what that pod saves, but for the preferences of the two; where prices are rounded, at least. None: unknown.
    """
    if held.saving is None or pod.pod_class == held.pod.pod_class:
        return held.saving
    prices = state.nominations.prices_for(pod.pod_class, policy)
    others = state.nominations.prices_for(held.pod.pod_class, policy)
    comes = None if prices is None else prices.of(held.node)
    goes = None if others is None else others.of(held.node)
    if prices is None or comes is None or goes is None:
        return None
    return held.saving + comes - prices.rounded - goes


def _costs_as_much(node: str, prices: PlannedPrices, other_node: str, others: PlannedPrices) -> bool:
    """Whether a pod may leave a node for another one, and one of its size may come from there, at about the same cost.

    Not if one of the nodes is closed to one of the pods. What rounding may hide counts as cost.
    """
    leaves, comes = prices.of(node), prices.of(other_node)
    returns, goes = others.of(other_node), others.of(node)
    if leaves is None or comes is None or returns is None or goes is None:
        return False
    return comes - leaves + goes - returns + prices.rounded + others.rounded <= prices.tolerance


def _shifted(
    state: SteeringState,
    pod: Pod,
    nomination: Reservation,
    policy: Policy,
    place_key: PlaceKey,
    nodes: Sequence[str],
) -> Place | None:
    cluster, ledger = state.cluster, state.ledger
    prices = state.nominations.prices_for(pod.pod_class, policy.name)
    signature = cluster.policies.with_policy_rules(pod.signature, policy, cluster.services)
    if prices is None or counted_by_others(state, signature) or _decides_for_others(state.cluster, pod):
        return None
    if not are_rules_at_hand(state, _read_for_moves(signature)):
        return None
    keys = counting_keys(signature)
    for price, node in _cheapest(state, prices, nodes):
        domains = domains_of(node, keys)
        before = cluster.nodes.get(nomination.node)
        own = before is not None and domains_of(before, keys) == domains
        key = pod.key if own else state.nominations.places.within(place_key, domains)
        holder = ledger.reservations.get(key)
        place = None if holder is None else cluster.nodes.get(holder.node)
        if (
            holder is not None
            and place is not None
            and holder.saving is not None
            and price <= holder.saving + _more_at_most(prices, holder.saving)
            and domains_of(place, keys) == domains
            and place_key.admits(node)
            and not _is_kept_apart(cluster, signature, node, place)
            and not _is_crowded(cluster, signature, node, place)
            and fits_now(cluster, pod, node.name)
            and not infeasible_nodes(state, pod, [node.name])
        ):
            return Place(node.name, key)
    return None


def _decides_for_others(cluster: Cluster, pod: Pod) -> bool:
    """Whether pods that share a claim with this one may only go where it goes.

    They share devices, which are given with the first pod. Or its gang may share a volume, which is bound with the
    first pod. The plan has room for all of them where it puts them, and perhaps nowhere else.
    """
    devices = pod.pod_class.devices
    return (devices is not None and devices.may_share) or (pod.gang is not None and not are_bound(cluster, pod))


def _more_at_most(prices: PlannedPrices, saving: int) -> int:
    """How much dearer another node may be than the one where a pod saves so much."""
    return max(prices.tolerance, saving // _DEARER) if prices.tolerance else 0


def _cheapest(state: SteeringState, prices: PlannedPrices, nodes: Sequence[str]) -> Iterator[tuple[int, Node]]:
    """The cheapest nodes whose price is known, in the order of the question among equals."""
    cluster = state.cluster
    priced = (
        (price, position)
        for position, name in enumerate(nodes)
        if (price := state.nominations.price(prices, name)) is not None
    )
    for price, position in nsmallest(_MOST_NODES, priced):
        if not cluster.node_changed_since(nodes[position], prices.generation):
            yield price, cluster.nodes[nodes[position]]


def counted_by_others(state: SteeringState, signature: PodSignature) -> bool:
    """Whether the rules of reserved pods of other signatures count pods of this one."""
    cluster = state.cluster
    return _counted(state).by_others(signature, cluster.namespaces)


def are_rules_at_hand(state: SteeringState, signature: PodSignature) -> bool:
    """Whether an answer may look at the rules of a pod, and at those of running pods about it.

    Args:
        signature: with the rules of its policy.
    """
    terms = state.cluster.occupancy.pod_index.anti_affinity_terms_for(signature)
    return len(terms) <= MOST_TERMS and _lacking(state, signature) == []


def read_later(state: SteeringState, signature: PodSignature) -> None:
    """Asks for what the rules of a pod read and is not at hand: it is read beside the answers."""
    state.nominations.rules_to_read.want(_lacking(state, signature) or ())


def read_for_moves_later(state: SteeringState, pod: Pod) -> None:
    """The same for a planned pod that is held: what decides whether it may go elsewhere."""
    read_later(state, _read_for_moves(_rules_of(state.cluster, pod)))


def _lacking(state: SteeringState, signature: PodSignature) -> Sequence[Reading] | None:
    if signature.constraints is None:
        return []
    cluster = state.cluster
    table = state.nominations.node_table.of(cluster.nodes)
    return lacking(signature.constraints, signature.namespace, cluster.occupancy.pod_index, table)


def _read_for_moves(signature: PodSignature) -> PodSignature:
    """The same with those rules only that are read where a planned pod goes elsewhere: domains stay for the others."""
    rules = signature.constraints
    if rules is None:
        return signature
    read = InterPodConstraints(anti_affinity=rules.anti_affinity, soft_spread=rules.soft_spread)
    return msgspec.structs.replace(signature, constraints=read)


def _counted(state: SteeringState) -> CountedPods:
    """What the rules of all reserved pods count, put together once for each plan."""
    cluster, ledger = state.cluster, state.ledger
    counted = state.nominations.counted_pods
    if not counted.known:
        constrained = any(policy.has_rules for policy in cluster.policies.ordered)
        reserved = [
            (_rules_of(cluster, held.pod), held.phase is Phase.PASSED)
            for held in ledger.reservations.values()
            if constrained or held.pod.constraints is not None
        ]
        # Those of pods that were let through kube-scheduler keeps itself, but for limits, which it does not know.
        counted.learn(
            signature
            for signature, passed in reserved
            if not passed or (signature.constraints is not None and signature.constraints.limits)
        )
    return counted


def _rules_of(cluster: Cluster, pod: Pod) -> PodSignature:
    """The pod's signature with the rules of its policy."""
    policy = cluster.policies.of(pod, cluster.namespaces)
    signature = pod.signature
    return signature if policy is None else cluster.policies.with_policy_rules(signature, policy, cluster.services)


def _is_kept_apart(cluster: Cluster, signature: PodSignature, node: Node, place: Node) -> bool:
    """Whether anti-affinity keeps a pod off a node, with all reservations there, though not off its place."""
    index = cluster.occupancy.pod_index
    own = signature.constraints.anti_affinity if signature.constraints is not None else ()
    terms: list[tuple[AffinityTerm, MatchingPods]] = [
        *((term, index.matching_pods(AffinityMatch((term,)))) for term in own),
        *index.anti_affinity_terms_for(signature),
    ]
    return any(_is_near(cluster, term.topology_key, matching, node, place) for term, matching in terms)


def _is_spread(state: SteeringState, pod: Pod) -> bool:
    """Whether a pod that has a place prefers nodes by where others like it are."""
    constraints, index = _rules_of(state.cluster, pod).constraints, state.cluster.occupancy.pod_index
    for spread in constraints.soft_spread if constraints is not None else ():
        counted = index.matching_pods(SpreadMatch(pod.namespace, spread.selector)).by_node
        if len(counted) > 1 or sum(counted.values()) > 1:
            return True
    return False


def _is_crowded(cluster: Cluster, signature: PodSignature, node: Node, place: Node) -> bool:
    """Whether a node has more pods than a pod's place has beside it, of those that its spread counts on a node."""
    index = cluster.occupancy.pod_index
    spread = signature.constraints.soft_spread if signature.constraints is not None else ()
    for constraint in spread:
        if constraint.topology_key == HOSTNAME:
            counted = index.matching_pods(SpreadMatch(signature.namespace, constraint.selector)).by_node
            if counted.get(node.name, 0) >= max(1, counted.get(place.name, 0)):
                return True
    return False


def _is_near(cluster: Cluster, key: str, matching: MatchingPods, node: Node, place: Node) -> bool:
    """Whether any of these pods is in the node's domain. In the domain of the place all is as planned."""
    value = value_of(node.labels, key)
    if value is None or value == value_of(place.labels, key):
        return False
    if key == HOSTNAME:
        return node.name in matching.by_node
    known = (cluster.nodes.get(name) for name in matching.by_node)
    return any(value_of(known_node.labels, key) == value for known_node in known if known_node is not None)
