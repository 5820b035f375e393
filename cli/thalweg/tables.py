"""Printed tables: their limit of rows."""

from __future__ import annotations

from typing import Final

from rich.console import Console

#: Rows of a printed table; ``-o json`` has all.
MAX_ROWS: Final = 200


def print_truncated(console: Console, count: int) -> None:
    """Prints how many of ``count`` rows the table leaves out, if any."""
    if count > MAX_ROWS:
        console.print(f"... and {count - MAX_ROWS} more; -o json has them all")
