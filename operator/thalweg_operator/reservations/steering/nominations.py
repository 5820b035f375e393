"""The steps of a nomination: a reservation of ours that kube-scheduler is to bind.

A planned pod holds its reservation from the plan to its binding. It is queued for its wave, or kube-scheduler is
expected to come upon its node by itself; then it is nominated, and passes when kube-scheduler asks about its node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowcore.model.advice import HELD_MESSAGE, UNSEEN_MESSAGE
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.pods import Pod
from thalweg_operator.reservations.effects import ClearNomination, CountNomination, Log, Nominate, OpenGate, WakePod
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import NEVER, Owner, Reservation
from thalweg_operator.reservations.ledger.step import Step
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.place_pool import PlaceKey, counting_keys, domains_of
from thalweg_operator.reservations.steering.waves import UNORDERED, WavePosition

#: Seconds from the loss of a nomination to a look at what became of it: mostly the binding follows at once.
GRACE = 0.1
#: The same for a pod that passed.
BINDING_GRACE = 2.0
#: Seconds from kube-scheduler's question to the end of its attempt, with what it writes about that.
_ATTEMPT_SECONDS = 5.0
#: kube-scheduler's watch may show a change of a node so many seconds later than ours.
_NODE_CHANGE_SECONDS = 5.0
#: From so many nodes on, a nomination costs less than kube-scheduler's search for the few where affinity lets a pod go.
MANY_NODES = 2000
#: A nomination is written again this often before it counts as rejected.
_MAX_RETRIES = 5
#: Phases in which nobody knows of the pod's node yet.
UNANNOUNCED = frozenset({Phase.QUEUED, Phase.RESERVED})


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A placement that has its reservation; its attributes are as in ``flowcore.problem.result.Placement``."""

    pod: Pod
    node: str
    wave: WavePosition = UNORDERED
    atomic_group: str = ""
    optional: bool = False
    saving: int | None = None


def is_nomination(reservation: Reservation) -> bool:
    """Whether kube-scheduler is being steered to it: its plan is whole, or it was adopted after a restart."""
    return reservation.owner is Owner.STEERING and reservation.since > NEVER


def nomination_of(ledger: Ledger, key: str) -> Reservation | None:
    """The nomination of a pod; None: it has none."""
    reservation = ledger.reservations.get(key)
    return reservation if reservation is not None and is_nomination(reservation) else None


def nominations(ledger: Ledger) -> list[Reservation]:
    """All nominations."""
    return [reservation for reservation in ledger.reservations.values() if is_nomination(reservation)]


def nominate(step: Step, pod: Pod) -> None:
    """Writes the nomination of a pod, for the first time or once more."""
    before = step.ledger.reservations[pod.key]
    step.ledger.nominations.forget_place(pod.key)
    after = step.ledger.change(pod.key, phase=Phase.NOMINATED, since=step.now, writing=True, write=before.write + 1)
    step.effects.append(Nominate(pod, after.node, after.id, after.write))
    if pod.nominated_node == after.node:
        wake(step, pod)  # it was nominated while it waited for victims: the write changes nothing that would wake it


def withdraw(step: Step, pod: Pod) -> None:
    """Clears the nomination of a pod. Its reservation ends once that is seen."""
    reservation = step.ledger.reservations[pod.key]
    step.ledger.nominations.forget_place(pod.key)
    if reservation.phase is not Phase.WITHDRAWING:
        step.ledger.change(pod.key, phase=Phase.WITHDRAWING)
    if not reservation.clearing:
        step.ledger.change(pod.key, clearing=True)
        step.effects.append(ClearNomination(pod, reservation.id))


def ended(step: Step, reservation: Reservation) -> None:
    """A nomination has ended. If other pods wait for this one behind their gates, the atomic group is planned anew."""
    key, books = reservation.pod.key, step.ledger.nominations
    books.checks.pop(key, None)
    books.forget_place(key)
    for other in books.permit_groups.lost(reservation.group, key):
        sibling = nomination_of(step.ledger, other)
        if sibling is None:
            continue
        if sibling.phase is Phase.QUEUED:
            give_up(step, other, "expired")
        elif sibling.phase is not Phase.WITHDRAWING:
            if sibling.group is not None:
                books.permit_groups.withdraw(sibling.group, other)
            withdraw(step, step.cluster.pods[other])


def give_up(step: Step, key: str, outcome: str) -> None:
    """Ends a nomination and its reservation."""
    reservation = step.ledger.reservations[key]
    step.ledger.release(key, reservation.pod.uid)
    ended(step, reservation)
    step.effects.append(CountNomination(outcome))
    pod = step.cluster.pods.get(key)
    if pod is not None and outcome == "rejected":
        fields = (("pod", key), ("node", reservation.node), ("told", pod.unschedulable_message))
        step.effects.append(Log("nomination refused", fields))
        step.node_rejected(pod, reservation.node)
    pass_wave(step, key)


def pass_wave(step: Step, key: str) -> None:
    """The next wave does not wait for this pod any more."""
    step.ledger.nominations.waves.passed(key)
    begin_waves(step)


def begin_waves(step: Step) -> None:
    """Nominates the pods whose wave begins."""

    def is_queued(pod: Pod) -> bool:
        reservation = nomination_of(step.ledger, pod.key)
        return reservation is not None and reservation.pod.uid == pod.uid and reservation.phase is Phase.QUEUED

    books = step.ledger.nominations
    for pod in books.waves.begin(step.now, is_queued):
        place_key = books.places.place_key(pod.key)
        if place_key is None or must_nominate(step, pod):
            nominate(step, pod)
        else:
            step.ledger.change(pod.key, phase=Phase.RESERVED, since=step.now)
            expect_question(step, pod.key, place_key)


