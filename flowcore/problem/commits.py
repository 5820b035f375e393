"""A commit: so many pods of one group to one node, in order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Commit:
    """``count`` pods of demand number ``demand`` to node number ``node``."""

    demand: int
    node: int
    count: int
