"""Pauses between tries grow, stay below their limit, and differ between clients."""

from hypothesis import given
from hypothesis import strategies as st
from thalweg_operator.api.backoff import Backoff


def test_each_failure_doubles_the_pause_up_to_the_longest() -> None:
    """Without jitter the pauses are exact."""
    backoff = Backoff(first=0.1, longest=1.0, jitter=0.0)
    assert [backoff.pause(failures) for failures in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@given(
    failures=st.integers(min_value=0, max_value=10**9),
    jitter=st.floats(min_value=0.0, max_value=1.0),
    drawn=st.floats(min_value=0.0, max_value=1.0, exclude_max=True),
)
def test_a_pause_is_never_longer_than_the_longest(failures: int, jitter: float, drawn: float) -> None:
    """However often it failed and whatever was drawn; jitter takes away its share at most."""
    pause = Backoff(first=0.1, longest=5.0, jitter=jitter, draw=lambda: drawn).pause(failures)
    exact = Backoff(first=0.1, longest=5.0, jitter=0.0).pause(failures)
    assert exact * (1.0 - jitter) <= pause <= exact <= 5.0


def test_the_server_may_ask_for_more() -> None:
    """Retry-After is a lower bound."""
    assert Backoff(first=0.1, longest=5.0).pause(1, at_least=7.0) == 7.0
