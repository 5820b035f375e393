"""All functions, and the choice of an overload by the types of the arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from flowcore.rules.devices.cel.evaluation import Evaluation
from flowcore.rules.devices.cel.functions import conversions, kubernetes, lists, texts
from flowcore.rules.devices.cel.functions.overloads import ANY, Overloads
from flowcore.rules.devices.cel.problems import no_overload
from flowcore.rules.devices.cel.values import CelValue, type_name


def _merged(tables: Iterable[Mapping[str, Overloads]]) -> dict[str, Overloads]:
    merged: dict[str, Overloads] = defaultdict(dict)
    for table in tables:
        for name, overloads in table.items():
            merged[name].update(overloads)
    return dict(merged)


_MODULES = (conversions, texts, lists, kubernetes)
#: Functions without a target, by name with its namespace.
GLOBALS = _merged(module.GLOBALS for module in _MODULES)
#: Functions with a target, which is their first argument.
MEMBERS = _merged(module.MEMBERS for module in _MODULES)


def call(name: str, overloads: Overloads, state: Evaluation, arguments: list[CelValue]) -> CelValue:
    """The value of a call.

    Raises:
        EvaluationError: the function is not for these arguments, or has no value for them.
        CostExceededError: the evaluation costs too much.
    """
    state.spend_call(arguments)
    kinds = tuple(map(type_name, arguments))
    function = overloads.get(kinds)
    if function is None:
        function = next((each for pattern, each in overloads.items() if _fits(pattern, kinds)), None)
        if function is None:
            raise no_overload(name)
    return function(state, *arguments)


def _fits(pattern: tuple[str, ...], kinds: tuple[str, ...]) -> bool:
    return len(pattern) == len(kinds) and all(
        wanted in (ANY, kind) for wanted, kind in zip(pattern, kinds, strict=True)
    )
