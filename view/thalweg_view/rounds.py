"""Rounds as the view keeps them."""

from __future__ import annotations

import msgspec


class RoundPlan(msgspec.Struct):
    """What one round decided."""

    number: int


class RoundHistory:
    """The last rounds."""

    def put(self, plan: RoundPlan) -> None:
        """Adds the newest round."""
