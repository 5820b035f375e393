"""An order in which things may be left out from the end, and nobody loses all of theirs to others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple


class SizedEntry(NamedTuple):
    """Something that takes part of a limited number of bytes.

    Attributes:
        time: seconds since the epoch.
        size: bytes.
        key: says which it is.
    """

    time: float
    size: int
    key: Hashable


def newest_first(entries: Iterable[SizedEntry]) -> list[SizedEntry]:
    """Entries of equal times in the order that they have."""
    return sorted(entries, key=lambda entry: entry.time, reverse=True)


def fair_order(groups: Iterable[Sequence[SizedEntry]]) -> list[SizedEntry]:
    """The entries of all groups, each group in its order; the first ones have equally many bytes of each group.

    As max-min fairness has it: a group that needs less leaves the rest to the others.
    """
    order: list[tuple[int, float, SizedEntry]] = []
    for group in groups:
        total = 0
        for entry in group:
            total += entry.size
            order.append((total, -entry.time, entry))
    return [entry for *_, entry in sorted(order, key=lambda ranked: ranked[:2])]
