"""The answer to kube-scheduler about a pod. Nothing here changes anything: asked twice, the answer is the same."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.cluster.cluster import Cluster
from flowcore.model.advice import Advice, ExtenderPod
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy, PreemptionMode, PreemptionPolicy, Steering
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.ledger.feasibility import infeasible_nodes, is_binders_turn
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.gangs_under_way import lacks_others
from thalweg_operator.reservations.steering.lone_pods import is_new, priced_with_others
from thalweg_operator.reservations.steering.nominations import is_asleep, is_tried_with_its_group, nomination_of
from thalweg_operator.reservations.steering.records.planned_prices import scores_by_node
from thalweg_operator.reservations.steering.shifts import find_place
from thalweg_operator.reservations.steering.state import SteeringState


def advise(state: SteeringState, extender_pod: ExtenderPod, nodes: Sequence[str]) -> Advice:
    """What the plan says about a pod that kube-scheduler's own filters let onto these nodes."""
    cluster, ledger = state.cluster, state.ledger
    pod = watched_pod(cluster, extender_pod)
    if pod is None:
        return _unknown(cluster, extender_pod)
    policy = cluster.policies.of(pod, cluster.namespaces)
    if policy is None or delivery_of(policy).owner is None or pod.unsupported_reason:
        spares = ledger.device_turns.is_kept_off(pod.key)
        return Advice(infeasible_nodes=infeasible_nodes(state, pod, nodes), spares=spares)
    if not delivery_of(policy).steered:
        return Advice(managed=True, hold=True)
    # A pod of a gang must not go where it likes.
    must_follow = policy.steering is Steering.REQUIRE or pod.gang is not None
    nomination = nomination_of(ledger, pod.key)
    reservation = ledger.reservations.get(pod.key)
    if reservation is not None and reservation.phase is Phase.AWAITING_VICTIM:
        return Advice(managed=True, hold=True, victims=_leaving_victims(ledger, reservation))
    if nomination is not None and not nomination.rejected:
        place = None if is_taken_back(state, pod, nomination) else find_place(state, pod, nomination, policy, nodes)
        if place is None:
            return Advice(managed=True, hold=True)
        is_rejected = extender_pod.nominated == nomination.node and place.node not in nodes
        if is_binders_turn(state, pod, place.node):
            return Advice(managed=True, hold=True)
        if must_follow or not is_rejected:
            # The room that an equal pod holds there will be its own.
            holder = ledger.reservations[place.holder]
            reserved = holder.pod if holder.node == place.node else pod
            advice = _to_node(state, reserved, place.node, nodes, hold=True)
            return msgspec.structs.replace(advice, holder=place.holder)
    if reservation is not None and reservation.phase is Phase.FOREIGN:
        return _to_node(state, pod, reservation.node, nodes, hold=must_follow)
    record = ledger.known_record(pod)
    may_choose = nomination is not None or (record is not None and record.may_choose)
    if must_follow or not may_choose:
        return Advice(managed=True, hold=True)
    return _free_choice(state, pod, policy, nodes)


def awaits_plan(cluster: Cluster, ledger: Ledger, extender_pod: ExtenderPod) -> bool:
    """Whether an answer is worth waiting for: the pod's first round is still to come, and may place it.

    A pod that our watch has not shown may be any. The first round of a gang is the first one with all pods that it
    needs: the last of them is new until then. A gang that lacks pods has no node for any of them. But kube-scheduler
    takes a PodGroup as a whole, and asks about it once its pods are there: our watch will show them in a moment.
    """
    pod = watched_pod(cluster, extender_pod)
    if pod is None:
        known = cluster.pods.get(extender_pod.key)
        return known is None or known.uid != extender_pod.uid
    if pod.key in ledger.reservations or pod.replaces:
        return False
    policy = cluster.policies.of(pod, cluster.namespaces)
    if policy is None or not delivery_of(policy).steered or delivery_of(policy).blocked(policy, pod):
        return False
    if pod.gang is None:
        return is_new(ledger, pod)
    if cluster.gangs.lacks_pods(pod.gang.key, cluster.waiting):
        return is_tried_with_its_group(pod) and not is_asleep(ledger, pod)
    if is_asleep(ledger, pod):
        return False
    members = cluster.gangs.members(pod.gang.key)[0]
    return any(is_new(ledger, cluster.waiting[key]) for key in members if key not in ledger.reservations)


