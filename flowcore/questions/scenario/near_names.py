"""Names that are spelt much like one that is not there: mostly typing errors."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

#: How alike two names must be, as difflib counts.
_NEAR: Final = 0.75


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest of the names that the asker may see, for the end of a sentence; "": none is near."""
    near = get_close_matches(name, sorted(known), 1, _NEAR)
    return f"; did you mean {near[0]}?" if near else ""
