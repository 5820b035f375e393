"""The parts of a FlowSchedulingPolicy about running pods: ``spec.preemption`` and ``spec.rescheduling``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from flowcore.api.durations import parse_policy_seconds
from flowcore.model.policies import PreemptionMode, PreemptionPolicy, ReschedulingMode, ReschedulingPolicy

_Limit = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


class WirePreemption(msgspec.Struct):
    """``spec.preemption``."""

    mode: PreemptionMode = PreemptionMode.LOWER_PRIORITY
    after: str = "0s"


class _WireLimits(msgspec.Struct, rename="camel"):
    per_round: _Limit = ReschedulingPolicy().per_round
    per_hour: _Limit = ReschedulingPolicy().per_hour
    per_node: _Limit = ReschedulingPolicy().per_node
    per_namespace: _Limit = ReschedulingPolicy().per_namespace
    per_owner: _Limit = ReschedulingPolicy().per_owner


class WireRescheduling(msgspec.Struct, rename="camel"):
    """``spec.rescheduling``."""

    mode: ReschedulingMode = ReschedulingMode.OFF
    min_age: str = "10m"
    limits: _WireLimits = msgspec.field(default_factory=_WireLimits)


def parse_preemption(wire: WirePreemption) -> PreemptionPolicy:
    """Whom the governed pods may preempt.

    Raises:
        PolicyError: the duration is not valid.
    """
    return PreemptionPolicy(wire.mode, parse_policy_seconds(wire.after, "spec.preemption.after"))


def parse_rescheduling(wire: WireRescheduling) -> ReschedulingPolicy:
    """Whether and how many governed pods are moved.

    Raises:
        PolicyError: the duration is not valid.
    """
    return ReschedulingPolicy(
        mode=wire.mode,
        min_age=parse_policy_seconds(wire.min_age, "spec.rescheduling.minAge"),
        per_round=wire.limits.per_round,
        per_hour=wire.limits.per_hour,
        per_node=wire.limits.per_node,
        per_namespace=wire.limits.per_namespace,
        per_owner=wire.limits.per_owner,
    )
