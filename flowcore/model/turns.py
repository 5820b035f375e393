"""Whose turn it is where a round has no time for all: another one's in each round, by its time alone."""

from __future__ import annotations

from typing import Final, TypeVar

_T = TypeVar("_T")
#: Multiplier of Knuth's multiplicative hash (The Art of Computer Programming 3, 6.4): 2**32 by the golden ratio.
_MULTIPLIER: Final = 2_654_435_761


def turn_of(now: float) -> int:
    """A number below 2**32, another one in each round: where many take turns, it says whose turn it is."""
    return spread(int(now * 1000))


def spread(number: int) -> int:
    """A number below 2**32. Steps of the clock, whatever their length, lead all over them."""
    return number * _MULTIPLIER % 2**32


def begun_at(items: list[_T], turn: int) -> list[_T]:
    """The items in their order, from another one on at each turn.

    Args:
        turn: below 2**32.
    """
    start = turn * len(items) >> 32
    return items[start:] + items[:start]
