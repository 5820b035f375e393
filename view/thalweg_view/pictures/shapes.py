"""What queries and answers of pictures have in common."""

from __future__ import annotations

import msgspec


class RoundQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which round.

    Attributes:
        round: number of a round; 0: the newest.
    """

    round: int = 0


class Picture(msgspec.Struct, frozen=True, rename="camel"):
    """An answer about a round.

    Attributes:
        generation: grows with each new state and each new round.
        round: number of the round; 0: there was none yet.
    """

    generation: int
    round: int
