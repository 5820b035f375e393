"""What selectors cost: units bound memory and work, whatever an expression does.

Work is counted as calls of functions, of Python's own among them, so no figure depends on the machine.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from types import FrameType
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.rules.devices.cel import CelProblem, compile_selector
from flowcore.rules.devices.cel.compiled import MAX_DEPTH, MAX_LENGTH
from flowcore.rules.devices.cel.evaluation import Evaluation
from flowcore.rules.devices.cel.functions import GLOBALS, MEMBERS, call
from flowcore.rules.devices.cel.functions.conversions import TYPES
from flowcore.rules.devices.cel.functions.operators import OPERATORS
from flowcore.rules.devices.cel.problems import CostExceededError, EvaluationError
from flowcore.rules.devices.cel.values import CelOptional, CelQuantity, CelValue, Uint, parse_version

#: What a unit may take, and any evaluation beside it.
BYTES_A_UNIT, CALLS_A_UNIT = 250, 25
BYTES, CALLS = 2**16, 100
DEVICE = {"driver": "d", "attributes": {}, "capacity": {}}


class _Counted:
    """Bytes and calls of what runs within."""

    def __enter__(self) -> Self:
        self.calls = 0
        tracemalloc.start()
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.calls += event in ("call", "c_call")

    def check(self, units: int) -> None:
        """Units paid for all."""
        assert self.peak <= BYTES + BYTES_A_UNIT * units, (self.peak, units)
        assert self.calls <= CALLS + CALLS_A_UNIT * units, (self.calls, units)


def evaluated(expression: str, units: int) -> bool | CelProblem:
    """The value of an expression, which costs no more than it pays for."""
    compiled = compile_selector(expression)
    assert not isinstance(compiled, CelProblem), (expression, compiled)
    with _Counted() as counted:
        value, cost = compiled.evaluate_with_cost(DEVICE, units)
    counted.check(min(cost, units))
    return value


def _bits(count: int, letter: str = "a") -> str:
    """A text that is built of a short one: an expression of so many characters would be too long."""
    return "lists.range(1).map(x, '" + letter * 1000 + "')" + ".map(x, x + x)" * count + "[0]"


@pytest.mark.parametrize(
    "expression",
    [
        # lists and texts that double
        "[dyn([0,0,0,0])]" + ".map(a, [a, a].sum())" * 30 + ".size() == 1",
        "['aaaaaaaa']" + ".map(a, [a, a].sum())" * 30 + ".size() == 1",
        "['aaaaaaaa']" + ".map(a, a + a)" * 30 + ".size() == 1",
        "['aaaaaaaa']" + ".map(a, a.replace('a', a))" * 3 + ".size() == 1",
        "['aaaaaaaa']" + ".map(a, [a, a].join(a))" * 20 + ".size() == 1",
        "[dyn([0,0,0,0])]" + ".map(a, [a, a].flatten())" * 30 + ".size() == 1",
        "lists.range(10).map(i, [dyn([0,0,0,0])]" + ".map(a,[a,a].sum())" * 20 + ".size()).size() == 10",
        f"lists.range(2000).map(i, '{'a' * 9000}').sum() == ''",
        f"lists.range(9000).map(i, '{'a' * 9000}').join() == ''",
        # what is written out, again and again
        "lists.range(4000).map(i, [" + ",".join("0" * 4000) + "]).size() == 1",
        "lists.range(4000).map(i, {" + ",".join(f"{key}:0" for key in range(1000)) + "}).size() == 1",
        "lists.range(9000).all(i, " + "||".join(["false"] * 900) + " || true)",
        "lists.range(9000).all(i, " + "true ? true : " * 30 + "true)",
        "lists.range(9000).all(i, cel.bind(a, 0, cel.bind(b, 0, cel.bind(c, 0, true))))",
        # parts of a long text
        f"cel.bind(a, {_bits(7, 'é')}, lists.range(99).map(i, a.split('')).size() == 1)",
        f"cel.bind(a, {_bits(7, 'é')}, lists.range(99).map(i, a.findAll('.')).size() == 1)",
        f"cel.bind(a, {_bits(6)}.replace('a', 'a.'), lists.range(99).map(i, isSemver('1.0.0-' + a + 'a')).size() == 1)",
        f"cel.bind(a, semver('1.0.0-a' + {_bits(5)}.replace('a', '.a')), lists.range(900).all(i, a.compareTo(a) == 0))",
        # long values compared where no operator stands
        f"cel.bind(a, {_bits(5)} + 'b', cel.bind(b, {_bits(5)} + 'c', lists.range(9000).map(i, a).indexOf(b) == 0))",
        f"cel.bind(a, {_bits(5)} + 'b', cel.bind(b, {_bits(5)} + 'c', [a, b, b, a, a, b, b, b, a].sort().isSorted()))",
        "cel.bind(l, lists.range(900), cel.bind(m, lists.range(900), lists.range(900).map(i, l).indexOf(m) == 0))",
        "cel.bind(l, [1], " + "cel.bind(l, [l, l], " * 30 + "[l].distinct() == [l]" + ")" * 31,
        "cel.bind(l, [1], " + "cel.bind(l, [l, l], " * 30 + "l.flatten(99).size() > 0" + ")" * 31,
        # bindings of a long list
        "cel.bind(l, lists.range(9000), cel.bind(m, l + l + l + l + l, cel.bind(n, m + m + m, n.exists(i, j, i > 0))))",
        "cel.bind(l, lists.range(9000), cel.bind(m, l + l + l + l + l, cel.bind(n, m + m + m, n.all(i, i >= 0))))",
        # ranges of less than nothing give no units back
        "lists.range(90).all(i, lists.range(-9223372036854775808).size() == 0 && lists.range(9000).size() > 0)",
    ],
)  # fmt: skip
def test_units_pay_for_memory_and_work(expression: str) -> None:
    """An expression that makes, reads or compares much pays for it, and ends when it has no units left."""
    evaluated(expression, 20_000)


def _nested(pieces: str, count: int) -> str:
    return "[dyn(0)]" + f".map(a, {pieces})" * count


@pytest.mark.parametrize(
    "expression",
    [
        f"cel.bind(l, {_nested('[' * 30 + 'a' + ']' * 30, 60)}, cel.bind(m, l + [], l == m))",
        f"cel.bind(l, {_nested('[' * 30 + 'a' + ']' * 30, 60)}, cel.bind(m, l + [], m in [l]))",
        f"cel.bind(l, {_nested('[' * 30 + 'a' + ']' * 30, 60)}, l.flatten(9223372036854775807) == [0])",
        f"cel.bind(l, {_nested('{1:' * 30 + 'a' + '}' * 30, 60)}, cel.bind(m, l + [], l == m))",
        "!" * (MAX_DEPTH - 2) + "true",
        "1" + "+ 1" * (MAX_DEPTH - 3) + f" == {MAX_DEPTH - 2}",
        "[true]" + ".filter(a, a)" * (MAX_DEPTH - 4) + "[0]",
        "[true]" + ".map(a, a)" * (MAX_DEPTH - 4) + "[0]",
        "[true].all(a, " * 19 + "true" + ")" * 19,
        "cel.bind(a, true, " * 19 + "a" + ")" * 19,
        "optional.of(true)" + ".optMap(a, a)" * (MAX_DEPTH - 4) + ".value()",
        "optional.of(true)" + ".or(optional.none())" * (MAX_DEPTH - 4) + ".value()",
        "(true ? " * 19 + "true" + " : false)" * 19,
    ],
)  # fmt: skip
def test_values_and_expressions_may_nest_as_deep_as_they_can_be_written(expression: str) -> None:
    """Python's own stack ends none of them."""
    assert evaluated(expression, 100_000) is True


