"""How the benchmarks print: to a terminal as wide as it is, elsewhere wide enough for every column."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.console import Console

console = Console(width=None if sys.stdout.isatty() else 180)


def print_conditions(conditions: Mapping[str, str]) -> None:
    """One line each, below a table."""
    for name, value in conditions.items():
        console.print(f"  {name}: {value}", highlight=False, markup=False, soft_wrap=True)
