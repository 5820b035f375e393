"""Wires the operator together and runs it."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, TypeVar

import structlog
from aiohttp import web

from flowcore.model.gang_terms import Source
from flowcore.model.pods import Pod
from flowcore.model.wire import Interner, storage_decoder
from thalweg_operator import sinks
from thalweg_operator.backoff import Backoff
from thalweg_operator.bad_input import BadInput
from thalweg_operator.batcher import Batcher
from thalweg_operator.binder import Binder
from thalweg_operator.connection import Connection, connect
from thalweg_operator.errors import OperatorError, WorkerLost
from thalweg_operator.events import EventWriter
from thalweg_operator.evictions import Evictor
from thalweg_operator.fence import Fence
from thalweg_operator.gate_admission import GateAdmission
from thalweg_operator.health import Liveness, application, lacking, watch_event_loop
from thalweg_operator.lease import Elector
from thalweg_operator.metrics import Metrics
from thalweg_operator.nominator import Nominator
from thalweg_operator.observed import Observed
from thalweg_operator.partial import PartialGangs
from thalweg_operator.policies import PolicyStore
from thalweg_operator.policy_handlers import watch_policies
from thalweg_operator.policy_resync import PolicyResync
from thalweg_operator.policy_status import PolicyStatus
from thalweg_operator.progress import Progress
from thalweg_operator.reflector import Reflector, Sink
from thalweg_operator.replacing import Replacing
from thalweg_operator.rounds import RoundLoop
from thalweg_operator.settings import Settings
from thalweg_operator.state import ClusterState
from thalweg_operator.steering import PodSteering
from thalweg_operator.waiting import WaitingPods
from thalweg_operator.wire import RoundReply, RoundRequest
from thalweg_operator.worker_client import WorkerClient
from thalweg_operator.worker_limits import default_memory, resident

T = TypeVar("T")

_log = structlog.get_logger()
#: Seconds that bindings under way may take when the operator is told to stop.
_DRAIN = 10.0
#: Seconds that nominations which are taken back after a restart may take.
_SETTLING = 10.0
#: Of the elector alone: renewals must not stand in line behind bindings.
_LEASE_CONNECTIONS = 2
#: Seconds that answers under way may take when the operator is told to stop.
_LAST_ANSWERS = 2.0
#: Between tries to start the worker, and to list the policies, for the first time.
_FIRST = Backoff(first=0.5, longest=5.0)
_STORAGE_GROUP = "storage.k8s.io"
#: What filters on volumes read: resource -> API group and kind.
_STORAGE = {
    "persistentvolumes": ("", "PersistentVolume"),
    "persistentvolumeclaims": ("", "PersistentVolumeClaim"),
    "storageclasses": (_STORAGE_GROUP, "StorageClass"),
    "csinodes": (_STORAGE_GROUP, "CSINode"),
    "csidrivers": (_STORAGE_GROUP, "CSIDriver"),
    "csistoragecapacities": (_STORAGE_GROUP, "CSIStorageCapacity"),
    "volumeattachments": (_STORAGE_GROUP, "VolumeAttachment"),
}
#: Versions of each API group's PodGroup, all of one shape as far as it is read; the newest that is served is followed.
_POD_GROUPS = {
    Source.NATIVE: ("v1beta1", "v1alpha3", "v1alpha2"),
    Source.COSCHEDULING: ("v1alpha1",),
    Source.VOLCANO: ("v1beta1",),
}


async def run(
    settings: Settings, beside: Callable[[Operator], AbstractAsyncContextManager[object]] = lambda _: nullcontext()
) -> None:
    """Runs the operator until a signal ends it.

    Args:
        beside: what is served for as long as it runs, beside its own pages.

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
        operator = Operator(settings, connection, Elector(aside, fence, settings.lease))
        async with beside(operator):
            await operator.run()