def test_a_search_from_behind_costs_what_one_from_the_front_does() -> None:
    """Python's own takes time by the product of both lengths."""
    text, part = "a" * 300_000, "a" * 75_000 + "b" + "a" * 75_000

    def spent(name: str) -> float:
        begun = time.process_time()
        assert call(name, MEMBERS[name], Evaluation({}, 100_000), [text, part]) == -1
        return time.process_time() - begun

    assert spent("lastIndexOf") < 100 * spent("indexOf") + 0.1


@given(st.text("ab", max_size=12), st.text("ab", max_size=3), st.integers(0, 12))
def test_a_search_from_behind_finds_the_last_place(text: str, part: str, last: int) -> None:
    """The last one that begins at a place or before it."""

    def found(*arguments: CelValue) -> CelValue:
        return call("lastIndexOf", MEMBERS["lastIndexOf"], Evaluation({}), [text, part, *arguments])

    places = [place for place in range(len(text) + 1) if text.startswith(part, place)]
    assert found() == max(places, default=-1)
    if last <= len(text):
        assert found(last) == max((place for place in places if place <= last), default=-1)


_LONG, _PARTS = "a" * 20_000, "1.0.0-" + "a." * 5_000 + "b"
#: Values by type: small ones, and large ones of each kind.
_VALUES: dict[str, list[CelValue]] = {
    "string": ["", "a", ".", "(a|b)*", _LONG, "é" * 5_000, _PARTS],
    "int": [0, 7, 20_000, -1, 2**63 - 1, -(2**63)],
    "uint": [Uint(1)],
    "double": [0.5, 1e308],
    "bool": [True],
    "list": [[], [1], [_LONG] * 500, list(range(2_000)), [[1] * 50] * 50, ["é", [[[0]]]] * 1_000],
    "map": [{}, {"a": 1}],
    "type": [TYPES["int"]],
    "optional_type": [CelOptional(has_value=True, value=[1]), CelOptional(has_value=False)],
    "kubernetes.Quantity": [CelQuantity(1), CelQuantity(2**63 * 10**9)],
    "kubernetes.Semver": [parse_version("1.2.3"), parse_version(_PARTS)],
}
_VALUES["any"] = [values[-1] for values in _VALUES.values()] + [_LONG, None]


