"""Wires the operator together and runs it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import signal
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import structlog
from thalweg_listener import CannotListen

from flowcore.api.kinds import DEVICE_TAINT_RULE, POLICY, QUEUE
from flowcore.cluster.cluster import Cluster
from flowcore.model.device_gates import DeviceGates
from flowcore.model.policies import Policy, only_observed
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient, connect
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.leadership.endpoint_slice import EndpointWriter
from thalweg_operator.api.leadership.leader_election import LeaderElector
from thalweg_operator.api.leadership.lease_watch import watch_lease
from thalweg_operator.api.watches.catch_up import CatchUp
from thalweg_operator.api.watches.parent_watches import ParentWatches
from thalweg_operator.api.watches.server_version import read_version, watch_version
from thalweg_operator.api.watches.watched import (
    CLAIMED_DEVICES,
    DISRUPTION_BUDGETS,
    NATIVE_POD_GROUPS,
    OPTIONAL_KINDS,
    REFUSABLE_KINDS,
    make_reflectors,
)
from thalweg_operator.api.writes.events import EventWriter
from thalweg_operator.delivery.binder import Binder
from thalweg_operator.delivery.claims.device_claims import DeviceClaimWriter
from thalweg_operator.delivery.claims.volume_claims import VolumeClaimWriter
from thalweg_operator.delivery.conditions import ConditionWriter
from thalweg_operator.delivery.evictor import Evictor
from thalweg_operator.delivery.extender_view import ExtenderView
from thalweg_operator.delivery.handlers import handlers
from thalweg_operator.delivery.nominator import Nominator
from thalweg_operator.delivery.observed import ObserveEvents
from thalweg_operator.delivery.status.condition_events import ConditionEvents
from thalweg_operator.delivery.status.group_status import GroupStatus
from thalweg_operator.delivery.status.policy_status import PolicyStatus
from thalweg_operator.delivery.status.queue_status import QueueStatus
from thalweg_operator.delivery.status.volcano_phases import VolcanoPhases
from thalweg_operator.draining import drain
from thalweg_operator.errors import OperatorError, WorkerLost
from thalweg_operator.health import LEASE, STALE, Liveness, kind_problems, pages, serving_pages, watch_event_loop
from thalweg_operator.metrics import Metrics
from thalweg_operator.observability.audits.auditor import Auditor, audit_records
from thalweg_operator.observability.find_tracer import find_tracer
from thalweg_operator.observability.gauges import set_gauges
from thalweg_operator.observability.saved_lines import SavedLines
from thalweg_operator.observability.state_dump import StateDump
from thalweg_operator.observability.watch_lag import WatchLag
from thalweg_operator.planning.batcher import Batcher
from thalweg_operator.planning.reports.progress import ProgressLog
from thalweg_operator.planning.round_loop import RoundLoop, RoundObserver
from thalweg_operator.planning.worker.client import WorkerClient
from thalweg_operator.planning.worker.process_limits import container_memory, default_memory, resident_memory
from thalweg_operator.policies.auto_waiting import policies_of_waiting
from thalweg_operator.policies.gate_admission import GateAdmission
from thalweg_operator.policies.handlers import watch_policies
from thalweg_operator.policies.resync import PolicyResync
from thalweg_operator.policies.store import PolicyStore
from thalweg_operator.reservations.events import PoliciesChanged, Synced, TimePassed
from thalweg_operator.reservations.step.state import State
from thalweg_operator.settings import Settings
from thalweg_operator.shell import Handlers, Shell
from thalweg_operator.usage.poller import UsagePoller
from thalweg_operator.usage.saved_usage import SavedUsage

_log = structlog.get_logger()
#: Seconds that writes under way may take when the operator is to stop.
_DRAIN_SECONDS = 10.0
#: Tasks that end first: the others finish what is under way.
_FIRST_TO_END = frozenset({"rounds", "endpoints"})
#: Seconds that nominations which are taken back after a restart may take.
_SETTLE_SECONDS = 10.0
#: Seconds between two looks at what is due.
_TICK = 0.05
#: Seconds after which a standby forgets what changed in its snapshot: a worker gets the whole of it first.
_DISCARD_SECONDS = 30.0
#: Of the elector alone: renewals must not stand in line behind bindings. One watches the lease.
_LEASE_CONNECTIONS = 3
#: Between tries to start the worker for the first time.
_STARTUP_BACKOFF = Backoff(first=0.5, longest=5.0)


async def run(
    settings: Settings, companion: Callable[[Operator], AbstractAsyncContextManager[object]] = lambda _: nullcontext()
) -> None:
    """Runs the operator until a signal ends it.

    Args:
        companion: what is served for as long as it runs, beside its own pages.

    Raises:
        OperatorError: it cannot start or go on.
    """
    fence = Fence()
    # Nothing opens the other fence: an operator that only observes writes its Lease, which has no fence, and no more.
    of_writes = Fence() if settings.observes else fence
    # Watches, and the slots of the queues (write_queue.py).
    connections = 2 * (3 * settings.bind_concurrency + settings.steer_concurrency) + 48
    async with (
        connect(settings.kubeconfig, connections, of_writes, settings.context) as connection,
        connect(settings.kubeconfig, _LEASE_CONNECTIONS, context=settings.context) as aside,
    ):
        _log.info("cluster", server=connection.server, context=connection.credentials.context, source=settings.source)
        aside.outages = connection.outages  # one API server, one line where it is away
        elector = LeaderElector(aside, fence, settings.lease, waits=settings.replicated)
        operator = Operator(settings, connection, elector)
        async with companion(operator):
            await operator.run()


class Operator:
    """All parts of one operator process.

    Attributes:
        plan_view, binder, metrics, bad_input, saved_lines: for what is served beside its own pages.
        observers: called after each round.
        settings, server: its settings, and the URL of the API server.
    """

    def __init__(self, settings: Settings, api_client: ApiClient, elector: LeaderElector) -> None:
        self.settings, self.server = settings, api_client.server
        self._api_client, self._elector = api_client, elector
        self.metrics = Metrics()
        self.bad_input = BadInput(self.metrics)
        cluster = Cluster(settings.own_pod.namespace if settings.own_pod else "")
        if settings.observes:
            cluster.replace_policies(only_observed(()))
        state = State(cluster)
        state.device_timeout = settings.device_timeout
        state.keeps_others_off = not settings.marks
        batcher = Batcher(settings.idle_window, settings.max_window)
        self._shell = shell = Shell(state, lambda effect: self._round_loop.request(effect))  # noqa: PLW0108 - made below
        shell.observers.append(WatchLag(cluster, self.metrics, shell.clock).observe)

        def put_in_force(accepted: tuple[Policy, ...]) -> None:
            in_force = only_observed(accepted) if settings.observes else accepted
            shell.apply(PoliciesChanged(in_force, self._policies.models.networks))

        self._policies = PolicyStore(put_in_force=put_in_force)
        self._gate_admission = GateAdmission(
            api_client, self._policies, lambda: policies_of_waiting(cluster, state.ledger), marks=settings.marks
        )
        memory = default_memory() if settings.worker_memory is None else settings.worker_memory
        self._worker = worker = WorkerClient(settings.round_timeout, settings.records, memory)
        self.metrics.memory_limit.set(container_memory())
        self.metrics.worker_memory_limit.set(memory)
        self.metrics.worker_memory.set_function(lambda: resident_memory(worker.pid))
        self._events, self._progress = EventWriter(api_client, self.metrics), ProgressLog()
        self._condition_writer = ConditionWriter(
            api_client, shell, self.metrics, self._events, settings.conditions_per_second
        )
        self.binder = Binder(api_client, shell, self.metrics, self._events, self._progress, settings.bind_concurrency)
        self._device_claims = DeviceClaimWriter(api_client, shell, self.metrics, settings.bind_concurrency)
        self._volume_claims = VolumeClaimWriter(api_client, shell, self.metrics, settings.bind_concurrency)
        self._evictor, self._tracer = Evictor(api_client, shell, self.metrics, self._events), find_tracer(self.metrics)
        self._nominator = Nominator(api_client, shell, self.metrics, settings.steer_concurrency)
        self._usage = UsagePoller(api_client, cluster, settings.usage, self.metrics, self.bad_input)
        self.observers: list[RoundObserver] = [self._progress]
        if not settings.observes:
            self.observers.append(ObserveEvents(self._events))
        self._round_loop = RoundLoop(
            shell,
            self._policies,
            worker,
            self.metrics,
            batcher,
            settings.resync,
            settings.round_budget,
            round_timeout=settings.round_timeout,
            liveness=Liveness(settings.round_timeout),
            observers=self.observers,
            tracer=self._tracer,
            budgets_known=self._knows_budgets,
            claims_known=self._knows_claims,
            usage=self._usage,
            bindings_sent=self.binder.until_sent,
        )
        self._saved_usage = SavedUsage(api_client, settings.lease, cluster, self._usage, self.metrics)
        regret = audit_records()
        self.saved_lines = SavedLines(shell, self._round_loop.measured, self._usage, self._gate_admission, regret)
        self._auditor = Auditor(
            self.saved_lines,
            regret,
            settings.audit_interval,
            lambda: self._round_loop.liveness.under_way,
            cluster.waiting.__contains__,
            self.metrics,
            # Half of the container's limit is the worker's, the view's process has a half of the rest.
            default_memory() // 2,
        )
        self._state_dump = StateDump(settings.dump_directory, self.saved_lines, self._round_loop.record_next_round)
        self._policy_status = PolicyStatus(
            api_client,
            cluster,
            self._policies,
            self._round_loop.reports,
            self._gate_admission,
            self._usage.condition,
            on_written=ConditionEvents(self._events, POLICY).status_written,
        )
        on_written = ConditionEvents(self._events, QUEUE).status_written
        self._queue_status = QueueStatus(api_client, cluster, self._round_loop.reports, on_written)
        self._volcano_phases = VolcanoPhases(api_client, cluster, self.metrics)
        self._parent_watches = ParentWatches(shell, api_client, self.metrics, self.bad_input)
        self._reflectors = make_reflectors(shell, api_client, self.metrics, self.bad_input)
        pod_groups = self._reflectors[NATIVE_POD_GROUPS]
        self._group_status = GroupStatus(
            api_client, shell, self.metrics, lambda: pod_groups.path, settings.conditions_per_second
        )
        shell.observers.append(self._group_status.observe)
        set_gauges(self.metrics, shell, self._reflectors, elector)
        self.plan_view = ExtenderView(shell, self.problem)
        needed = {
            kind: reflector
            for kind, reflector in self._reflectors.items()
            if kind not in OPTIONAL_KINDS | REFUSABLE_KINDS
        }
        self._catch_up = CatchUp(api_client, needed, None if settings.observes else settings.own_pod)
        #: What has to happen before this process leads; "": it leads.
        self._before_leading = "the snapshot is being brought up to date"
        self._policy_resync = PolicyResync(api_client, self._policies, self.bad_input)
        self.metrics.watch_age.labels("policies").set_function(self._policy_resync.age)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    def readiness(self) -> dict[str, str]:
        """What is wrong with each watched kind, the policies and the lease; "": nothing."""
        now = asyncio.get_running_loop().time()
        heard = {
            kind: (reflector.synced.is_set(), reflector.last_confirmed)
            for kind, reflector in self._reflectors.items()
            if kind not in REFUSABLE_KINDS
        }
        heard["policies"] = (self._policy_resync.last_confirmed is not None, self._policy_resync.last_confirmed)
        return kind_problems(heard, now, never_stale=OPTIONAL_KINDS) | {LEASE: self._lease_problem()}

    def _knows_budgets(self) -> bool:
        """Whether PodDisruptionBudgets are known as they are now."""
        reflector = self._reflectors[DISRUPTION_BUDGETS]
        return not reflector.absent and reflector.age() < STALE

    def _knows_claims(self) -> bool:
        """Whether slices, claims and taints are known; a cluster may serve other versions, or grant no right."""
        reflectors = [self._reflectors[kind.plural] for kind in CLAIMED_DEVICES]
        if any(each.absent for each in reflectors):
            return False
        taint_rules = self._reflectors[DEVICE_TAINT_RULE.plural]
        if self._shell.cluster.device_gates.has_taint_rules and not taint_rules.absent:
            reflectors.append(taint_rules)
        return all(each.synced.is_set() and each.age() < STALE for each in reflectors)

    def _lease_problem(self) -> str:
        elector = self._elector
        if self._stop.is_set():
            return "the operator ends"
        if elector.may_write:
            return self._before_leading and f"held, {self._before_leading}"
        if elector.holder == elector.identity:
            return "it could not be renewed"
        return f"standby, {elector.holder} leads" if elector.holder else "not acquired yet"

    def problem(self) -> str:
        """Why no question about the plan can be answered now; "": it can."""
        problems = (f"{name}: {problem}" for name, problem in self.readiness().items() if problem)
        return next(problems, "")

    async def run(self) -> None:
        """Runs until a signal comes or a part fails for good."""
        on_refused = partial(self.bad_input.refuse, "page request")
        served = pages(self.metrics, self.readiness, self._round_loop.liveness.problem, on_refused)
        addresses = [(self.settings.host, self.settings.port), self.settings.probes]
        try:
            async with serving_pages(addresses, served, on_refused):
                await self._run_until_stopped()
        except CannotListen as error:
            raise OperatorError(str(error)) from error
        if isinstance(self._failure, OperatorError):
            raise self._failure  # it says all there is to say
        if self._failure is not None:
            raise OperatorError(f"a part of the operator failed: {self._failure!r}") from self._failure

    async def _run_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGUSR1, self._state_dump.request)
        try:
            self._start()
            await self._stop.wait()
        finally:
            await self._shut_down()

    def _start(self) -> None:
        self._start_task("state dump", self._state_dump.run())
        self._start_task("lease", self._elector.run())
        self._start_task("rounds", self._work())

    async def _work(self) -> None:
        # What is read after the lease was acquired need not be read again (``CatchUp``).
        await self._elector.tried.wait()
        await self._read_cluster()
        await self._stand_by()
        await asyncio.gather(self._round_loop.prepare(), self._catch_up.run(self._elector.held_since))
        self._before_leading = "the policies are being listed again"
        await self._policy_resync.catch_up(self._elector.held_since)
        await self._lead()

    async def _load_cost_models(self) -> None:
        """Starts the worker, which takes as long as a large cluster takes to list, and learns which cost models it has.

        Policies are read after that: the first one may name any of them.
        """
        self._round_loop.liveness.round_began()
        for failures in itertools.count(1):
            try:
                self._policies.models = await self._worker.start()
                break
            except WorkerLost as error:
                self._api_client.outages.failed("worker", "not started", str(error))
                await asyncio.sleep(_STARTUP_BACKOFF.pause(failures))
        self._round_loop.liveness.round_ended(success=True)
        self._api_client.outages.recovered("worker")
        for name, problem in self._policies.models.problems.items():
            _log.warning("cost model not used", model=name, problem=problem)

    async def _read_cluster(self) -> None:
        """Returns when all is known. Before, nothing may be placed.

        A node without its pods looks empty, and a pod whose policy was not read yet looks ungoverned.
        """
        self._round_loop.discard_changes()
        await asyncio.gather(self._load_cost_models(), self._watch_objects())
        self._start_task("policies", watch_policies(self._api_client, self._policies))
        await asyncio.gather(self._policy_resync.until_listed(), self._objects_listed())
        await self._parent_watches.listed()
        self._start_task("gang parents", self._parent_watches.run())
        self._start_task("policy resync", self._policy_resync.run())
        _log.info("in sync", nodes=len(self._shell.cluster.nodes), pods=len(self._shell.cluster.pods))
        self._start_task("event loop watch", watch_event_loop(self.metrics))

    async def _watch_objects(self) -> None:
        """Starts all reflectors once the API server has said its version: objects are read by its rules."""
        cluster = self._shell.cluster
        cluster.version = version = await read_version(self._api_client)
        cluster.device_gates = gates = DeviceGates.of_server(version, self.settings.device_gates)
        _log.info(
            "objects are read", server_version=version.text, rules=f"1.{version.rules}", gates_off=sorted(gates.off)
        )
        self._start_task("version watch", watch_version(self._api_client, version))
        # Nothing of a list is garbage.
        gc.set_threshold(50_000, 20, 50)
        for kind, reflector in self._reflectors.items():
            self._start_task(f"reflector {kind}", reflector.run())

    async def _objects_listed(self) -> None:
        """Returns when all kinds but the policies have been listed, and the worker of the leader knows them."""
        others = {kind: each for kind, each in self._reflectors.items() if kind != DISRUPTION_BUDGETS}
        known = (each.answered if kind in REFUSABLE_KINDS else each.synced for kind, each in others.items())
        await asyncio.gather(*(event.wait() for event in known))
        gc.collect()
        gc.freeze()  # what is known now mostly stays
        if self._elector.held.is_set():
            await self._round_loop.prepare()

    async def _stand_by(self) -> None:
        """Returns when the lease is held: all that follows writes."""
        if self.settings.replicated and not self._elector.held.is_set():
            self._start_task("lease watch", watch_lease(self._elector))
        while not self._elector.held.is_set():
            self._round_loop.discard_changes()
            with suppress(TimeoutError):
                async with asyncio.timeout(_DISCARD_SECONDS):
                    await self._elector.held.wait()

    async def _lead(self) -> None:
        if not self.settings.observes:
            await self._saved_usage.restore()
            self._shell.lead(self._carriers())
        self._shell.apply(Synced())
        self._before_leading = ""
        _log.info("leading", observes=self.settings.observes)
        self._start_task("progress", self._progress.run())
        self._start_task("ledger", self._tick())
        self._start_task("usage", self._usage.run())
        if self.settings.audit_interval:
            self._start_task("audits", self._auditor.run())
        if not self.settings.observes:
            self._start_writers()
        # What a gang of which not all were nominated still holds must not be planned with.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while self._shell.ledger.withdrawing:  # noqa: ASYNC110 - the watch shows it, there is no event for all
                    await asyncio.sleep(0.05)
        await self._round_loop.run()

    def _carriers(self) -> Handlers:
        """Who carries out effects."""
        return handlers(
            self.binder,
            self._device_claims,
            self._volume_claims,
            self._nominator,
            self._evictor,
            self._condition_writer,
            self._group_status,
            self._gate_admission,
            self.metrics,
        )

    def _start_writers(self) -> None:
        """Starts all that writes to the API server beside the Lease."""
        for endpoint in self.settings.endpoints:
            self._start_task("endpoints", EndpointWriter(self._api_client, endpoint).run())
        self._start_task("events", self._events.run())
        self._start_task("binder", self.binder.run())
        self._start_task("device claims", self._device_claims.run())
        self._start_task("volume claims", self._volume_claims.run())
        self._start_task("nominator", self._nominator.run())
        self._start_task("waiting pods", self._condition_writer.run())
        self._start_task("evictor", self._evictor.run())
        self._start_task("gates", self._gate_admission.run())
        self._start_task("saved usage", self._saved_usage.run())
        self._start_task("policy status", self._policy_status.run())
        self._start_task("queue status", self._queue_status.run())
        self._start_task("volcano phases", self._volcano_phases.run())
        self._start_task("PodGroup status", self._group_status.run())

    async def _tick(self) -> None:
        """Tells the ledger that time passes, until cancelled."""
        while True:
            self._shell.apply(TimePassed())
            if self._shell.failure is not None:
                raise self._shell.failure
            await asyncio.sleep(_TICK)

    def _start_task(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            # Without one of its parts the operator would look alive and do nothing: end, and be started again.
            self._failure = task.exception()
            if not isinstance(self._failure, OperatorError):
                _log.error("part failed", part=task.get_name(), exc_info=self._failure)
            self._stop.set()

    async def _shut_down(self) -> None:
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        self._stop.set()  # kube-scheduler is not answered any more
        for task in tasks:
            if task.get_name() in _FIRST_TO_END:
                task.cancel()
        problem = await self._drain()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._gate_admission.stop()
        if self._elector.may_write:
            await self._saved_usage.save()
        if not problem:
            await self._elector.release()
        elif self._elector.may_write:
            # A binding that is carried out later than the release would take room that the next leader plans with.
            _log.warning("lease not released, it ends by itself", problem=problem)
        await self._worker.stop()
        if self._tracer is not None:
            self._tracer.close()
        _log.info("stopped")

    async def _drain(self) -> str:
        """Ends what is under way; returns what may still be carried out, or "" for nothing."""
        self.binder.end()
        self._shell.ledger.ends = True
        # Without the lease nothing more is sent: there is nothing to wait for.
        seconds = _DRAIN_SECONDS if self._elector.may_write else 0
        return await drain(
            self._shell.ledger,
            (self._device_claims, self._volume_claims, self.binder, self._nominator, self._evictor),
            seconds,
        )
