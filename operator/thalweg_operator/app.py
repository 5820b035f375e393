"""Wires the operator together and runs it."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any

import structlog
from aiohttp import web

from flowcore.cluster.cluster import Cluster
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient, connect
from thalweg_operator.api.events import EventWriter
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.leader_election import LeaderElector
from thalweg_operator.api.watched import OPTIONAL_KINDS, make_reflectors
from thalweg_operator.delivery.binder import Binder
from thalweg_operator.delivery.conditions import ConditionWriter
from thalweg_operator.delivery.evictor import Evictor
from thalweg_operator.delivery.extender_view import ExtenderView
from thalweg_operator.delivery.handlers import handlers
from thalweg_operator.delivery.nominator import Nominator
from thalweg_operator.delivery.observed import ObserveEvents
from thalweg_operator.delivery.policy_events import PolicyEvents
from thalweg_operator.delivery.policy_status import PolicyStatus
from thalweg_operator.errors import OperatorError, WorkerLost
from thalweg_operator.health import Liveness, application, missing_kinds, watch_event_loop
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.batcher import Batcher
from thalweg_operator.planning.progress import ProgressLog
from thalweg_operator.planning.round_loop import RoundLoop
from thalweg_operator.planning.worker.client import WorkerClient
from thalweg_operator.planning.worker.limits import container_memory, default_memory, resident_memory
from thalweg_operator.policies.gate_admission import GateAdmission
from thalweg_operator.policies.handlers import watch_policies
from thalweg_operator.policies.resync import PolicyResync
from thalweg_operator.policies.store import PolicyStore
from thalweg_operator.reservations.events import PoliciesChanged, Synced, TimePassed
from thalweg_operator.reservations.ledger import Ledger
from thalweg_operator.settings import Settings
from thalweg_operator.shell import Shell
from thalweg_operator.state_dump import StateDump
from thalweg_operator.watch_lag import WatchLag

_log = structlog.get_logger()
#: Seconds that bindings under way may take when the operator is told to stop.
_DRAIN_SECONDS = 10.0
#: Seconds that nominations which are taken back after a restart may take.
_SETTLE_SECONDS = 10.0
#: Seconds between two looks at what is due.
_TICK = 0.05
#: Of the elector alone: renewals must not stand in line behind bindings.
_LEASE_CONNECTIONS = 2
#: Seconds that answers under way may take when the operator is told to stop.
_SHUTDOWN_SECONDS = 2.0
#: Between tries to start the worker, and to list the policies, for the first time.
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
    # Watches, and the slots of the queues (write_queue.py).
    connections = 2 * (settings.bind_concurrency + settings.steer_concurrency) + 48
    async with (
        connect(settings.kubeconfig, connections, fence, settings.context) as connection,
        connect(settings.kubeconfig, _LEASE_CONNECTIONS, context=settings.context) as aside,
    ):
        _log.info("cluster", server=connection.server, context=connection.credentials.context, source=settings.source)
        aside.outages = connection.outages  # one API server, one line where it is away
        operator = Operator(settings, connection, LeaderElector(aside, fence, settings.lease))
        async with companion(operator):
            await operator.run()


class Operator:
    """All parts of one operator process.

    Attributes:
        plan_view, binder, metrics, bad_input: for what is served beside its own pages.
    """

    def __init__(self, settings: Settings, api_client: ApiClient, elector: LeaderElector) -> None:
        self._settings, self._api_client, self._elector = settings, api_client, elector
        self.metrics = Metrics()
        self.bad_input = BadInput(self.metrics)
        cluster = Cluster()
        ledger = Ledger(cluster)
        batcher = Batcher(settings.idle_window, settings.max_window)
        self._shell = shell = Shell(cluster, ledger, batcher.trigger)
        shell.observer = WatchLag(cluster, self.metrics, shell.clock).observe
        self._policies = PolicyStore(put_in_force=lambda accepted: shell.apply(PoliciesChanged(accepted)))
        self._gate_admission = GateAdmission(api_client, self._policies)
        memory = default_memory() if settings.worker_memory is None else settings.worker_memory
        self._worker = worker = WorkerClient(settings.round_timeout, settings.records, memory)
        self.metrics.leader.set_function(lambda: elector.may_write)
        self.metrics.memory_limit.set(container_memory())
        self.metrics.worker_memory_limit.set(memory)
        self.metrics.worker_memory.set_function(lambda: resident_memory(worker.pid))
        self._events, self._progress = EventWriter(api_client, self.metrics), ProgressLog()
        self._condition_writer = ConditionWriter(
            api_client, shell, self.metrics, self._events, settings.conditions_per_second
        )
        self.binder = Binder(api_client, shell, self.metrics, self._events, self._progress, settings.bind_concurrency)
        self._evictor = Evictor(api_client, shell, self.metrics, self._events)
        self._nominator = Nominator(api_client, shell, self.metrics, settings.steer_concurrency)
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
            observers=(self._progress, ObserveEvents(self._events)),
        )
        self._state_dump = StateDump(settings.dump_directory, shell, self._round_loop.record_next_round)
        self._policy_status = PolicyStatus(
            api_client,
            cluster,
            self._policies,
            self._round_loop.reports,
            self._gate_admission,
            on_written=PolicyEvents(self._events).status_written,
        )
        self._reflectors = make_reflectors(shell, api_client, self.metrics, self.bad_input)
        for kind, reflector in self._reflectors.items():
            self.metrics.watch_age.labels(kind).set_function(reflector.age)
        self.metrics.nodes.set_function(lambda: len(cluster.nodes))
        self.metrics.pods.set_function(lambda: len(cluster.pods))
        self.metrics.gated_pods.set_function(lambda: sum(pod.gated for pod in cluster.waiting.values()))
        self.metrics.reservations.set_function(lambda: len(ledger.reservations))
        self.plan_view = ExtenderView(shell, lambda: not self.not_ready())
        self._policy_resync = PolicyResync(api_client, self._policies, self.bad_input)
        self.metrics.watch_age.labels("policies").set_function(self._policy_resync.age)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    def not_ready(self) -> list[str]:
        """What is missing: kinds that were not listed yet or are stale, and the lease."""
        now = asyncio.get_running_loop().time()
        heard = {kind: (each.synced.is_set(), each.last_confirmed) for kind, each in self._reflectors.items()}
        heard["policies"] = (self._policy_resync.last_confirmed is not None, self._policy_resync.last_confirmed)
        missing = missing_kinds(heard, now, never_stale=OPTIONAL_KINDS)
        return missing if self._elector.may_write else [*missing, "lease"]

    async def run(self) -> None:
        """Runs until a signal comes or a part fails for good."""
        served = application(self.metrics, self.not_ready, self._round_loop.liveness.problem)
        runner = web.AppRunner(served, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        site = web.TCPSite(runner, self._settings.host, self._settings.port)
        try:
            await site.start()
        except OSError as error:
            raise OperatorError(f"cannot listen on {self._settings.host}:{self._settings.port}: {error}") from error
        _log.info("listening", host=self._settings.host, port=self._settings.port)
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self._stop.set)
        loop.add_signal_handler(signal.SIGUSR1, self._state_dump.request)
        try:
            self._start()
            await self._stop.wait()
        finally:
            await self._shut_down()
            await runner.cleanup()
        if isinstance(self._failure, OperatorError):
            raise self._failure  # it says all there is to say
        if self._failure is not None:
            raise OperatorError(f"a part of the operator failed: {self._failure!r}") from self._failure

    def _start(self) -> None:
        for kind, reflector in self._reflectors.items():
            self._start_task(f"reflector {kind}", reflector.run())
        self._start_task("state dump", self._state_dump.run())
        self._start_task("lease", self._elector.run())
        self._start_task("rounds", self._begin_rounds())

    async def _load_cost_models(self) -> None:
        """Starts the worker, which takes as long as a large cluster takes to list, and learns which cost models it has.

        Policies are read after that: the first one may name any of them.
        """
        failures = 0
        self._round_loop.liveness.round_began()
        while True:
            try:
                self._policies.models = await self._worker.start()
                break
            except WorkerLost as error:
                failures += 1
                self._api_client.outages.failed("worker", "not started", str(error))
                await asyncio.sleep(_STARTUP_BACKOFF.pause(failures))
        self._round_loop.liveness.round_ended(success=True)
        self._api_client.outages.recovered("worker")
        for name, problem in self._policies.models.problems.items():
            _log.warning("cost model not used", model=name, problem=problem)

    async def _begin_rounds(self) -> None:
        # Before all is known nothing may be placed: a node without its pods looks empty, and a pod whose policy was not
        # read yet looks ungoverned.
        await self._load_cost_models()
        self._start_task("policies", watch_policies(self._api_client, self._policies))
        failures = 0
        while not await self._policy_resync.once():
            failures += 1
            await asyncio.sleep(_STARTUP_BACKOFF.pause(failures))
        self._start_task("policy resync", self._policy_resync.run())
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        await self._elector.held.wait()  # all that follows writes
        # What is known now mostly stays: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        _log.info("in sync", nodes=len(self._shell.cluster.nodes), pods=len(self._shell.cluster.pods))
        self._start_task("event loop watch", watch_event_loop(self.metrics))
        carriers = handlers(
            self.binder,
            self._nominator,
            self._evictor,
            self._condition_writer,
            self._gate_admission,
            self.metrics,
        )
        self._shell.lead(carriers)
        self._shell.apply(Synced())
        self._start_task("events", self._events.run())
        self._start_task("progress", self._progress.run())
        self._start_task("binder", self.binder.run())
        self._start_task("nominator", self._nominator.run())
        self._start_task("ledger", self._tick())
        self._start_task("waiting pods", self._condition_writer.run())
        self._start_task("evictor", self._evictor.run())
        self._start_task("gates", self._gate_admission.run())
        self._start_task("policy status", self._policy_status.run())
        # What a gang of which not all were nominated still holds must not be planned with.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while self._shell.ledger.withdrawing:  # noqa: ASYNC110 - the watch shows it, there is no event for all
                    await asyncio.sleep(0.05)
        await self._round_loop.run()

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
        for task in tasks:
            if task.get_name() == "rounds":
                task.cancel()
        with suppress(TimeoutError):
            # Without the lease nothing more is sent: there is nothing to wait for.
            async with asyncio.timeout(_DRAIN_SECONDS if self._elector.may_write else 0):
                await self.binder.drain()
                await self._nominator.drain()
                await self._evictor.drain()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._worker.stop()
        await self._gate_admission.stop()
        await self._elector.release()
        _log.info("stopped")