def _calls() -> Iterator[tuple[str, Callable[[Evaluation, list[CelValue]], CelValue], tuple[str, ...]]]:
    """Each function and operator, for each types of arguments."""
    for table in (GLOBALS, MEMBERS):
        for name, overloads in table.items():
            for kinds in [] if name in ("or", "orValue") else overloads:  # macros, in a way: evaluated apart
                yield name, lambda state, values, n=name, o=overloads: call(n, o, state, values), kinds  # type: ignore[misc]
    for name, function in OPERATORS.items():

        def operate(state: Evaluation, values: list[CelValue], function: Callable[..., Any] = function) -> CelValue:
            state.spend_call(values)
            return function(state, *values)

        every = [kind for kind in _VALUES if kind != "any"]
        if name in ("-_", "!_"):
            yield from ((name, operate, (kind,)) for kind in every)
        else:
            yield from ((name, operate, (kind, kind)) for kind in every)
            yield name, operate, ("any", "list")


@pytest.mark.parametrize(
    ("function", "kinds"), [pytest.param(called, kinds, id=f"{name}{kinds}") for name, called, kinds in _calls()]
)
def test_each_function_pays_for_what_it_makes(
    function: Callable[[Evaluation, list[CelValue]], CelValue], kinds: tuple[str, ...]
) -> None:
    """Each function and operator that there is, with small and large values of its types."""
    most = 1_000
    for values in product(*(_VALUES[kind] for kind in kinds)):
        state = Evaluation({}, most)
        with _Counted() as counted, suppress(EvaluationError, CostExceededError):
            function(state, list(values))
        # As where it stands in an expression: each part costs one.
        counted.check(min(most - state.left, most) + 1 + len(values))


