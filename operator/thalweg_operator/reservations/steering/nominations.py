"""The steps of a nomination: a reservation of ours that kube-scheduler is to bind.

A planned pod holds its reservation from the plan to its binding. It is queued for its wave, or kube-scheduler is
expected to come upon its node by itself; then it is nominated, and passes when kube-scheduler asks about its node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowcore.model.advice import HELD_MESSAGE, UNSEEN_MESSAGE
from flowcore.model.constraint_limits import all_or_none
from flowcore.model.gang_spec import GangSource
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.selectors import domain_value
from thalweg_operator.reservations.effects import CountNomination, Log, OpenGate, WakePod
from thalweg_operator.reservations.ledger.feasibility import is_binders_turn
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import NEVER, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.records.place_pool import PlaceKey, counting_keys, domains_of
from thalweg_operator.reservations.steering.records.waves import UNORDERED, WavePosition
from thalweg_operator.reservations.steering.state import SteeringState

#: Seconds from the loss of a nomination to a look at what became of it: mostly the binding follows at once.
GRACE = 0.1
#: The same for a pod that passed.
BINDING_GRACE = 2.0
#: Seconds from kube-scheduler's question to the end of its attempt, with what it writes about that.
_ATTEMPT_SECONDS = 5.0
#: Seconds by which kube-scheduler's watch may show a change of a node later than ours.
_NODE_CHANGE_SECONDS = 5.0
#: From this number of nodes on, a nomination costs less than kube-scheduler's search for the few that affinity allows.
MANY_NODES = 2000
#: Below this number of nodes kube-scheduler looks at all of them (minFeasibleNodesToFind).
_ALL_NODES = 100
#: A nomination is written again this often before it counts as rejected.
_MAX_RETRIES = 5
#: Phases in which the pod's node is not announced yet.
UNANNOUNCED = frozenset({Phase.QUEUED, Phase.RESERVED})


@dataclass(frozen=True, slots=True)
class ReservedPlacement:
    """A placement that has its reservation; its attributes are as in ``flowcore.planning.problem.result.Placement``."""

    pod: Pod
    node: str
    wave: WavePosition = UNORDERED
    atomic_group: str = ""
    optional: bool = False
    saving: int | None = None


def nomination_of(ledger: Ledger, key: str) -> Reservation | None:
    """The nomination of a pod; None: it has none."""
    reservation = ledger.reservations.get(key)
    return reservation if reservation is not None and reservation.is_nomination else None


def nominations(ledger: Ledger) -> list[Reservation]:
    """All nominations."""
    return [reservation for reservation in ledger.reservations.values() if reservation.is_nomination]


def nominate(state: SteeringState, pod: Pod) -> None:
    """Writes the nomination of a pod, for the first time or once more."""
    records = state.nominations
    records.forget_place(pod.key)
    state.write_nomination(pod, phase=Phase.NOMINATED, since=state.now)
    reservation = state.ledger.reservations[pod.key]
    place_key = None if pod.gated else place_key_of(state, reservation.pod, reservation.node)
    if place_key is not None and reservation.wave != UNORDERED:
        records.announced.add(pod.key, place_key, reservation.node, ())
    if pod.nominated_node == reservation.node:
        wake(state, pod)  # it was nominated while it waited for victims: the write changes nothing that would wake it


def withdraw(state: SteeringState, pod: Pod) -> None:
    """Clears the nomination of a pod. Its reservation ends once that is seen."""
    state.nominations.forget_place(pod.key)
    state.clear_nomination(pod)
    may_lack(state, pod)


def ended(state: SteeringState, reservation: Reservation) -> None:
    """A nomination has ended. If other pods wait for this one behind their gates, the atomic group is planned anew."""
    key, records = reservation.pod.key, state.nominations
    records.checks.pop(key, None)
    end_wake(state, reservation.pod)
    records.forget_place(key)
    may_lack(state, reservation.pod)
    for sibling_key in records.permit_groups.lost(reservation.group, key):
        take_back(state, sibling_key)


def may_lack(state: SteeringState, pod: Pod) -> None:
    """The gang of a pod, if it has one, may lack pods from now on: that is looked at when the step ends."""
    if pod.gang is not None:
        state.nominations.may_lack[pod.gang.key] = pod.gang


def take_back(state: SteeringState, key: str) -> None:
    """Ends a nomination whose atomic group is to be planned anew, unless kube-scheduler may be binding the pod."""
    nomination = nomination_of(state.ledger, key)
    if nomination is None or state.ledger.in_flight.is_let_through(key):
        return
    if nomination.phase in UNANNOUNCED:
        give_up(state, key, "expired")
    elif nomination.phase is not Phase.WITHDRAWING:
        if nomination.group is not None:
            state.nominations.permit_groups.withdraw(nomination.group, key)
        withdraw(state, state.cluster.pods[key])


def give_up(state: SteeringState, key: str, outcome: str) -> None:
    """Ends a nomination and its reservation."""
    reservation = state.ledger.reservations[key]
    state.ledger.release(key, reservation.pod.uid)
    ended(state, reservation)
    state.effects.append(CountNomination(outcome))
    pod = state.cluster.pods.get(key)
    if pod is not None and outcome == "rejected":
        fields = (("pod", key), ("node", reservation.node), ("told", pod.unschedulable_message))
        state.effects.append(Log("nomination refused", fields))
        state.node_rejected(pod, reservation.node)
    pass_wave(state, key)


def pass_wave(state: SteeringState, key: str) -> None:
    """The next wave does not wait for this pod any more."""
    state.nominations.waves.passed(key)
    begin_waves(state)


def begin_waves(state: SteeringState) -> None:
    """Nominates the pods whose wave begins."""

    def is_queued(pod: Pod) -> bool:
        reservation = nomination_of(state.ledger, pod.key)
        return reservation is not None and reservation.pod.uid == pod.uid and reservation.phase is Phase.QUEUED

    for pod in state.nominations.waves.begin(state.now, is_queued):
        begin(state, pod)


def begin(state: SteeringState, pod: Pod) -> None:
    """A planned pod has its turn: it is nominated, or waits for kube-scheduler's question, with its gate open."""
    ledger, records = state.ledger, state.nominations
    reservation, current = ledger.reservations[pod.key], state.cluster.pods.get(pod.key, pod)
    place_key = place_key_of(state, reservation.pod, reservation.node)
    if place_key is None or not place_key.fits(current) or must_nominate(state, current, reservation, place_key):
        nominate(state, pod)
    else:
        ledger.change(pod.key, phase=Phase.RESERVED, since=state.now)
        open_gates(state, records.permit_groups.ready(reservation.group, pod))


