"""Selectors of devices: what CEL says, what Kubernetes adds, and that no expression does harm."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.draw_devices import read_slices

from flowcore.model.resource_slices import Device
from flowcore.rules.devices.cel import CelProblem, compile_selector
from flowcore.rules.devices.cel.compiled import MAX_DEPTH, MAX_LENGTH
from flowcore.rules.devices.cel.device_input import device_input
from flowcore.rules.devices.cel.evaluation import MAX_COST
from flowcore.rules.devices.device_selectors import DeviceSelectors

DRIVER = "gpu.example.com"
ATTRIBUTES = {
    "model": {"string": "h100"},
    "numa": {"int": 1},
    "ready": {"bool": True},
    "version": {"version": "1.10.0-rc.1+build.5"},
    "other.example.com/model": {"string": "x"},
}


def device(attributes: dict[str, Any] | None = None, **fields: Any) -> Device:
    """A device as its slice has it."""
    manifest = {"name": "d", "attributes": ATTRIBUTES if attributes is None else attributes, **fields}
    spec = {"driver": DRIVER, "pool": {"name": "p"}, "devices": [manifest]}
    return read_slices([{"metadata": {"name": "s"}, "spec": spec}])[0].devices[0]


GPU = device(capacity={"memory": {"value": "80Gi"}}, allowMultipleAllocations=True)


def evaluate(expression: str, subject: Device = GPU) -> bool | CelProblem:
    compiled = compile_selector(expression)
    return compiled if isinstance(compiled, CelProblem) else compiled.evaluate(device_input(DRIVER, subject))


@pytest.mark.parametrize(
    "expression",
    [
        # operators and their precedence
        "1 + 2 * 3 == 7 && 7 / 2 == 3 && -7 / 2 == -3 && -7 % 3 == -1",
        "1 == 1.0 && 1u == 1 && 2 > 1.5 && !(1 == '1') && 'a' < 'b'",
        "9223372036854775807 >= double(9223372036854775807)",
        "true || false && false",
        "!false && !!true && -(-1) == 1",
        "false ? 1 / 0 == 0 : true",
        "-9223372036854775808 < 9223372036854775807",
        # what decides counts, whatever error stands beside it
        "1 / 0 == 0 || true",
        "!(1 / 0 == 0 && false)",
        "[1, 0].exists(x, 1 / x == 1)",
        # texts
        r"""'a\tb' == "a\tb" && r'a\tb' != 'a\tb' && '''it's''' == "it's" && '\u00e9' == 'é'""",
        "'h100'.startsWith('h') && 'h100'.endsWith('00') && 'h100'.contains('10') && size('é') == 1",
        "'h100'.matches('^h[0-9]+$') && 'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
        "'H100'.lowerAscii() == 'h100' && 'a-b'.split('-') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b'",
        "'abc'.substring(1) == 'bc' && 'abc'.indexOf('c') == 2 && ' a '.trim() == 'a'",
        "'aba'.replace('a', 'c') == 'cbc'",
        # lists and maps
        "1 in [1, 2] && !('1' in [1, 2]) && 'a' in {'a': 1} && {'a': 1}.a == 1 && [1, 2][1] == 2",
        "[1, 2, 3].all(x, x > 0) && [1, 2].exists_one(x, x == 2) && [1, 2].map(x, x * 2) == [2, 4]",
        "[1, 2, 3].filter(x, x > 1) == [2, 3] && [1, 2, 3].map(x, x > 1, x + 1) == [3, 4] && {'a': 1}.all(k, k == 'a')",
        "['a', 'b'].exists(i, v, i == 1 && v == 'b') && {'a': 1}.all(k, v, k == 'a' && v == 1)",
        "[1, 2].sum() == 3 && [2, 1].min() == 1 && [1, 2].isSorted() && sets.contains([1, 2], [2]) && size([1]) == 1",
        # conversions and types
        "int('12') == 12 && string(12) == '12' && double(1) == 1.0 && type(1) == int && uint(1) == 1u && bool('true')",
        # names
        "cel.bind(x, 1 + 1, x * x == 4) && cel.bind(device, 1, device == 1)",
        # optional values
        "{'a': 1}.?a.orValue(2) == 1 && {'a': 1}.?b.orValue(2) == 2 && !{'a': 1}[?'b'].hasValue()",
        "{'a': 1}.?a.orValue(1 / 0) == 1 && {'a': 1}.?b.or(optional.of(2)).value() == 2",
        "{'a': {'b': 1}}.?a.b.orValue(0) == 1 && optional.of(1).optMap(x, x + 1).value() == 2",
    ],
)  # fmt: skip
def test_expressions_that_hold(expression: str) -> None:
    """What the specification of CEL says."""
    assert evaluate(expression) is True


@pytest.mark.parametrize(
    "expression",
    [
        f"device.driver == '{DRIVER}' && device.allowMultipleAllocations",
        f"device.attributes['{DRIVER}'].model == 'h100' && device.attributes['{DRIVER}']['numa'] == 1",
        f"device.attributes['{DRIVER}'].ready && device.attributes['other.example.com'].model == 'x'",
        # a domain that no driver wrote is empty
        "!has(device.attributes['gone.example.com'].model) && size(device.attributes['gone.example.com']) == 0",
        "!('gone.example.com' in device.attributes) && 'other.example.com' in device.attributes",
        "device.attributes['gone.example.com'].?model.orValue('none') == 'none'",
        "device.attributes.all(d, d.endsWith('.example.com')) && size(device.attributes) == 2",
        f"cel.bind(own, device.attributes['{DRIVER}'], own.numa == 1 && own.ready)",
        # quantities
        f"device.capacity['{DRIVER}'].memory == quantity('81920Mi')",
        f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) == 1 && !isQuantity('4X')",
        f"device.capacity['{DRIVER}'].memory.isGreaterThan(quantity('1Gi').add(quantity('1Gi')).sub(1))",
        "quantity('1.5Gi').isInteger() && quantity('2k').asInteger() == 2000 && sign(quantity('-1')) == -1",
        # versions
        f"device.attributes['{DRIVER}'].version.isLessThan(semver('1.10.0'))",
        f"semver('1.10.0-rc.1') == device.attributes['{DRIVER}'].version",
        f"device.attributes['{DRIVER}'].version.isGreaterThan(semver('1.9.9')) && semver('1.2.3').minor() == 2",
        "semver('v1.02', true) == semver('1.2.0') && !isSemver('1.2') && isSemver('v1', true)",
        "semver('1.0.0-alpha.1').isLessThan(semver('1.0.0-alpha.beta'))",
        "semver('1.0.0-2').isLessThan(semver('1.0.0-11'))",
    ],
)
def test_what_kubernetes_adds(expression: str) -> None:
    """The device, quantities and versions."""
    assert evaluate(expression) is True


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("device.model == 1", "undefined field 'model'"),
        ("gpu.model == 1", "undeclared reference to 'gpu'"),
        ("[1].all(x, y)", "undeclared reference to 'y'"),
        ("url('http://x').getHost() == ''", "undeclared reference to 'getHost'"),
        ("'a'.matches('(')", "error parsing regexp"),
        ("1 +", "the end is not expected here"),
        ("'a", "the string does not end"),
        ("1 ? ", "the end is not expected here"),
        ("a = 1", "token recognition error"),
        ("has(1)", "invalid argument to has() macro"),
        ("[1].all(1, true)", "argument must be a simple name"),
        ("quantity('1', '2') == 1", "no matching overload for 'quantity'"),
        ("9223372036854775808 > 0", "invalid int literal"),
        ("device['driver'] == ''", "no matching overload"),
        ("(" * MAX_DEPTH + "true" + ")" * MAX_DEPTH, "nests deeper"),
        ("+".join(["1"] * (MAX_DEPTH + 1)) + " > 0", "nests deeper"),
        ("!" * 2 * MAX_DEPTH + "true", "nests deeper"),
        ("true" + " " * MAX_LENGTH, f"more than {MAX_LENGTH} characters"),
    ],
)
def test_what_does_not_compile(expression: str, text: str) -> None:
    """It is a value that says what is wrong."""
    problem = evaluate(expression)
    assert isinstance(problem, CelProblem)
    assert problem.stage == "compile"
    assert text in problem.text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("1 / 0 == 0", "division by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        (f"device.attributes['{DRIVER}'].gone == 1", "no such key: gone"),
        (f"device.attributes['{DRIVER}'].model > 1", "no such overload"),
        ("[1][1] == 1", "index out of bounds"),
        ("[1][0.5] == 1", "no such overload"),
        ("1", "could not be converted to bool"),
        ("1 && true", "no such overload"),
        ("optional.none().value()", "optional.none() dereference"),
        ("quantity('1') == quantity('1').add(0)", "no such overload"),
        ("quantity('1') == device.attributes['gpu.example.com'].model", "no such overload"),
        ("1.orValue(2) == 1", "no such overload"),
        ("quantity('x') == 1", "is not a quantity"),
        ("semver('1.2').major() == 1", "is not a semantic version"),
        ("'abc'.substring(3, 1) == ''", "invalid substring range"),
        ("{'a': 1, 'a': 2}.a == 1", "repeated key"),
    ],
)
def test_what_has_no_value(expression: str, text: str) -> None:
    """It is a value too: nothing raises."""
    problem = evaluate(expression)
    assert isinstance(problem, CelProblem)
    assert problem.stage == "runtime"
    assert text in problem.text


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, true)))",
        "cel.bind(a, lists.range(900000), cel.bind(b, a + a, size(b + b) > 0))",
        "lists.range(999999).all(x, x < 0 || true)",
        "lists.range(1000000).distinct().size() > 0",
        "cel.bind(a, 'xxxxxxxxxxxxxxxxxxxx', [" + ",".join(["a.replace('x', a)"] * 9) + "].all(b, b.replace('x', b)"
        ".replace('x', b).replace('x', b).size() > 0))",
        "cel.bind(l, [1], " + "cel.bind(l, [l, l], " * 30 + "l == l" + ")" * 31,
        # Regular expressions that are made for each element, cannot be made, or search far; matches of a long text.
        r"lists.range(500).all(x, 'a'.matches('\\pL{20}' + string(x)) || true)",
        r"lists.range(500).all(x, 'a'.matches('(\\pL\\pN){500}' + string(x)) || true)",
        f"lists.range(500).all(x, '{'b' * 3000}'.matches('[^a]{{1000}}[^b]{{500}}' + string(x)) || true)",
        f"lists.range(500).all(x, size('{'a' * 3000}'.findAll('a')) > 0)",
        "lists.range(20000).map(x, 0 - x).sort().size() > 0",
        # Texts that are much longer than those of which they are made.
        f"lists.range(200).map(x, '{'a' * 900}'.replace('a', '{'b' * 1000}')).size() > 0",
        f"lists.range(200).map(x, '{'a' * 900}'.split('').join('{'b' * 1000}')).size() > 0",
    ],
)  # fmt: skip
def test_no_expression_costs_too_much(expression: str) -> None:
    """What would take hours, or all memory, ends with an error."""
    compiled = compile_selector(expression)
    assert not isinstance(compiled, CelProblem)
    problem = compiled.evaluate(device_input(DRIVER, GPU), MAX_COST // 20)
    assert isinstance(problem, CelProblem)
    assert problem.stage == "runtime"


def test_regular_expressions_that_are_written_out_have_a_limit_together() -> None:
    """Each takes milliseconds to make."""
    few, many = (" || ".join(rf"'a'.matches('\\pL{{20}}{number}')" for number in range(count)) for count in (2, 200))
    assert evaluate(few) is False
    problem = evaluate(many)
    assert isinstance(problem, CelProblem)
    assert problem.text == "compilation failed: its regular expressions are too large"


def test_a_regular_expression_takes_time_in_proportion() -> None:
    """Python's own would try 2^60 ways here."""
    assert evaluate(f"'{'a' * 60}b'.matches('^(a+)+$')") is False


