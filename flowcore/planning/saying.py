"""What is said of a plan, beside the plan: shares, bounds, reasons, prices, proposals.

Each part of it is computed behind a guard that the caller of a round gives: an error there costs that part, not the
plan. The core has no log; the caller reads what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Part = TypeVar("Part")


class Say(Protocol):
    """Computes a part of what is said of a plan."""

    def __call__(self, what: str, compute: Callable[[], Part], otherwise: Part, /) -> Part:
        """What ``compute`` returns.

        Args:
            what: the part, for people: "the shares of queues".
            otherwise: what the plan has in its place where it cannot be computed.
        """


def unguarded(_what: str, compute: Callable[[], Part], _otherwise: Part) -> Part:
    """An error is an error."""
    return compute()


class Guarded:
    """Leaves out what cannot be computed.

    Attributes:
        missing: a sentence about each part that is left out, by part.
    """

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}

    def __call__(self, what: str, compute: Callable[[], Part], otherwise: Part) -> Part:
        """What ``compute`` returns, or else ``otherwise``; what is missing then is noted."""
        try:
            return compute()
        except Exception as error:  # noqa: BLE001 - whatever it is, the plan is right without it
            self.missing[what] = (
                f"{what} could not be computed: {error!r}. This is a fault of Thalweg. The plan stands."
            )
            return otherwise
