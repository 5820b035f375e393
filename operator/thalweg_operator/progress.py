"""What the log says at info about the work that goes on: a line a second at most for rounds, and one for bindings.

Rounds and bindings come by the hundred a second. Each one is logged at debug; at info their sums are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import structlog

from flowcore.model.pods import Pod
from thalweg_operator.wire import RoundReply, RoundRequest

_log = structlog.get_logger()
_EVERY = 1.0


class Progress:
    """See the module."""

    def __init__(self) -> None:
        self._rounds: Counter[str] = Counter()
        self._seconds = 0.0
        self._last: RoundReply | None = None
        self._bindings: Counter[str] = Counter()

    def planned(self, request: RoundRequest, _pods: Sequence[Pod], reply: RoundReply) -> None:
        """A round ended."""
        if not (reply.placements or reply.left):
            return
        self._rounds.update(rounds=1, placed=len(reply.placements))
        self._seconds += reply.seconds
        self._last = reply
        _log.debug("round", number=request.number, placed=len(reply.placements), left=len(reply.left),
                   method=reply.method, seconds=round(reply.seconds, 4))  # fmt: skip

    def bound(self, pod: Pod, node: str) -> None:
        """The binder bound a pod."""
        self._bindings["bound"] += 1
        _log.debug("bound", pod=pod.key, node=node)

    def refused(self, _pod: Pod, _reason: str) -> None:
        """The API server refused a binding."""
        self._bindings["refused"] += 1

    async def run(self) -> None:
        """Logs until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            self.flush()

    def flush(self) -> None:
        """Logs what happened since the last call, if anything did."""
        last = self._last
        if last is not None:
            _log.info(
                "rounds",
                rounds=self._rounds["rounds"],
                placed=self._rounds["placed"],
                left=len(last.left),
                cost=last.cost,
                gap=f"{last.gap:.1%}",
                seconds=round(self._seconds, 3),
            )
        if self._bindings:
            _log.info("bindings", bound=self._bindings["bound"], refused=self._bindings["refused"])
        self._rounds.clear()
        self._bindings.clear()
        self._last, self._seconds = None, 0.0