def is_shown(cluster: Cluster, extender_pod: ExtenderPod) -> bool:
    """Whether our watch shows a pod, with all that kube-scheduler has seen if it asks: the PodGroup that it takes."""
    pod = watched_pod(cluster, extender_pod)
    if pod is None or pod.gang is None or not is_tried_with_its_group(pod):
        return pod is not None
    return not cluster.gangs.lacks_pods(pod.gang.key, cluster.waiting)


def awaits_help(state: SteeringState, extender_pod: ExtenderPod) -> bool:
    """Whether a plan had no node for a pod, and the next one may: it is the first that knows what came since.

    kube-scheduler's filters let the pod in now. A gang that lacks pods still has no node for any of them.
    """
    cluster, ledger, under_way = state.cluster, state.ledger, state.nominations.under_way
    pod = watched_pod(cluster, extender_pod)
    if pod is None or pod.key in ledger.reservations or pod.replaces:
        return False
    record = ledger.known_record(pod)
    if record is None or not record.unplaced or record.may_choose or record.backoff_tries:
        return False
    policy = cluster.policies.of(pod, cluster.namespaces)
    if policy is None or not delivery_of(policy).steered or delivery_of(policy).blocked(policy, pod):
        return False
    if pod.gang is not None and cluster.gangs.lacks_pods(pod.gang.key, cluster.waiting):
        return False
    return under_way.was_helped or under_way.helped != ledger.helped.total


def is_taken_back(state: SteeringState, pod: Pod, nomination: Reservation) -> bool:
    """Whether a nomination is being cleared because the pod's gang is to be planned anew, as a whole."""
    is_withdrawing = nomination.phase is Phase.WITHDRAWING and not state.ledger.in_flight.is_let_through(pod.key)
    return is_withdrawing and lacks_others(state, pod)


def _free_choice(state: SteeringState, pod: Pod, policy: Policy, nodes: Sequence[str]) -> Advice:
    prices = state.nominations.prices_for(pod.pod_class, policy.name)
    if prices is not None and (pod.constraints is None or not pod.constraints.preferred):
        # Prices of a class leave spread out; those of pods with other preferences have it.
        prices = priced_with_others(state, pod, policy, prices)
    return Advice(
        managed=True,
        infeasible_nodes=infeasible_nodes(state, pod, nodes),
        scores={} if prices is None else scores_by_node(prices),
        spares=state.ledger.device_turns.is_kept_off(pod.key),
        # Where an autoscaler comes first, only a round knows how long the pod has waited.
        may_preempt=policy.preemption == PreemptionPolicy(PreemptionMode.LOWER_PRIORITY, after=0),
    )


def _leaving_victims(ledger: Ledger, reservation: Reservation) -> dict[str, list[str]]:
    """UIDs of the victims on the planned node, once the Eviction API lets all of them go; before that none.

    kube-scheduler deletes the pods of the answer, whatever PodDisruptionBudgets say.
    """
    victims = [ledger.victims[key].pod for key in reservation.victims]
    if not all(victim.deleting for victim in victims):
        return {}
    return {reservation.node: [victim.uid for victim in victims if victim.node_name == reservation.node]}


def _to_node(state: SteeringState, pod: Pod, node: str, nodes: Sequence[str], *, hold: bool) -> Advice:
    """To this node, if its room is still there: a nomination in the API server is reserved without asking."""
    asked = nodes if not hold else [node] if node in nodes else []
    return Advice(managed=True, node=node, hold=hold, infeasible_nodes=infeasible_nodes(state, pod, asked))


def _unknown(cluster: Cluster, extender_pod: ExtenderPod) -> Advice:
    """No node passes, and nothing is remembered: a request alone proves no pod.

    No pod is evicted for it if a policy would govern it, or may.
    """
    namespace = cluster.namespaces.get(extender_pod.namespace)
    if namespace is None:
        return Advice(known=False, managed=True)
    policy = cluster.policies.of_request(extender_pod, namespace)
    return Advice(known=False, managed=policy is not None and delivery_of(policy).owner is not None)


def watched_pod(cluster: Cluster, extender_pod: ExtenderPod) -> Pod | None:
    """The pod as our watch shows it; None unless the watch shows it by this name and UID, and pending."""
    pod = cluster.waiting.get(extender_pod.key)
    known = pod is not None and pod.uid == extender_pod.uid
    return pod if known and extender_pod.namespace in cluster.namespaces else None
