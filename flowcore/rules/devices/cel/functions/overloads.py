"""Functions by name and by the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable

from flowcore.rules.devices.cel.values import CelValue

#: Types of the arguments, a target first -> function of an evaluation and the arguments. "any" is any type.
Overloads = dict[tuple[str, ...], Callable[..., CelValue]]

TEXT, INT, UINT, DOUBLE, BOOL = "string", "int", "uint", "double", "bool"
LIST, MAP, ANY, TYPE, OPTIONAL = "list", "map", "any", "type", "optional_type"
QUANTITY, VERSION = "kubernetes.Quantity", "kubernetes.Semver"