#: Type -> functions that give it.
_GIVES = {
    "string": ["charAt", "find", "join", "lowerAscii", "replace", "string", "substring", "trim", "upperAscii"],
    "list": ["distinct", "findAll", "flatten", "lists.range", "reverse", "slice", "sort", "split"],
    "int": ["asInteger", "compareTo", "indexOf", "int", "lastIndexOf", "major", "minor", "patch", "sign", "size"],
    "bool": [
        "bool", "contains", "endsWith", "hasValue", "isGreaterThan", "isInteger", "isLessThan", "isQuantity",
        "isSemver", "isSorted", "matches", "sets.contains", "sets.equivalent", "sets.intersects", "startsWith",
    ],
    "double": ["asApproximateFloat", "double"],
    "uint": ["uint"],
    "type": ["type"],
    "optional_type": ["optional.none", "optional.of", "optional.ofNonZeroValue", "or"],
    "kubernetes.Quantity": ["add", "quantity", "sub"],
    "kubernetes.Semver": ["semver"],
    "any": ["dyn", "max", "min", "orValue", "sum", "value"],
}  # fmt: skip
_SIMPLEST = {
    "string": ["''", "'a'", "'.'", f"'{'a' * 60}'", f"'{'é.' * 30}'", "'(a|b)+'", "'1.2.3-a.b'", "'64Gi'"],
    "list": ["lists.range(9)", "lists.range(400)", "['a', 'b']", "[[1], [2]]", "[1, 2]", f"['{'a' * 90}']"],
    "int": ["0", "1", "2", "60", "-1", "9223372036854775807"],
    "bool": ["true", "false"],
    "map": ["{'a': 1}", "{}", "{1: 'a'}", "device.attributes"],
    "double": ["0.5", "1e300"],
    "uint": ["1u"],
    "type": ["int", "type('')"],
    "optional_type": ["optional.none()", "{'a': 'b'}.?a"],
    "kubernetes.Quantity": ["quantity('1Gi')"],
    "kubernetes.Semver": ["semver('1.2.3')"],
}
_TYPES = sorted(_SIMPLEST)
_GROWING = ["string", "list", "list", "bool"]


def test_every_function_is_drawn() -> None:
    """A new function has its line above, so that drawn expressions have it too."""
    assert sorted(name for names in _GIVES.values() for name in names) == sorted(GLOBALS.keys() | MEMBERS.keys())


