"""Takes up, after a restart, the nominations that an earlier process wrote: no other pod is evicted for these pods.

All that is written down is a pod's nomination, and that its victims are being deleted. So a nominated pod that fits its
node now, or once the pods have left that terminate there or below a limit of its queue, keeps that place until a round
confirms it. Nobody else gets
the place meanwhile. A preempted pod has a lower priority, a moved one has no higher one.

kube-scheduler clears a nomination where its attempt at the pod fails, for instance since nobody answers its extender.
The annotation that was written with the nomination stays. But users may write annotations into their pods. So without
the nomination it counts only for a pod that may have preempted others, and that is in no queue: for room that is kept
no round looks at the queue's limit. Nor does one look there for the other pods of a gang, or of a constraint that
places its pods together or not at all: such places are kept for all of them or for none. A round judges all else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from flowcore.model.constraint_limits import all_or_none_constraints, display_name
from flowcore.model.pods import Pod
from flowcore.model.policies import PreemptionMode
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import Departure
from thalweg_operator.reservations.ledger.feasibility import fits_after, holds
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.ledger.victim_record import Stage, VictimRecord
from thalweg_operator.reservations.victims.state import VictimsState
from thalweg_operator.reservations.victims.victims import nomination_lost, settle


def take_up_nominations(state: VictimsState) -> None:
    """Called once, when cluster and policies are known; before kube-scheduler's nominations are taken over."""
    units: dict[object, list[Pod]] = {}
    for pod in _nominated(state):
        gang = pod.gang
        unit = (_constraints(state, pod) or pod.key) if gang is None else state.cluster.gangs.first_in_group(gang.key)
        units.setdefault(unit, []).append(pod)
    if not units:
        return
    together = _placed_together(state, state.cluster.waiting.values())
    for pods in sorted(units.values(), key=lambda pods: -max(pod.pod_class.priority for pod in pods)):
        if not _is_being_bound(state, pods):
            _take_up(state, pods, together)


def _nominated(state: VictimsState) -> list[Pod]:
    """Waiting pods that an earlier process nominated, by key. Reservations without a nomination that counts end."""
    cluster, ledger = state.cluster, state.ledger
    nominated = []
    for key, pod in sorted(cluster.waiting.items()):
        reservation = ledger.reservations.get(key)
        if reservation is not None and (reservation.owner is not Owner.STEERING or reservation.is_nomination):
            continue
        if pod.planned_node and (_is_written(pod) or (not pod.nominated_node and _may_have_preempted(state, pod))):
            nominated.append(pod)
        elif reservation is not None:
            ledger.drop(key)  # the watch has shown this nomination come and go
    return nominated


def _is_written(pod: Pod) -> bool:
    """Whether its nomination is there as we wrote it."""
    return bool(pod.nominated_node) and pod.nominated_node == pod.planned_node


def _may_have_preempted(state: VictimsState, pod: Pod) -> bool:
    """Whether others may have been evicted for a pod that kube-scheduler binds and that no queue limits."""
    policy, lowest = state.policy_of(pod), min(state.cluster.bound_priorities, default=None)
    return (
        policy is not None
        and delivery_of(policy).steered
        and policy.preemption.mode is PreemptionMode.LOWER_PRIORITY
        and pod.preempts
        and lowest is not None
        and lowest < pod.pod_class.priority
        and not state.cluster.queues.of(pod, state.cluster.namespaces)
    )


def _constraints(state: VictimsState, pod: Pod) -> tuple[str, ...]:
    """Names of the constraints that place a pod together with others or not at all."""
    policy = state.policy_of(pod)
    if policy is None or delivery_of(policy).blocked(policy, pod):
        return ()
    matching = (constraint for constraint in all_or_none_constraints(policy) if constraint.pods.matches(pod.labels))
    return tuple(display_name(constraint, policy) for constraint in matching)


def _placed_together(state: VictimsState, pods: Iterable[Pod]) -> Counter[str]:
    """How many of these pods each constraint places together or not at all."""
    return Counter(name for pod in pods for name in _constraints(state, pod))


