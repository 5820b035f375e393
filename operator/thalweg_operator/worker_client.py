"""The operator's side of the worker process: start it, ask it, replace it when it dies or hangs."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import structlog

from thalweg_operator.errors import WorkerLost
from thalweg_operator.wire import LENGTH, RoundReply, RoundRequest, cut, reply_decoder, request_encoder

_log = structlog.get_logger()
#: Replies of 100,000 placements are a few megabytes.
_BUFFER = 2**24


class WorkerClient:
    """One worker process. Ask it one round at a time."""

    def __init__(self, timeout: float, records: Path | None = None) -> None:
        """A worker whose rounds are kept in the folder ``records``, if there is one."""
        self._timeout, self._records = timeout, records
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return self._process.pid if self._process is not None else None

    @property
    def alive(self) -> bool:
        """Whether it runs and remembers what it was told."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Starts the process if none runs; a new one knows nothing: its first request must be fresh.

        Raises:
            WorkerLost: it cannot be started.
        """
        if not self.alive:
            arguments = () if self._records is None else (str(self._records),)
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "thalweg_operator.worker", *arguments, stdin=PIPE, stdout=PIPE, limit=_BUFFER
                )
            except OSError as error:  # no memory or no process to be had
                raise WorkerLost(f"the worker process cannot be started: {error}") from error

    async def ask(self, request: RoundRequest) -> RoundReply:
        """The plan for a request.

        Raises:
            WorkerLost: it died, hung or failed; it was stopped, and the next one must be told everything.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise WorkerLost("not started")
        try:
            async with asyncio.timeout(self._timeout):
                for part in cut(request):
                    body = request_encoder.encode(part)
                    process.stdin.write(LENGTH.pack(len(body)))
                    process.stdin.write(body)
                    await process.stdin.drain()
                    await asyncio.sleep(0)
                length = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
                reply = reply_decoder.decode(await process.stdout.readexactly(length))
        except TimeoutError:
            await self.stop()
            raise WorkerLost(f"no plan after {self._timeout:.0f} s") from None
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.stop()
            raise WorkerLost(f"the worker process ended ({type(error).__name__})") from error
        if reply.problem:
            await self.stop()
            raise WorkerLost(f"the round failed: {reply.problem}")
        return reply

    async def stop(self) -> None:
        """Ends the process; a plan in the making is lost, nothing else."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
