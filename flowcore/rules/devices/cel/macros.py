"""Macros: calls whose arguments are not evaluated before.

Source: cel-spec langdef.md, "Macros"; cel-go ext/bindings.go, ext/comprehensions.go, cel/library.go (optional types).
"""

from __future__ import annotations

from flowcore.rules.devices.cel.problems import ExpressionError
from flowcore.rules.devices.cel.syntax import BindName, Comprehension, Name, OptionalMap, Presence, Select, Syntax

#: What a macro asks of elements -> how many arguments follow the variables.
_ASKING = {"all": 1, "exists": 1, "exists_one": 1, "existsOne": 1, "filter": 1}
#: Macros that may have two variables.
_OF_TWO = frozenset(("all", "exists", "exists_one", "existsOne"))


def expand(function: str, target: Syntax | None, arguments: tuple[Syntax, ...]) -> Syntax | None:
    """What a call means, if it is a macro's; None for a call of a function.

    Raises:
        ExpressionError: the macro is called with arguments that it does not take.
    """
    if target is None:
        return _presence(arguments) if function == "has" and len(arguments) == 1 else None
    if function == "bind" and target == Name("cel") and len(arguments) == 3:
        return BindName(_variable(arguments[0]), arguments[1], arguments[2])
    if function in _ASKING:
        return _asking(function, target, arguments)
    if function == "map" and len(arguments) in (2, 3):
        condition = arguments[1] if len(arguments) == 3 else None
        return Comprehension("map", target, (_variable(arguments[0]),), condition, arguments[-1])
    if function == "transformList" and len(arguments) in (3, 4):
        condition = arguments[2] if len(arguments) == 4 else None
        variables = (_variable(arguments[0]), _variable(arguments[1]))
        return Comprehension("map", target, variables, condition, arguments[-1])
    if function in ("optMap", "optFlatMap") and len(arguments) == 2:
        return OptionalMap(target, _variable(arguments[0]), arguments[1], function == "optFlatMap")
    return None


def _presence(arguments: tuple[Syntax, ...]) -> Syntax:
    match arguments[0]:
        case Select(operand, field, is_optional=False):
            return Presence(operand, field)
        case _:
            raise ExpressionError("invalid argument to has() macro")


def _asking(function: str, target: Syntax, arguments: tuple[Syntax, ...]) -> Syntax | None:
    count = len(arguments) - _ASKING[function]
    if count != 1 and not (count == 2 and function in _OF_TWO):
        return None
    macro = "exists_one" if function == "existsOne" else function
    return Comprehension(macro, target, tuple(map(_variable, arguments[:count])), arguments[-1])


def _variable(tree: Syntax) -> str:
    match tree:
        case Name(name):
            return name
        case _:
            raise ExpressionError("argument must be a simple name")
