"""Places that callers take: of questions, of bodies that arrive, and of streams of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from thalweg_view.callers.access import Caller
from thalweg_view.errors import RequestRefused


class Places:
    """A number of places; each caller has a share of them.

    Callers who may not list the pods of all namespaces get half of the places, and half of a caller's share: a user
    who makes many callers in a namespace does not lock out the cluster's administrators. The service accounts of
    one namespace count as one caller (``Caller.share``).

    Args:
        total: number of places.
        share: of these, of one caller.
        what: what takes a place, in the plural, for messages.
        retry_after: seconds after which a refused caller may ask again.
    """

    def __init__(self, total: int, share: int, what: str, retry_after: int) -> None:
        self._total, self._share, self._what, self._retry_after = total, share, what, retry_after
        self._callers: Counter[str] = Counter()
        #: Of all places those of callers who do not see all.
        self._limited = 0

    @contextmanager
    def place(self, caller: Caller, *, sees_all: bool) -> Iterator[None]:
        """A place for as long as the block runs.

        Raises:
            RequestRefused: the caller's share (429), or all that such a caller may take (503), is taken.
        """
        limited = not sees_all
        share, total = (self._share, self._total) if sees_all else (half(self._share), half(self._total))
        taken = self._limited if limited else self._callers.total()
        if self._callers[caller.share] >= share:
            problem = f"{share} {self._what} of {caller.share} are open already"
            raise RequestRefused(429, problem, self._retry_after)
        if taken >= total or self._callers.total() >= self._total:
            raise RequestRefused(503, f"{taken} {self._what} are open already", self._retry_after)
        self._callers[caller.share] += 1
        self._limited += limited
        try:
            yield
        finally:
            self._limited -= limited
            self._callers[caller.share] -= 1
            if not self._callers[caller.share]:
                del self._callers[caller.share]


def half(number: int) -> int:
    """What callers may have who do not see all: at least one."""
    return max(1, number // 2)
