"""Amounts of resources as text."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowcore.model.amount_text import (
    exact_amount,
    is_bytes,
    requested_amount,
    same_units,
    short_amount,
    short_bytes,
    written_amount,
)
from flowcore.model.quantities import MAX_AMOUNT, NANO, milli_from_nanos, nanos, whole_from_nanos

RESOURCES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "pods", "nvidia.com/gpu"])
AMOUNTS = st.integers(0, MAX_AMOUNT // 1000) | st.integers(0, 100).map(lambda count: count * 2**30)


@given(RESOURCES, AMOUNTS)
def test_an_exact_amount_is_read_as_the_same(resource: str, amount: int) -> None:
    """By the reader of Kubernetes' quantities; what a pod requests is short where that says the same."""
    read = milli_from_nanos if resource == "cpu" else whole_from_nanos
    assert read(nanos(exact_amount(resource, amount))) == amount
    assert read(nanos(requested_amount(resource, amount))) == amount


@given(resource=RESOURCES, amount=AMOUNTS, round_up=st.booleans())
def test_a_short_amount_is_near_and_rounded_up_never_too_little(resource: str, amount: int, *, round_up: bool) -> None:
    """Within a hundredth of its unit, which is at most the amount."""
    shown = Fraction(nanos(short_amount(resource, amount, round_up=round_up)), NANO)
    true = Fraction(amount, 1000 if resource == "cpu" else 1)
    assert abs(shown - true) <= true / (100 if round_up else 200)
    assert not round_up or shown >= true


@pytest.mark.parametrize(
    ("resource", "amount", "words"),
    [
        ("cpu", 250, "250m"),
        ("cpu", 3500, "3.5"),
        ("cpu", 12_345_600, "12345.6"),
        ("memory", 3 * 2**29, "1.5Gi"),
        ("memory", 12_800 * 2**30, "12.5Ti"),
        ("memory", 0, "0"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_short_amounts(resource: str, amount: int, words: str) -> None:
    """Cores, bytes in a unit that keeps them short, and plain numbers."""
    assert short_amount(resource, amount) == words


@pytest.mark.parametrize(("memory", "words"), [(4 * 2**30, "4Gi"), (1536 * 2**20, "1.5Gi"), (256 * 2**20, "256Mi")])
def test_bytes(memory: int, words: str) -> None:
    """As people write them."""
    assert short_bytes(memory) == words


@given(RESOURCES, AMOUNTS)
def test_a_written_amount_still_fits(resource: str, amount: int) -> None:
    """People write it with two digits after the point; it is read as itself, and is nearly the amount."""
    written = written_amount(resource, amount)
    assert 0 <= amount - written <= amount / 100
    text = same_units(resource, written, amount)
    assert (milli_from_nanos if resource == "cpu" else whole_from_nanos)(nanos(text)) == written
    assert len(text.partition(".")[2].strip("KMGTPi")) <= (3 if resource == "cpu" else 2)
    if is_bytes(resource) and written < amount:
        assert text != same_units(resource, amount, amount)


def test_written_bytes() -> None:
    """Free room of a node is rounded down, what somebody asks for is not changed."""
    assert same_units("memory", written_amount("memory", 22_327_383_381), 96 * 2**30) == "20.79Gi"
    assert same_units("memory", 96 * 2**30, 96 * 2**30) == "96Gi"
