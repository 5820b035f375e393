"""AnswerTurns: whose question is answered next, where several callers ask."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from thalweg_view.callers.places import half

#: Seconds after which time that a caller's questions took counts half.
_HALF_LIFE: Final = 60.0


@dataclass(slots=True, eq=False)
class _Asker:
    """A question that waits for its turn, or has it.

    Attributes:
        began: when its turn began.
    """

    share: str
    sees_all: bool
    turn: asyncio.Future[None]
    began: float = 0.0


class AnswerTurns:
    """Some questions are answered at once, of each caller one.

    The next turn is that of the caller whose questions took the least time lately; of several, of who asked first. So
    a caller whose questions are dear waits for all others. Callers who may not list the pods of all namespaces have
    half of the turns at most (see ``Places``).

    Args:
        total: questions that are answered at once.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self._total, self._clock = total, clock
        self._waiting: list[_Asker] = []
        self._under_way: list[_Asker] = []
        #: By share: seconds that its questions took, as they counted at a time, and that time.
        self._took: dict[str, tuple[float, float]] = {}

    async def take(self, share: str, *, sees_all: bool) -> Callable[[], None]:
        """Waits for a turn of a caller; returns what ends it.

        Args:
            share: see ``Caller.share``.
        """
        asker = _Asker(share, sees_all, asyncio.get_running_loop().create_future())
        self._waiting.append(asker)
        self._give()
        try:
            await asker.turn
        except asyncio.CancelledError:
            if asker in self._under_way:  # it was given while the caller went away
                self._end(asker)
            else:
                self._waiting.remove(asker)
            raise
        return partial(self._end, asker)

    def _give(self) -> None:
        while (asker := self._next()) is not None:
            self._waiting.remove(asker)
            self._under_way.append(asker)
            asker.began = self._clock()
            asker.turn.set_result(None)

    def _next(self) -> _Asker | None:
        if len(self._under_way) >= self._total:
            return None
        answered = {each.share for each in self._under_way}
        full = sum(not each.sees_all for each in self._under_way) >= half(self._total)
        able = (
            each
            for each in self._waiting
            if each.share not in answered and (each.sees_all or not full) and not each.turn.done()
        )
        return min(able, key=lambda each: self._seconds(each.share), default=None)

    def _seconds(self, share: str) -> float:
        """What the caller's questions took lately."""
        seconds, then = self._took.get(share, (0.0, 0.0))
        return seconds * math.exp2((then - self._clock()) / _HALF_LIFE)

    def _end(self, asker: _Asker) -> None:
        self._under_way.remove(asker)
        now = self._clock()
        self._took[asker.share] = self._seconds(asker.share) + now - asker.began, now
        for share in [each for each, (_, then) in self._took.items() if now - then > 10 * _HALF_LIFE]:
            del self._took[share]  # next to nothing is left of it
        self._give()
