"""The pure step: what happened changes cluster and ledger, and says what is to be done.

It knows no clock, no network, no log and no metric, so any history can be driven through it.
"""

from __future__ import annotations

from thalweg_operator.reservations.effects import (
    Allocate,
    Bind,
    BindClaim,
    Effect,
    Evict,
    Nominate,
    ReconcileGates,
    ReleaseClaims,
    RequestRound,
)
from thalweg_operator.reservations.events import (
    Answer,
    Event,
    GateUnneeded,
    NamespaceSet,
    NodePut,
    NodeRemoved,
    ObjectSet,
    ParentsFollowed,
    PlanAsked,
    PlanMade,
    PodPut,
    PodRemoved,
    PodsBlocked,
    PodsUnplaced,
    PoliciesChanged,
    PricesPlanned,
    PricesUnknown,
    SchedulerAnswered,
    SchedulerAsks,
    Synced,
    TimePassed,
    WriteAnswered,
)
from thalweg_operator.reservations.steering import nomination_events, nominations
from thalweg_operator.reservations.steering import upkeep as nomination_upkeep
from thalweg_operator.reservations.steering.gangs_under_way import find_begun_gangs, take_back_gangs
from thalweg_operator.reservations.steering.records.planned_prices import PlannedPrices
from thalweg_operator.reservations.step import bindings, plans, watches
from thalweg_operator.reservations.step.before_binding import leftovers, preparing, releasing
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.victims import (
    after_restart,
    independent_evictions,
    partial_gangs,
    replacements,
    victims,
)

#: Seconds between two looks at victims, at partial gangs, and at claims.
_VICTIMS_EVERY, _GANGS_EVERY, _CLAIMS_EVERY = 0.1, 1.0, 1.0


def advance(state: State, event: Event, now: float) -> list[Effect]:
    """Takes one step.

    Args:
        state: changed by the event.
        event: what happened.
        now: seconds of a monotonic clock.

    Returns:
        What is to be done, in this order.
    """
    ledger, records = state.ledger, state.nominations
    outside = state.now, state.effects
    state.now, state.effects = now, []
    match event:
        case PodPut():
            watches.pod_put(state, event.pod)
        case PodRemoved():
            watches.pod_removed(state, event.key)
        case NodePut() | NodeRemoved() | NamespaceSet() | ObjectSet() | ParentsFollowed():
            watches.object_event(state, event)
        case PlanAsked():
            _plan_asked(state, event)
        case PlanMade():
            plans.plan_made(state, event)
        case PodsUnplaced():
            plans.pods_unplaced(state, event)
        case PodsBlocked():
            plans.pods_blocked(state, event)
        case PricesPlanned():
            prices = PlannedPrices(
                event.positions,
                event.base,
                event.step,
                event.codes,
                event.tolerance,
                event.generation,
                ledger.arrivals.plan,
                now,
                records.under_way.helped,
            )
            records.put_prices(event.pod_class, event.policy, prices)
        case PricesUnknown():
            records.forget_prices(event.pod_class, event.policy)
        case GateUnneeded():
            nominations.open_gate(state, event.pod)
        case SchedulerAsks():
            nomination_events.scheduler_asks(state, event)
        case SchedulerAnswered():
            nomination_events.scheduler_answered(state, event)
        case WriteAnswered():
            _write_answered(state, event)
        case PoliciesChanged():
            _policies_changed(state, event)
        case Synced():
            watches.follow_nominations(state)
            after_restart.take_up_nominations(state)
            nomination_events.adopt_nominations(state)
            find_begun_gangs(state)
        case TimePassed():
            _time_passed(state)
    take_back_gangs(state)
    preparing.settle(state)
    freed = tuple(ledger.helped.room_freed)
    helped = ledger.helped.end_step(any_pod=ledger.round_wanted)
    if helped or ledger.round_at_once:
        state.effects.append(RequestRound(at_once=ledger.round_at_once, freed=freed))
        ledger.round_wanted = ledger.round_at_once = False
    effects = state.effects
    state.now, state.effects = outside
    return effects


def _plan_asked(state: State, event: PlanAsked) -> None:
    ledger, records = state.ledger, state.nominations
    looked_at = records.under_way.came if event.looked_at is None else event.looked_at
    helped = ledger.helped.total if event.helped is None else event.helped
    records.plan_asked(event.pods, looked_at, keeps_room=event.keeps_room, helped=helped, defers=event.defers)


def _write_answered(state: State, event: WriteAnswered) -> None:
    write, answer = event.write, event.answer
    match write:
        case Bind():
            bindings.answered(state, write, answer, event.reason)
        case Allocate() | BindClaim():
            preparing.answered(state, write, answer, event.reason)
        case ReleaseClaims():
            releasing.answered(state, write, answer)
        case Evict():
            if answer is not Answer.RETRYING:
                (state.checking if write.dry_run else state.evicting).discard(write.pod.uid)
            if write.gang is None:
                if not independent_evictions.eviction_answered(state, write, answer, event.reason):
                    victims.eviction_answered(state, write, answer, event.reason)
            elif answer is Answer.UNWANTED:
                partial_gangs.gang_eviction_unwanted(state, write.gang, write.pod.uid)
        case Nominate() if state.ledger.waits_for_victim(write.pod.key):
            if answer is not Answer.RETRYING:
                victims.nomination_answered(state, write)
        case _:
            nomination_events.write_answered(state, event)


def _policies_changed(state: State, event: PoliciesChanged) -> None:
    state.nominations.networks = event.networks
    if state.cluster.replace_policies(event.accepted):
        state.ledger.round_wanted = True
        state.nominations.counted_pods.forget()
        state.nominations.prices_changed()
        state.effects.append(ReconcileGates())
        watches.follow_nominations(state)
        nomination_upkeep.policies_changed(state)


def _time_passed(state: State) -> None:
    now = state.now
    nomination_upkeep.time_passed(state)
    preparing.take_turns(state)
    bindings.send_again(state)
    if now - state.claims_seen >= _CLAIMS_EVERY:
        state.claims_seen = now
        preparing.time_passed(state)
        if not state.is_delivering:
            leftovers.free_leftovers(state)
    if state.is_delivering:
        return  # the rest of a group may find its places taken, or make a partial gang whole: nobody leaves before
    if now - state.victims_seen >= _VICTIMS_EVERY:
        state.victims_seen = now
        victims.look_after_victims(state)
        replacements.look_after_places(state)
        independent_evictions.look_after_evictions(state)
    if now - state.gangs_seen >= _GANGS_EVERY:
        state.gangs_seen = now
        partial_gangs.evict_overdue_gangs(state)
