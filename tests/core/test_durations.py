"""Durations are read as Go reads them; what Go refuses is refused."""

import pytest

from flowcore.api.durations import parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("300ms", 1), ("1m300ms", 60), ("0s", 0), ("10ns", 0),
        (".5m", 30), ("2us", 1), ("1.h", 3600), ("99999999999999h", 2**31 - 1), ("9" * 90 + "h", 2**31 - 1),
    ],
)  # fmt: skip
def test_durations_that_go_reads(text: str, seconds: int) -> None:
    """In whole seconds, at least one unless it is below a microsecond, and within int32."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "soon", "-1s", "+1s", "1d", "1w", "1mm", "1y", "1 s", "h", "1e3s", "٣s", "1s" * 60]
)
def test_durations_that_go_refuses(text: str) -> None:
    """Units beyond hours are not Go's, and a sign makes no sense here."""
    assert parse_seconds(text) is None