def _is_being_bound(state: VictimsState, pods: Sequence[Pod]) -> bool:
    """Whether kube-scheduler may be binding these pods right now: all are nominated, and have their room."""
    for pod in pods:
        policy = state.policy_of(pod)
        if policy is None or not delivery_of(policy).steered or not _is_written(pod):
            return False
    return all(holds(state.cluster, state.ledger, pod.key) for pod in pods)


def _take_up(state: VictimsState, pods: Sequence[Pod], waiting: Counter[str]) -> None:
    """Keeps the places of pods that belong together, or of a pod by itself, where all of them may have theirs.

    Args:
        waiting: how many waiting pods each constraint places together or not at all, by its name.
    """
    for pod in pods:
        if pod.key in state.ledger.reservations:
            state.ledger.drop(pod.key)
    if _keep_places(state, pods, waiting):
        return
    for pod in pods:
        if _is_written(pod):
            state.ledger.add(pod, pod.planned_node, Owner.STEERING, Phase.NOMINATED)


def _keep_places(state: VictimsState, pods: Sequence[Pod], waiting: Counter[str]) -> bool:
    """Keeps room for the pods; they may wait for pods that terminate there. Returns whether all have room."""
    cluster, ledger, gang = state.cluster, state.ledger, pods[0].gang
    if gang is not None and cluster.gangs.lacks_pods(gang.key, {pod.key for pod in pods}):
        return False  # its nominations were not all written yet, so nobody was evicted for it
    together = _placed_together(state, pods)
    if any(count < waiting[name] for name, count in together.items()):
        return False  # as with a gang, or other pods came since: they are planned anew, as a whole
    group = gang.key.display_name if gang is not None else ", ".join(together)
    for index, pod in enumerate(pods):
        policy = state.policy_of(pod)
        victims = _awaited(state, pod)
        delivery = None if policy is None or delivery_of(policy).blocked(policy, pod) else delivery_of(policy)
        if delivery is None or delivery.owner is None or victims is None:
            _drop_all(ledger, pods[:index])
            return False
        records = [
            VictimRecord(victim, Departure.PREEMPTION, stage=Stage.ASKED, leaving_since=state.now) for victim in victims
        ]
        ledger.add(pod, pod.planned_node, delivery.owner, Phase.AWAITING_VICTIM, records, group)
        ledger.change(pod.key, write=1, taken_up=True)
    state.ledger.round_wanted |= bool(settle(state, [pod.key for pod in pods]))
    for pod in pods:
        if ledger.waits_for_victim(pod.key) and not _is_written(pod):
            nomination_lost(state, pod.key)
    return True


def _awaited(state: VictimsState, pod: Pod) -> list[Pod] | None:
    """Who must have left before a pod fits its node: nobody, or all that terminate there; None: it will not fit."""
    cluster = state.cluster
    terminating = [cluster.pods[key] for key in sorted(cluster.terminating.get(pod.planned_node, ()))]
    victims = [victim for victim in terminating if victim.pod_class.priority <= pod.pod_class.priority]
    for awaited in ([], victims):
        if fits_after(state.cluster, state.ledger, pod, pod.planned_node, [victim.key for victim in awaited]):
            known = {victim.key: victim for victim in (*awaited, *_below_its_limits(state, pod))}
            return list(known.values())
    return None


def _below_its_limits(state: VictimsState, pod: Pod) -> list[Pod]:
    """Pods of no higher priority that terminate, on any node, and count for a limit that a pod counts for."""
    cluster, tree = state.cluster, state.cluster.queues.tree

    def limited(counted: Pod) -> set[str]:
        queue = cluster.queues.of(counted, cluster.namespaces)
        return {name for name in tree.path(queue) if tree.queues[name].limit} if queue else set()

    own = limited(pod)
    terminating = [cluster.pods[key] for keys in cluster.terminating.values() for key in sorted(keys)] if own else []
    return [
        victim
        for victim in terminating
        if victim.pod_class.priority <= pod.pod_class.priority and not own.isdisjoint(limited(victim))
    ]


def _drop_all(ledger: Ledger, pods: Sequence[Pod]) -> None:
    for pod in pods:
        ledger.drop(pod.key)