def place_key_of(state: SteeringState, pod: Pod, node: str) -> PlaceKey | None:
    """By what a pod that is planned for a node may take the place of another pod; None: not at all.

    A pod whose gang asks for a topology may take those of the same domains. A constraint that places pods together or
    not at all says nothing of the domain of a single node.
    """
    policy, planned = state.policy_of(pod), state.cluster.nodes.get(node)
    if policy is None or planned is None or pod.replaces or all_or_none(pod.labels, policy):
        return None
    return PlaceKey(pod.pod_class, pod.signature, policy.name, domains_of_gang(state, pod, planned))


def domains_of_gang(state: SteeringState, pod: Pod, node: Node) -> tuple[tuple[str, str | None], ...]:
    """The topologies that the gang of a pod, if it has one, asks for or prefers, each with the domain of a node."""
    gang = pod.gang
    keys = () if gang is None else state.cluster.gangs.state(gang.key).spec.topologies
    return tuple((key, domain_value(node.labels, key)) for key in keys)


def must_nominate(state: SteeringState, pod: Pod, reservation: Reservation, place_key: PlaceKey) -> bool:
    """Whether kube-scheduler does not come upon a place for a pod by itself, or only at a high price.

    A pod that was tried in vain sleeps until it is nominated, or one of its PodGroup is woken. For a pod with affinity
    kube-scheduler looks at all nodes to find the few where the others are; a nomination spares it that, which pays off
    in a large cluster. There its sample of the nodes rarely has one of the few that a gang with a topology is planned
    for. Where kube-scheduler does not ask about the pods of others, only nominations keep the room of a gang until its
    last pod is there.
    """
    nodes = len(state.cluster.nodes)
    if is_woken_instead(state, reservation):
        return False
    has_few_nodes = bool(place_key.within) or (pod.constraints is not None and bool(pod.constraints.affinity))
    sleeps_alone = _must_be_woken(state, pod) and not is_tried_with_its_group(pod)
    is_exposed = pod.gang is not None and not state.keeps_others_off
    return is_exposed or sleeps_alone or (has_few_nodes and nodes >= MANY_NODES)


