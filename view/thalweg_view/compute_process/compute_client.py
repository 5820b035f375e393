"""A view's side of its compute process: start it, ask it, start it again when it is gone."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Final

import msgspec

from flowcore.planning.plan_document import PlanDocument
from thalweg_view.compute_process.messages import (
    LENGTH,
    Answered,
    Message,
    NewRound,
    OperationRequest,
    OperationShape,
    Ready,
    StatePiece,
    StateRead,
    framed,
    reply_decoder,
)
from thalweg_view.errors import ComputeLost
from thalweg_view.view_data import SourceInfo

_BUFFER: Final = 2**24
#: Seconds that the process may take to start, on a busy machine, and to read a state.
_START, _READ_STATE = 60.0, 300.0
#: Most rounds that a new process gets, and most bytes of them.
_ROUNDS, _ROUND_BYTES = 200, 64 * 2**20
#: Environment variables that the process inherits. It runs plug-ins (cost models) and needs no credentials.
_INHERITED: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_INHERITED_PREFIXES: Final = ("PYTHON", "LC_", "OMP_", "OPENBLAS_", "MKL_", "MALLOC_")


class ComputeClient:
    """One compute process at a time; its owner asks one thing at a time.

    Args:
        source: what the process tells of where its data comes from.
        memory: bytes that the process may use; 0: no limit.

    Attributes:
        deadline: seconds that one answer may take; then the process is ended.
        operations: what can be asked; empty before the process was started for the first time.
    """

    def __init__(self, source: SourceInfo, deadline: float, memory: int = 0) -> None:
        self._source, self.deadline, self._memory = source, deadline, memory
        self._process: Process | None = None
        self.operations: Mapping[str, OperationShape] = {}
        self._rounds: deque[tuple[int, bytes]] = deque(maxlen=_ROUNDS)
        self._round_bytes, self._numbers = 0, count(1)
        #: Number of the last round that the process was told.
        self._told = 0

    @property
    def pid(self) -> int | None:
        """Process id; None where none runs."""
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs, so that it still has its state."""
        return self._process is not None and self._process.returncode is None

    def put_round(self, plan: PlanDocument) -> None:
        """Takes the newest round. The process gets it before the next question."""
        encoded = msgspec.msgpack.encode(plan)
        if len(self._rounds) == _ROUNDS:
            self._drop_oldest()
        self._rounds.append((next(self._numbers), encoded))
        self._round_bytes += len(encoded)
        while self._round_bytes > _ROUND_BYTES and len(self._rounds) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._round_bytes -= len(self._rounds.popleft()[1])

    async def read_state(self, pieces: AsyncIterator[bytes]) -> tuple[StateRead, bytes]:
        """Has a state read; the process runs.

        Returns:
            what was read, and a digest of it that does not depend on when it was written.

        Raises:
            ComputeLost: the process ended.
        """
        async with self._exchange(_READ_STATE):
            lines, digest = b"", hashlib.sha256()
            async for piece in pieces:
                # The first line says when the state was written.
                digest.update(piece if lines else piece.partition(b"\n")[2])
                if lines:
                    await self._send(StatePiece(lines, last=False))
                lines = piece
            await self._send(StatePiece(lines, last=True))
            reply = await self._receive()
        assert isinstance(reply, StateRead)  # noqa: S101 - replies come in the order of requests
        return reply, digest.digest()

    async def ask(self, request: OperationRequest) -> Answered:
        """The answer to a request.

        Raises:
            ComputeLost: the process ended, or its time was over.
        """
        async with self._exchange(self.deadline):
            for number, plan in list(self._rounds):
                if number > self._told:
                    await self._send(NewRound(plan))
                    self._told = number
            await self._send(request)
            reply = await self._receive()
        assert isinstance(reply, Answered)  # noqa: S101
        return reply

    async def stop(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
        if process is not None:
            await process.wait()

    async def start(self) -> None:
        """Starts the process if none runs; it has no state then.

        Raises:
            ComputeLost: it cannot be started.
        """
        if self.alive:
            return
        await self.stop()
        self._told = 0
        source = self._source
        arguments = (str(self._memory), source.kind, source.name, source.version)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "thalweg_view.compute_process.compute", *arguments),
                stdin=PIPE,
                stdout=PIPE,
                limit=_BUFFER,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the owner, who ends the process
            )
        except OSError as error:  # out of memory or processes
            raise ComputeLost(f"the view's compute process cannot be started: {error}") from error
        async with self._exchange(_START):
            ready = await self._receive()
        assert isinstance(ready, Ready)  # noqa: S101
        self.operations = ready.operations

    def _exchange(self, seconds: float) -> _Exchange:
        return _Exchange(self, seconds)

    async def _send(self, message: Message) -> None:
        assert self._process is not None and self._process.stdin is not None  # noqa: S101, PT018
        self._process.stdin.write(framed(message))
        await self._process.stdin.drain()

    async def _receive(self) -> Ready | StateRead | Answered:
        assert self._process is not None and self._process.stdout is not None  # noqa: S101, PT018
        length = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))[0]
        reply: Ready | StateRead | Answered = reply_decoder.decode(await self._process.stdout.readexactly(length))
        return reply

    async def ended(self) -> str:
        """How the process ended."""
        process = self._process
        if process is None:
            return "does not run"
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await process.wait()
        code = process.returncode
        if code == -signal.SIGKILL:
            return "was killed, most likely since memory ran out"
        return f"ended ({signal.Signals(-code).name if code is not None and code < 0 else f'code {code}'})"


class _Exchange:
    """A message and its reply.

    A failure within, also a cancellation, ends the process: it would be out of step with its owner.
    """

    def __init__(self, client: ComputeClient, seconds: float) -> None:
        self._client, self._seconds = client, seconds
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        if not self._client.alive:
            raise ComputeLost(f"the view's compute process {await self._client.ended()}")
        await self._timeout.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._timeout.__aexit__(*error)  # type: ignore[arg-type]
        except TimeoutError:
            await self._client.stop()
            raise ComputeLost(f"the view had no answer after {self._seconds:.0f} s") from None
        if isinstance(error[1], asyncio.IncompleteReadError | ConnectionError):
            how = await self._client.ended()
            await self._client.stop()
            raise ComputeLost(f"the view's compute process {how}") from error[1]
        if error[1] is not None:
            await self._client.stop()


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
