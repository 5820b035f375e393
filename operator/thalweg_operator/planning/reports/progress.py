"""Log lines about progress: at info at most one line per second for rounds, and one for bindings.

There may be hundreds of rounds and bindings per second. Each is logged at debug; at info their sums are logged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import structlog

from flowcore.model.pods import Pod
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest

_log = structlog.get_logger()
_EVERY = 1.0


class ProgressLog:
    """Counts rounds and bindings and logs their sums."""

    def __init__(self) -> None:
        self._rounds: Counter[str] = Counter()
        self._seconds = 0.0
        self._last: RoundReply | None = None
        self._bindings: Counter[str] = Counter()

    def round_planned(self, request: RoundRequest, _pods: Sequence[Pod], reply: RoundReply) -> None:
        """Records a round."""
        if not (reply.placements or reply.unplaced):
            return
        self._rounds.update(rounds=1, placed=len(reply.placements))
        self._seconds += reply.seconds
        self._last = reply
        _log.debug("round", number=request.number, placed=len(reply.placements), unplaced=len(reply.unplaced),
                   method=reply.method, seconds=round(reply.seconds, 4))  # fmt: skip

    def bound(self, pod: Pod, node: str) -> None:
        """Records a binding."""
        self._bindings["bound"] += 1
        _log.debug("bound", pod=pod.key, node=node)

    def refused(self, _pod: Pod, _reason: str) -> None:
        """Records a binding that the API server refused."""
        self._bindings["refused"] += 1

    async def run(self) -> None:
        """Logs until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            self.flush()

    def flush(self) -> None:
        """Logs the sums since the last call, if there is anything to log."""
        last = self._last
        if last is not None:
            _log.info(
                "rounds",
                rounds=self._rounds["rounds"],
                placed=self._rounds["placed"],
                unplaced=len(last.unplaced),
                cost=last.cost,
                gap=f"{last.gap:.1%}",
                seconds=round(self._seconds, 3),
            )
        if self._bindings:
            _log.info("bindings", bound=self._bindings["bound"], refused=self._bindings["refused"])
        self._rounds.clear()
        self._bindings.clear()
        self._last, self._seconds = None, 0.0
