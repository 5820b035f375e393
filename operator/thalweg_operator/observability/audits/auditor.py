"""Audits the cluster at an interval, and keeps what they said for metrics, the view and dumps."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec
import structlog

from flowcore.model.regret import RegretRecord
from thalweg_operator.metrics import Metrics
from thalweg_operator.observability.audits.regret_metrics import RegretMetrics
from thalweg_operator.planning.worker.client import worker_environment

_log = structlog.get_logger()
_decoder = msgspec.msgpack.Decoder(RegretRecord)
#: Audits that are kept: more than a week of one each quarter of an hour. Of each so many rooms that were closed.
_KEPT: Final = 700
_MOST_CLOSED: Final = 20
#: Seconds until the first audit, where the interval is not shorter.
_FIRST: Final = 60.0
#: Between two audits lies at least this multiple of what the last one took.
_REST: Final = 20
#: Seconds that an audit may take, on a busy machine.
_DEADLINE: Final = 900.0
#: CPU seconds after which the kernel ends its process.
_MOST_CPU: Final = 300
#: Lines of the state between two turns of the event loop: less than a millisecond.
_LINES: Final = 100
#: Seconds between two looks at whether a round is under way.
_LOOK: Final = 0.2


def audit_records() -> deque[RegretRecord]:
    """Room for the last audits, the oldest first."""
    return deque(maxlen=_KEPT)


class Auditor:
    """Audits one after the other, each in a process of its own.

    An audit begins while no round is under way, and audits take a twentieth of the time of one CPU at most.
    """

    def __init__(
        self,
        lines: Callable[[float], Iterator[bytes]],
        records: deque[RegretRecord],
        interval: float,
        planning: Callable[[], bool],
        waits: Callable[[str], bool],
        metrics: Metrics,
        memory: int,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """An auditor.

        Args:
            lines: of the state at a moment (``SavedLines``).
            records: takes the records.
            interval: seconds between two audits.
            planning: whether a round is under way.
            waits: whether a pod waits, by its key.
            memory: bytes that the process of an audit may use; 0: no limit.
            wall_clock: seconds since the epoch.
        """
        self._lines, self._records, self._interval = lines, records, interval
        self._planning, self._waits = planning, waits
        self._metrics, self._memory, self._wall_clock = RegretMetrics(metrics), memory, wall_clock
        #: Keys of pods that wait and whose closed room was told: it is not told again, whichever plan an audit finds.
        self._told: set[str] = set()

    async def run(self) -> None:
        """Audits until cancelled."""
        loop = asyncio.get_running_loop()
        pause = min(self._interval, _FIRST)
        while True:
            await asyncio.sleep(pause)
            while self._planning():  # noqa: ASYNC110 - nothing tells that a round ended
                await asyncio.sleep(_LOOK)
            began = loop.time()
            await self.audit()
            pause = max(self._interval, _REST * (loop.time() - began))

    async def audit(self) -> None:
        """Audits once; a failure is told and counted."""
        try:
            async with asyncio.timeout(_DEADLINE):
                record = await self._record()
        except (TimeoutError, OSError, EOFError, msgspec.DecodeError) as error:
            _log.warning("not audited", problem=str(error) or f"no answer after {_DEADLINE:.0f} s")
            self._metrics.failed()
            return
        new = tuple(room for room in record.closed if room.waiting not in self._told)
        self._told = {*filter(self._waits, self._told), *(room.waiting for room in new)}
        self._metrics.audited(msgspec.structs.replace(record, closed=new), first=not self._records)
        self._records.append(msgspec.structs.replace(record, closed=new[:_MOST_CLOSED]))
        _log.info(
            "audited",
            at_least={figure.finding: figure.at_least for figure in record.figures if figure.at_least},
            closed=len(record.closed),
            new=len(new),
        )

    async def _record(self) -> RegretRecord:
        """The record of an audit.

        Raises:
            EOFError: the process ended without an answer.
            OSError: it cannot be started.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "thalweg_operator.observability.audits.audit_process"),
            *(str(self._memory), str(_MOST_CPU)),
            stdin=PIPE,
            stdout=PIPE,
            env=worker_environment(),
        )
        try:
            return _decoder.decode(await self._exchange(process))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _exchange(self, process: Process) -> bytes:
        assert process.stdin is not None  # noqa: S101 - it was started with pipes
        assert process.stdout is not None  # noqa: S101
        lines = self._lines(self._wall_clock())
        with suppress(ConnectionError):  # where it ends early its code says why
            while piece := b"".join(islice(lines, _LINES)):
                process.stdin.write(piece)
                await process.stdin.drain()
                await asyncio.sleep(0)
        process.stdin.close()
        answer = await process.stdout.read()
        code = await process.wait()
        if code == -signal.SIGXCPU:
            raise EOFError(f"it took more than {_MOST_CPU} CPU seconds")
        if code:
            raise EOFError(f"the process of the audit ended with code {code}")
        return answer
