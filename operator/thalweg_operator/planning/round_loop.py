"""The round loop: sends the worker a request about the cluster, and passes the plan to the shell as events.

``advance`` checks a plan against the newest cluster. It drops placements that no longer fit; their pods are planned
again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

import structlog

from flowcore.model.backfill_history import BackfillRecord
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.planning.saying import Guarded
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.errors import WorkerLost
from thalweg_operator.health import Liveness
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.batcher import Batcher
from thalweg_operator.planning.deadline import RoundDeadline
from thalweg_operator.planning.inputs.measured_usage import MeasuredUsageTracker
from thalweg_operator.planning.inputs.running_pods import RunningPodsTracker, preempting
from thalweg_operator.planning.inputs.what_helps import WhatHelps
from thalweg_operator.planning.pending_round import PendingRound
from thalweg_operator.planning.planned_placements import (
    PriceReader,
    independent_evictions,
    planned_placements,
)
from thalweg_operator.planning.quarantine import Quarantine
from thalweg_operator.planning.reports.phases import Stopwatch
from thalweg_operator.planning.reports.round_metrics import RoundMetrics, RoundTracer
from thalweg_operator.planning.reports.round_reports import RoundReports
from thalweg_operator.planning.reports.waiting_pods import WaitingMetrics
from thalweg_operator.planning.round_request import RequestBuilder, has_changes
from thalweg_operator.planning.turns import (
    NamespaceTurns,
    TurnSelection,
    UnhelpedPods,
    waits_for_turn,
)
from thalweg_operator.planning.worker.client import WorkerClient
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest
from thalweg_operator.policies.store import PolicyStore
from thalweg_operator.reservations.deliveries import delivery_of
from thalweg_operator.reservations.effects import RequestRound
from thalweg_operator.reservations.events import (
    GateUnneeded,
    PlanAsked,
    PlanMade,
    PodsBlocked,
    PodsUnplaced,
    UnplacedPod,
)
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.waiting_codes import AWAITING_TURN, QUARANTINED, condition_reason
from thalweg_operator.shell import Shell
from thalweg_operator.usage.poller import UsagePoller
from thalweg_operator.yielding import bursts, yielding

_log = structlog.get_logger()
#: Pauses before a lost worker is restarted.
_BACKOFF = Backoff(first=0.05, longest=10.0)
#: Seconds that a pod waits at least for a cheaper node before it is planned again without any change.
_LEAST_SETTLING = 1.0
#: And at least this multiple of what the last round took: such rounds take at most a tenth of the time.
_SETTLING_PER_ROUND = 9
#: Classes of waiting pods that are looked at where room comes free. Others wait for a pause of the changes.
_MOST_CLASSES = 64
#: Rounds per generation of the caches. An entry without a use in the present and the previous generation is dropped.
CACHE_GENERATION = 64


class RoundObserver(Protocol):
    """Is called after each round."""

    def round_planned(self, request: RoundRequest, pods: Sequence[Pod], reply: RoundReply) -> None:
        """The plan of a round was delivered; ``pods``: the pods of ``request.pending``, in this order."""


def _keep_room(records: Iterable[BackfillRecord]) -> bool:
    """Whether room is kept for a gang."""
    return any(each.deadline is not None for each in records)


async def _no_bindings() -> None:
    pass


class RoundLoop:
    """Runs a round whenever the batcher returns.

    Attributes:
        liveness: whether the loop makes progress.
        reports: reports of the last rounds, for the status of policies.
        measured: measured usage that rounds plan with.
    """

    def __init__(
        self,
        shell: Shell,
        policies: PolicyStore,
        worker: WorkerClient,
        metrics: Metrics,
        batcher: Batcher,
        resync: float,
        budget: float,
        wall_clock: Callable[[], float] = time.time,
        round_timeout: float = 60.0,
        liveness: Liveness | None = None,
        observers: Sequence[RoundObserver] = (),
        tracer: RoundTracer | None = None,
        budgets_known: Callable[[], bool] = lambda: True,
        claims_known: Callable[[], bool] = lambda: True,
        usage: UsagePoller | None = None,
        bindings_sent: Callable[[], Awaitable[None]] = _no_bindings,
    ) -> None:
        """Wires the loop.

        Args:
            resync: seconds after which a round plans all waiting pods again at the latest, whatever has changed.
            budget: seconds that a round may spend on improving its plan.
            wall_clock: seconds since the epoch, for waiting times and for times that are shown.
            round_timeout: upper limit of a round in seconds.
            observers: called after the plan of a round was delivered.
            tracer: takes the trace of each round; None: rounds are not traced.
            budgets_known: whether PodDisruptionBudgets are watched now.
            claims_known: whether ResourceSlices, ResourceClaims and DeviceTaintRules can be read.
            usage: measured usage; None: nothing is measured.
            bindings_sent: returns when a binding of the plan has left, if there is any, or after a moment.
        """
        self._shell, self._policies, self._worker = shell, policies, worker
        self._metrics, self._batcher, self._resync, self._clock = metrics, batcher, resync, shell.clock
        self._deadline, self._observers = RoundDeadline(round_timeout, budget), observers
        self._bindings_sent, self._claims_known = bindings_sent, claims_known
        cluster, ledger = shell.cluster, shell.ledger
        self._wall_clock = wall_clock
        self._running_pods = RunningPodsTracker(shell.state, shell.clock, wall_clock, budgets_known)
        self.measured = MeasuredUsageTracker(cluster, ledger, usage)
        self._builder = RequestBuilder(
            shell.state,
            policies,
            budget,
            self._deadline,
            shell.clock,
            wall_clock,
            self._running_pods,
            self.measured,
        )
        self._quarantine = Quarantine(cluster.gangs.first_in_group)
        self._turns = NamespaceTurns(self._planned_with)
        self._resting = UnhelpedPods(self._quarantine.class_key)
        self._what_helps = WhatHelps(cluster, ledger)
        #: A pod of each class that the last rounds had no node for.
        self._left: Mapping[PodClass, Pod] = {}
        #: The policy of waiting pods that networks decide, by key.
        self._network_of: Mapping[str, str] = {}
        #: uids of pods that the next round has to plan: others may be evicted for them.
        self._retried: frozenset[str] = frozenset()
        self._prices = PriceReader()
        self._worker_in_sync, self._record_in = False, ""
        self._round_started = self._restart_seconds = 0.0
        #: When time alone is a reason for a round, and how often it was: that counts like changes that may help pods
        #: which wait.
        self._due_at, self._helped_by_time = float("inf"), 0
        #: When it last was. Rounds for other changes do not put the regular one off: of some help no event tells.
        self._due_before = self._clock()
        #: Rounds in which room was kept for a gang: they count like such changes for those who take turns.
        self._holding_rounds = 0
        #: When waiting for a cheaper node costs a pod as much as going to one; None: no pod waits for that.
        self._settles_at: float | None = None
        self._round_metrics, self._waiting = RoundMetrics(metrics, tracer), WaitingMetrics(metrics, shell.clock)
        #: What could not be said of the last round.
        self._unsaid: frozenset[str] = frozenset()
        self.liveness = liveness or Liveness(round_timeout)
        self.reports = RoundReports()

    def request(self, effect: RequestRound) -> None:
        """Asks for a round. Room that came free is no haste unless a pod that the last round left fits there."""
        room = effect.helped or (bool(effect.freed) and not self._batcher.fits_known)
        if room and not effect.helped:
            room = self._what_helps.fits_any(islice(self._left.values(), _MOST_CLASSES), effect.freed)
        self._batcher.trigger(at_once=effect.at_once, asked=effect.asked, room=room)

    def record_next_round(self, folder: Path) -> None:
        """Has the next round recorded in a folder: one with pods, or one without if no pod waits for its turn."""
        self._record_in = str(folder)
        # Pods that wait for their turn have one, though nothing has changed since they were planned in vain.
        self._helped_by_time += 1
        self._batcher.trigger()

    async def run(self) -> None:
        """Runs until cancelled; starts and restarts the worker as needed."""
        failures = 0
        try:
            while True:
                await self._batcher.wait(self._seconds_to_next_round())
                self.liveness.round_began()
                try:
                    await self._round()
                    failures = 0
                    self.liveness.round_ended(success=True)
                except WorkerLost as error:
                    self.liveness.round_ended(success=False)
                    # The quarantine changes the next request, unless the request had no pods: then pauses must grow.
                    failures = 0 if self._worker_in_sync else failures + 1
                    self._worker_in_sync = False
                    self._metrics.worker_restarts.inc()
                    self._metrics.rounds_failed.labels(error.cause).inc()
                    _log.error("worker restarted", reason=error.cause, problem=str(error), failures=failures)
                    await asyncio.sleep(_BACKOFF.pause(failures + 1))
                    self._batcher.trigger()
        finally:
            await self._worker.stop()

    async def prepare(self) -> None:
        """Tells the worker the cluster, so that the first round need not. If it fails, the first round tries again."""
        if self._worker_in_sync:
            return
        self.liveness.round_began()
        try:
            await self._restart_worker()
        except WorkerLost as error:
            _log.warning("worker not prepared", problem=str(error))
        self.liveness.round_ended(success=self._worker_in_sync)

    def discard_changes(self) -> None:
        """Forgets what changed: the worker gets the whole state before the next round."""
        self._worker_in_sync = False
        self._shell.cluster.take_changes(pods=False)
        self._shell.ledger.helped.take_freed()
        self._shell.ledger.helped.take_stored()
        self._shell.ledger.begin_plan(asked=False)

    def _seconds_to_next_round(self) -> float:
        now = self._clock()
        # All pauses that end after the start of the last round count: the round skipped pauses that ended while it ran.
        ends = [self._due_before + self._resync, *backoff.expiries(self._shell.ledger, self._round_started)]
        next_retry = self._quarantine.next_retry(self._round_started)
        ends += [each for each in (next_retry, self._settles_at) if each is not None]
        self._due_at = min(ends)
        next_turn = self._due_at if self._turns.next_at is None else self._turns.next_at
        return max(0.0, min(self._due_at, next_turn) - now)

    async def _round(self) -> None:
        if not (self._worker_in_sync and self._worker.alive):
            await self._restart_worker()
        stopwatch = Stopwatch(self._clock)
        with stopwatch.phase("collect"):
            pending_round = await self._collect()
        request, pod_count = pending_round.request, len(pending_round.pods)
        if pending_round.has_more:
            self._batcher.trigger()
        if pending_round.pods or not pending_round.deferred:
            request.record_in, self._record_in = self._record_in, ""
        if not (pending_round.pods or has_changes(request) or request.record_in):
            await self._finish_round(pending_round, None, Guarded())
            return
        try:
            with stopwatch.phase("worker"):
                reply = await self._worker.ask(request)
        except WorkerLost as error:
            self._round_metrics.failed(request.number, pod_count, stopwatch, str(error))
            # The next worker takes about as long to start as the last one.
            lost = stopwatch.phases[-1].seconds + self._restart_seconds
            self._quarantine.failed(self._clock(), lost, str(error))
            self._metrics.quarantined.set(len(self._quarantine))
            raise
        self._builder.backfill_records = reply.backfill_history.records
        if pending_round.pods:
            self._deadline.round_took(reply.seconds, reply.namespace_seconds)
            if pending_round.by_turns:
                left = {pending_round.pods[index].uid for index, _ in reply.unplaced}
                self._turns.took(reply.namespace_seconds, self._clock(), left)
        self._quarantine.succeeded(self._clock())
        self._metrics.quarantined.set(len(self._quarantine))
        preempts = preempting(self._shell.cluster, request, reply)
        retried = preempts if preempts and self._running_pods.need() else set()
        self._retried = frozenset(pending_round.pods[index].uid for index in retried)
        self._resting.planned_in_vain(self._may_rest(pending_round, reply, retried))
        with stopwatch.phase("deliver"):
            await self._deliver(pending_round, reply, retried)
        # Reports and metrics can wait: answers to kube-scheduler that waited for the plan leave now, and bindings.
        await asyncio.sleep(0)
        await self._bindings_sent()
        if retried:
            self._batcher.trigger()
        if reply.settles_in:
            pause = max(_LEAST_SETTLING, _SETTLING_PER_ROUND * stopwatch.seconds, reply.settles_in)
            settles_at = self._clock() + pause
            self._settles_at = settles_at if self._settles_at is None else min(self._settles_at, settles_at)
        say = Guarded()
        say(
            "The metrics of a round",
            lambda: self._round_metrics.planned(request.number, pod_count, stopwatch, reply),
            None,
        )
        for observer in self._observers:
            say("The record of a round", partial(observer.round_planned, request, pending_round.pods, reply), None)
        await self._finish_round(pending_round, reply, say)
        self._batcher.round_ended(stopwatch.seconds, pod_count, pod_count - len(reply.unplaced))

    def _tell_unsaid(self, sentences: Sequence[str]) -> None:
        """Logs what could not be said of a round: at the first of rounds that lack it."""
        self._metrics.unsaid.inc(len(sentences))
        for sentence in sentences:
            if sentence not in self._unsaid:
                _log.error("a part of what is said of a round is missing", problem=sentence)
        self._unsaid = frozenset(sentences)

    async def _restart_worker(self) -> None:
        """Starts the worker and sends it the whole cluster without pods to plan: no pod is at fault if that fails."""
        if self._worker_in_sync:
            self._worker_in_sync = False
            self._metrics.worker_restarts.inc()
            _log.error("worker restarted", reason="exited")
        began = self._clock()
        await self._worker.start()
        self._shell.cluster.mark_all_dirty()
        await self._worker.ask(await self._builder.build(self._builder.planning_input(), [], reset=True))
        self._worker_in_sync, self._restart_seconds = True, self._clock() - began

    def _planned_with(self, pod: Pod) -> Hashable:
        """Equal for pods that are planned together: a network counts all pods of its policy."""
        network = self._network_of.get(pod.key)
        return self._quarantine.class_key(pod) if network is None else ("network", network)

    async def _collect(self) -> PendingRound:
        cluster, ledger, now = self._shell.cluster, self._shell.ledger, self._clock()
        self._round_started = now
        # A gang that room is kept for is planned with all others: new pods would take the room.
        holds = _keep_room(self._builder.backfill_records)
        if now >= self._due_at:
            self._helped_by_time, self._due_before = self._helped_by_time + 1, now
        self._holding_rounds += holds
        cluster.set_claims_known(known=self._claims_known())
        planning_input, known = self._builder.planning_input(), set(cluster.namespaces)
        # The worker learns with the next request what helps from now on.
        helped_before = ledger.helped.total
        new_before = frozenset(self._shell.state.nominations.under_way.came)
        changes = helped_before + self._helped_by_time
        helped = changes + self._holding_rounds
        helped_any = ledger.helped.any_pod + self._helped_by_time + self._holding_rounds
        freed, stored = ledger.helped.take_freed(), ledger.helped.take_stored()
        ordered = planning_input.policies
        places = {policy.name: place for place, policy in enumerate(ordered)}
        blocked: list[tuple[Pod, Policy]] = []
        paused: list[Pod] = []
        governed: dict[str, int] = {}
        plannable: list[Pod] = []
        async for pod in yielding(ledger.plannable()):
            if pod.namespace not in known:
                continue  # its namespace is not known yet, or came after what the plan knows: it requests a round
            policy = cluster.policies.of(pod, cluster.namespaces)
            delivery = None if policy is None else delivery_of(policy)
            steered = delivery is not None and delivery.steered and not pod.unsupported_reason
            if pod.gated and not steered and pod.namespace in cluster.namespaces:
                self._shell.apply(GateUnneeded(pod))
            if policy is None or delivery is None:
                continue  # no policy governs it, or its namespace has gone meanwhile
            place = places.get(policy.name)
            if place is None or ordered[place] is not policy:
                continue  # the policies changed meanwhile; the change has requested the next round
            if delivery.blocked(policy, pod):
                blocked.append((pod, policy))
                continue
            if backoff.is_backing_off(cluster, ledger, pod, self._clock()):
                paused.append(pod)
                continue
            plannable.append(pod)
            governed[pod.key] = place
        always = {
            *self._retried,
            *self._shell.state.nominations.begun,
            *(ledger.reservations[key].pod.uid for key in ledger.held),
        }
        wall = self._wall_clock()
        was_helped = self._what_helps.by(freed, stored, wall)

        def is_helped(pod: Pod, since: float) -> bool:
            return was_helped(pod, ordered[governed[pod.key]], since)

        awake, resting = self._resting.choose(plannable, helped_any, wall, is_helped, always)
        turns: list[TurnSelection] = []

        def in_turn(pods: Sequence[Pod]) -> Sequence[Pod]:
            turns.append(self._turns.choose(pods, planning_input.generation, helped, now, always))
            return turns[-1].pods

        models = self._policies.models.networks
        drawing = {place for place, policy in enumerate(ordered) if policy.draws(models)}
        in_networks = (pod for pod in awake if governed[pod.key] in drawing)
        self._network_of = {pod.key: ordered[governed[pod.key]].name for pod in in_networks} if drawing else {}
        # Where rounds have few pods, each change asks for more rounds at once: room that is kept would ask for ever.
        selection = self._quarantine.choose(awake, now, in_turn, changes)
        asked_for = [(pod, ordered[governed[pod.key]]) for pod in selection.pods]
        deferred = [*selection.deferred, *(pod for turn in turns for pod in turn.deferred)]
        looked_at = new_before.difference(pod.key for pod in deferred)
        # Those whose turn has been since something helped them lose nothing by a pod that goes first.
        owes = selection.more or any(turn.owes for turn in turns)
        self._shell.apply(PlanAsked(asked_for, holds, looked_at, helped_before, owes))
        request = await self._builder.build(planning_input, [(pod, governed[pod.key]) for pod in selection.pods])

        # The price that a pod waits for comes whether or not the pod has a turn now.
        if self._settles_at is not None and (self._settles_at <= now or not (deferred or resting)):
            self._settles_at = None

        def left_out(pod: Pod, reason: str, code: str) -> UnplacedPod:
            return UnplacedPod(pod, ordered[governed[pod.key]], reason, code, planned=False)

        return PendingRound(
            request,
            planning_input,
            list(selection.pods),
            blocked,
            paused,
            [left_out(pod, reason, QUARANTINED) for pod, reason in selection.backing_off],
            [
                *(left_out(pod, reason, AWAITING_TURN) for pod, reason in selection.told),
                *(left_out(pod, waits_for_turn(pod), AWAITING_TURN) for turn in turns for pod in turn.told),
            ],
            [(pod, ordered[governed[pod.key]]) for pod in deferred],
            [(pod, ordered[governed[pod.key]]) for pod in resting],
            by_turns=bool(turns),
            has_more=selection.more or any(turn.more for turn in turns),
        )

    def _may_rest(self, pending_round: PendingRound, reply: RoundReply, retried: Collection[int]) -> Iterator[Pod]:
        """The pods that the round left, and that no placement of another pod gives a node.

        A network counts all pods of its policy, so these are planned together.
        """
        if self._what_helps.anyone_moves:
            return
        request, networks, judge = pending_round.request, self._policies.models.networks, self._what_helps

        def governed(index: int) -> tuple[Pod, Policy]:
            return pending_round.pods[index], request.policies[request.pending[index].policy]

        lowest = judge.lowest_that_stays(governed(placement.pod) for placement in reply.placements)
        for index, reason in reply.unplaced:
            pod, policy = governed(index)
            in_network = policy.draws(networks)
            if index not in retried and not in_network and judge.may_rest(pod, policy, reply.codes[reason], lowest):
                yield pod

    async def _deliver(self, pending_round: PendingRound, reply: RoundReply, retried: Collection[int]) -> None:
        """Passes the plan to the shell as events, in bursts.

        Args:
            retried: positions of pods for which the next round may evict others.
        """
        request, pods, apply = pending_round.request, pending_round.pods, self._shell.apply
        policies = [request.policies[entry.policy] for entry in request.pending]
        first = True
        async for placements in bursts(planned_placements(request, reply, pods)):
            apply(PlanMade(request.number, reply.generation, placements, reply.atomic_groups, first=first, last=False))
            first = False
        for prices in self._prices.read(request, reply, pods):
            apply(prices)
        apply(
            PlanMade(
                request.number,
                reply.generation,
                (),
                reply.atomic_groups,
                first=first,
                last=True,
                evictions=independent_evictions(reply),
                keeps_room=_keep_room(reply.backfill_history.records),
            )
        )
        conditions = [
            condition_reason(code, more_nodes_help=curable)
            for code, curable in zip(reply.codes, reply.more_nodes_help, strict=True)
        ]
        frees = dict(reply.frees)
        async for unplaced in bursts(reply.unplaced):
            told = [
                UnplacedPod(
                    pods[index],
                    policies[index],
                    reply.reasons[reason],
                    conditions[reason],
                    retried=index in retried,
                    frees=frees.get(index, ()),
                )
                for index, reason in unplaced
            ]
            apply(PodsUnplaced(told))

    async def _finish_round(self, pending_round: PendingRound, reply: RoundReply | None, say: Guarded) -> None:
        unplaced = () if reply is None else reply.unplaced
        nodeless = [pending_round.pods[index] for index, _ in unplaced]
        nodeless += [pod for pod, _ in pending_round.left_as_they_are]
        self._left = {pod.pod_class: pod for pod in nodeless}
        request, planning_input = pending_round.request, pending_round.planning_input
        self._shell.apply(PodsUnplaced([*pending_round.backing_off, *pending_round.awaiting_turn]))
        async for blocked in bursts(pending_round.blocked):
            self._shell.apply(PodsBlocked(blocked))
        known_uids = set(self._policies.uids.values())
        unplanned, left = pending_round.unplanned, pending_round.left_as_they_are
        report = partial(self.reports.round_ended, request, reply, planning_input, unplanned, known_uids, left)
        say("The status of policies", report, None)
        say("The counts of waiting pods", lambda: self._waiting.round_ended(pending_round.waiting(reply)), None)
        self._tell_unsaid([*(() if reply is None else reply.warnings), *say.missing.values()])
        cluster = self._shell.cluster
        self._quarantine.retain(cluster.waiting.values())
        self._turns.retain(cluster.waiting.values())
        if request.number % CACHE_GENERATION == 0:
            cluster.policies.age()
