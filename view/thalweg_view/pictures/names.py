"""Short names of amounts and pod classes, and units of resources."""

from __future__ import annotations

from typing import Final

from flowcore.model.resources import BANDWIDTH, CPU, EPHEMERAL_STORAGE, MEMORY, Amounts

_MEASURES: Final = {CPU: "milli-cores", MEMORY: "bytes", EPHEMERAL_STORAGE: "bytes", BANDWIDTH: "bits per second"}


def unit_of(resource: str) -> str:
    """The unit in which amounts of a resource are counted; "" for pods, devices and the like."""
    return "bytes" if resource.startswith("hugepages-") else _MEASURES.get(resource, "")


def amount_text(resource: str, amount: int) -> str:
    """An amount as a short quantity, rounded: 250m, 1.5, 16Gi."""
    if resource == CPU:
        return f"{amount / 1000:.4g}" if amount >= 1000 else f"{amount}m"
    if unit_of(resource) == "bytes":
        for suffix, unit in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount >= unit:
                return f"{amount / unit:.4g}{suffix}"
    return str(amount)


def class_name(requests: Amounts) -> str:
    """What pods of a class ask for, such as "4 cpu, 16Gi memory, 1 nvidia.com/gpu"."""
    return ", ".join(f"{amount_text(name, amount)} {name}" for name, amount in requests) or "no requests"
