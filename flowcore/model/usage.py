"""Measured usage: what nodes and pods use, beside what pods request."""

from __future__ import annotations

import math

import msgspec

from flowcore.model.errors import ModelError
from flowcore.model.resources import Amounts

#: Seconds that a sample may lie in the future: clocks differ a little.
MAX_FUTURE = 60.0
#: More milli-cores, bytes or bits per second than any node has.
MAX_USE = 2**50


class UsageSample(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one node or pod used in the mean of an interval.

    Attributes:
        timestamp: end of the interval, seconds since the epoch.
        window: length of the interval in seconds.
    """

    timestamp: float
    window: float
    cpu_milli: int
    memory_bytes: int

    @property
    def begin(self) -> float:
        """When the interval began: what started later is not wholly in the sample."""
        return self.timestamp - self.window


class UsageClass(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Pods that are expected to use alike. It survives a rollout: a new version of an image stays in its class.

    Attributes:
        images: of all containers and image volumes, without tags and digests, sorted.
        requests: of the pod.
    """

    namespace: str = ""
    images: tuple[str, ...] = ()
    requests: Amounts = ()


class SavedClass(msgspec.Struct, frozen=True):
    """Samples of a class of pods, as they outlive the process that took them.

    Attributes:
        newest: when the newest sample ended, seconds since the epoch.
        amounts: cpu (milli-cores) and memory (bytes) of some of its samples.
    """

    usage_class: UsageClass
    newest: float
    amounts: tuple[tuple[int, int], ...]


class MeasuredLoad(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What counts as used on one node by measurement.

    Attributes:
        cpu_milli, memory_bytes: of all pods there, those included that no sample contains yet; None: not measured, or
            too long ago. Then requests count.
        bandwidth_bits: bits per second; None: not measured. Then the node's annotation counts.
    """

    node: str
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    bandwidth_bits: int | None = None

    @property
    def amounts(self) -> tuple[int | None, int | None, int | None]:
        """Cpu, memory and bandwidth."""
        return self.cpu_milli, self.memory_bytes, self.bandwidth_bits

    @property
    def is_empty(self) -> bool:
        """Whether nothing is measured."""
        return self.amounts == (None, None, None)


def checked_use(value: float, field: str) -> float:
    """A measured value, if it can be one.

    Raises:
        ModelError: it is not a number, infinite, negative or larger than any node.
    """
    problem = ""
    if math.isnan(value):
        problem = "it is not a number"
    elif math.isinf(value):
        problem = "it is infinite"
    elif value < 0:
        problem = f"{value:g} is negative"
    elif value > MAX_USE:
        problem = f"{value:g} is more than any node has"
    if problem:
        raise ModelError(field, problem)
    return value


def check_time(timestamp: float, now: float, field: str) -> None:
    """Checks when a sample was taken.

    Args:
        timestamp, now: seconds since the epoch.

    Raises:
        ModelError: it lies in the future by more than MAX_FUTURE.
    """
    if not timestamp <= now + MAX_FUTURE:
        raise ModelError(field, f"it lies {timestamp - now:.0f} s in the future; compare the clocks")
