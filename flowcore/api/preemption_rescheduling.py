"""The parts of a FlowSchedulingPolicy about running pods: ``spec.preemption`` and ``spec.rescheduling``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from flowcore.api.durations import parse_policy_seconds
from flowcore.model.cost_policy import Utilisation
from flowcore.model.errors import PolicyError
from flowcore.model.policies import (
    LostWork,
    PreemptionMode,
    PreemptionPolicy,
    ReschedulingMode,
    ReschedulingPolicy,
    ReschedulingReason,
    VictimOrder,
)

_Limit = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
#: Why a policy cannot have both; the CRD's rule says the same.
GAIN_NEEDS_REQUESTS = (
    "Gain needs spec.cost.utilisation Requested; measured use goes up and down, and pods would move to and fro with it"
)
#: Seconds: no pod takes longer to start.
_LONGEST_STARTUP = 86_400


class WirePreemption(msgspec.Struct):
    """``spec.preemption``."""

    mode: PreemptionMode = PreemptionMode.LOWER_PRIORITY
    after: str = "0s"
    victims: VictimOrder = VictimOrder.KUBE_SCHEDULER


class _WireLimits(msgspec.Struct, rename="camel"):
    per_round: _Limit = ReschedulingPolicy().per_round
    per_hour: _Limit = ReschedulingPolicy().per_hour
    per_node: _Limit = ReschedulingPolicy().per_node
    per_namespace: _Limit = ReschedulingPolicy().per_namespace
    per_owner: _Limit = ReschedulingPolicy().per_owner


class _WirePrice(msgspec.Struct, rename="camel"):
    startup: str = "30s"
    lost_work: LostWork = LostWork.COUNT


class WireRescheduling(msgspec.Struct, rename="camel"):
    """``spec.rescheduling``."""

    mode: ReschedulingMode = ReschedulingMode.OFF
    min_age: str = "10m"
    limits: _WireLimits = msgspec.field(default_factory=_WireLimits)
    reasons: Annotated[list[ReschedulingReason], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: list(ReschedulingPolicy().reasons)
    )
    min_gain: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] = ReschedulingPolicy().min_gain
    price: _WirePrice = msgspec.field(default_factory=_WirePrice)


def parse_preemption(wire: WirePreemption) -> PreemptionPolicy:
    """Whom the governed pods may preempt.

    Raises:
        PolicyError: the duration is not valid.
    """
    return PreemptionPolicy(wire.mode, parse_policy_seconds(wire.after, "spec.preemption.after"), wire.victims)


def parse_rescheduling(wire: WireRescheduling, utilisation: Utilisation) -> ReschedulingPolicy:
    """Whether, why and how many governed pods are moved.

    Args:
        utilisation: which use of nodes the policy's costs read.

    Raises:
        PolicyError: a duration is not valid, a reason comes twice, or Gain stands beside measured use.
    """
    if len(set(wire.reasons)) < len(wire.reasons):
        raise PolicyError("spec.rescheduling.reasons", "a reason is given twice; give each once")
    if ReschedulingReason.GAIN in wire.reasons and utilisation is not Utilisation.REQUESTED:
        raise PolicyError("spec.rescheduling.reasons", GAIN_NEEDS_REQUESTS)
    startup = parse_policy_seconds(wire.price.startup, "spec.rescheduling.price.startup")
    if startup > _LONGEST_STARTUP:
        raise PolicyError("spec.rescheduling.price.startup", f'"{wire.price.startup}" is longer than 24h')
    return ReschedulingPolicy(
        mode=wire.mode,
        min_age=parse_policy_seconds(wire.min_age, "spec.rescheduling.minAge"),
        per_round=wire.limits.per_round,
        per_hour=wire.limits.per_hour,
        per_node=wire.limits.per_node,
        per_namespace=wire.limits.per_namespace,
        per_owner=wire.limits.per_owner,
        reasons=tuple(wire.reasons),
        min_gain=wire.min_gain,
        startup=startup,
        lost_work=wire.price.lost_work,
    )
