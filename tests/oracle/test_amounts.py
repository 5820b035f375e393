"""How quantities are read, against apimachinery by way of kube-scheduler: what is one, and exactly how much it is."""

import re
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.draw import CPU, MEMORY, Manifest
from support.profiles import examples
from thalweg_controlplane import Oracle, OracleError

from flowcore.model.errors import ModelError
from flowcore.model.quantities import MAX_AMOUNT, milli_from_nanos, nanos, whole_from_nanos

SUFFIXES = (
    "",
    "n",
    "u",
    "m",
    "k",
    "M",
    "G",
    "T",
    "P",
    "E",
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
    "e",
    "E+",
    "e-",
    "K",
    "i",
    "mi",
)
_digits = st.text("0123456789", min_size=0, max_size=6)
_grammar = st.tuples(
    st.sampled_from(("", "", "", "+", "-")),
    _digits,
    st.sampled_from(("", ".")),
    _digits,
    st.sampled_from(SUFFIXES),
    st.sampled_from(("", "", "", "0", "2", "-3", "12", "18", "19", "40")),
).map("".join)
_noise = st.text("0123456789.+-eEkKMGTPiunm_", max_size=8)
_numbers = st.integers(-5, 10**20) | st.floats(-1, 1e30, allow_nan=False)
_WITHOUT_NUMBER = re.compile(r"[+-]?\.?([a-zA-Z].*)?")
quantities = st.one_of(_grammar, _grammar, st.sampled_from(CPU + MEMORY), _noise, _numbers)


def _node(name: str, resource: str, amount: str) -> Manifest:
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": {resource: amount, "pods": "1"}}}


def _pod(resource: str, quantity: Any) -> Manifest:
    container = {"name": "main", "resources": {"requests": {resource: quantity}}}
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [container]}}


def _fits(oracle: Oracle, nodes: list[Manifest], pod: Manifest) -> dict[str, bool]:
    verdicts = oracle.judge(nodes, [], [pod], ["NodeResourcesFit"])["NodeResourcesFit"]["default/p"]
    return {name: verdict.fits for name, verdict in verdicts.items()}


@settings(max_examples=examples(300))
@given(quantity=quantities)
@example(quantity="1.")
@example(quantity=".5")
@example(quantity=".")
@example(quantity="")
@example(quantity="1e")
@example(quantity="1E")
@example(quantity="1Ei")
@example(quantity="8Ei")
@example(quantity="9223372036854775807")
@example(quantity="9223372036854775808")
@example(quantity="9223372036854775.807k")
@example(quantity="0.0000000001")
@example(quantity="1e9999")
@example(quantity="1e-9999")
@example(quantity="000000000000000000000000000001")
@example(quantity="0.5Ki")
@example(quantity="0.0001Ki")
def test_a_quantity_is_read_as_apimachinery_reads_it(oracle: Oracle, quantity: Any) -> None:
    """The same texts are quantities, and each fits a node of exactly that size and none of one unit less.

    Two differences are meant. A text without a number ("m", ".", "e0") is zero to apimachinery's scanner and an error
    to us; the API server stores "0" for it. A decimal amount beyond int64 wraps around there and is "a lot" here.
    """
    try:
        amount = nanos(quantity)
    except ModelError:
        amount = None
    for resource, convert, unit, most in (
        ("memory", whole_from_nanos, "", MAX_AMOUNT * 10**9),
        ("cpu", milli_from_nanos, "m", MAX_AMOUNT * 10**6),
    ):
        size = convert(amount) if amount is not None and 0 <= amount < most else 0
        nodes = [_node("exact", resource, f"{size}{unit}"), _node("short", resource, f"{max(0, size - 1)}{unit}")]
        try:
            fits = _fits(oracle, nodes, _pod(resource, quantity))
        except OracleError:
            fits = {}
        if not fits:
            assert amount is None, f"{quantity!r} is {amount} for us and no quantity for kube-scheduler"
            continue
        if _WITHOUT_NUMBER.fullmatch(str(quantity)):
            assert amount is None
            continue
        assert amount is not None, f"{quantity!r} is no quantity for us, but it is one for kube-scheduler"
        if 0 <= amount < most:
            assert fits == {"exact": True, "short": size == 0}, f"{quantity!r} is {size}{unit} of {resource} for us"
