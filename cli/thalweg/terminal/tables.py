"""Printed tables: in columns that fit a terminal, or whole lines for a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from thalweg.terminal.printable import printable

#: Rows of a printed table; ``-o json`` has all.
MAX_ROWS: Final = 200
_GAP: Final = "  "


def print_table(console: Console, header: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Prints a table. On a terminal long cells continue in their column; in a pipe a row is a line without padding.

    Text in square brackets has no meaning here.
    """
    if console.is_terminal:
        table = Table(box=None, pad_edge=False)
        for title in header:
            table.add_column(title, overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
        console.print(table)
        return
    lines = [tuple(header), *(tuple(map(_in_one_line, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        console.file.write(f"{_GAP.join(cells).rstrip()}\n")


def _in_one_line(cell: str | Text) -> str:
    """A cell for a pipe. A Text may have lines of its own; in a text of others they are what others want to fake."""
    return printable(cell if isinstance(cell, str) else " ".join(str(cell).split("\n")))


def print_names(names: Iterable[str]) -> None:
    """Prints names, a line each, all of them: they are for other programs."""
    for name in names:
        click.echo(printable(name))


def print_truncated(console: Console, count: int) -> None:
    """Prints how many of ``count`` rows the table leaves out, if any."""
    if count > MAX_ROWS:
        console.print(f"... and {count - MAX_ROWS} more; -o json has them all")
