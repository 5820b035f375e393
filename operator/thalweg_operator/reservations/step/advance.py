"""The pure step: what happened changes cluster and ledger, and says what is to be done.

It knows no clock, no network, no log and no metric, so any history can be driven through it.
"""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from thalweg_operator.reservations.effects import Bind, Effect, Evict, Nominate, ReconcileGates, RequestRound
from thalweg_operator.reservations.events import (
    Answer,
    CheapestPlanned,
    DeviceClassSet,
    DisruptionBudgetSet,
    Event,
    GateUnneeded,
    NamespaceSet,
    NodePut,
    NodeRemoved,
    NumaNodeSet,
    PlanMade,
    PodGroupPut,
    PodGroupRemoved,
    PodPut,
    PodRemoved,
    PodsBlocked,
    PodsUnplaced,
    PoliciesChanged,
    PricesPlanned,
    QueueSet,
    SchedulerAnswered,
    SchedulerAsks,
    ScoresPlanned,
    StoragePut,
    StorageRemoved,
    Synced,
    TimePassed,
    WriteAnswered,
)
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.step import Step
from thalweg_operator.reservations.steering import changes as nomination_events
from thalweg_operator.reservations.steering import nominations
from thalweg_operator.reservations.steering import upkeep as nomination_upkeep
from thalweg_operator.reservations.steering import written as written_nominations
from thalweg_operator.reservations.steering.planned_prices import CheapestNodes, PlannedPrices
from thalweg_operator.reservations.step import bindings, plans, watches
from thalweg_operator.reservations.victims import independent_evictions, partial_gangs, replacements, victims

#: Seconds between two looks at victims, and at partial gangs.
_VICTIMS_EVERY, _GANGS_EVERY = 0.1, 1.0


def advance(cluster: Cluster, ledger: Ledger, event: Event, now: float) -> list[Effect]:
    """Takes one step.

    Args:
        cluster: changed by the event.
        ledger: changed by the event; it belongs to this cluster.
        event: what happened.
        now: seconds of a monotonic clock.

    Returns:
        What is to be done, in this order.
    """
    step = Step(cluster, ledger, now, [])
    match event:
        case PodPut():
            watches.pod_put(step, event.pod)
        case PodRemoved():
            watches.pod_removed(step, event.key)
        case (
            NodePut()
            | NodeRemoved()
            | NamespaceSet()
            | StoragePut()
            | StorageRemoved()
            | DisruptionBudgetSet()
            | DeviceClassSet()
            | QueueSet()
            | NumaNodeSet()
            | PodGroupPut()
            | PodGroupRemoved()
        ):
            watches.object_event(step, event)
        case PlanMade():
            plans.plan_made(step, event)
        case PodsUnplaced():
            plans.pods_unplaced(step, event)
        case PodsBlocked():
            plans.pods_blocked(step, event)
        case ScoresPlanned():
            ledger.nominations.put_scores(event.pod_class, event.policy, event.scores)
        case PricesPlanned():
            prices = PlannedPrices(
                event.positions,
                event.least,
                event.above,
                event.tolerance,
                event.generation,
                ledger.nominations.plan_arrival,
                now,
            )
            ledger.nominations.put_prices(event.pod_class, event.policy, prices)
        case CheapestPlanned():
            cheapest = CheapestNodes(event.nodes, event.generation, ledger.nominations.plan_arrival, now)
            ledger.nominations.put_cheapest(event.pod_class, event.policy, cheapest)
        case GateUnneeded():
            nominations.open_gate(step, event.pod)
        case SchedulerAsks():
            nomination_events.scheduler_asks(step, event)
        case SchedulerAnswered():
            nomination_events.scheduler_answered(step, event)
        case WriteAnswered():
            _write_answered(step, event)
        case PoliciesChanged():
            _policies_changed(step, event)
        case Synced():
            written_nominations.take_up_nominations(step)
            nomination_events.adopt_nominations(step)
        case TimePassed():
            _time_passed(step)
    if ledger.round_wanted or ledger.round_at_once:
        ledger.helped += ledger.round_wanted
        step.effects.append(RequestRound(at_once=ledger.round_at_once))
        ledger.round_wanted = ledger.round_at_once = False
    return step.effects


def _write_answered(step: Step, event: WriteAnswered) -> None:
    write, answer = event.write, event.answer
    match write:
        case Bind():
            bindings.answered(step, write, answer, event.reason)
        case Evict():
            if answer is not Answer.RETRYING:
                (step.ledger.checking if write.dry_run else step.ledger.evicting).discard(write.pod.uid)
            if write.gang is None:
                if not independent_evictions.eviction_answered(step, write, answer, event.reason):
                    victims.eviction_answered(step, write, answer, event.reason)
            elif answer is Answer.UNWANTED:
                partial_gangs.gang_eviction_unwanted(step.ledger, write.gang, write.pod.uid)
        case Nominate() if step.ledger.waits_for_victim(write.pod.key):
            if answer is not Answer.RETRYING:
                victims.nomination_answered(step, write)
        case _:
            nomination_events.write_answered(step, event)


def _policies_changed(step: Step, event: PoliciesChanged) -> None:
    if step.cluster.policies.replace(event.accepted):
        step.ledger.round_wanted = True
        step.ledger.nominations.counted_pods.forget()
        step.ledger.nominations.forget_cheapest()
        step.effects.append(ReconcileGates())
        nomination_upkeep.policies_changed(step)


def _time_passed(step: Step) -> None:
    ledger, now = step.ledger, step.now
    nomination_upkeep.time_passed(step)
    bindings.send_again(step)
    if now - ledger.victims_seen >= _VICTIMS_EVERY:
        ledger.victims_seen = now
        victims.look_after_victims(step)
        replacements.look_after_places(step)
        independent_evictions.look_after_evictions(step)
    if now - ledger.gangs_seen >= _GANGS_EVERY:
        ledger.gangs_seen = now
        partial_gangs.evict_overdue_gangs(step)
