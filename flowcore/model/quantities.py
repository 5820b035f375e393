"""Kubernetes quantities as exact integers.

Source: apimachinery's ``pkg/api/resource`` (quantity.go, suffix.go, scale_int.go): a number with
a decimal (n u m k M G T P E), binary (Ki Mi Gi Ti Pi Ei) or exponent suffix, kept to
nano precision (finer values are rounded away from zero), capped at int64.
"""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from functools import lru_cache

from flowcore.model.errors import ModelError

NANO = 10**9
#: Largest amount that a quantity, and an int64 array cell, can hold.
MAX_AMOUNT = 2**63 - 1

_PATTERN = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,19})?", re.ASCII
)
_SUFFIXES = {
    "": Decimal(1),
    **{
        s: Decimal(10) ** e
        for s, e in {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.items()
    },
    **{s: Decimal(2) ** e for s, e in {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}.items()},
}


#: Longer texts are read each time anew, so that what is remembered stays small.
_LONGEST_REMEMBERED = 32


def nanos(quantity: str | float) -> int:
    """The quantity in billionths, exact; finer fractions round away from zero.

    Raises:
        ModelError: it is not a quantity, with an empty ``field``.
    """
    if isinstance(quantity, str) and len(quantity) > _LONGEST_REMEMBERED:
        return _read(quantity)
    return _remembered(quantity)


@lru_cache(maxsize=4096, typed=True)  # True is not 1
def _remembered(quantity: str | float) -> int:
    return _read(quantity)


def _read(quantity: str | float) -> int:
    text = str(quantity)
    match = _PATTERN.fullmatch(text)
    if match is None or isinstance(quantity, bool):
        raise ModelError("", f'"{text}" is not a quantity (such as "500m", "2", "1.5Gi")')
    suffix = match["suffix"] or ""
    with localcontext() as context:
        context.prec = 60
        scale = _SUFFIXES.get(suffix)  # E and Ei among them
        if scale is None:
            # The exponent is bounded before it is applied: 1e9999 must cost nothing and means "a lot".
            scale = Decimal(10) ** max(-40, min(40, int(suffix[1:])))
        number = Decimal(match["number"][:400]) * scale * NANO
        limit = Decimal(MAX_AMOUNT) * NANO
        number = max(-limit, min(limit, number))
        whole = int(number)
    return whole if whole == number else whole + (1 if number > 0 else -1)


def milli_from_nanos(amount: int) -> int:
    """Thousandths, rounded up (Quantity.MilliValue), capped at int64."""
    return min(-(-amount // 10**6), MAX_AMOUNT)


def whole_from_nanos(amount: int) -> int:
    """Whole units, rounded up (Quantity.Value), capped at int64."""
    return min(-(-amount // NANO), MAX_AMOUNT)