@pytest.mark.parametrize("value", [{"strings": ["a"]}, {"version": "1.2"}])
def test_an_attribute_that_cannot_be_read_speaks_for_its_device(value: dict[str, Any]) -> None:
    """As kube-scheduler has it, even where the expression does not read it."""
    problem = evaluate("true", device({"odd": value}))
    assert isinstance(problem, CelProblem)
    assert problem.text.startswith("attribute odd: ")


def test_answers_are_remembered_by_what_expressions_see() -> None:
    """1 and true are no equals, though Python takes one for the other."""
    selectors = DeviceSelectors()
    expression = f"device.attributes['{DRIVER}'].x == true"
    assert selectors.matches(expression, DRIVER, device({"x": {"bool": True}})) is True
    assert selectors.matches(expression, DRIVER, device({"x": {"int": 1}})) is False
    assert selectors.matches(expression, DRIVER, device({"x": {"bool": True}})) is True


_PIECES = (
    "device", ".", "attributes", "[", "]", "(", ")", "'a'", "1", "2.5", "1u", "&&", "||", "!", "-", "==", "<", "in",
    "?",
    ":", ",", "x", "true", "size", "has", "all", "map", "cel", "bind", "{", "}", "matches", "quantity", "optional",
    "of",
    "orValue", "join", "+", "*", "/", "%", "null", "sort", "int", "string", "_in_",
)  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map(" ".join) | st.text(max_size=20))
def test_any_text_gets_an_answer(text: str) -> None:
    """Nothing raises."""
    assert isinstance(evaluate(text), bool | CelProblem)
