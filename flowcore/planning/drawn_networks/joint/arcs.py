"""Arcs of a network of a round, between two vertices."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

#: An arc without a maximum takes any number of units.
ANY: Final = 2**40
_ONE: Final = Fraction(1)


class Arc(NamedTuple):
    """An arc between two vertices.

    Attributes:
        cost: of each unit that enters it.
        minimum, maximum: how many units enter it.
        gain: how many units leave it for each that enters.
        whole: whether no unit may enter it too, in place of the minimum.
        drawn: the drawn arc that it is a part of, by number; -1: it is none.
    """

    tail: int
    head: int
    cost: int = 0
    minimum: int = 0
    maximum: int = ANY
    gain: Fraction = _ONE
    whole: bool = False
    drawn: int = -1