def is_tried_with_its_group(pod: Pod) -> bool:
    """Whether kube-scheduler's own gang scheduling tries a pod together with all others of its PodGroup that wait.

    It does not look at them before as many are there as the group needs. Where its feature gate is off, it tries each
    pod by itself: then the others are tried again once the first one is bound, or nominated after a time.
    """
    return pod.gang is not None and pod.gang.key.source is GangSource.NATIVE


def is_woken_instead(state: SteeringState, reservation: Reservation) -> bool:
    """Whether a pod that was tried in vain is woken, and not nominated, for some tries.

    So it is with gangs in waves where kube-scheduler looks at all nodes: it counts a nominated pod as one that is
    there, and would find no node for the pod of the gang that it takes first.
    """
    in_waves = reservation.pod.gang is not None and reservation.wave != UNORDERED
    return in_waves and len(state.cluster.nodes) < _ALL_NODES and reservation.retries < _MAX_RETRIES


def is_asleep(ledger: Ledger, pod: Pod) -> bool:
    """Whether kube-scheduler tried a pod in vain, as far as we know."""
    record = ledger.known_record(pod)
    return was_tried(pod) or (record is not None and record.held_at is not None)


def is_asked(state: SteeringState, pod: Pod) -> bool:
    """Whether kube-scheduler waits for an answer about a pod, or one that it tries with it: nothing has to wake it."""
    record = state.ledger.known_record(pod)
    return record is not None and state.now < record.asked_until


def _must_be_woken(state: SteeringState, pod: Pod) -> bool:
    return is_asleep(state.ledger, pod) and not is_asked(state, pod)


def was_tried(pod: Pod) -> bool:
    """Whether kube-scheduler tried a pod in vain. The condition of a gate stays when the gate is open."""
    return bool(pod.unschedulable_message) and pod.unschedulable_reason != "SchedulingGated"


def expect_question(state: SteeringState, key: str, place_key: PlaceKey) -> None:
    """Equal pods may take the place of a pod in phase QUEUED or RESERVED.

    In RESERVED its gate is opened, or it is woken, once; of a PodGroup that is tried as a whole, one pod is.
    """
    records, reservation = state.nominations, state.ledger.reservations[key]
    policy, node = state.policy_of(reservation.pod), state.cluster.nodes.get(reservation.node)
    if policy is not None and node is not None:
        keys = counting_keys(
            state.cluster.policies.with_policy_rules(place_key.signature, policy, state.cluster.services)
        )
        records.places.add(key, place_key, node.name, domains_of(node, keys))
    if reservation.phase is Phase.RESERVED:
        records.reserved[key] = None
        pod = state.cluster.pods[key]
        if pod.gated:
            open_gate(state, pod)
        elif key not in records.woken and _must_be_woken(state, pod):
            wake_reserved(state, pod)


def wake_reserved(state: SteeringState, pod: Pod) -> None:
    """Wakes a reserved pod that was tried in vain, unless another one is woken with which kube-scheduler tries it."""
    woken = state.nominations.woken
    is_woken_with = (
        pod.gang is not None
        and is_tried_with_its_group(pod)
        and not woken.isdisjoint(state.cluster.gangs.members(pod.gang.key)[0])
    )
    woken.add(pod.key)
    if not is_woken_with:
        state.effects.append(WakePod(pod, unseen=False))


def end_wake(state: SteeringState, pod: Pod) -> None:
    """kube-scheduler has asked about a woken pod, or it is gone: who still sleeps of its PodGroup is woken again."""
    woken = state.nominations.woken
    if pod.gang is not None and pod.key in woken and is_tried_with_its_group(pod):
        woken.difference_update(state.cluster.gangs.members(pod.gang.key)[0])


def check_later(state: SteeringState, key: str, grace: float) -> None:
    """Has a nomination looked at after ``grace`` seconds, at the latest."""
    checks, due = state.nominations.checks, state.now + grace
    checks[key] = min(due, checks.get(key, due))


