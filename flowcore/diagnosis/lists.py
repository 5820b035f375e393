"""Lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence

_MOST = 3


def listed(names: Sequence[str]) -> str:
    """The first of these, and how many more."""
    shown = list(names[:_MOST])
    more = len(names) - len(shown)
    if more:
        shown.append("1 other" if more == 1 else f"{more} others")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
