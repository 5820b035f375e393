"""Where a round has no time for all: namespaces share it, and who comes first follows from the time of the round."""

from __future__ import annotations

from typing import Final, TypeVar

_T = TypeVar("_T")
#: Multiplier of Knuth's multiplicative hash (The Art of Computer Programming 3, 6.4): 2**32 by the golden ratio.
_MULTIPLIER: Final = 2_654_435_761


def turn_of(now: float) -> int:
    """A number below 2**32 that says whose turn it is. Each round has another one."""
    return spread(int(now * 1000))


def spread(number: int) -> int:
    """A number below 2**32. The numbers of a clock, whatever its steps, lie all over these."""
    return number * _MULTIPLIER % 2**32


def begun_at(items: list[_T], turn: int) -> list[_T]:
    """The items in their order, but each turn begins with another item.

    Args:
        turn: below 2**32.
    """
    start = turn * len(items) >> 32
    return items[start:] + items[:start]


def share_left(most: int, own: int, others: int, *, is_shared: bool = True) -> int:
    """How much of what namespaces share one of them may still use: half of what the others have not used, rounded up.

    So none of them leaves nothing for the others. Where no other one asks, it is all.

    Args:
        most: for all together.
        own: what the namespace has used.
        others: what the others have used.
        is_shared: whether other namespaces ask for it too.
    """
    unused = most - others
    return (-(-unused // 2) if is_shared else unused) - own
