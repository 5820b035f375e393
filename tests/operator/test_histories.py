"""Whatever happens in whatever order: no exception, sums that add up, and nothing left when all is gone.

Uids that change under one name, deletions that were lost, nodes and policies that come and go, answers out of order.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzed_operator import FuzzedOperator
from support.profiles import examples


def run(seed: int, steps: int) -> None:
    """One history."""
    world = FuzzedOperator(random.Random(seed))
    history = [world.step() for _ in range(steps)]
    left = world.end()
    assert not left, history


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32), st.integers(1, 250))
def test_sums_add_up_and_empty(seed: int, steps: int) -> None:
    """After each event nodes are charged for what is there and what comes; after the last one has gone, for nothing."""
    run(seed, steps)


@pytest.mark.slow
@settings(max_examples=examples(1_500))
@given(st.integers(0, 2**32), st.integers(1, 400))
def test_sums_add_up_and_empty_after_long_histories(seed: int, steps: int) -> None:
    """The same, longer and more often."""
    run(seed, steps)
