"""What a benchmark raises when its figures would mean nothing, and how its command then ends."""

from __future__ import annotations

import sys
from collections.abc import Callable


class BenchError(Exception):
    """The run cannot be measured; the message says why."""


def run(command: Callable[[], object]) -> None:
    """Runs the command of a benchmark; a BenchError becomes its message and exit code 1."""
    try:
        command()
    except BenchError as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)
