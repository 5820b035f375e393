"""Answers questions: reads the state again when it is old, and asks the compute process, one question at a time.

Callers take turns, so a caller with many questions delays only themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from math import ceil
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import structlog

from flowcore.planning.plan_document import PlanDocument
from thalweg_view.callers.view_limits import ViewLimits
from thalweg_view.compute_process.compute_client import ComputeClient
from thalweg_view.compute_process.messages import Answered, OperationRequest, OperationShape
from thalweg_view.errors import ComputeLost, RequestRefused
from thalweg_view.source import ViewSource

_log = structlog.get_logger()
#: Seconds between two states of a live source, as a multiple of what the last one took.
_AGE_PER_SECOND: Final = 10.0
#: Seconds before the state is read again for a new process, at most.
_LONGEST_PAUSE: Final = 30.0
_T = TypeVar("_T")


class Answering:
    """Answers the questions of the view's callers, in turns.

    Attributes:
        generation: grows with each state that differs from the one before, and with each round.
        on_state: called with each such state.
    """

    def __init__(
        self,
        source: ViewSource,
        compute: ComputeClient,
        limits: ViewLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock``: seconds of a monotonic clock."""
        self._source, self._compute, self._limits, self._clock = source, compute, limits, clock
        self.generation = 0
        self.on_state: Callable[[], None] = lambda: None
        self._namespaces: frozenset[str] = frozenset()
        self._digest, self._state_read = b"", False
        self._turn, self._ends = asyncio.Lock(), False
        self._running: asyncio.Future[Any] | None = None
        #: Of callers (``Caller.share``) whose questions wait: one question of each may wait for its turn.
        self._caller_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._read_at, self._read_seconds = float("-inf"), 0.0

    def put_round(self, plan: PlanDocument) -> None:
        """The newest round."""
        self._compute.put_round(plan)
        self.generation += 1

    @property
    def known(self) -> Collection[str]:
        """Names of operations; empty before anybody asked."""
        return self._compute.operations

    async def operations(self) -> Mapping[str, OperationShape]:
        """What can be asked, by name.

        Raises:
            RequestRefused: the compute process cannot be started.
        """
        if not self._compute.operations:
            await self.refresh()
        return self._compute.operations

    async def namespaces(self) -> Collection[str]:
        """The namespaces with pods, of a state that is not too old.

        Raises:
            RequestRefused: there is no state.
        """
        await self.refresh()
        return self._namespaces

    async def refresh(self) -> None:
        """Reads the state again if it is old.

        Raises:
            RequestRefused: it cannot be read.
        """
        if self._is_old():
            await self._in_turn(self._refresh)

    async def ask(
        self, share: str, operation: str, query: bytes, namespaces: list[str] | None, *, strict: bool, nodes: bool
    ) -> Answered:
        """The answer to a question of one of the callers with this share; see ``OperationRequest``.

        Raises:
            RequestRefused: there is none.
        """

        async def compute() -> Answered:
            if not self._has_state():
                await self._read()
            seconds = self._compute.deadline
            request = OperationRequest(operation, query, strict, namespaces, nodes, self.generation, seconds)
            try:
                return await self._compute.ask(request)
            except ComputeLost as error:
                _log.error("compute process of the view restarted", problem=str(error), operation=operation)
                raise RequestRefused(503, f"{error}; ask again, or ask for less", retry_after=1) from error

        async with self._caller_turns.setdefault(share, asyncio.Lock()):
            return await self._in_turn(compute)

    async def _in_turn(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Uses the process exclusively.

        A caller that goes away leaves the queue. What has begun goes on: ended within, the process would have to start
        and read again.
        """
        await self._turn.acquire()
        if self._ends:
            self._turn.release()
            raise _view_ends()
        self._running = task = asyncio.ensure_future(work())
        task.add_done_callback(self._turn_over)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise _view_ends() from None
            raise

    def _turn_over(self, task: asyncio.Future[Any]) -> None:
        self._turn.release()
        if not task.cancelled():
            task.exception()  # its caller may be gone, then nobody else asks for it

    def _has_state(self) -> bool:
        """Whether the process runs and has read a state."""
        return self._compute.alive and self._state_read

    def _is_old(self) -> bool:
        if not self._has_state():
            return True
        pause = max(self._limits.state_age, _AGE_PER_SECOND * self._read_seconds)
        return self._source.kind == "live" and self._clock() - self._read_at > pause

    async def _refresh(self) -> None:
        if self._is_old():
            await self._read()

    async def _read(self) -> None:
        # Questions that end the process must not make the source write its state without a pause.
        pause = min(_LONGEST_PAUSE, _AGE_PER_SECOND * self._read_seconds) - (self._clock() - self._read_at)
        if not self._has_state() and pause > 0:
            raise RequestRefused(503, f"the view reads the cluster's state again in {pause:.0f} s", ceil(pause))
        self._state_read, began = False, self._clock()
        try:
            await self._compute.start()
            began = self._clock()
            reply, digest = await self._compute.read_state(self._source.state())
        except ComputeLost as error:
            _log.error("compute process of the view restarted", problem=str(error), operation="state")
            raise RequestRefused(503, str(error), retry_after=1) from error
        except Exception as error:
            _log.exception("state not read")
            raise RequestRefused(500, "internal error of the view; read the log") from error
        finally:
            self._read_at = self._clock()
            self._read_seconds = self._read_at - began
        if reply.problem:
            raise RequestRefused(503, reply.problem, retry_after=1)
        self._state_read = True
        self._namespaces = frozenset(reply.namespaces)
        if digest != self._digest:
            self._digest = digest
            self.generation += 1
            self.on_state()

    async def stop(self) -> None:
        """Ends the compute process; questions under way are refused, and so are later ones."""
        self._ends = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        await self._compute.stop()


def _view_ends() -> RequestRefused:
    return RequestRefused(503, "the view ends", retry_after=2)
