"""A function that a round calls after each piece of work, with the pods that the work was for.

Its caller can so measure the time that pods cost. The core has no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowcore.cluster.arrays.snapshot import PendingPod

#: Called after work for these pods; without pods, after work for all pods of the round. It must not change
#: anything that the round reads.
Charge = Callable[[Sequence[PendingPod]], None]


def not_charged(_pods: Sequence[PendingPod]) -> None:
    """Measures nothing."""
