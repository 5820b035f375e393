"""Quantities, by the table of apimachinery's own tests (pkg/api/resource/quantity_test.go)."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowcore.model.errors import ModelError
from flowcore.model.quantities import MAX_AMOUNT, NANO, milli_from_nanos, nanos, whole_from_nanos

TABLE = {
    "0": 0, "0n": 0, "0u": 0, "0m": 0, "0Ki": 0, "0k": 0, "0Mi": 0, "0M": 0, "0Gi": 0, "0G": 0, "0Ti": 0, "0T": 0,
    "1": 1,
    # binary suffixes
    "1Ki": 2**10, "8Ki": 8 * 2**10, "7Mi": 7 * 2**20, "6Gi": 6 * 2**30, "5Ti": 5 * 2**40, "4Pi": 4 * 2**50,
    "3Ei": 3 * 2**60, "10Ti": 10 * 2**40, "100Ti": 100 * 2**40, "1Ei": 2**60,
    # decimal suffixes
    "5n": "5e-9", "4u": "4e-6", "3m": "3e-3", "9": 9, "8k": 8000, "50k": 50_000, "7M": "7e6", "6G": "6e9",
    "5T": "5e12", "40T": "4e13", "300T": "3e14", "2P": "2e15", "1E": "1e18",
    # exponents
    "1E-3": "1e-3", "1e3": 1000, "1E6": 10**6, "1e9": 10**9, "1E12": 10**12, "1e15": 10**15, "1E18": 10**18,
    "1e14": 10**14, "1e13": 10**13, "0.5e0": "0.5", "0.5e-1": "0.05", "0.5e-2": "0.005", "1.2e3": 1200,
    "1.3E+6": 1_300_000, "1.40e9": 1_400_000_000, "1.53E12": "1.53e12", "1.6e15": "1.6e15", "1.7E18": "1.7e18",
    # fractions
    "100.035k": 100_035, "0.001": "1e-3", "0.0005k": "0.5", "0.005": "5e-3", "0.05": "5e-2", "0.5": "0.5",
    "0.00050k": "0.5", "0.00500": "5e-3", "0.05000": "5e-2", "0.50000": "0.5", "10.035M": 10_035_000, "9.01": "9.01",
    "8.1k": 8100, "7.123456M": 7_123_456, "6.987654321G": 6_987_654_321, "5.444T": "5.444e12", "40.1T": "40.1e12",
    "300.2T": "300.2e12", "2.5P": "2.5e15", "1.01E": "1.01e18",
    # what is finer than a billionth rounds up
    "3.001n": "4e-9", "1.1E-9": "2e-9", "0.0000000001": "1e-9", "0.0000000005": "1e-9", "0.00000000050": "1e-9",
    "0.5e-9": "1e-9", "0.9n": "1e-9", "0.00000012345": "124e-9", "0.00000012354": "124e-9",
    "0.000000000001Ki": "2e-9",
    # what is more than an int64 is an int64's most
    "9Ei": MAX_AMOUNT, "9223372036854775807Ki": MAX_AMOUNT, "9223372036854775808": MAX_AMOUNT, "1e9999": MAX_AMOUNT,
    "100e49998": MAX_AMOUNT, "1e999999999": MAX_AMOUNT, "1e-400000": "1e-9", "0e99999999": 0,
    # binary fractions
    "100.035Ki": "102435.84", "0.5Mi": 2**19, "0.05Gi": "53687091.2", "0.025Ti": "27487790694.4",
    # odd, but numbers
    ".001": "1e-3", ".0001k": "0.1", "1.": 1, "1.G": 10**9,
}  # fmt: skip
ERRORS = (
    "", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-", " 1", "1 ", "1K", "1 Gi", "0x10",
    "1_000", "NaN", "inf", "--1", "1e", "1e1.5", "½", "\uff11", "1\n", "Gi", ".", "+",
)  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TABLE.items())
def test_apimachinerys_table(text: str, expected: int | str) -> None:
    """Each text means what apimachinery says, with a minus its opposite, with a plus the same."""
    amount = Fraction(expected) * NANO
    assert nanos(text) == amount
    assert nanos("-" + text) == -amount
    assert nanos("+" + text) == amount


@pytest.mark.parametrize("text", ERRORS)
def test_what_is_no_quantity(text: str) -> None:
    """An error that shows the text and an example of a good one."""
    with pytest.raises(ModelError) as caught:
        nanos(text)
    assert f'"{text}" is not a quantity' in caught.value.problem
    assert "1.5Gi" in caught.value.problem


def test_true_is_no_number() -> None:
    """In Python it equals one, in a cache too."""
    assert nanos(1) == NANO
    with pytest.raises(ModelError):
        nanos(True)


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [
        ("9.01", 9010, 10),
        ("1n", 1, 1),
        ("1000001n", 2, 1),
        ("999m", 999, 1),
        ("1", 1000, 1),
        ("1.0000001", 1001, 2),
        ("0", 0, 0),
        ("9223372036854775807", MAX_AMOUNT, MAX_AMOUNT),
        ("9223372036854775806.5", MAX_AMOUNT, MAX_AMOUNT),
    ],
)
def test_rounding_is_up(text: str, milli: int, whole: int) -> None:
    """A fraction of a unit takes a whole one; beyond an int64 stays an int64's most."""
    assert (milli_from_nanos(nanos(text)), whole_from_nanos(nanos(text))) == (milli, whole)


@given(st.integers(0, 2**63 - 1), st.integers(0, 9))
def test_decimal_points_and_suffixes_agree(digits: int, places: int) -> None:
    """However a number is split into digits and power of ten it is the same number."""
    with_point = f"{digits // 10**places}.{digits % 10**places:0{places}d}" if places else str(digits)
    assert nanos(with_point) == nanos(f"{digits}e-{places}")


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_model_error(text: str) -> None:
    """Nothing that anybody writes there raises anything else."""
    with suppress(ModelError):
        assert isinstance(nanos(text), int)


@given(st.from_regex(r"\A[+-]?[0-9]{1,3}(\.[0-9]{1,3})?([eE]?[numkKMGTPE]?i?[+-]?[0-9]{0,4})\Z"))
def test_near_quantities_raise_nothing_else(text: str) -> None:
    """Likewise texts that look almost right."""
    with suppress(ModelError):
        assert abs(nanos(text)) <= MAX_AMOUNT * NANO
