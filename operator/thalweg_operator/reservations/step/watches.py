"""What the watches show: the cluster takes it, and the ledger acts on what changed."""

from __future__ import annotations

import msgspec

from flowcore.cluster.changes import NodeChange, PodChange
from flowcore.cluster.kinds import (
    DEVICE_TAINT_RULES,
    GROUPS_OF_PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_OBJECTS,
)
from flowcore.model.advice import UNSEEN_MESSAGE
from flowcore.model.device_taint_rules import DeviceTaintRule
from flowcore.model.inter_pod_constraints import LABELS_OF_NODES
from flowcore.model.nodes import KEEPS_OUT
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.selectors import Labels
from thalweg_operator.reservations.effects import RequestRound
from thalweg_operator.reservations.events import (
    NamespaceSet,
    NodePut,
    NodeRemoved,
    ObjectEvent,
    ObjectSet,
    ParentsFollowed,
)
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering import lone_pods, nomination_events
from thalweg_operator.reservations.steering.nominations import may_lack
from thalweg_operator.reservations.step.before_binding import preparing
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.victims import replacements, victims

_OF_DEVICES = (RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_TAINT_RULES)
#: Phases in which kube-scheduler may nominate the plan's node itself, because the extender told it the victims there.
_TOLD = frozenset({Phase.AWAITING_VICTIM, Phase.HELD})


def pod_put(state: State, pod: Pod) -> None:
    """A pod came or changed."""
    cluster, ledger, key = state.cluster, state.ledger, pod.key
    before = ledger.reservations.get(key)
    reserved: PodSignature | None = None
    grows = before is not None and before.pod.grows == pod.grows != ()
    if before is not None and (before.pod.uid != pod.uid or (pod.node_name and not grows) or pod.terminal):
        fulfilled = pod.node_name == before.node and not pod.terminal
        ledger.drop(key, fulfilled=fulfilled)
        if fulfilled:
            reserved = before.pod.signature
        else:
            ledger.round_wanted = True  # room came free
    ledger.in_flight.seen(key, "" if pod.node_name or pod.terminal else pod.uid)
    ledger.device_turns.changed(pod, cluster.pods.get(key), state.now)
    waited = victims.victim_left(state, key) if key in ledger.victims and not _is_awaited(ledger, pod) else []
    change = cluster.put_pod(pod, reserved)
    pod = cluster.pods[key]  # in the gang of its controller, with the priority of its group
    if key in ledger.victims:
        ledger.victim_changed(pod, state.now)
    if waited:
        _victim_left(state, waited)
    if pod.deleting or pod.terminal:
        _runs_no_more(state, change)
    _count_drift(ledger, change, reserved)
    if key not in cluster.waiting or (change.old is not None and change.old.uid != pod.uid):
        state.forget_waiting(key)
    if key in cluster.waiting and key not in ledger.reservations:
        replacements.replacement_came(state, cluster.waiting[key])
    opened = change.gate_opened and key not in ledger.reservations
    nominated = before is not None or bool(pod.nominated_node or (change.old is not None and change.old.nominated_node))
    if nominated:
        follow_nomination(state, pod)
    if change.old is not None and change.old.nominated_node and not pod.nominated_node and ledger.waits_for_victim(key):
        victims.nomination_lost(state, key)
    if change.came is not None and (before is None or before.node != pod.node_name):
        ledger.arrivals.add(pod.node_name, pod.pod_class)
    as_planned = (
        before is not None
        and before.node == pod.node_name
        and _has_signature(pod, before.pod, node_labels_matter=change.node_labels_matter)
    )
    begins = (change.waiting_changed or opened) and _concerns_rounds(state, cluster.waiting[key], change.old)
    if change.victim_changed or (
        # A pod that begins to wait is planned with its gang all the same.
        change.gang_changed and not begins and (before is None or before.node != pod.node_name)
    ):
        ledger.round_wanted = True
    _note_help(ledger, change, rules_met=change.affects_waiting and not as_planned)  # others may have waited for it
    if begins:  # or its gate opened without a plan
        waiting = cluster.waiting[key]
        came = not lone_pods.pod_came(state, waiting) and not waiting.awaits_claim
        ledger.round_at_once |= came or ledger.round_wanted or bool(ledger.helped.room_freed)
        if waiting.awaits_claim:  # it changes once it has its claim: a round that tells it why it waits is no haste
            state.effects.append(RequestRound())
    if nominated or UNSEEN_MESSAGE in pod.unschedulable_message:
        nomination_events.pod_changed(state, key, before)


