"""Short names of amounts and pod classes, and units of resources."""

from __future__ import annotations

from typing import Final

from flowcore.model.amount_text import is_bytes, requested_amount
from flowcore.model.resources import BANDWIDTH, CPU, Amounts

_MEASURES: Final = {CPU: "milli-cores", BANDWIDTH: "bits per second"}


def unit_of(resource: str) -> str:
    """The unit in which amounts of a resource are counted; "" for pods, devices and the like."""
    return "bytes" if is_bytes(resource) else _MEASURES.get(resource, "")


def class_name(requests: Amounts) -> str:
    """What pods of a class ask for, such as "4 cpu, 16Gi memory, 1 nvidia.com/gpu"."""
    return ", ".join(f"{requested_amount(name, amount)} {name}" for name, amount in requests) or "no requests"
