"""Expressions as functions of Python: compiled once, evaluated for many devices.

Source: cel-spec langdef.md, "Evaluation"; dynamic-resource-allocation cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from flowcore.rules.devices.cel.device_input import FIELDS
from flowcore.rules.devices.cel.evaluation import MAX_COST, Evaluation
from flowcore.rules.devices.cel.functions import GLOBALS, MEMBERS, Overloads, call
from flowcore.rules.devices.cel.functions.conversions import TYPES
from flowcore.rules.devices.cel.functions.operators import OPERATORS
from flowcore.rules.devices.cel.functions.texts import compile_pattern
from flowcore.rules.devices.cel.parser import parse
from flowcore.rules.devices.cel.problems import (
    CelProblem,
    CostExceededError,
    EvaluationError,
    ExpressionError,
    no_overload,
)
from flowcore.rules.devices.cel.syntax import (
    BindName,
    Call,
    Comprehension,
    Conditional,
    Index,
    ListOf,
    Literal,
    Logic,
    MapOf,
    Name,
    OptionalMap,
    Presence,
    Select,
    Syntax,
    names_read,
)
from flowcore.rules.devices.cel.values import NONE, CelOptional, CelValue, DomainMap, has_key, is_number, type_name

#: Longest expression (CELSelectorExpressionMaxLength).
MAX_LENGTH = 10 * 1024
#: How deep the tree may be, operators in a row among it, so that Python's own stack bears its evaluation.
MAX_DEPTH = 100
#: Instructions of all regular expressions that are written out.
MAX_INSTRUCTIONS = 50_000
#: Longest text of a problem: texts of expressions may be much longer.
MAX_TEXT = 300
DEVICE = "device"
#: What making a list and a map costs.
_LIST_COST, _MAP_COST = 10, 30

_Evaluate = Callable[[Evaluation], CelValue]


class CompiledSelector:
    """A compiled expression.

    Attributes:
        reads: domain and name of each attribute and capacity that it reads; None: perhaps any.
    """

    __slots__ = ("_evaluate", "reads")

    def __init__(self, evaluate: _Evaluate, reads: frozenset[tuple[str, str]] | None = None) -> None:
        self._evaluate, self.reads = evaluate, reads

    def evaluate(self, device: dict[str, CelValue] | CelProblem, max_cost: int = MAX_COST) -> bool | CelProblem:
        """Whether the expression holds for a device, or why that cannot be told.

        Args:
            device: as ``device_input`` gives it.
            max_cost: in CEL's units.
        """
        return self.evaluate_with_cost(device, max_cost)[0]

    def evaluate_with_cost(
        self, device: dict[str, CelValue] | CelProblem, max_cost: int = MAX_COST
    ) -> tuple[bool | CelProblem, int]:
        """The same, and what it cost."""
        if isinstance(device, CelProblem):
            return device, 0
        state = Evaluation({DEVICE: device}, max_cost)
        return self._answer(state), max_cost - state.left

    def _answer(self, state: Evaluation) -> bool | CelProblem:
        try:
            value = self._evaluate(state)
        except (EvaluationError, CostExceededError) as error:
            is_limit = isinstance(error, CostExceededError)
            return CelProblem("runtime", str(error)[:MAX_TEXT], is_limit)
        if type(value) is not bool:
            return CelProblem("runtime", f"CEL result of type {type_name(value)} could not be converted to bool")
        return value


def compile_selector(text: str) -> CompiledSelector | CelProblem:
    """A selector, or why it is none."""
    if len(text) > MAX_LENGTH:
        return CelProblem("compile", f"it has more than {MAX_LENGTH} characters")
    try:
        tree = parse(text)
        return CompiledSelector(_Compiler().compile(tree), names_read(tree))
    except (ExpressionError, EvaluationError) as error:
        return CelProblem("compile", f"compilation failed: {error}"[:MAX_TEXT])


class _Compiler:
    def __init__(self) -> None:
        self._instructions = 0
        self._bound = list[str]()
        self._depth = 0

    def compile(self, tree: Syntax) -> _Evaluate:
        """A tree as a function.

        Raises:
            ExpressionError: it names something that there is not, or nests too deep.
            EvaluationError: a regular expression is none.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"the expression nests deeper than {MAX_DEPTH}")
        compiled = self._compiled(tree)
        self._depth -= 1

        def evaluate(state: Evaluation) -> CelValue:
            state.left -= 1
            if state.left < 0:
                state.spend(0)
            return compiled(state)

        return evaluate

    def _compiled(self, tree: Syntax) -> _Evaluate:
        match tree:
            case Literal(value):
                return lambda _state: value
            case Name(name):
                return self._name(name)
            case Select(operand, field, is_optional):
                self._check_field(operand, field)
                return _select(self.compile(operand), field, is_optional=is_optional)
            case Presence(operand, field):
                self._check_field(operand, field)
                return _presence(self.compile(operand), field)
            case Index(operand, index, is_optional):
                if self._is_device(operand):
                    raise ExpressionError("found no matching overload for '_[_]' applied to 'kubernetes.DRADevice'")
                return _index(self.compile(operand), self.compile(index), is_optional=is_optional)
            case Call():
                return self._call(tree)
            case Logic(decides, operands):
                return _logic([self.compile(operand) for operand in operands], decides=decides)
            case Conditional(condition, yes, no):
                return _conditional(self.compile(condition), self.compile(yes), self.compile(no))
            case ListOf(elements):
                return _list([(self.compile(element), is_optional) for element, is_optional in elements])
            case MapOf(entries):
                return _map([(self.compile(key), self.compile(value), maybe) for key, value, maybe in entries])
            case Comprehension():
                return self._comprehension(tree)
            case BindName(variable, value, body):
                return _bind(variable, self.compile(value), self._inside((variable,), body))
            case OptionalMap(operand, variable, body, is_flat):
                bound = self._inside((variable,), body)
                return _optional_map(variable, self.compile(operand), bound, is_flat=is_flat)

    def _is_device(self, tree: Syntax) -> bool:
        return tree == Name(DEVICE) and DEVICE not in self._bound

    def _check_field(self, operand: Syntax, field: str) -> None:
        if self._is_device(operand) and field not in FIELDS:
            raise ExpressionError(f"undefined field '{field}'")

    def _inside(self, variables: tuple[str, ...], body: Syntax) -> _Evaluate:
        self._bound += variables
        compiled = self.compile(body)
        del self._bound[-len(variables) :]
        return compiled

    def _name(self, name: str) -> _Evaluate:
        if name == DEVICE or name in self._bound:
            return lambda state: state.variables[name]
        if name not in TYPES:
            raise ExpressionError(f"undeclared reference to '{name}' (in container '')")
        named = TYPES[name]
        return lambda _state: named

    def _call(self, tree: Call) -> _Evaluate:
        if tree.function in OPERATORS:
            return _operator(tree.function, [self.compile(argument) for argument in tree.arguments])
        name, trees, overloads = self._function(tree)
        if not any(len(kinds) == len(trees) for kinds in overloads):
            raise ExpressionError(f"found no matching overload for '{name}' with {len(trees)} arguments")
        if name in ("matches", "find", "findAll"):
            self._check_patterns(trees)
        arguments = [self.compile(argument) for argument in trees]
        if tree.target is not None and name in ("or", "orValue"):
            return _otherwise(name, *arguments)
        return lambda state: call(name, overloads, state, [argument(state) for argument in arguments])

    def _check_patterns(self, trees: tuple[Syntax, ...]) -> None:
        """Regular expressions that are written out are compiled with the expression, and so are their errors."""
        match trees[1:2]:
            case (Literal(str(pattern)),):
                self._instructions += compile_pattern(pattern).programsize
                if self._instructions > MAX_INSTRUCTIONS:
                    raise ExpressionError("its regular expressions are too large")
            case _:
                pass

    def _function(self, tree: Call) -> tuple[str, tuple[Syntax, ...], Overloads]:
        """Name, arguments and overloads of a call: of a function in a namespace, of one with a target, or without."""
        match tree.target:
            case None:
                name, trees, table = tree.function, tree.arguments, GLOBALS
            case Name(namespace) if namespace not in self._bound and f"{namespace}.{tree.function}" in GLOBALS:
                name, trees, table = f"{namespace}.{tree.function}", tree.arguments, GLOBALS
            case target:
                name, trees, table = tree.function, (target, *tree.arguments), MEMBERS
        if name not in table:
            raise ExpressionError(f"undeclared reference to '{name}' (in container '')")
        return name, trees, table[name]

    def _comprehension(self, tree: Comprehension) -> _Evaluate:
        elements = self.compile(tree.elements)
        condition = None if tree.condition is None else self._inside(tree.variables, tree.condition)
        if tree.macro == "map" and tree.result is not None:
            return _mapping(elements, tree.variables, condition, self._inside(tree.variables, tree.result))
        if condition is None:
            raise ExpressionError(f"{tree.macro}() has no condition")
        return _ASKING[tree.macro](elements, tree.variables, condition)