def _victim_left(state: State, waited: list[str]) -> None:
    """A victim has left: pods that waited for nothing else are bound, or a round confirms their places at once."""
    held = victims.settle(state, waited)
    lone_pods.bind_held(state, held)
    state.ledger.round_at_once |= not state.ledger.held.isdisjoint(held)


def _runs_no_more(state: State, change: PodChange) -> None:
    """A pod that had a node may have been the only one of its gang: then the gang has not begun any more."""
    if change.old is not None and change.old.node_name:
        may_lack(state, change.old)


def _note_help(ledger: Ledger, change: PodChange, *, rules_met: bool = False) -> None:
    """Notes what a change of a pod may give to others: room on its node, and a domain that it kept them out of.

    One with other labels may be none of those that others keep away from, nor one that a budget protects.
    """
    left, came = change.left, change.came
    if change.room_freed and left is not None:
        rules = None if change.old is None else change.old.constraints
        ledger.helped.free(left[1])
        ledger.round_wanted |= rules is not None and bool(rules.anti_affinity)
    elif left is not None and came is not None and left[0].labels != came[0].labels:
        ledger.helped.free(left[1])
    ledger.helped.rules_met |= rules_met


def _concerns_rounds(state: State, pod: Pod, before: Pod | None) -> bool:
    """Whether a round has something to do for a pod that waits: to plan it, to open its gate, or to count it no more.

    Args:
        before: the pod until now; None: it is new.
    """
    may_be_governed = state.cluster.may_be_governed
    return pod.gated or may_be_governed(pod) or (before is not None and may_be_governed(before))


def _has_signature(pod: Pod, planned: Pod, *, node_labels_matter: bool) -> bool:
    """Whether rules see a pod as it was planned, apart from labels that its binding added if nobody waits for those."""
    now, before = pod.signature, planned.signature
    if now == before or node_labels_matter:
        return now == before
    labels = tuple(label for label in now.labels if label[0] not in LABELS_OF_NODES or label in before.labels)
    return msgspec.structs.replace(now, labels=labels) == before


def pod_removed(state: State, key: str) -> None:
    """A pod is gone."""
    ledger = state.ledger
    before = ledger.reservations.get(key)
    waited = victims.victim_left(state, key) if key in ledger.victims else []
    change = state.cluster.remove_pod(key)
    if waited:
        _victim_left(state, waited)
    _runs_no_more(state, change)
    _count_drift(ledger, change, None)
    ledger.in_flight.seen(key)
    if change.old is not None:
        ledger.device_turns.gone(change.old, state.now)
    state.forget_waiting(key)
    if before is not None:
        ledger.drop(key)
    if before is not None or change.gang_changed:
        ledger.round_wanted = True
    _note_help(ledger, change)
    if before is not None:
        nomination_events.pod_changed(state, key, before)


def object_event(state: State, event: ObjectEvent) -> None:
    """Anything but a pod came, changed or went."""
    cluster, ledger = state.cluster, state.ledger
    match event:
        case NodePut(node):
            known = cluster.nodes.get(node.name)
            change = cluster.put_node(node)
            if cluster.nodes[node.name] is not known:
                state.nominations.prices_changed()  # its images may be others too
                state.nominations.node_table.changed(node.name)
            if change is not None:
                _node_changed(state, change)
        case NodeRemoved(name):
            change = cluster.remove_node(name)
            state.nominations.node_table.removed(name)
            if change is not None:
                _node_changed(state, change)
        case NamespaceSet(name, labels):
            is_new = name not in cluster.namespaces
            if cluster.set_namespace(name, labels):
                _namespace_changed(state, name, labels, is_new=is_new)
                if state.nominations.started:
                    follow_nominations(state, name)
        case ParentsFollowed(kinds, gone):
            ledger.round_wanted |= cluster.follow_parents(kinds, gone)
        case ObjectSet(store, key, value):
            before = store.objects(cluster).get(key) if store in _OF_DEVICES else None
            changed = store.put(cluster, key, value)
            if changed and store is STORAGE_OBJECTS:
                ledger.helped.store(key)
            else:
                ledger.round_wanted |= changed
            if store is RESOURCE_CLAIMS:
                preparing.device_claim_changed(state, key, before, store.objects(cluster).get(key))
                _victim_left(state, state.freed_devices.claim_changed(key, value))
            elif store is RESOURCE_SLICES:
                ledger.device_claims.slice_changed(key, before, value, cluster.generation)
            elif store is DEVICE_TAINT_RULES:
                _taint_rule_changed(state, before, cluster.tainted_slices.rules.get(key))
            elif store is STORAGE_OBJECTS and ledger.preparing:
                preparing.go_on(state, cluster.storage.pods_that_await(key))
            elif store is GROUPS_OF_PODS and ledger.victims:
                for victim in [record.pod for record in ledger.victims.values()]:
                    if victim.gang is not None and victim.gang.key == key:
                        ledger.victim_changed(cluster.pods[victim.key], state.now)  # its priority may be another one


