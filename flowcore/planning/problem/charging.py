"""For whose pods a round works. What that costs is measured outside: the core has no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowcore.cluster.arrays.snapshot import PendingPod

#: Is called after some work for these pods; with none of them, after work for all pods of the round. It must not change
#: anything that the round reads.
Charge = Callable[[Sequence[PendingPod]], None]


def not_charged(_pods: Sequence[PendingPod]) -> None:
    """Nobody measures."""