def _operator(name: str, operands: list[_Evaluate]) -> _Evaluate:
    function = OPERATORS[name]

    def evaluate(state: Evaluation) -> CelValue:
        values = [operand(state) for operand in operands]
        state.spend_call(values)
        return function(state, *values)

    return evaluate


def _otherwise(name: str, operand: _Evaluate, default: _Evaluate) -> _Evaluate:
    """``or`` and ``orValue``: the second is evaluated only if the first has no value."""

    def evaluate(state: Evaluation) -> CelValue:
        optional = operand(state)
        if not isinstance(optional, CelOptional):
            raise no_overload(name)
        if optional.has_value:
            return optional.value if name == "orValue" else optional
        value = default(state)
        if name == "or" and not isinstance(value, CelOptional):
            raise no_overload(name)
        return value

    return evaluate


def _field(value: CelValue, key: CelValue) -> CelOptional:
    """An entry of a map or a list, if it is there.

    Raises:
        EvaluationError: the value has no entries, or its index is no number.
    """
    if isinstance(value, dict):
        if has_key(value, key):
            return CelOptional(has_value=True, value=value[key])
        # Any domain that a driver did not write is an empty one.
        return CelOptional(has_value=True, value={}) if isinstance(value, DomainMap) and type(key) is str else NONE
    if isinstance(value, list) and is_number(key) and float(key).is_integer():
        place = int(key)
        return CelOptional(has_value=True, value=value[place]) if 0 <= place < len(value) else NONE
    raise no_overload("_[_]")


