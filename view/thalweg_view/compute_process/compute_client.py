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
#: Seconds beyond those of an answer in which the process must say that they are over.
_GRACE: Final = 5.0
#: Most rounds that a new process gets, and most bytes of them.
_ROUNDS, _ROUND_BYTES = 200, 64 * 2**20
#: Environment variables that the process inherits. It runs plug-ins (cost models) and needs no credentials.
_INHERITED: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_INHERITED_PREFIXES: Final = ("PYTHON", "LC_", "OMP_", "OPENBLAS_", "MKL_", "MALLOC_")
#: A process that forks has no other threads: numpy's would begin with its import.
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
#: What is expected of the process beside answers, which have the numbers of questions.
_READY_OR_STATE: Final = 0

_Reply = Ready | StateRead | Answered


class ComputeClient:
    """One compute process at a time. It answers several questions at once.

    Args:
        source: what the process tells of where its data comes from.
        memory: bytes that the process may use with its questions; 0: no limit.

    Attributes:
        deadline: seconds that one answer may take; then the question is ended.
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
        #: Held for a state as a whole, until it is read: nothing else may come between its pieces.
        self._sending = asyncio.Lock()
        self._questions = count(_READY_OR_STATE + 1)
        self._expected: dict[int, asyncio.Future[_Reply]] = {}
        self._receiver: asyncio.Task[None] | None = None

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
        """Has a state read; the process runs. Where that fails or is cancelled, the process ends: it has half a state.

        Returns:
            what was read, and a digest of it that does not depend on when it was written.

        Raises:
            ComputeLost: the process ended.
        """
        async with self._sending:
            try:
                async with asyncio.timeout(_READ_STATE):
                    reply = self._expect(_READY_OR_STATE)
                    lines, digest = b"", hashlib.sha256()
                    async for piece in pieces:
                        # The first line says when the state was written.
                        digest.update(piece if lines else piece.partition(b"\n")[2])
                        if lines:
                            await self._send(StatePiece(lines, last=False))
                        lines = piece
                    await self._send(StatePiece(lines, last=True))
                    state = await reply
            except TimeoutError:
                await self.stop()
                raise ComputeLost(f"the view had not read the state after {_READ_STATE:g} s") from None
            except BaseException:
                await self.stop()
                raise
        assert isinstance(state, StateRead)  # noqa: S101 - one state at a time
        return state, digest.digest()

    async def ask(self, request: OperationRequest) -> Answered:
        """The answer to a request, whose number is chosen here.

        Raises:
            ComputeLost: the process ended, or said nothing though the time of the answer was over.
        """
        number, seconds = next(self._questions), request.seconds + _GRACE
        try:
            async with self._sending, asyncio.timeout(seconds):
                reply = self._expect(number)
                await self._tell_rounds()
                await self._send(msgspec.structs.replace(request, number=number))
            await self._wait(reply, seconds)
        except TimeoutError:
            await self.stop()
            raise ComputeLost(f"the view had no answer after {request.seconds:g} s") from None
        finally:
            self._expected.pop(number, None)
        answered = reply.result()
        assert isinstance(answered, Answered)  # noqa: S101
        return answered

    async def _wait(self, reply: asyncio.Future[_Reply], seconds: float) -> None:
        while not (await asyncio.wait([reply], timeout=seconds))[0]:
            if not self._sending.locked():  # it answers nothing while it reads a state
                raise TimeoutError

    async def _tell_rounds(self) -> None:
        for number, plan in list(self._rounds):
            if number > self._told:
                self._told = number
                await self._send(NewRound(plan))

    async def stop(self) -> None:
        """Ends the process, and what it computes."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process is not None:
            await process.wait()
        if self._receiver is not None:
            await asyncio.wait([self._receiver])

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
                start_new_session=True,  # Ctrl-C is for the owner, who ends the process and its forks as one group
            )
        except OSError as error:  # out of memory or processes
            raise ComputeLost(f"the view's compute process cannot be started: {error}") from error
        reply = self._expect(_READY_OR_STATE)
        self._receiver = asyncio.create_task(self._receive(self._process), name="answers of the view")
        try:
            async with asyncio.timeout(_START):
                ready = await reply
        except TimeoutError:
            await self.stop()
            raise ComputeLost(f"the view's compute process was not ready after {_START:g} s") from None
        assert isinstance(ready, Ready)  # noqa: S101
        self.operations = ready.operations

    def _expect(self, number: int) -> asyncio.Future[_Reply]:
        reply = self._expected[number] = asyncio.get_running_loop().create_future()
        return reply

    async def _send(self, message: Message) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            raise ComputeLost(f"the view's compute process {await _end_of(process)}")
        assert process.stdin is not None  # noqa: S101
        try:
            process.stdin.write(framed(message))
            await process.stdin.drain()
        except ConnectionError as error:
            raise ComputeLost(f"the view's compute process {await _end_of(process)}") from error

    async def _receive(self, process: Process) -> None:
        """Gives replies to those who expect them, until the process ends."""
        assert process.stdout is not None  # noqa: S101
        try:
            while True:
                length = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
                reply: _Reply = reply_decoder.decode(await process.stdout.readexactly(length))
                number = reply.number if isinstance(reply, Answered) else _READY_OR_STATE
                expected = self._expected.pop(number, None)
                if expected is not None and not expected.done():
                    expected.set_result(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            lost = ComputeLost(f"the view's compute process {await _end_of(process)}")
            for expected in self._expected.values():
                if not expected.done():
                    expected.set_exception(lost)
                    expected.exception()  # nobody may wait for it any more
            self._expected.clear()


async def _end_of(process: Process | None) -> str:
    """How a process ended, as the end of a sentence."""
    if process is None:
        return "does not run"
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await process.wait()
    code = process.returncode
    if code == -signal.SIGKILL:
        return "was killed, most likely since memory ran out"
    return f"ended ({signal.Signals(-code).name if code is not None and code < 0 else f'code {code}'})"


def _environment() -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    return inherited | _ONE_THREAD
