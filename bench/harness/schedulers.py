"""The schedulers under test: each started alone on a control plane, asked, measured and stopped."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from thalweg_controlplane import ControlPlane
from thalweg_controlplane.processes import Child, until_ready

from harness.errors import BenchError
from harness.usage import child_named, family

KUBE_SCHEDULER = "kube-scheduler"
THALWEG = "thalweg"
RAW = "raw"
SCHEDULERS = (KUBE_SCHEDULER, THALWEG)

_IN_SYNC_SECONDS = 120.0
_TIMEOUT = aiohttp.ClientTimeout(total=10)

Samples = dict[str, float]


class Scheduler(Protocol):
    """One scheduler on one control plane.

    Attributes:
        name: as the tables call it.
        pods_name: what pods say in `schedulerName`.
        log: its log file.
    """

    name: str
    pods_name: str
    log: Path

    async def start(self) -> None:
        """Starts it; returns once it knows all nodes and pods."""

    async def warm(self) -> None:
        """Returns once a pod that comes now would not have to wait for anything that happens only once."""

    def pids(self) -> list[int]:
        """All its processes."""

    async def metrics(self) -> Samples:
        """Its metrics: a name with its labels' values, such as `thalweg_bindings_total bound`."""

    async def waiting(self) -> tuple[float, ...]:
        """What it says about pods that wait; as long as this changes it is at work."""

    def check(self) -> None:
        """Raises when it has ended by itself."""

    async def stop(self) -> None:
        """Ends it cleanly."""


class Thalweg:
    """`thalweg run`, of the Python that runs the benchmark.

    Args:
        profile: where cProfile's result of the operator's own process goes; profiled figures are not comparable.
        options: arguments of `thalweg run` in place of those that serve the extender.
        ready: page that says 200 once it has started.
    """

    name = THALWEG
    pods_name = "thalweg"

    def __init__(
        self,
        plane: ControlPlane,
        profile: Path | None = None,
        options: Sequence[str] | None = None,
        ready: str = "/readyz",
    ) -> None:
        self._ready_page = ready
        self.address, self.extender = free_address(), free_address()
        self.log = plane.workdir / "thalweg.log"
        profiler = ["-m", "cProfile", "-o", str(profile)] if profile else []
        # -P: a module of the working folder must not stand in for an installed one.
        command = [sys.executable, "-P", *profiler, "-m", "thalweg", "run", "--kubeconfig", str(plane.kubeconfig)]
        command += ["--listen", self.address, "--log-format", "json"]
        command += ["--extender-listen", self.extender] if options is None else options
        self._child = Child(THALWEG, command, self.log)

    async def start(self, within: float = _IN_SYNC_SECONDS) -> None:
        self._child.start()
        await until_ready(self._child, self._ready, within)

    async def warm(self) -> None:
        # The worker is told of the cluster as soon as it runs; in earlier versions that was the first round.
        deadline = time.monotonic() + _IN_SYNC_SECONDS
        while not _has_worker(await self.metrics()):
            self.check()
            if time.monotonic() > deadline:
                raise BenchError(f"no worker within {_IN_SYNC_SECONDS:.0f} s:\n{self._child.tail()}")
            await asyncio.sleep(0.05)

    def pids(self) -> list[int]:
        return family(self._child.pid) if self._child.pid is not None else []

    async def metrics(self) -> Samples:
        return await read_samples(f"http://{self.address}/metrics", None)

    async def waiting(self) -> tuple[float, ...]:
        samples = await self.metrics()
        waiting = sum(value for name, value in samples.items() if name.split()[0] == "thalweg_waiting_pods")
        return waiting, samples.get("thalweg_reservations", 0.0)

    def check(self) -> None:
        self._child.check()

    async def stop(self) -> None:
        await self._child.stop(grace=30.0)

    async def _ready(self) -> bool:
        return await answers(f"http://{self.address}{self._ready_page}")


def _has_worker(samples: Samples) -> bool:
    rounds = any(name.startswith("thalweg_rounds_total") for name in samples)
    return rounds or samples.get("thalweg_worker_memory_bytes", 0.0) > 0.0


class KubeScheduler:
    """The real one, with the control plane's configuration: no leader election, 10,000 requests a second."""

    name = KUBE_SCHEDULER
    pods_name = "default-scheduler"

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.log = plane.workdir / f"{KUBE_SCHEDULER}.log"

    async def start(self) -> None:
        await self._plane.start(KUBE_SCHEDULER)

    async def warm(self) -> None:
        """Nothing: its /readyz waits for all it needs."""

    def kube_scheduler(self) -> list[int]:
        """Its own process, without what runs beside it."""
        pid = child_named(KUBE_SCHEDULER)
        return [pid] if pid is not None else []

    def pids(self) -> list[int]:
        return self.kube_scheduler()

    async def metrics(self) -> Samples:
        # Loopback, and only numbers: whose certificate it is does not matter.
        tls = ssl._create_unverified_context()  # noqa: S323, SLF001
        return await read_samples(self._plane.metrics_url(KUBE_SCHEDULER), tls)

    async def waiting(self) -> tuple[float, ...]:
        samples = await self.metrics()
        return tuple(samples.get(f"scheduler_pending_pods {queue}", 0.0) for queue in ("active", "backoff"))

    def check(self) -> None:
        self._plane.check()

    async def stop(self) -> None:
        await self._plane.kill(KUBE_SCHEDULER)


class RawClient:
    """A client that binds every pod without a plan (raw_client.py): the most that bindings by one client can reach."""

    name = RAW
    pods_name = RAW

    def __init__(self, plane: ControlPlane) -> None:
        self._address = free_address()
        self.log = plane.workdir / "raw.log"
        script = Path(__file__).with_name("raw_client.py")
        self._child = Child(RAW, [sys.executable, str(script), str(plane.kubeconfig), self._address], self.log)

    async def start(self) -> None:
        self._child.start()
        await until_ready(self._child, lambda: listens(self._address), _IN_SYNC_SECONDS)

    async def warm(self) -> None:
        """Nothing: its watches are open."""

    def pids(self) -> list[int]:
        return family(self._child.pid) if self._child.pid is not None else []

    async def metrics(self) -> Samples:
        return {}

    async def waiting(self) -> tuple[float, ...]:
        return ()

    def check(self) -> None:
        self._child.check()

    async def stop(self) -> None:
        await self._child.stop()


def make(name: str, plane: ControlPlane, profile: Path | None = None) -> Scheduler:
    """The scheduler of this name."""
    return Thalweg(plane, profile) if name == THALWEG else KubeScheduler(plane)


@contextmanager
def log_kept(scheduler: Scheduler, folder: Path | None, name: str) -> Iterator[None]:
    """Copies the scheduler's log into the folder when the block is left, in whatever way."""
    try:
        yield
    finally:
        if folder is not None and scheduler.log.exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.log").write_bytes(scheduler.log.read_bytes())


async def read_samples(url: str, tls: ssl.SSLContext | None) -> Samples:
    async with (
        aiohttp.ClientSession(timeout=_TIMEOUT) as session,
        session.get(url, ssl=tls if tls is not None else True) as answer,
    ):
        answer.raise_for_status()
        text = await answer.text()
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family_ in text_string_to_metric_families(text)
        for sample in family_.samples
    }


async def answers(url: str) -> bool:
    """Whether it says 200."""
    try:
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, session.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


async def listens(address: str) -> bool:
    """Whether somebody accepts connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


def free_address() -> str:
    """HOST:PORT on loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
