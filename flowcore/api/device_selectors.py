"""Parts that device classes, slices and claims share: selectors, amounts and the nodes that reach a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from flowcore.api.base import Quantity, Wire
from flowcore.api.selectors import WireNodeSelector, to_node_term
from flowcore.model.errors import ModelError
from flowcore.model.quantities import nanos
from flowcore.model.resource_slices import DeviceAmounts
from flowcore.model.selectors import NodeSelectorTerm


class WireCel(Wire):
    expression: str | None = ""


class WireDeviceSelector(Wire):
    cel: WireCel | None = None


def to_expressions(wire: Iterable[WireDeviceSelector] | None) -> tuple[str | None, ...]:
    """CEL expressions, in order; None for a selector of another kind. A null is an empty one, as Go reads it."""
    return tuple(None if selector.cel is None else selector.cel.expression or "" for selector in wire or ())


def to_device_amounts(amounts: Mapping[str, Quantity] | None, field: str) -> DeviceAmounts:
    """Amounts by name, in billionths.

    Args:
        field: where they are, for the error.

    Raises:
        ModelError: one is no quantity.
    """
    return tuple((name, to_nanos(amount, f"{field}[{name}]")) for name, amount in sorted((amounts or {}).items()))


def to_nanos(amount: Quantity, field: str) -> Decimal:
    """An amount in billionths.

    Raises:
        ModelError: it is no quantity.
    """
    try:
        return Decimal(nanos(amount))
    except ModelError as error:
        raise ModelError(field, error.problem) from None


def to_terms(wire: WireNodeSelector | None) -> tuple[NodeSelectorTerm, ...] | None:
    """The terms of a node selector, any of which matches; None without one."""
    return None if wire is None else tuple(map(to_node_term, wire.node_selector_terms or ()))
