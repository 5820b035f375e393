"""Rounds: what they are given, the plans that the real solver makes of it, and their delivery in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from support.fake_cluster.api_server import ApiServer
from thalweg_operator.planning.inputs.device_takers import DeviceTakers
from thalweg_operator.planning.inputs.round_facts import operator_round_input
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.events import (
    GateUnneeded,
    PlanAsked,
    PlanMade,
    PlannedPlacement,
    PodsUnplaced,
    PricesPlanned,
    UnplacedPod,
)
from thalweg_operator.reservations.ledger.backoff import is_backing_off
from thalweg_operator.reservations.steering.records.planned_prices import NOT_ALLOWED
from thalweg_operator.reservations.victims.replacements import recent_moves

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.cluster.assembly import to_snapshot
from flowcore.cluster.running import running_pods
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.model.resource_claims import PlannedClaim
from flowcore.planning.plan_document import PlanEviction
from flowcore.planning.round import run_round
from flowcore.planning.round_input import GovernedPod
from flowcore.rules.filters.dynamic_resources import claimable_devices


@dataclass
class Plan:
    """A plan on its way to the ledger, in parts.

    Attributes:
        placements: those that were not delivered yet.
        groups: names of the atomic groups of the whole plan.
        classes: of its pods, and their policies; to them all nodes cost the same.
        unplaced: pods without a node, delivered after the placements.
        evictions: of pods that no placement waits for, delivered with the last placements.
    """

    number: int
    generation: int
    placements: list[PlannedPlacement]
    unplaced: list[UnplacedPod] = field(default_factory=list)
    evictions: list[PlanEviction] = field(default_factory=list)
    groups: tuple[str, ...] = ()
    classes: frozenset[tuple[PodClass, str]] = frozenset()
    first: bool = True


class Rounds(ApiServer):
    """See the module.

    Attributes:
        plan: the plan on its way; None: there is none.
    """

    _plans = 0

    def start(self, *, policies_first: bool = False) -> None:
        """See ApiServer. A plan on its way is lost."""
        self.plan: Plan | None = None
        super().start(policies_first=policies_first)

    def begin_plan(self) -> tuple[Plan, Snapshot, dict[str, Policy]] | None:
        """What a round is given: an empty plan, the snapshot and the policies; None while a plan is on its way."""
        if self.plan is not None:
            return None
        self._plans += 1
        self.cluster.take_changes()
        self.ledger.begin_plan()
        policies = {policy.name: policy for policy in self.cluster.policies.ordered}
        asked: list[tuple[Pod, Policy]] = []
        for pod in self.ledger.plannable():
            # A round plans pods that are observed only by themselves, after all others.
            policy = self.cluster.policies.of(pod, self.cluster.namespaces)
            if pod.gated and (policy is None or not delivery_of(policy).steered or pod.unsupported_reason):
                self.apply(GateUnneeded(pod))
            if policy is None or delivery_of(policy).blocked(policy, pod):
                continue
            if not is_backing_off(self.cluster, self.ledger, pod, self.now):
                asked.append((pod, policy))
        takers = DeviceTakers(self.cluster, self.ledger).update({pod.key for pod, _ in asked}, fresh=True)
        self.cluster.devices.takers = tuple(takers or ())
        asked_for = [(pod, policy) for pod, policy in asked if delivery_of(policy).owner is not None]
        self.apply(PlanAsked(asked_for))
        snapshot = self._snapshot(asked_for)
        return Plan(self._plans, snapshot.generation, []), snapshot, policies

    def make_plan(self) -> None:
        """A round plans all that waits."""
        begun = self.begin_plan()
        if begun is None:
            return
        plan, snapshot, policies = begun
        waiting = dict(self.cluster.waiting)
        result = run_round(snapshot, policies, steps=2)
        evictions = {
            each.pod.key: PlanEviction(each.pod.key, each.pod.uid, each.pod.node, each.kind, to=each.to)
            for each in result.evictions
        }
        leaving = {
            each.pod.key: [
                evictions[eviction.pod.key]
                for eviction in result.evictions
                if each.pod.key in eviction.for_pods or eviction.pod.key in each.victims
            ]
            for each in result.placements
        }
        waiting_groups = {each.atomic_group for each in result.placements if leaving[each.pod.key]} - {""}
        plan.placements = [
            PlannedPlacement(
                waiting[each.pod.key],
                policies[each.pod.policy],
                each.node,
                (each.chain, each.wave),
                each.atomic_group,
                each.optional,
                tuple(leaving[each.pod.key]),
                bool(leaving[each.pod.key]) or each.atomic_group in waiting_groups,
                saving=0,
                device_claims=self._claims(each.pod.pod_class, result.after),
                volumes=each.volumes,
            )
            for each in result.placements
        ]
        plan.unplaced = [
            UnplacedPod(waiting[each.pod.key], policies[each.pod.policy], each.reason, each.code, frees=each.frees)
            for each in result.unplaced
        ]
        self.bring(plan)

    def _claims(self, pod_class: PodClass, after: Snapshot) -> tuple[PlannedClaim, ...] | None:
        return () if pod_class.devices is None else claimable_devices(after).planned_claims(pod_class.devices)

    def bring(self, plan: Plan) -> None:
        """A plan is there to be delivered."""
        plan.groups = tuple(sorted({each.atomic_group for each in plan.placements if each.atomic_group}))
        plan.classes = frozenset((each.pod.pod_class, each.policy.name) for each in plan.placements)
        self.plan = plan

    def _selects(self, pod_class: PodClass, name: str) -> bool:
        """Whether the pods' node selector lets them onto a node; what else may keep them off does not count."""
        return set(pod_class.node_selector) <= set(self.cluster.nodes[name].labels)

    def _snapshot(self, asked: Sequence[tuple[Pod, Policy]]) -> Snapshot:
        cluster, ledger = self.cluster, self.ledger
        governed = [GovernedPod(pod, policy, policy.delivery) for pod, policy in asked]
        state = self.shell.state
        round_input = operator_round_input(state, governed, self.now, self.now, lambda _pod: None, None).complete()
        running = running_pods(
            cluster,
            lambda pod: cluster.policies.of(pod, cluster.namespaces),
            self.now,
            excluded={*ledger.victims, *(move.victim.key for move in state.moves.awaited.values())},
            unevictable_reasons=state.unevictable_reasons(self.now),
            moves=recent_moves(state, self.now),
        )
        return to_snapshot(
            cluster,
            now=self.now,
            pending=tuple(round_input.pending),
            generation=cluster.generation,
            gangs=round_input.gangs,
            running=running,
        )

    def deliver(self, count: int) -> None:
        """The next so many placements of the plan on its way are handed to the ledger."""
        plan = self.plan
        if plan is None:
            return
        part, plan.placements = plan.placements[:count], plan.placements[count:]
        last = not plan.placements
        self.apply(PlanMade(plan.number, plan.generation, part, plan.groups, first=plan.first, last=False))
        plan.first = False
        if last:
            positions = {name: at for at, name in enumerate(sorted(self.cluster.nodes))}
            for pod_class, policy in sorted(plan.classes, key=repr):
                codes = [0 if self._selects(pod_class, name) else NOT_ALLOWED for name in positions]
                self.apply(PricesPlanned(pod_class, policy, positions, 0, 1, codes, 1, plan.generation))
            rest = plan.evictions
            self.apply(PlanMade(plan.number, plan.generation, (), plan.groups, first=False, last=True, evictions=rest))
            self.plan = None
            self.apply(PodsUnplaced(plan.unplaced))
