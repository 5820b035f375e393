"""A world around `advance`: an API server, a watch that lags, writes on their way, kube-scheduler, rounds and a clock.

Nothing here is chosen: a test says what happens. After each event everything is checked (`support.ledger_checks`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from support.ledger_checks import LedgerChecks
from thalweg_extender.answers import Outcome, to_filter
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import (
    Bind,
    ClearNomination,
    Departure,
    Effect,
    Evict,
    Nominate,
    OpenGate,
    WakePod,
    Write,
)
from thalweg_operator.reservations.events import (
    Answer,
    CheapestPlanned,
    Event,
    GateUnneeded,
    NamespaceSet,
    NodePut,
    NodeRemoved,
    PlanMade,
    PlannedEviction,
    PlannedPlacement,
    PodPut,
    PodRemoved,
    PodsUnplaced,
    PoliciesChanged,
    PricesPlanned,
    SchedulerAnswered,
    SchedulerAsks,
    Synced,
    TimePassed,
    UnplacedPod,
    WriteAnswered,
)
from thalweg_operator.reservations.ledger.backoff import is_backing_off
from thalweg_operator.reservations.steering.advise import advise, awaits_plan
from thalweg_operator.reservations.steering.planned_prices import NO_PRICE
from thalweg_operator.reservations.step.advance import advance
from thalweg_operator.reservations.step.state import State
from thalweg_operator.reservations.step.wanted import is_wanted
from thalweg_operator.reservations.victims import unevictable
from thalweg_operator.reservations.victims.replacements import recent_moves
from thalweg_operator.reservations.victims.victims import victim_of

from flowcore.cluster.assembly import to_snapshot
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.running import running_pods
from flowcore.cluster.snapshot import PendingPod, Snapshot
from flowcore.model.advice import HELD_MESSAGE, ExtenderPod
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.planning import run_round

NAMESPACE = "ns"


@dataclass
class Plan:
    """A plan on its way to the ledger, in parts.

    Attributes:
        placements: those that were not delivered yet.
        groups: names of the atomic groups of the whole plan.
        classes: that kube-scheduler binds, and their policies; to them all nodes cost the same.
        bound_classes: likewise, that we bind.
        unplaced: pods without a node, delivered after the placements.
        evictions: of pods that no placement waits for, delivered with the last placements.
    """

    number: int
    generation: int
    placements: list[PlannedPlacement]
    unplaced: list[UnplacedPod] = field(default_factory=list)
    evictions: list[PlannedEviction] = field(default_factory=list)
    groups: tuple[str, ...] = ()
    classes: frozenset[tuple[PodClass, str]] = frozenset()
    bound_classes: frozenset[tuple[PodClass, str]] = frozenset()
    first: bool = True


class LedgerWorld:
    """See the module.

    Attributes:
        api: pods as the API server has them, by key.
        nodes: likewise.
        watch: events that the operator has not seen yet.
        writes: writes that are not answered for good.
        attempts: pods that kube-scheduler is trying: UID, and nodes that passed.
        plan: the plan on its way; None: there is none.
    """

    def __init__(self, nodes: Iterable[Node], policies: Sequence[Policy]) -> None:
        self.now = 1_000.0
        self.api: dict[str, Pod] = {}
        self.nodes = {node.name: node for node in nodes}
        self.policies = tuple(policies)
        self.namespace_labels: tuple[tuple[str, str], ...] | None = (("team", "ml"),)
        self._uids = self._plans = 0
        self.start()

    def start(self) -> None:
        """As after a start of the operator: all that it learns is what the API server has."""
        self.watch: deque[Event] = deque()
        self.writes: list[Write] = []
        self.attempts: dict[str, tuple[str, list[str]]] = {}
        self.plan: Plan | None = None
        self.cluster = Cluster()
        self.state = State(self.cluster)
        self.ledger = self.state.ledger
        self.checks = LedgerChecks(self.state)
        for node in self.nodes.values():
            self.apply(NodePut(node))
        for pod in self.api.values():
            self.apply(PodPut(pod))
        if self.namespace_labels is not None:
            self.apply(NamespaceSet(NAMESPACE, self.namespace_labels))
        self.apply(PoliciesChanged(self.policies))
        self.apply(Synced())

    def apply(self, event: Event) -> list[Effect]:
        """One step, and all that must hold after it."""
        with self.checks.step(event) as step:
            step.effects = advance(self.state, event, self.now)
        self.writes += [each for each in step.effects if isinstance(each, Write)]
        return step.effects

    # --- the API server, and its watch ---

    def put_pod(self, pod: Pod) -> None:
        """A pod is created or changed."""
        if self.api.get(pod.key) != pod:
            self.api[pod.key] = pod
            self.watch.append(PodPut(pod))

    def change_pod(self, key: str, **fields: Any) -> None:
        """A pod is changed, if it is there."""
        if key in self.api:
            self.put_pod(msgspec.structs.replace(self.api[key], **fields))

    def create_pod(self, name: str, **fields: Any) -> Pod:
        """A pod is created, with a UID of its own."""
        self._uids += 1
        pod = Pod(NAMESPACE, name, f"u{self._uids}", **fields)
        self.put_pod(pod)
        return pod

    def remove_pod(self, key: str) -> None:
        """A pod goes."""
        if self.api.pop(key, None) is not None:
            self.watch.append(PodRemoved(key))

    def remove_deleting_pods(self) -> None:
        """Pods that are being deleted are gone, as kubelets have it."""
        for key in [key for key, pod in self.api.items() if pod.deleting]:
            self.remove_pod(key)

    def put_node(self, node: Node) -> None:
        """A node comes or changes."""
        self.nodes[node.name] = node
        self.watch.append(NodePut(node))

    def remove_node(self, name: str) -> None:
        """A node goes."""
        if self.nodes.pop(name, None) is not None:
            self.watch.append(NodeRemoved(name))

    def set_namespace(self, labels: tuple[tuple[str, str], ...] | None) -> None:
        """The namespace's labels change; None: it goes."""
        self.namespace_labels = labels
        self.watch.append(NamespaceSet(NAMESPACE, labels))

    def show(self, count: int = 10_000) -> None:
        """The watch shows what happened: the next so many events."""
        while self.watch and count:
            self.apply(self.watch.popleft())
            count -= 1

    def set_policies(self, policies: Sequence[Policy]) -> None:
        """Other policies are accepted."""
        self.policies = tuple(policies)
        self.apply(PoliciesChanged(self.policies))

    def pass_time(self, seconds: float) -> None:
        """Time passes, and the ledger looks at its clock once."""
        self.now += seconds
        self.apply(TimePassed())

    # --- writes ---

    def send(
        self,
        at: int,
        answer: Answer = Answer.DONE,
        *,
        reason: str = "no",
        lost: bool = False,
        shown_first: bool = False,
    ) -> None:
        """One write is sent, if it is wanted still.

        Args:
            answer: the API server's, where the write can be carried out.
            reason: of a refusal.
            lost: it is carried out, and the answer is lost: the write is tried again.
            shown_first: the watch shows what the write did before its answer comes.
        """
        write = self.writes.pop(at)
        uncertain = self._is_uncertain(write)
        if not uncertain and not is_wanted(self.state, write, self.now):
            self.apply(WriteAnswered(write, Answer.UNWANTED))
            return
        if isinstance(write, Bind):
            self.apply(WriteAnswered(write, Answer.UNCERTAIN))
        known = self.api.get(write.pod.key)
        if known is None or known.uid != write.pod.uid:
            # What was to be evicted is gone; nothing else can be written to a pod that is not there.
            gone = Answer.DONE if isinstance(write, Evict) else Answer.REFUSED
            self.apply(WriteAnswered(write, gone, "" if isinstance(write, Bind | Evict) else "not found"))
            return
        if isinstance(write, Bind) and known.node_name:
            bound = Answer.DONE if known.node_name == write.node else Answer.REFUSED
            self.apply(WriteAnswered(write, bound))
            return
        if answer in (Answer.REFUSED, Answer.RETRYING) and not lost:
            if answer is Answer.RETRYING or isinstance(write, OpenGate | ClearNomination):
                self.writes.append(write)  # it is needed, and tried again after a pause
                answer = Answer.RETRYING
            if not (answer is Answer.RETRYING and uncertain):
                self.apply(WriteAnswered(write, answer, reason))
            return
        self._carry_out(write)
        if shown_first:
            self.show()
        if lost:
            self.writes.append(write)
        else:
            self.apply(WriteAnswered(write, Answer.DONE))

    def _is_uncertain(self, write: Write) -> bool:
        """Whether an earlier try of a binding may have been carried out: then it is tried until that is known."""
        reservation = self.ledger.reservations.get(write.pod.key)
        return isinstance(write, Bind) and reservation is not None and reservation.maybe_bound

    def _carry_out(self, write: Write) -> None:
        key = write.pod.key
        match write:
            case Bind():
                self.change_pod(key, node_name=write.node, usage=self.api[key].pod_class.requests)
            case Nominate():
                self.change_pod(key, nominated_node=write.node, planned_node=write.node)
            case ClearNomination():
                self.change_pod(key, nominated_node="", planned_node="")
            case OpenGate():
                self.change_pod(key, gated=False)
            case WakePod():
                self.change_pod(key, unschedulable_message=f"{self.api[key].unschedulable_message} ")
            case Evict() if not write.dry_run:
                self.checks.check_eviction(write)
                self.change_pod(key, deleting=True)

    # --- rounds ---

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
            if policy is None or delivery_of(policy).blocked(pod):
                continue
            if not is_backing_off(self.ledger, pod, self.now):
                asked.append((pod, policy))
        snapshot = self._snapshot([(pod, policy) for pod, policy in asked if delivery_of(policy).owner is not None])
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
            each.pod.key: PlannedEviction(each.pod.key, each.pod.uid, Departure(each.kind), each.to)
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
            )
            for each in result.placements
        ]
        plan.unplaced = [
            UnplacedPod(waiting[each.pod.key], policies[each.pod.policy], each.reason, each.code)
            for each in result.unplaced
        ]
        self.bring(plan)

    def bring(self, plan: Plan) -> None:
        """A plan is there to be delivered."""
        plan.groups = tuple(sorted({each.atomic_group for each in plan.placements if each.atomic_group}))
        classes = {(each.pod.pod_class, each.policy.name): delivery_of(each.policy).steered for each in plan.placements}
        plan.classes = frozenset(key for key, steered in classes.items() if steered)
        plan.bound_classes = frozenset(classes.keys() - plan.classes)
        self.plan = plan

    def _selects(self, pod_class: PodClass, name: str) -> bool:
        """Whether the pods' node selector lets them onto a node; what else may keep them off does not count."""
        return set(pod_class.node_selector) <= set(self.cluster.nodes[name].labels)

    def _snapshot(self, asked: Sequence[tuple[Pod, Policy]]) -> Snapshot:
        cluster, ledger = self.cluster, self.ledger
        gangs = ledger.round_gangs([(pod, policy.delivery) for pod, policy in asked], self.now)
        for _ in gangs.steps():
            pass
        pending = tuple(
            PendingPod(
                pod.key,
                pod.uid,
                pod.pod_class,
                policy.name,
                pod.created,
                pod.signature,
                gangs=names,
                victim=victim_of(cluster, ledger, pod, policy),
                preempts=pod.preempts,
            )
            for (pod, policy), names in zip(asked, gangs.gang_names, strict=True)
        )
        running = running_pods(
            cluster,
            lambda pod: cluster.policies.of(pod, cluster.namespaces),
            self.now,
            excluded={*ledger.victims, *(move.victim.key for move in self.state.moves.awaited.values())},
            unevictable_reasons=unevictable.reasons(ledger, self.now),
            moves=recent_moves(self.state, self.now),
        )
        return to_snapshot(
            cluster,
            now=self.now,
            pending=pending,
            generation=cluster.generation,
            gangs=gangs.gangs,
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
                above = [0 if self._selects(pod_class, name) else NO_PRICE for name in positions]
                self.apply(PricesPlanned(pod_class, policy, positions, 0, above, 1, plan.generation))
            for pod_class, policy in sorted(plan.bound_classes, key=repr):
                self.apply(CheapestPlanned(pod_class, policy, list(positions), plan.generation))
            rest = plan.evictions
            self.apply(PlanMade(plan.number, plan.generation, (), plan.groups, first=False, last=True, evictions=rest))
            self.plan = None
            self.apply(PodsUnplaced(plan.unplaced))

    # --- kube-scheduler ---

    def ask(self, key: str, fits: Sequence[str], *, nominated: str | None = None) -> tuple[Outcome, list[str]]:
        """kube-scheduler asks which of the nodes pass; advice changes nothing and is the same when it is asked again.

        Args:
            nominated: as kube-scheduler knows it; None: as the API server has it.
        """
        pod = self.api[key]
        asked = ExtenderPod(
            pod.namespace,
            pod.name,
            pod.uid,
            dict(pod.labels),
            pod.scheduler_name,
            pod.nominated_node if nominated is None else nominated,
        )
        if awaits_plan(self.cluster, self.ledger, asked):
            self.apply(SchedulerAsks(asked, fits))
        with self.checks.unchanged():
            advice = advise(self.state, asked, fits)
            assert advise(self.state, asked, fits) == advice
        outcome, passed, _ = to_filter(advice, fits)
        self.apply(SchedulerAnswered(asked, outcome, passed, advice))
        return outcome, passed

    def schedulable(self) -> list[str]:
        """Pods that kube-scheduler may try now."""
        return [
            key
            for key, pod in self.api.items()
            if not (pod.node_name or pod.gated or pod.deleting or pod.terminal or key in self.attempts)
        ]

    def attempt(self, key: str, fits: Sequence[str]) -> None:
        """kube-scheduler tries a pod: its nominated node first, then all that its own filters pass."""
        pod = self.api[key]
        passed: list[str] = []
        if pod.nominated_node in fits:
            passed = self.ask(key, [pod.nominated_node])[1]
        if not passed and fits:
            passed = self.ask(key, fits)[1]
        self.attempts[key] = pod.uid, passed

    def end_attempt(self, key: str, *, fails: bool, message: str = HELD_MESSAGE) -> None:
        """The attempt ends: the pod is bound, or kube-scheduler writes why not, and clears its nomination."""
        uid, passed = self.attempts.pop(key)
        pod = self.api.get(key)
        if pod is None or pod.uid != uid or pod.node_name:
            return
        if passed and not fails:
            self.change_pod(key, node_name=passed[0], usage=pod.pod_class.requests)
        else:
            self.change_pod(key, nominated_node="", unschedulable_message=message)

    # --- the end ---

    def settle(self) -> None:
        """Attempts end, every write is carried out, and the watch shows everything."""
        for key in list(self.attempts):
            self.end_attempt(key, fails=True)
        while self.plan is not None:
            self.deliver(10)
        for _ in range(1_000):
            self.show()
            self.remove_deleting_pods()
            if not self.writes and not self.watch:
                return
            if self.writes:
                self.send(0)
        raise AssertionError(f"writes without end: {self.writes}")

    def wait(self, seconds: float, step: float = 0.25) -> None:
        """Time passes; whatever is written is carried out and seen at once."""
        for _ in range(round(seconds / step)):
            self.pass_time(step)
            self.settle()
