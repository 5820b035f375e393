"""Wires the operator together and runs it."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import structlog
from aiohttp import web

from flowcore.model.gang_terms import Source
from flowcore.model.wire import Interner, storage_decoder
from thalweg_operator import sinks
from thalweg_operator.backoff import Backoff
from thalweg_operator.bad_input import BadInput
from thalweg_operator.batcher import Batcher
from thalweg_operator.binder import Binder
from thalweg_operator.connection import Connection, connect
from thalweg_operator.cost_models import find_models
from thalweg_operator.errors import OperatorError, WorkerLost
from thalweg_operator.evictions import Evictor
from thalweg_operator.gate_admission import GateAdmission
from thalweg_operator.health import Progress, application, lacking, watch_event_loop
from thalweg_operator.metrics import Metrics
from thalweg_operator.nominator import Nominator
from thalweg_operator.partial import PartialGangs
from thalweg_operator.policies import PolicyStore
from thalweg_operator.policy_handlers import watch_policies
from thalweg_operator.policy_resync import PolicyResync
from thalweg_operator.policy_status import PolicyStatus
from thalweg_operator.reflector import Reflector, Sink
from thalweg_operator.replacing import Replacing
from thalweg_operator.rounds import RoundLoop
from thalweg_operator.settings import Settings
from thalweg_operator.state import ClusterState
from thalweg_operator.steering import PodSteering
from thalweg_operator.waiting import WaitingPods
from thalweg_operator.worker_client import WorkerClient

T = TypeVar("T")

_log = structlog.get_logger()
#: Seconds that bindings under way may take when the operator is told to stop.
_DRAIN = 10.0
#: Seconds that nominations which are taken back after a restart may take.
_SETTLING = 10.0
#: Seconds that answers under way may take when the operator is told to stop.
_LAST_ANSWERS = 2.0
#: Between tries to list the policies for the first time: the API server says 429 for a moment after it took the CRD.
_FIRST_POLICIES = Backoff(first=0.5, longest=5.0)
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


async def run(settings: Settings, extras: Callable[[Operator], Mapping[str, web.Application]] = lambda _: {}) -> None:
    """Runs the operator until a signal ends it.

    Args:
        extras: what is served beside the probes, by path.

    Raises:
        OperatorError: it cannot start or go on.
    """
    connections = settings.bind_concurrency + settings.steer_concurrency + 24
    async with connect(settings.kubeconfig, connections, settings.context) as connection:
        _log.info("cluster", server=connection.server, context=connection.credentials.context, source=settings.source)
        operator = Operator(settings, connection)
        await operator.run(extras(operator))


class Operator:
    """All parts of one operator process.

    Attributes:
        steering, binder, metrics: for what is served beside the probes.
    """

    def __init__(self, settings: Settings, connection: Connection) -> None:
        self._settings, self._connection = settings, connection
        self.metrics = Metrics()
        self._bad_input = BadInput(self.metrics)
        self._state, self._policies = ClusterState(), PolicyStore(models := find_models())
        for name, problem in models.problems.items():
            _log.warning("cost model not used", model=name, problem=problem)
        batcher = Batcher(settings.idle_window, settings.max_window)
        self._state.on_change = batcher.touch
        self._gates = GateAdmission(connection, self._policies)

        def policies_changed() -> None:
            batcher.touch()
            self._gates.touch()

        self._policies.on_change = policies_changed
        self._worker = WorkerClient(settings.round_timeout, settings.records)
        self._waiting = WaitingPods(connection, self._state, self.metrics, settings.told_per_second)
        self.binder = Binder(
            connection,
            self._state,
            self.metrics,
            settings.bind_concurrency,
            lambda pod, why: self._rounds.refused(pod, why),  # noqa: PLW0108 - the two know each other
        )
        self._evictor = Evictor(connection, self.metrics)
        self._replacing = Replacing(
            self._state,
            self._policies,
            self._evictor,
            self._waiting.tell,
            lambda pod, why, steered: self._rounds.refused(pod, why, steered=steered),
        )
        intern = Interner()
        pod_decoder = sinks.pod_decoder(intern)
        self._nominator = Nominator(connection, self.metrics, settings.steer_concurrency)
        self.steering = PodSteering(
            self._state, self._policies, self._nominator, self.metrics, pod_decoder, lambda: not self.not_ready()
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
            progress=Progress(settings.round_timeout),
        )
        self.steering.on_rejected = self._rounds.rejected
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
                self._bad_input,
                connection.outages,
                may_be_absent=True,
                older=older,
            )
        for kind, reflector in self._reflectors.items():
            self.metrics.watch_age.labels(kind).set_function(reflector.age)
        self.metrics.nodes.set_function(lambda: len(self._state.nodes))
        self.metrics.pods.set_function(lambda: len(self._state.pods))
        self.metrics.reservations.set_function(lambda: len(self._state.reservations))
        self._policy_resync = PolicyResync(connection, self._policies, self._bad_input)
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
            self._bad_input,
            self._connection.outages,
            may_be_absent=bool(group),
        )

    def not_ready(self) -> list[str]:
        """What the snapshot lacks: kinds that were not listed yet, and kinds that are stale."""
        now = asyncio.get_running_loop().time()
        heard = {kind: (each.synced.is_set(), each.heard) for kind, each in self._reflectors.items()}
        heard["policies"] = (self._policy_resync.heard is not None, self._policy_resync.heard)
        return lacking(heard, now, never_stale=self._groups)

    async def run(self, extras: Mapping[str, web.Application]) -> None:
        """Runs until a signal comes or a part fails for good."""
        served = application(self.metrics, self.not_ready, self._rounds.progress.problem, extras)
        # Longer than kube-scheduler keeps its idle connections: it does not repeat a request that met a closed one.
        runner = web.AppRunner(served, access_log=None, keepalive_timeout=120.0, shutdown_timeout=_LAST_ANSWERS)
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
        if self._failure is not None:
            raise OperatorError(f"a part of the operator failed: {self._failure!r}") from self._failure

    def _start(self) -> None:
        for kind, reflector in self._reflectors.items():
            self._begin(f"reflector {kind}", reflector.run())
        self._begin("policies", watch_policies(self._connection, self._policies))
        self._begin("rounds", self._begin_rounds())

    async def _begin_rounds(self) -> None:
        # Before all is known nothing may be placed: a node without its pods looks empty, and a pod whose policy was not
        # read yet looks ungoverned.
        with suppress(WorkerLost):  # the rounds try again
            await self._worker.start()  # it takes as long to import what it needs as a large cluster takes to list
        failures = 0
        while not await self._policy_resync.once():
            failures += 1
            await asyncio.sleep(_FIRST_POLICIES.pause(failures))
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        # What is known now mostly stays: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        _log.info("in sync", nodes=len(self._state.nodes), pods=len(self._state.pods))
        self._begin("event loop watch", watch_event_loop(self.metrics))
        self._begin("policy resync", self._policy_resync.run())
        self.steering.adopt_all()
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
            _log.error("part failed", part=task.get_name(), exc_info=task.exception())
            self._stop.set()

    async def _finish(self) -> None:
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        for task in tasks:
            if task.get_name() == "rounds":
                task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN):
                await self.binder.drain()
                await self._nominator.drain()
                await self._evictor.drain()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._worker.stop()
        _log.info("stopped")
