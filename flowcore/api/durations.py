"""Durations as Go's ``time.ParseDuration`` reads them, without signs: ``90s``, ``1h30m``, ``1.5h``, ``300ms``."""

from __future__ import annotations

import re

import durationpy

from flowcore.model.errors import PolicyError

_MAX_INT32 = 2**31 - 1
_MAX_LENGTH = 100
#: Go's units only: the library also reads days, weeks, months and years.
_GO = re.compile(r"(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)


def parse_seconds(text: str) -> int | None:
    """Whole seconds, rounded; at least 1 unless the duration is 0, at most 2**31 - 1. None: not a duration."""
    if len(text) > _MAX_LENGTH or _GO.fullmatch(text) is None:
        return None
    try:
        seconds = durationpy.from_str(text).total_seconds()
    except durationpy.DurationError:  # the grammar holds, so it is out of range
        return _MAX_INT32
    return min(_MAX_INT32, max(1, round(seconds)) if seconds > 0 else 0)


def parse_policy_seconds(text: str, field: str) -> int:
    """``parse_seconds`` of a field of a policy.

    Raises:
        PolicyError: the text is not a duration; the error names the field.
    """
    seconds = parse_seconds(text)
    if seconds is None:
        raise PolicyError(field, f'"{text}" is not a duration such as 90s, 1h30m or 1.5h')
    return seconds
