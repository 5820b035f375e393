"""The operator's side of the worker process: start it, ask it, replace it when it dies or hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

import structlog

from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.amount_text import short_bytes
from flowcore.model.cost_policy import KnownModels
from thalweg_operator.errors import WorkerLost
from thalweg_operator.planning.worker.messages import (
    LENGTH,
    RoundReply,
    RoundRequest,
    greeting_decoder,
    reply_decoder,
    request_encoder,
    split_request,
)

_log = structlog.get_logger()
#: Replies of 100,000 placements are a few megabytes.
_BUFFER = 2**24
#: Seconds that a worker has to report an expired round, or to end.
_GRACE = 1.0
#: Environment variables that the worker inherits. It runs plug-ins (cost models) and needs no credentials.
_INHERITED = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_INHERITED_PREFIXES = ("PYTHON", "LC_", "OMP_", "OPENBLAS_", "MKL_", "MALLOC_")
#: Threads of numpy's linear algebra wait for each other in loops: they would cost more than they save.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class WorkerClient:
    """One worker process. It takes one request at a time."""

    def __init__(self, timeout: float, records: Path | None = None, memory: int = 0) -> None:
        """A worker.

        Args:
            timeout: seconds that any request may take.
            records: folder for the records of its rounds; None: rounds are not recorded.
            memory: bytes that it may use; 0: no limit.
        """
        self._timeout, self._records, self._memory = timeout, records, memory
        self._process: Process | None = None
        self._models = BUILT_IN_MODELS

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None where none runs."""
        return self._process.pid if self._process is not None else None

    @property
    def alive(self) -> bool:
        """Whether the process runs, so that it still knows the cluster."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> KnownModels:
        """Starts the process if none runs. A new process knows nothing: its first request must be a reset.

        Returns:
            the cost models that it has.

        Raises:
            WorkerLost: the process cannot be started, or it died or hung before it was ready.
        """
        if not self.alive:
            arguments = [str(self._memory), *([] if self._records is None else [str(self._records)])]
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "thalweg_operator.planning.worker.main", *arguments),
                    stdin=PIPE,
                    stdout=PIPE,
                    limit=_BUFFER,
                    env=worker_environment(),
                )
            except OSError as error:  # out of memory or processes
                raise WorkerLost(f"the worker process cannot be started: {error}") from error
            greeting = greeting_decoder.decode(await self._greeting(self._process))
            self._models = KnownModels(tuple(greeting.models), greeting.problems, frozenset(greeting.networks))
        return self._models

    async def _greeting(self, process: Process) -> bytes:
        assert process.stdout is not None  # noqa: S101 - it was started with a pipe
        try:
            async with asyncio.timeout(self._timeout):
                length = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
                return await process.stdout.readexactly(length)
        except TimeoutError:
            await self.stop()
            raise WorkerLost(f"not ready after {self._timeout:.0f} s") from None
        except asyncio.IncompleteReadError as error:
            await self.stop()
            raise WorkerLost("the worker process ended before it was ready") from error

    async def ask(self, request: RoundRequest) -> RoundReply:
        """The plan for a request.

        Raises:
            WorkerLost: the process died, hung or failed. It was stopped; the next one must be told everything.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise WorkerLost("not started")
        # The worker watches the deadline itself and says where it was. It cannot while native code runs.
        seconds = min(self._timeout, request.deadline + _GRACE) if request.deadline else self._timeout
        try:
            async with asyncio.timeout(seconds) as limit:
                for part in split_request(request):
                    body = request_encoder.encode(part)
                    process.stdin.write(LENGTH.pack(len(body)) + body)
                    await process.stdin.drain()
                    if part.has_more:
                        await asyncio.sleep(0)
                    # The worker reads: to take over a large cluster may last longer than any plan.
                    limit.reschedule(asyncio.get_running_loop().time() + seconds)
                length = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
                reply = reply_decoder.decode(await process.stdout.readexactly(length))
        except OverflowError as error:  # a number that nobody can send; the worker may have a part of the request
            await self.stop()
            raise WorkerLost(f"the request cannot be sent: {error}") from error
        except TimeoutError:
            await self.stop()
            raise WorkerLost(f"no plan after {request.deadline or seconds:.0f} s", "timeout") from None
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    await process.wait()
            await self.stop()
            raise self._ended(process.returncode) from error
        if reply.problem:
            await self.stop()
            raise WorkerLost(reply.problem, reply.cause)
        return reply

    def _ended(self, code: int | None) -> WorkerLost:
        if code == -signal.SIGKILL:
            return WorkerLost("the worker process was killed, most likely since memory ran out", "memory")
        how = signal.Signals(-code).name if code is not None and code < 0 else f"code {code}"
        if self._memory and code:
            # Native code that is refused memory aborts, or ends in another way.
            return WorkerLost(
                f"the worker process ended ({how}); its memory limit is {short_bytes(self._memory)}", "memory"
            )
        return WorkerLost(f"the worker process ended ({how})", "ended")

    async def stop(self) -> None:
        """Ends the process; only a plan in the making is lost."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


def worker_environment() -> dict[str, str]:
    """The environment of a process that plans: no credentials."""
    inherited = {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    return {**_ONE_THREAD, **inherited}