class _Drawn:
    """An expression of a type, of all functions, operators and macros."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._names = list[tuple[str, str]]()

    def _one(self, choices: list[Any]) -> Any:
        return self._draw(st.sampled_from(choices))

    def of(self, kind: str, depth: int) -> str:
        kind = self._one(_TYPES) if kind == "any" else kind
        names = [name for name, each in self._names if each == kind]
        if depth <= 0 or self._draw(st.integers(0, 5)) == 0:
            return str(self._one(names or _SIMPLEST[kind]))
        makers: list[Callable[[str, int], str]]
        makers = [self._call, self._call, self._conditional, self._bound, self._picked]
        special: dict[str, list[Callable[[str, int], str]]] = {
            "string": [self._sum],
            "list": [self._list, self._macro, self._macro, self._sum],
            "bool": [self._asked, self._compared],
            "int": [self._computed],
            "map": [self._map],
        }
        return str(self._one(makers + 2 * special.get(kind, []))(kind, depth - 1))

    def _call(self, kind: str, depth: int) -> str:
        names = _GIVES.get(kind, []) + (_GIVES["any"] if kind in _GROWING else [])
        if not names:
            return str(self._one(_SIMPLEST[kind]))
        name = self._one(names)
        is_global = name in GLOBALS
        kinds = self._one(list((GLOBALS if is_global else MEMBERS)[name]))
        arguments = [self.of(self._one(_GROWING) if each == "any" else each, depth) for each in kinds]
        if is_global:
            return f"{name}({', '.join(arguments)})"
        return f"({arguments[0]}).{name}({', '.join(arguments[1:])})"

    def _conditional(self, kind: str, depth: int) -> str:
        return f"({self.of('bool', depth)} ? {self.of(kind, depth)} : {self.of(kind, depth)})"

    def _within(self, variables: list[tuple[str, str]], kind: str, depth: int) -> str:
        self._names += variables
        body = self.of(kind, depth)
        del self._names[-len(variables) :]
        return body

    def _bound(self, kind: str, depth: int) -> str:
        bound, name = self._one(_GROWING), f"v{len(self._names)}"
        return f"cel.bind({name}, {self.of(bound, depth)}, {self._within([(name, bound)], kind, depth)})"

    def _picked(self, kind: str, depth: int) -> str:
        return f"[{self.of(kind, depth)}, {self.of(kind, depth)}][{self._one([0, 1])}]"

    def _sum(self, kind: str, depth: int) -> str:
        each = self.of(kind, depth)
        return str(self._one([f"[{each}, {each}].sum()", f"({each} + {each})"]))

    def _list(self, _kind: str, depth: int) -> str:
        kind = self._one(_GROWING)
        return f"[{', '.join(self.of(kind, depth) for _ in range(self._one([1, 2, 3])))}]"

    def _map(self, _kind: str, depth: int) -> str:
        return f"{{'a': {self.of(self._one(_GROWING), depth)}, 'b': {self.of(self._one(_GROWING), depth)}}}"

    def _macro(self, _kind: str, depth: int) -> str:
        name, kind = f"v{len(self._names)}", self._one(_GROWING)
        elements = self.of("list", depth)
        bound = [(name, self._one(["string", "list", "int"]))]
        match self._one(["map", "map", "filter", "map of some", "transformList"]):
            case "map":
                return f"({elements}).map({name}, {self._within(bound, kind, depth)})"
            case "filter":
                return f"({elements}).filter({name}, {self._within(bound, 'bool', depth)})"
            case "map of some":
                condition = self._within(bound, "bool", depth)
                return f"({elements}).map({name}, {condition}, {self._within(bound, kind, depth)})"
            case _:
                bound.insert(0, (f"i{name}", "int"))
                return f"({elements}).transformList(i{name}, {name}, {self._within(bound, kind, depth)})"

    def _asked(self, _kind: str, depth: int) -> str:
        name = f"v{len(self._names)}"
        macro = self._one(["all", "exists", "exists_one"])
        condition = self._within([(name, self._one(["string", "list", "int"]))], "bool", depth)
        return f"({self.of(self._one(['list', 'list', 'map']), depth)}).{macro}({name}, {condition})"

    def _compared(self, _kind: str, depth: int) -> str:
        kind, operator = self._one([*_GROWING, "map", "int"]), self._one(["==", "!=", "<", ">=", "in", "&&", "||"])
        if operator == "in":
            return f"({self.of(kind, depth)} in {self.of('list', depth)})"
        if operator in ("&&", "||"):
            kind = "bool"
        return f"({self.of(kind, depth)} {operator} {self.of(kind, depth)})"

    def _computed(self, _kind: str, depth: int) -> str:
        return f"({self.of('int', depth)} {self._one(list('+-*/%'))} {self.of('int', depth)})"


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """A condition, perhaps asked again and again."""
    condition = _Drawn(draw).of("bool", draw(st.integers(1, 6)))
    return f"lists.range(900).all(n, ({condition}) || true)" if draw(st.booleans()) else condition


@settings(max_examples=examples(200))
@given(expressions())
def test_units_bound_memory_and_work_of_any_expression(expression: str) -> None:
    """Functions, operators, macros and names, nested as drawn."""
    if len(expression) <= MAX_LENGTH and not isinstance(compile_selector(expression), CelProblem):
        evaluated(expression, 4_000)