def _select(operand: _Evaluate, field: str, *, is_optional: bool) -> _Evaluate:
    return _index(operand, lambda _state: field, is_optional=is_optional)


def _index(operand: _Evaluate, index: _Evaluate, *, is_optional: bool) -> _Evaluate:
    def evaluate(state: Evaluation) -> CelValue:
        value, key = operand(state), index(state)
        if isinstance(value, CelOptional):
            return _field(value.value, key) if value.has_value else NONE
        entry = _field(value, key)
        if is_optional:
            return entry
        if not entry.has_value:
            problem = "index out of bounds" if isinstance(value, list) else "no such key"
            shown = str(key)[:MAX_TEXT] if isinstance(key, str | int | float) else type_name(key)
            raise EvaluationError(f"{problem}: {shown}")
        return entry.value

    return evaluate


def _presence(operand: _Evaluate, field: str) -> _Evaluate:
    def evaluate(state: Evaluation) -> CelValue:
        value = operand(state)
        if isinstance(value, CelOptional):
            return value.has_value and _field(value.value, field).has_value
        if not isinstance(value, dict):
            raise no_overload("has")
        return _field(value, field).has_value

    return evaluate


def _logic(operands: list[_Evaluate], *, decides: bool) -> _Evaluate:
    return lambda state: _decided(state, operands, decides=decides)


def _decided(state: Evaluation, operands: Iterable[_Evaluate], *, decides: bool) -> CelValue:
    problem: EvaluationError | None = None
    for operand in operands:
        try:
            value = operand(state)
        except EvaluationError as error:
            problem = problem or error.with_traceback(None)  # else it holds this frame, which holds it
            continue
        if value is decides:
            return decides
        if type(value) is not bool:
            problem = problem or no_overload("_||_" if decides else "_&&_")
    if problem is not None:
        raise problem
    return not decides


def _conditional(condition: _Evaluate, yes: _Evaluate, no: _Evaluate) -> _Evaluate:
    def evaluate(state: Evaluation) -> CelValue:
        holds = condition(state)
        if type(holds) is not bool:
            raise no_overload("_?_:_")
        return yes(state) if holds else no(state)

    return evaluate