def _node_changed(state: State, change: NodeChange) -> None:
    """A node came, changed or went."""
    ledger = state.ledger
    state.nominations.node_changes[change.name] = state.now
    if ledger.drifts:
        ledger.drift.nodes_before.setdefault(change.name, change.before)
    ledger.round_wanted = True


def _taint_rule_changed(state: State, before: DeviceTaintRule | None, after: DeviceTaintRule | None) -> None:
    """A DeviceTaintRule came, changed or went.

    If it keeps pods out now, that is a change of the slices that it is about. Else plans hold as they are: devices
    without a taint that they had are as free as those with it.
    """
    cluster = state.cluster
    if after is None or before == after or after.taint.effect not in KEEPS_OUT:
        return  # its status changes while pods are evicted
    for name in cluster.tainted_slices.selected_by(after):
        tainted = cluster.devices.slices[name]
        state.ledger.device_claims.slice_changed(name, tainted, tainted, cluster.generation)


def _namespace_changed(state: State, name: str, labels: Labels | None, *, is_new: bool) -> None:
    """A namespace has these labels now; None: it is gone.

    Of one that comes only the pods matter. Those that wait there were in no plan before; those that run there may meet
    a rule, or leave for others.
    """
    ledger = state.ledger
    ledger.drift.pods.set_namespace(name, labels)
    ledger.in_flight.set_namespace(name, labels)
    ledger.drift.namespaces_changed = True
    ledger.helped.rules_met = True
    ledger.round_wanted |= not is_new or state.cluster.occupancy.pod_index.has_pods_of(name)


def _count_drift(ledger: Ledger, change: PodChange, reserved: PodSignature | None) -> None:
    if not ledger.drifts:
        return
    pods = ledger.drift.pods
    if change.left is not None:
        pods.change(*change.left, -1)
    if change.came is not None and reserved is not None:
        pods.exchange(reserved, *change.came)
    elif change.came is not None:
        pods.change(*change.came, 1)


def follow_nomination(state: State, pod: Pod) -> None:
    """A nomination that others follow, or that we wrote, holds room: it is a reservation.

    One that others wrote for a pod that we bind is a wish (``flowcore.costs.wishes``): rounds plan the pod.
    """
    cluster, ledger, key = state.cluster, state.ledger, pod.key
    reservation = ledger.reservations.get(key)
    foreign = pod.nominated_node if pod.nominated_node != pod.planned_node else ""
    is_wish = bool(foreign) and state.is_ours_to_bind(pod)
    if reservation is not None and reservation.phase in _TOLD and reservation.node == foreign:
        return
    if reservation is not None and reservation.owner is Owner.OTHERS and (is_wish or reservation.node != foreign):
        ledger.helped.free(reservation.node)
        ledger.drop(key)
        ledger.round_wanted |= is_wish or not foreign  # then the pod may be planned
        reservation = None
    if pod.node_name or key not in cluster.waiting or not pod.nominated_node:
        return
    if foreign and reservation is not None and reservation.owner is Owner.STEERING:
        ledger.helped.free(reservation.node)
        ledger.drop(key)
        reservation = None
    if reservation is None and not is_wish:
        if foreign:
            ledger.add(pod, foreign, Owner.OTHERS, Phase.FOREIGN)
        else:
            ledger.add(pod, pod.nominated_node, Owner.STEERING, Phase.NOMINATED)


def follow_nominations(state: State, namespace: str | None = None) -> None:
    """Other policies may say now who binds pods that others nominated; of one namespace, or of all."""
    for pod in list(state.cluster.waiting.values()):
        if pod.nominated_node not in ("", pod.planned_node) and namespace in (None, pod.namespace):
            follow_nomination(state, pod)


def _is_awaited(ledger: Ledger, pod: Pod) -> bool:
    victim = ledger.victims[pod.key].pod
    return (victim.uid, victim.node_name) == (pod.uid, pod.node_name) and not pod.terminal
