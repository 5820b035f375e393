"""What becomes of a reservation by the answers to its binding: a gang is bound as a whole, or not at all.

Bindings are separate requests, and the API server may refuse some of a gang's. Before any pod of the gang may have a
node, the gang ends: its other bindings are not sent any more (``write_checks.bind_problem``). Once it has begun, it is
completed if possible: the place of a refused pod is kept while the pod pauses, for some tries.
"""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from flowcore.model.gang_spec import GangKey
from flowcore.model.pods import Pod
from thalweg_operator.reservations.effects import Bind
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.gangs_under_way import has_begun
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.step.write_checks import bind_problem
from thalweg_operator.reservations.victims.victims import may_take_place

#: How often a refused binding of a gang that has begun is sent again before its room is given to others.
KEPT_TRIES = 4


def answered(state: State, write: Bind, answer: Answer, reason: str) -> None:
    """A binding was answered. Where it is done, the reservation stays until the watch shows the binding."""
    ledger, pod = state.ledger, write.pod
    reservation = ledger.reservations.get(pod.key)
    known = reservation is not None and (reservation.pod.uid, reservation.phase) == (pod.uid, Phase.BINDING)
    match answer:
        case Answer.UNCERTAIN | Answer.RETRYING:
            if known:
                ledger.change(pod.key, maybe_bound=answer is Answer.UNCERTAIN)
        case Answer.REFUSED:
            if reason:
                state.pod_refused(pod, f"the API server refused to bind it to {write.node}: {reason}")
            else:
                backoff.refused(ledger, pod, state.now)
            if known:
                ledger.change(pod.key, maybe_bound=False)
            if known and _is_place_kept(state.cluster, ledger, pod):
                ledger.change(pod.key, phase=Phase.PAUSED, retries=ledger.reservations[pod.key].retries + 1)
            else:
                ledger.release(pod.key, pod.uid)
        case Answer.UNWANTED:
            ledger.release(pod.key, pod.uid)


def _is_place_kept(cluster: Cluster, ledger: Ledger, pod: Pod) -> bool:
    """Whether a gang that has begun needs this pod, and its place was not kept too often."""
    return (
        pod.gang is not None
        and ledger.reservations[pod.key].retries < KEPT_TRIES
        and has_begun(cluster, ledger, pod.gang.key)
        and cluster.gangs.lacks_pods(pod.gang.key, ledger.reservations, besides=pod.key)
    )


def send_again(state: State) -> None:
    """Sends the bindings of pods whose pause is over, unless their place is not as planned then.

    If a gang has not begun after all, the places of its pods are given up at once.
    """
    cluster, ledger = state.cluster, state.ledger
    begun: dict[GangKey, bool] = {}
    for key in sorted(ledger.paused):
        reservation = ledger.reservations[key]
        gang = reservation.pod.gang
        if gang is not None and gang.key not in begun:  # once for all of its pods
            begun[gang.key] = has_begun(cluster, ledger, gang.key)
        if gang is None or not begun[gang.key]:
            ledger.release(key, reservation.pod.uid)
        elif not backoff.is_backing_off(cluster, ledger, reservation.pod, state.now):
            write = Bind(reservation.pod, reservation.node, reservation.generation)
            if not may_take_place(state, reservation) or bind_problem(cluster, ledger, write, retry=True):
                ledger.release(key, reservation.pod.uid)
            else:
                ledger.change(key, phase=Phase.BINDING)
                state.effects.append(write)