def must_nominate(step: Step, pod: Pod) -> bool:
    """Whether kube-scheduler does not come upon a place for a pod by itself, or only at a high price.

    A pod that was tried in vain sleeps until it is nominated. For a pod with affinity kube-scheduler looks at all nodes
    to find the few where the others are; a nomination spares it that, which pays off in a large cluster.
    """
    record = step.ledger.known_record(pod)
    is_asleep = was_tried(pod) or (record is not None and record.held_at is not None)
    has_affinity = pod.constraints is not None and bool(pod.constraints.affinity)
    return is_asleep or (has_affinity and len(step.cluster.nodes) >= MANY_NODES)


def was_tried(pod: Pod) -> bool:
    """Whether kube-scheduler tried a pod in vain. The condition of a gate stays when the gate is open."""
    return bool(pod.unschedulable_message) and pod.unschedulable_reason != "SchedulingGated"


def expect_question(step: Step, key: str, place_key: PlaceKey) -> None:
    """Equal pods may take the place of a pod in phase QUEUED or RESERVED. A gate of ours is opened in RESERVED."""
    books, reservation = step.ledger.nominations, step.ledger.reservations[key]
    policy, node = step.policy_of(reservation.pod), step.cluster.nodes.get(reservation.node)
    if policy is not None and node is not None:
        keys = counting_keys(with_policy_constraints(place_key.signature, policy))
        books.places.add(key, place_key, node.name, domains_of(node, keys))
    if reservation.phase is Phase.RESERVED:
        books.reserved[key] = None
        if reservation.pod.gated:
            open_gate(step, reservation.pod)


def check_later(step: Step, key: str, grace: float) -> None:
    """Looks at a nomination after so many seconds, at the latest."""
    checks, due = step.ledger.nominations.checks, step.now + grace
    checks[key] = min(due, checks.get(key, due))


def check(step: Step, key: str) -> None:
    """Decides about a nomination that was erased, or whose node kube-scheduler's filters reject."""
    reservation, pod = nomination_of(step.ledger, key), step.cluster.pods.get(key)
    if reservation is None or pod is None or reservation.phase in UNANNOUNCED:
        return
    if reservation.rejected or reservation.phase is Phase.WITHDRAWING:
        if pod.nominated_node == reservation.node:
            withdraw(step, pod)  # the next round may have another node for it
        else:
            give_up(step, key, "rejected" if reservation.rejected else "expired")
    elif pod.nominated_node == reservation.node or reservation.writing:
        return  # an older nomination for this node left the same annotation: the write under way is not lost
    elif reservation.retries < _MAX_RETRIES and _is_inconclusive(step, pod, reservation):
        step.effects.append(CountNomination("erased"))
        step.ledger.change(key, retries=reservation.retries + 1)
        nominate(step, pod)
    else:
        give_up(step, key, "rejected")


def _is_inconclusive(step: Step, pod: Pod, reservation: Reservation) -> bool:
    """Whether the attempt that erased the nomination did not refuse the node for good.

    It did not know of the nomination, was held, and erased it at its end. Or it was too early for this node. The
    attempt also writes why the pod was not placed: a message other than ours is from kube-scheduler's own filters.
    """
    if is_too_early(step, reservation) or UNSEEN_MESSAGE in pod.unschedulable_message:
        return True
    record = step.ledger.known_record(pod)
    return (
        record is not None
        and record.held_at is not None
        and HELD_MESSAGE in pod.unschedulable_message
        and record.refused_node != reservation.node
        and record.held_at > reservation.since - _ATTEMPT_SECONDS
    )


def is_too_early(step: Step, reservation: Reservation) -> bool:
    """Whether kube-scheduler's own filters may let the node pass a little later.

    Pods that went before their wave keep this one off its node, until the others of its wave have come. Or the pod was
    planned to a node that had come or changed a moment ago, and kube-scheduler has not seen it. If the node has changed
    since it was planned, the refusal may well be for that.
    """
    books = step.ledger.nominations
    if books.waves.others_under_way(reservation.pod.key):
        return True
    changed = books.node_changes.get(reservation.node, NEVER)
    as_planned = not step.cluster.node_changed_since(reservation.node, reservation.generation)
    return as_planned and step.now - changed < _NODE_CHANGE_SECONDS


def forget_node_changes(step: Step) -> None:
    """Forgets changes of nodes that everybody has seen."""
    books = step.ledger.nominations
    books.node_changes = {
        node: when for node, when in books.node_changes.items() if step.now - when < _NODE_CHANGE_SECONDS
    }


def open_gate(step: Step, pod: Pod) -> None:
    """Opens our gate. A refused write is tried again with pauses."""
    record, reservation = step.ledger.record(pod), nomination_of(step.ledger, pod.key)
    number = 0 if reservation is None else reservation.id
    if record.opening != number:
        record.opening, record.opening_refused = number, False
        step.effects.append(OpenGate(pod, number))


def open_gates(step: Step, pods: Iterable[Pod]) -> None:
    """Opens our gates of these pods where they are closed."""
    for pod in pods:
        if pod.gated:
            open_gate(step, pod)


def wake(step: Step, pod: Pod) -> None:
    """Wakes a pod if it sleeps: kube-scheduler may have another answer for it now."""
    record = step.ledger.known_record(pod)
    if record is not None and record.held_at is not None:
        record.held_at = None
        step.effects.append(WakePod(pod, unseen=False))


def stands_alone(pod: Pod) -> bool:
    """Whether a plan could take an alike pod instead: not if the pod has a gang, or replaces another pod."""
    return pod.gang is None and not pod.replaces
