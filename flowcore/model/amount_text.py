"""Amounts of resources as text: exact as Kubernetes writes them, or rounded for people. Numbers with their nouns."""

from __future__ import annotations

from flowcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY

_BINARY = (("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def as_sentence(clause: str) -> str:
    """A clause on a line of its own: with a capital and a full stop."""
    return f"{clause[:1].upper()}{clause[1:]}."


def is_bytes(resource: str) -> bool:
    """Whether amounts of a resource count bytes."""
    return resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")


def exact_amount(resource: str, amount: int) -> str:
    """A quantity that is read as the same amount: 1500m, 2, 16Gi, 1073741825."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if is_bytes(resource) and amount:
        return next((f"{amount // unit}{suffix}" for suffix, unit in _BINARY if amount % unit == 0), str(amount))
    return str(amount)


def same_units(resource: str, amount: int, beside: int) -> str:
    """A quantity as people write it beside another: 2.94, not 2940m, beside 200; 20.79Gi.

    It is read as the same amount. Bytes that two digits after the point do not say are rounded up.
    """
    if resource == CPU and max(amount, beside) >= 1000:
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if is_bytes(resource):
        return short_bytes(amount, round_up=written_amount(resource, amount) != amount)
    return exact_amount(resource, amount)


def written_amount(resource: str, most: int) -> int:
    """The largest amount up to this one that people write: bytes with two digits after the point, 20.79Gi."""
    unit = next((unit for _, unit in _BINARY if most >= unit), 1) if is_bytes(resource) else 1
    return -(-(100 * most // unit) * unit // 100)


def short_amount(resource: str, amount: int, *, round_up: bool = False) -> str:
    """A quantity with at most two digits after the point: 250m, 1.5, 16Gi; with ``round_up`` never too little."""
    if resource == CPU:
        return _short(amount, 1000, round_up=round_up) if amount >= 1000 else f"{amount}m"
    return short_bytes(amount, round_up=round_up) if is_bytes(resource) else str(amount)


def requested_amount(resource: str, amount: int) -> str:
    """A quantity that is read as the same amount, short where that is possible: 1.5, 1001m, 16Gi."""
    is_exact = amount % 10 == 0 or amount < 1000 if resource == CPU else written_amount(resource, amount) == amount
    return short_amount(resource, amount) if is_exact else exact_amount(resource, amount)


def short_bytes(amount: int, *, round_up: bool = False) -> str:
    """Bytes with at most two digits after the point: 1.5Gi."""
    for suffix, unit in _BINARY:
        if amount >= unit:
            return _short(amount, unit, round_up=round_up) + suffix
    return str(amount)


def _short(amount: int, unit: int, *, round_up: bool) -> str:
    hundredths = -(-100 * amount // unit) if round_up else (200 * amount + unit) // (2 * unit)
    return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".")


def counted(number: int, noun: str) -> str:
    """The number with its noun: "1 core", "2,990 pods"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