def check(state: SteeringState, key: str) -> None:
    """Decides about a nomination that was erased, or whose node kube-scheduler's filters reject."""
    reservation, pod = nomination_of(state.ledger, key), state.cluster.pods.get(key)
    if reservation is None or pod is None or reservation.phase in UNANNOUNCED:
        return
    if reservation.rejected or reservation.phase is Phase.WITHDRAWING:
        if pod.nominated_node == reservation.node:
            withdraw(state, pod)  # the next round may have another node for it
        else:
            give_up(state, key, "rejected" if reservation.rejected else "expired")
    elif pod.nominated_node == reservation.node or reservation.writing:
        return  # an older nomination for this node left the same annotation: the write under way is not lost
    elif is_binders_turn(state, pod, reservation.node):
        check_later(state, key, GRACE)  # until then each attempt would come to nothing
    elif reservation.retries < _MAX_RETRIES and _is_inconclusive(state, pod, reservation):
        state.effects.append(CountNomination("erased"))
        state.ledger.change(key, retries=reservation.retries + 1)
        nominate(state, pod)
    else:
        give_up(state, key, "rejected")


def _is_inconclusive(state: SteeringState, pod: Pod, reservation: Reservation) -> bool:
    """Whether the attempt that erased the nomination did not refuse the node for good.

    It did not know of the nomination, was held, and erased it at its end. Or it was too early for this node. Or it was
    an attempt at the pod's whole gang, which let this pod through and not enough of the others. The attempt also writes
    why the pod was not placed: a message other than ours is from kube-scheduler's own filters.
    """
    gang = pod.gang
    of_gang = gang is not None and reservation.phase is Phase.PASSED and not state.cluster.gangs.members(gang.key)[1]
    if of_gang or is_too_early(state, reservation) or UNSEEN_MESSAGE in pod.unschedulable_message:
        return True
    record = state.ledger.known_record(pod)
    return (
        record is not None
        and record.held_at is not None
        and HELD_MESSAGE in pod.unschedulable_message
        and record.refused_node != reservation.node
        and record.held_at > reservation.since - _ATTEMPT_SECONDS
    )


def is_too_early(state: SteeringState, reservation: Reservation) -> bool:
    """Whether kube-scheduler's own filters may let the node pass a little later.

    Pods that went before their wave keep this one off its node, until the others of its wave have come. Or the pod was
    planned to a node that had come or changed a moment ago, and kube-scheduler has not seen it. If the node has changed
    since it was planned, the refusal may well be for that. Or the binder chooses devices there.
    """
    records = state.nominations
    if records.waves.others_under_way(reservation.pod.key) or is_binders_turn(state, reservation.pod, reservation.node):
        return True
    changed = records.node_changes.get(reservation.node, NEVER)
    as_planned = not state.cluster.node_changed_since(reservation.node, reservation.generation)
    return as_planned and state.now - changed < _NODE_CHANGE_SECONDS


def forget_node_changes(state: SteeringState) -> None:
    """Forgets changes of nodes that kube-scheduler has seen too."""
    records = state.nominations
    records.node_changes = {
        node: when for node, when in records.node_changes.items() if state.now - when < _NODE_CHANGE_SECONDS
    }


def open_gate(state: SteeringState, pod: Pod) -> None:
    """Opens our gate. A refused write is tried again with pauses."""
    record, reservation = state.ledger.record(pod), nomination_of(state.ledger, pod.key)
    number = 0 if reservation is None else reservation.id
    if record.opening != number:
        record.opening, record.opening_refused = number, False
        state.effects.append(OpenGate(pod, number))


def open_gates(state: SteeringState, pods: Iterable[Pod]) -> None:
    """Opens our gates of these pods where they are closed. kube-scheduler may ask about those that are reserved."""
    for pod in pods:
        reservation = nomination_of(state.ledger, pod.key)
        if reservation is None or reservation.phase is not Phase.RESERVED:
            if pod.gated:
                open_gate(state, pod)
        elif (place_key := place_key_of(state, reservation.pod, reservation.node)) is not None:
            expect_question(state, pod.key, place_key)
        else:
            nominate(state, pod)  # another policy is in force since


def wake(state: SteeringState, pod: Pod) -> None:
    """Wakes a pod if it sleeps: kube-scheduler may have another answer for it now."""
    record = state.ledger.known_record(pod)
    if record is not None and record.held_at is not None:
        record.held_at = None
        state.effects.append(WakePod(pod, unseen=False))
