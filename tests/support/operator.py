"""The operator as a real child process: started, asked, killed, started again."""

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from thalweg_controlplane.client.api import pause
from thalweg_controlplane.processes import die_with_parent

#: Seconds that a process may take to start and to be in sync, on a machine that many others use.
START_WITHIN = 240.0
#: How many times as long as a test says something may take: other work may slow the machine down that much.
_PATIENCE = 6
#: Below those that Linux gives to connections and to servers that ask for any port.
_PORTS = range(10_000, 32_000)
#: Those whose log a failing test shows.
STARTED: list["Operator"] = []


class Operator:
    """`thalweg run` against one API server. It keeps its port and its log over restarts.

    Without a `lease` each start takes a new one: no test waits for the lease of one that was killed to end.
    `program` is what Python runs as `thalweg`.
    """

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        address: str = "",
        lease: str = "",
        extender: Sequence[str] = (),
        program: Sequence[str] = ("-m", "thalweg"),
        *,
        replicated: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._kubeconfig, self._log, self._lease, self._program = kubeconfig, log, lease, program
        self._options = [*extender, *(["--replicated"] if replicated else [])]
        self._environment = {**os.environ, **(environment or {})}
        self.address = address or free_address()
        self._read = 0
        self._process: subprocess.Popen[bytes] | None = None
        #: When its process was started last, seconds of time.monotonic().
        self.began = 0.0

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None, "the operator does not run"
        return self._process.pid

    @property
    def log(self) -> str:
        """All it has said so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def new_log(self) -> str:
        """What it has said since this was last asked."""
        text = self.log
        new, self._read = text[self._read :], len(text)
        return new

    @property
    def kubeconfig(self) -> Path:
        """What it runs with; other operators may, too."""
        return self._kubeconfig

    def worker_pids(self) -> list[int]:
        """Its solver processes."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [pid for pid in map(int, children) if b"thalweg_operator.planning.worker.main" in _command(pid)]

    def begin(self) -> None:
        """Starts it without waiting for anything."""
        assert self._process is None or self._process.poll() is not None, "the operator runs already"
        lease = self._lease or f"kube-system/thalweg-{uuid.uuid4()}"
        command = [sys.executable, *self._program, "run", "--kubeconfig", str(self._kubeconfig), "--lease", lease]
        self.began = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--listen", self.address, "--log-format", "text", *self._options],
                env=self._environment,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl
            )

    async def start(self) -> None:
        """Starts it and waits until it is ready."""
        self.begin()
        await self.ready()

    async def ready(self, within: float = START_WITHIN) -> None:
        """Returns when /readyz says 200."""
        await self.answers("/readyz", 200, within)

    async def answers(self, path: str, status: int, within: float = START_WITHIN) -> str:
        """Waits until it answers with this status; the text of the answer."""
        last: tuple[int, str] = (0, "")

        async def answered() -> bool:
            nonlocal last
            self.check()
            last = await self.get(path)
            return last[0] == status

        await until(answered, within, lambda: f"{path} to answer {status}; last {last}")
        return last[1]

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its pages; status 0 while it does not listen."""
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{self.address}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError) as error:
            return 0, str(error)

    async def metrics(self) -> dict[str, float]:
        """Samples of /metrics: a name with its labels' values, such as ``thalweg_bindings_total bound``."""
        status, text = await self.get("/metrics")
        assert status == 200, text
        return {
            " ".join([sample.name, *sample.labels.values()]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def check(self) -> None:
        """Fails when it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"the operator ended with {self._process.returncode}:\n{self.log[-3000:]}")

    async def ended(self, within: float = 30.0) -> int:
        """Waits until it has ended by itself; its exit code."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, within)

    async def kill(self) -> None:
        """SIGKILL: it is gone when this returns."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(how)
        try:
            return await asyncio.to_thread(process.wait, 40)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
            raise AssertionError(f"the operator did not end within 40 s:\n{self.log[-3000:]}") from None


@asynccontextmanager
async def running_operator(
    kubeconfig: Path,
    log: Path,
    *,
    wait: bool = True,
    address: str = "",
    lease: str = "",
    extender: Sequence[str] = (),
    program: Sequence[str] = ("-m", "thalweg"),
    replicated: bool = False,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Operator]:
    """An operator that is ready (or, without `wait`, one that was only started), ended when the block is left.

    `extender` are its options --extender-*; `environment` comes on top of that of the tests.
    """
    operator = Operator(
        kubeconfig, log, address, lease, extender, program, replicated=replicated, environment=environment
    )
    STARTED.append(operator)
    try:
        if wait:
            await operator.start()
        else:
            operator.begin()
        yield operator
    finally:
        await operator.kill()
        STARTED.remove(operator)


def free_address() -> str:
    """Host and port on loopback where nobody listens now, and that the system gives to nobody until it is used."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"


async def until(condition: Callable[[], object], within: float, what: Callable[[], str]) -> None:
    """Waits for a condition, which may be a coroutine function.

    A condition that looks at what is not there yet (LookupError) does not hold yet. On a machine that is busy with
    other work all takes longer, so nobody gives up before ``_PATIENCE`` times as many seconds.
    """
    began = time.monotonic()
    while True:
        try:
            answer = condition()
            if asyncio.iscoroutine(answer):
                answer = await answer
        except LookupError:
            answer = False
        if answer:
            return
        waited = time.monotonic() - began
        if waited > _PATIENCE * within:
            raise TimeoutError(f"waited {waited:.0f} s for {what()}")
        await asyncio.sleep(pause(waited, 0.03))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