class Operator:
    """All parts of one operator process.

    Attributes:
        steering, binder, metrics, bad_input: for what is served beside its own pages.
    """

    def __init__(self, settings: Settings, connection: Connection, elector: Elector) -> None:
        self._settings, self._connection, self._elector = settings, connection, elector
        self.metrics = Metrics()
        self.bad_input = BadInput(self.metrics)
        self._state, self._policies = ClusterState(), PolicyStore()
        batcher = Batcher(settings.idle_window, settings.max_window)
        self._state.on_change = batcher.touch
        self._gates = GateAdmission(connection, self._policies)

        def policies_changed() -> None:
            batcher.touch()
            self._gates.touch()

        self._policies.on_change = policies_changed
        memory = default_memory() if settings.worker_memory is None else settings.worker_memory
        self._worker = WorkerClient(settings.round_timeout, settings.records, memory)
        self.metrics.worker_memory_limit.set(memory)
        self.metrics.worker_memory.set_function(lambda: resident(self._worker.pid))
        self._events, self._progress = EventWriter(connection, self.metrics), Progress()
        self._observed = Observed(self._events)
        self._waiting = WaitingPods(connection, self._state, self.metrics, self._events, settings.told_per_second)
        self.binder = Binder(connection, self._state, self.metrics, settings.bind_concurrency)
        self.binder.on_bound, self.binder.on_refused = self._bound, self._refused
        self._evictor = Evictor(connection, self.metrics, self._events)
        self._replacing = Replacing(
            self._state,
            self._policies,
            self._evictor,
            self._waiting.tell,
            lambda pod, why, steered: self._rounds.refused(pod, why, steered=steered),
        )
        intern = Interner()
        pod_decoder = sinks.pod_decoder(intern, self.bad_input)
        self._nominator = Nominator(connection, self.metrics, settings.steer_concurrency)
        self.steering = PodSteering(
            self._state, self._policies, self._nominator, self.metrics, lambda: not self.not_ready()
        )
        self._state.on_steered = self.steering.follow
        self._rounds = RoundLoop(
            self._state,
            self._policies,
            self._worker,
            self.binder,
            self.steering,
            self._waiting,
            self.metrics,
            batcher,
            settings.resync,
            settings.round_budget,
            round_timeout=settings.round_timeout,
            liveness=Liveness(settings.round_timeout),
        )
        self._rounds.on_planned = self._planned
        self.steering.on_rejected = self._rounds.rejected
        self.steering.on_refused = lambda pod, why: self._rounds.refused(pod, why, steered=True)
        self._status = PolicyStatus(connection, self._state, self._policies, self._rounds, self._gates)
        self._reflectors: dict[str, Reflector[Any]] = {
            "nodes": self._reflect("nodes", sinks.node_decoder(intern), sinks.Nodes(self._state)),
            "pods": self._reflect("pods", pod_decoder, sinks.Pods(self._state)),
            "namespaces": self._reflect("namespaces", sinks.namespace_decoder(), sinks.Namespaces(self._state)),
            "deviceclasses": self._reflect(
                "deviceclasses", sinks.device_class_decoder(), sinks.DeviceClasses(self._state), "resource.k8s.io"
            ),
        }
        for plural, (group, kind) in _STORAGE.items():
            sink = sinks.StorageObjects(self._state, kind)
            self._reflectors[plural] = self._reflect(plural, storage_decoder(kind, intern), sink, group)
        #: Their objects only say what pods want: when their API is ill, everybody else's pods must go on.
        self._groups = frozenset(f"podgroups.{source.value}" for source in _POD_GROUPS)
        for source, versions in _POD_GROUPS.items():
            path, *older = (f"/apis/{source.value}/{version}/podgroups" for version in versions)
            kind = f"podgroups.{source.value}"
            self._reflectors[kind] = Reflector(
                kind,
                path,
                connection,
                sinks.pod_group_decoder(source, intern),
                sinks.PodGroups(self._state, source),
                self.metrics,
                self.bad_input,
                connection.outages,
                may_be_absent=True,
                older=older,
            )
        for kind, reflector in self._reflectors.items():
            self.metrics.watch_age.labels(kind).set_function(reflector.age)
        self.metrics.nodes.set_function(lambda: len(self._state.nodes))
        self.metrics.pods.set_function(lambda: len(self._state.pods))
        self.metrics.reservations.set_function(lambda: len(self._state.reservations))
        self._policy_resync = PolicyResync(connection, self._policies, self.bad_input)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    def _reflect(self, kind: str, decode: Callable[[bytes], T | None], sink: Sink[T], group: str = "") -> Reflector[T]:
        path = f"/apis/{group}/v1/{kind}" if group else f"/api/v1/{kind}"
        return Reflector(
            kind,
            path,
            self._connection,
            decode,
            sink,
            self.metrics,
            self.bad_input,
            self._connection.outages,
            may_be_absent=bool(group),
        )

    def _planned(self, request: RoundRequest, pods: Sequence[Pod], reply: RoundReply) -> None:
        self._progress.planned(request, pods, reply)
        self._observed.planned(request, pods, reply)

    def _bound(self, pod: Pod, node: str) -> None:
        self._progress.bound(pod, node)
        # In kube-scheduler's words.
        self._events.write(pod, "Scheduled", f"Successfully assigned {pod.key} to {node}", action="Binding")

    def _refused(self, pod: Pod, reason: str) -> None:
        self._progress.refused(pod, reason)
        self._rounds.refused(pod, reason)

    def not_ready(self) -> list[str]:
        """What is missing: kinds that were not listed yet or are stale, and the lease."""
        now = asyncio.get_running_loop().time()
        heard = {kind: (each.synced.is_set(), each.heard) for kind, each in self._reflectors.items()}
        heard["policies"] = (self._policy_resync.heard is not None, self._policy_resync.heard)
        missing = lacking(heard, now, never_stale=self._groups)
        return missing if self._elector.may_write else [*missing, "lease"]

    async def run(self) -> None:
        """Runs until a signal comes or a part fails for good."""
        served = application(self.metrics, self.not_ready, self._rounds.liveness.problem)
        runner = web.AppRunner(served, access_log=None, shutdown_timeout=_LAST_ANSWERS)
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
        try:
            self._start()
            await self._stop.wait()
        finally:
            await self._finish()
            await runner.cleanup()
        if isinstance(self._failure, OperatorError):
            raise self._failure  # it says all there is to say
        if self._failure is not None:
            raise OperatorError(f"a part of the operator failed: {self._failure!r}") from self._failure

    def _start(self) -> None:
        for kind, reflector in self._reflectors.items():
            self._begin(f"reflector {kind}", reflector.run())
        self._begin("lease", self._elector.run())
        self._begin("rounds", self._begin_rounds())

    async def _learn_models(self) -> None:
        """Starts the worker, which takes as long as a large cluster takes to list, and learns which cost models it has.

        Policies are read after that: the first one may name any of them.
        """
        failures = 0
        self._rounds.liveness.began()
        while True:
            try:
                self._policies.models = await self._worker.start()
                break
            except WorkerLost as error:
                failures += 1
                self._connection.outages.failed("worker", "not started", str(error))
                await asyncio.sleep(_FIRST.pause(failures))
        self._rounds.liveness.ended(success=True)
        self._connection.outages.over("worker")
        for name, problem in self._policies.models.problems.items():
            _log.warning("cost model not used", model=name, problem=problem)

    async def _begin_rounds(self) -> None:
        # Before all is known nothing may be placed: a node without its pods looks empty, and a pod whose policy was not
        # read yet looks ungoverned.
        await self._learn_models()
        self._begin("policies", watch_policies(self._connection, self._policies))
        failures = 0
        while not await self._policy_resync.once():
            failures += 1
            await asyncio.sleep(_FIRST.pause(failures))
        self._begin("policy resync", self._policy_resync.run())
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        await self._elector.held.wait()  # all that follows writes
        # What is known now mostly stays: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        _log.info("in sync", nodes=len(self._state.nodes), pods=len(self._state.pods))
        self._begin("event loop watch", watch_event_loop(self.metrics))
        self.steering.adopt_all()
        self._begin("events", self._events.run())
        self._begin("progress", self._progress.run())
        self._begin("binder", self.binder.run())
        self._begin("nominator", self._nominator.run())
        self._begin("steering", self.steering.run())
        self._begin("waiting pods", self._waiting.run())
        self._begin("evictor", self._evictor.run())
        self._begin("replacing", self._replacing.run())
        self._begin("partial gangs", PartialGangs(self._state, self._policies, self._evictor).run())
        self._begin("gates", self._gates.run())
        self._begin("policy status", self._status.run())
        # What a gang of which not all were nominated still holds must not be planned with.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLING):
                while not self.steering.settled:  # noqa: ASYNC110 - the watch shows it, there is no event for all
                    await asyncio.sleep(0.05)
        await self._rounds.run()

    def _begin(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            # Without one of its parts the operator would look alive and do nothing: end, and be started again.
            self._failure = task.exception()
            if not isinstance(self._failure, OperatorError):
                _log.error("part failed", part=task.get_name(), exc_info=self._failure)
            self._stop.set()

    async def _finish(self) -> None:
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        for task in tasks:
            if task.get_name() == "rounds":
                task.cancel()
        with suppress(TimeoutError):
            # Without the lease nothing more is sent: there is nothing to wait for.
            async with asyncio.timeout(_DRAIN if self._elector.may_write else 0):
                await self.binder.drain()
                await self._nominator.drain()
                await self._evictor.drain()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._worker.stop()
        await self._gates.stop()
        await self._elector.release()
        _log.info("stopped")