def _list(elements: list[tuple[_Evaluate, bool]]) -> _Evaluate:
    def evaluate(state: Evaluation) -> CelValue:
        state.spend(_LIST_COST)
        values = [(element(state), is_optional) for element, is_optional in elements]
        return [value.value if maybe else value for value, maybe in values if not maybe or _is_there(value)]

    return evaluate


def _map(entries: list[tuple[_Evaluate, _Evaluate, bool]]) -> _Evaluate:
    def evaluate(state: Evaluation) -> CelValue:
        state.spend(_MAP_COST)
        mapping = dict[CelValue, CelValue]()
        for key_of, value_of, is_optional in entries:
            key, value = key_of(state), value_of(state)
            if type(key) is not str and not is_number(key):
                raise EvaluationError("unsupported key type")
            if key in mapping:
                raise EvaluationError(f"Failed with repeated key: {key}")
            if not is_optional or _is_there(value):
                mapping[key] = value.value if is_optional else value
        return mapping

    return evaluate


def _is_there(value: CelValue) -> bool:
    if not isinstance(value, CelOptional):
        raise EvaluationError("cannot initialize optional element from non-optional value")
    return value.has_value


def _bind(variable: str, value: _Evaluate, body: _Evaluate) -> _Evaluate:
    return lambda state: _with(state, {variable: value(state)}, body)


def _with(state: Evaluation, bound: dict[str, CelValue], body: _Evaluate) -> CelValue:
    outer = state.variables
    state.variables = {**outer, **bound}
    try:
        return body(state)
    finally:
        state.variables = outer


def _bound_to(bound: dict[str, CelValue], body: _Evaluate) -> _Evaluate:
    return lambda state: _with(state, bound, body)


def _optional_map(variable: str, operand: _Evaluate, body: _Evaluate, *, is_flat: bool) -> _Evaluate:
    def evaluate(state: Evaluation) -> CelValue:
        optional = operand(state)
        if not isinstance(optional, CelOptional):
            raise no_overload("optFlatMap" if is_flat else "optMap")
        if not optional.has_value:
            return NONE
        value = _with(state, {variable: optional.value}, body)
        return value if is_flat else CelOptional(has_value=True, value=value)

    return evaluate


def _bindings(state: Evaluation, elements: _Evaluate, variables: tuple[str, ...]) -> Iterator[dict[str, CelValue]]:
    """What the variables of a macro are, one element after the other."""
    values = elements(state)
    if not isinstance(values, dict | list):
        raise no_overload("comprehension")
    if len(variables) == 1:
        (variable,) = variables
        for value in values:
            state.spend(1)
            yield {variable: value}
        return
    first, second = variables
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        state.spend(1)
        yield {first: key, second: value}


def _deciding(*, decides: bool) -> Callable[[_Evaluate, tuple[str, ...], _Evaluate], _Evaluate]:
    """``exists`` and ``all``: as ``||`` and ``&&`` of all elements."""

    def build(elements: _Evaluate, variables: tuple[str, ...], condition: _Evaluate) -> _Evaluate:
        def evaluate(state: Evaluation) -> CelValue:
            asked = (_bound_to(bound, condition) for bound in _bindings(state, elements, variables))
            return _decided(state, asked, decides=decides)

        return evaluate

    return build


def _holds(state: Evaluation, bound: dict[str, CelValue], condition: _Evaluate) -> bool:
    value = _with(state, bound, condition)
    if type(value) is not bool:
        raise no_overload("_?_:_")
    return value


def _exists_one(elements: _Evaluate, variables: tuple[str, ...], condition: _Evaluate) -> _Evaluate:
    return lambda state: sum(_holds(state, bound, condition) for bound in _bindings(state, elements, variables)) == 1


def _filter(elements: _Evaluate, variables: tuple[str, ...], condition: _Evaluate) -> _Evaluate:
    return lambda state: [
        bound[variables[0]] for bound in _bindings(state, elements, variables) if _holds(state, bound, condition)
    ]


def _mapping(
    elements: _Evaluate, variables: tuple[str, ...], condition: _Evaluate | None, result: _Evaluate
) -> _Evaluate:
    return lambda state: [
        _with(state, bound, result)
        for bound in _bindings(state, elements, variables)
        if condition is None or _holds(state, bound, condition)
    ]


_ASKING = {
    "exists": _deciding(decides=True),
    "all": _deciding(decides=False),
    "exists_one": _exists_one,
    "filter": _filter,
}
