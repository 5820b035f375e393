"""Taints of devices keep away the requests that do not tolerate them.

Source: dynamic-resource-allocation resourceclaim/devicetoleration.go, structured (taintPreventsAllocation).
"""

from __future__ import annotations

from collections.abc import Iterable

from flowcore.model.resource_claims import DeviceToleration
from flowcore.model.resource_slices import KEEPS_OUT, DeviceTaint


def taints_keep_out(taints: Iterable[DeviceTaint], tolerations: tuple[DeviceToleration, ...]) -> bool:
    """Whether one of the taints keeps away a request with these tolerations."""
    return any(
        taint.effect in KEEPS_OUT and not any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False
