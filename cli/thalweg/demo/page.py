"""What a terminal shows of one scene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class ScenePage:
    """A scene as text.

    Attributes:
        lines: before the table.
        table: header and rows; empty: none.
        notes: after it.
        gain: one sentence; computed from what the page shows.
    """

    title: str
    lines: Sequence[str]
    table: Sequence[Sequence[str]]
    notes: Sequence[str]
    gain: str

    def show(self, console: Console, number: int) -> None:
        """Prints the page and an empty line."""
        console.print(f"[bold]{number}. {escape(self.title)}[/bold]", highlight=False)
        _print(console, self.lines)
        if self.table:
            header, *rows = self.table
            table = Table(*header, box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for row in rows:
                table.add_row(*map(_cell, row))
            console.print(table)
        _print(console, self.notes)
        console.print(f"[green]Gained:[/green] {escape(self.gain)}\n", highlight=False)


def _cell(cell: str) -> Text:
    text = Text(cell)
    text.highlight_regex(r"(\d+ )?\bwaits?$", "red")
    return text


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False)
