"""Takes over the placements of a plan that kube-scheduler is to bind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile

from flowcore.model.pods import Pod
from thalweg_operator.reservations.ledger.reservation import NEVER, PermitKey
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.steering.nominations import (
    ReservedPlacement,
    begin,
    begin_waves,
    expect_question,
    is_asked,
    is_tried_with_its_group,
    may_lack,
    nominate,
    place_key_of,
    wake,
    wake_reserved,
    was_tried,
)
from thalweg_operator.reservations.steering.records.waves import UNORDERED, WavePosition
from thalweg_operator.reservations.steering.state import SteeringState

#: Seconds within which a busy kube-scheduler asks again. It may have little CPU.
_BUSY_SECONDS = 1.0
#: Reserved pods wait for kube-scheduler while this share of its questions could be answered with a node.
_MIN_HIT_RATE = 0.5
#: Seconds that a pod is reserved without a nomination at most, and how many pods are nominated at once.
_RESERVED_SECONDS = 30.0
_AT_ONCE = 25


def add_plan(state: SteeringState, planned: Sequence[ReservedPlacement]) -> None:
    """Takes over placements that have their reservations.

    The gates of an atomic group open together once all its pods of one wave are ready. Placements whose reservation has
    ended meanwhile are left out: the pod was bound, is gone, or another component nominated it.
    """
    records = state.nominations
    records.plan_count += 1
    chains = records.chain_count
    queued: list[tuple[Pod, WavePosition]] = []
    unordered: list[Pod] = []
    for placement in planned:
        pod = placement.pod
        may_lack(state, pod)  # its gang may have lost a pod since the plan was asked for
        if not _is_reserved(state, placement):
            continue
        record = state.ledger.known_record(pod)
        if record is not None:
            record.may_choose = False
        group = None
        if placement.atomic_group and pod.gated:
            group = PermitKey(records.plan_count, placement.atomic_group, placement.wave[1])
            records.permit_groups.join(group, pod.key, optional=placement.optional)
        # Chains of later plans have higher numbers: their places come later.
        wave = UNORDERED if placement.wave == UNORDERED else (chains + placement.wave[0], placement.wave[1])
        records.chain_count = max(records.chain_count, wave[0])
        state.ledger.change(pod.key, since=state.now, group=group, wave=wave, saving=placement.saving)
        if wave == UNORDERED:
            unordered.append(pod)
            continue
        queued.append((pod, wave))
        place_key = place_key_of(state, pod, placement.node)
        if place_key is not None and group is None:  # else its gate would open before those of its group
            expect_question(state, pod.key, place_key)
    for pod in unordered:
        begin(state, pod)
    records.waves.add(queued, state.cluster.namespaces)
    begin_waves(state)
    nominate_reserved(state)


def _is_reserved(state: SteeringState, placement: ReservedPlacement) -> bool:
    reservation = state.ledger.reservations.get(placement.pod.key)
    return (
        reservation is not None
        and (reservation.pod.uid, reservation.node) == (placement.pod.uid, placement.node)
        and reservation.phase is Phase.QUEUED
        and not reservation.is_nomination
    )


def nominate_reserved(state: SteeringState) -> None:
    """Nominates pods that are reserved for too long, and the newest ones while kube-scheduler is idle."""
    reserved, reservations = state.nominations.reserved, state.ledger.reservations

    def is_late(key: str) -> bool:
        return state.now - reservations[key].since > _RESERVED_SECONDS

    def some(keys: Iterable[str]) -> list[Pod]:
        # About a gated pod kube-scheduler could not ask yet.
        pods = map(state.cluster.pods.__getitem__, keys)
        return list(islice((pod for pod in pods if not (pod.gated or is_asked(state, pod))), _AT_ONCE))

    late = some(takewhile(is_late, reserved))

    def is_still_tried(key: str) -> bool:
        pod = state.cluster.pods[key]
        return is_tried_with_its_group(pod) and not was_tried(pod)

    newest = (key for key in reversed(reserved) if not (key in state.nominations.woken or is_still_tried(key)))
    for pod in late or ([] if _finds_by_itself(state) else some(newest)):
        if not late and is_tried_with_its_group(pod):
            wake_reserved(state, pod)
        else:
            nominate(state, pod)


def _finds_by_itself(state: SteeringState) -> bool:
    """Whether kube-scheduler is busy, and its samples mostly have a node that is planned for a reserved pod.

    Then a nomination that is put off may never be needed. Right after a plan it may have had no time to ask: it starts,
    or its watch is behind ours.
    """
    records = state.nominations
    newest = next(reversed(records.reserved), None)
    planned = state.ledger.reservations[newest].since if newest is not None else NEVER
    return state.now - max(records.last_question, planned) < _BUSY_SECONDS and records.hit_rate > _MIN_HIT_RATE


def set_free(state: SteeringState, pod: Pod) -> None:
    """The plan has no node for a pod of ``Prefer``: kube-scheduler may choose one."""
    record = state.ledger.record(pod)
    if not record.may_choose:
        record.may_choose = True
        wake(state, pod)


def hold(state: SteeringState, pod: Pod) -> None:
    """kube-scheduler may not choose a node for a pod any more."""
    record = state.ledger.known_record(pod)
    if record is not None:
        record.may_choose = False
