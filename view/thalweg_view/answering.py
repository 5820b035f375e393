"""Answers questions: reads the state again when it is old, and asks the compute process, some questions at a time.

Callers take turns, so a caller with many or dear questions delays only themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from math import ceil
from typing import Any, Final, TypeVar

import msgspec
import structlog

from flowcore.planning.plan_document import PlanDocument
from thalweg_view.callers.access import Caller
from thalweg_view.callers.turns import AnswerTurns
from thalweg_view.callers.view_limits import ViewLimits
from thalweg_view.compute_process.compute_client import ComputeClient
from thalweg_view.compute_process.messages import UNAVAILABLE, Answered, OperationRequest, OperationShape
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
        self._turns, self._reading = AnswerTurns(limits.answers, clock), asyncio.Lock()
        self._running: set[asyncio.Future[Any]] = set()
        self._ends = False
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
            await self._to_its_end(self._read_if(self._is_old))

    async def ask(
        self,
        caller: Caller,
        operation: str,
        query: bytes,
        namespaces: list[str] | None,
        *,
        sees_all: bool,
        strict: bool,
        nodes: bool,
    ) -> Answered:
        """The answer to a question; see ``OperationRequest``.

        Args:
            sees_all: whether the caller may list the pods of all namespaces, whatever the question is about.

        Raises:
            RequestRefused: there is none.
        """

        async def compute() -> Answered:
            await self._read_if(lambda: not self._has_state())
            seconds = self._compute.deadline
            request = OperationRequest(0, operation, query, strict, namespaces, nodes, self.generation, seconds)
            try:
                return await self._compute.ask(request)
            except ComputeLost as error:
                _log.error("compute process of the view restarted", problem=str(error), operation=operation)
                raise RequestRefused(503, f"{error}; ask again, or ask for less", retry_after=1) from error

        end = await self._turns.take(caller.share, sees_all=sees_all)
        answered = await self._to_its_end(compute(), end)
        if answered.status == UNAVAILABLE:
            reason = msgspec.json.decode(answered.body)["error"]
            raise RequestRefused(UNAVAILABLE, f"{reason}; ask for less", retry_after=1)
        return answered

    async def _to_its_end(self, work: Coroutine[Any, Any, _T], after: Callable[[], None] = lambda: None) -> _T:
        """Does work to its end, also where the caller goes away meanwhile: a state would have to be read again.

        Args:
            after: called at the end.
        """
        task = asyncio.ensure_future(work)
        self._running.add(task)

        def ended(_task: object) -> None:
            self._running.discard(task)
            after()
            if not task.cancelled():
                task.exception()  # its caller may be gone, then nobody else asks for it

        task.add_done_callback(ended)
        if self._ends:
            task.cancel()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise RequestRefused(503, "the view ends", retry_after=2) from None
            raise

    def _has_state(self) -> bool:
        """Whether the process runs and has read a state."""
        return self._compute.alive and self._state_read

    def _is_old(self) -> bool:
        if not self._has_state():
            return True
        pause = max(self._limits.state_age, _AGE_PER_SECOND * self._read_seconds)
        return self._source.kind == "live" and self._clock() - self._read_at > pause

    async def _read_if(self, needed: Callable[[], bool]) -> None:
        async with self._reading:
            if needed():
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
        for task in (running := list(self._running)):
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self._compute.stop()
