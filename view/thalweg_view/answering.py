"""Answers questions: reads the state again when it is old, and asks the compute process, one question at a time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final

import structlog

from thalweg_view.compute_client import ComputeClient
from thalweg_view.errors import ComputeLost, RequestRefused
from thalweg_view.limits import Limits
from thalweg_view.messages import Answered, OperationRequest, OperationShape
from thalweg_view.rounds import RoundPlan
from thalweg_view.source import ViewSource

_log = structlog.get_logger()
#: Seconds between two states of a live source, and as a multiple of what the last one took.
_LEAST_AGE: Final = 2.0
_AGE_PER_SECOND: Final = 10.0


class Answering:
    """See the module.

    Attributes:
        generation: grows with each state that differs from the one before, and with each round.
        on_state: called with each such state.
    """

    def __init__(
        self,
        source: ViewSource,
        compute: ComputeClient,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """``clock``: seconds of a monotonic clock; ``wall_clock``: since the epoch."""
        self._source, self._compute, self._limits = source, compute, limits
        self._clock, self._wall_clock = clock, wall_clock
        self.generation = 0
        self.on_state: Callable[[], None] = lambda: None
        self._namespaces: frozenset[str] = frozenset()
        self._digest, self._state_read = b"", False
        self._turn = asyncio.Lock()
        self._callers: Counter[str] = Counter()
        self._read_at, self._read_seconds = float("-inf"), 0.0

    def put_round(self, plan: RoundPlan) -> None:
        """The newest round."""
        self._compute.put_round(plan)
        self.generation += 1

    @asynccontextmanager
    async def place(self, caller: str) -> AsyncIterator[None]:
        """A place in the queue, for as long as the block runs.

        Raises:
            RequestRefused: the queue, or the caller's share of it, is full.
        """
        limits = self._limits
        if self._callers[caller] >= limits.questions_per_caller:
            raise RequestRefused(429, f"{limits.questions_per_caller} of your questions wait already", retry_after=1)
        if self._callers.total() >= limits.questions:
            raise RequestRefused(503, f"{limits.questions} questions wait already", retry_after=2)
        self._callers[caller] += 1
        try:
            yield
        finally:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]

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
        # A caller that goes away must not end what others wait for.
        if self._is_old():
            await asyncio.shield(asyncio.ensure_future(self._refresh()))

    async def ask(
        self, operation: str, query: bytes, namespaces: list[str] | None, *, strict: bool, nodes: bool
    ) -> Answered:
        """The answer to a question; see ``OperationRequest``.

        Raises:
            RequestRefused: there is none.
        """
        return await asyncio.shield(asyncio.ensure_future(self._ask(operation, query, namespaces, strict, nodes)))

    async def _ask(
        self,
        operation: str,
        query: bytes,
        namespaces: list[str] | None,
        strict: bool,  # noqa: FBT001
        nodes: bool,  # noqa: FBT001
    ) -> Answered:
        async with self._turn:
            if not self._has_state():
                await self._read()
            now, seconds = self._wall_clock(), self._compute.deadline
            request = OperationRequest(operation, query, strict, now, namespaces, nodes, self.generation, seconds)
            try:
                return await self._compute.ask(request)
            except ComputeLost as error:
                _log.error("compute process of the view restarted", problem=str(error), operation=operation)
                raise RequestRefused(503, f"{error}; ask again, or ask for less", retry_after=1) from error

    def _has_state(self) -> bool:
        """Whether the process runs and has read a state."""
        return self._compute.alive and self._state_read

    def _is_old(self) -> bool:
        if not self._has_state():
            return True
        pause = max(_LEAST_AGE, _AGE_PER_SECOND * self._read_seconds)
        return self._source.kind == "live" and self._clock() - self._read_at > pause

    async def _refresh(self) -> None:
        async with self._turn:
            if self._is_old():
                await self._read()

    async def _read(self) -> None:
        self._state_read = False
        try:
            await self._compute.start()
            began = self._clock()
            reply, digest = await self._compute.read_state(self._source.state())
        except ComputeLost as error:
            _log.error("compute process of the view restarted", problem=str(error), operation="state")
            raise RequestRefused(503, str(error), retry_after=1) from error
        if reply.problem:
            raise RequestRefused(503, reply.problem, retry_after=1)
        self._state_read, self._read_at = True, self._clock()
        self._read_seconds = self._read_at - began
        self._namespaces = frozenset(reply.namespaces)
        if digest != self._digest:
            self._digest = digest
            self.generation += 1
            self.on_state()

    async def stop(self) -> None:
        """Ends the compute process."""
        await self._compute.stop()
