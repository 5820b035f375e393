"""Consoles: standard output and standard error with colours, tables that fit, and bars of progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from thalweg.terminal.printable import printable, printable_lines, unguarded


class _PrintableConsole(Console):
    """A console whose texts are printable, while its own commands to the terminal are kept."""

    def render_str(self, text: str, **options: Any) -> Text:
        """What is printed as a text is one line. Lines may be left free before and after it."""
        line = text.strip("\n")
        before, _, after = text.partition(line) if line else (text, "", "")
        return super().render_str(f"{before}{printable(line)}{after}", **options)

    def on_broken_pipe(self) -> None:
        """Nobody reads any more: the program ends as for any other text (``thalweg.program``), not as rich would."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Whatever is printed comes through here in pieces: texts, and commands."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))


def stdout_console(*, wrap: bool = False) -> Console:
    """Standard output. Names and numbers have no colour.

    With NO_COLOR, if it is not empty (no-color.org), nothing is bold either.

    Args:
        wrap: lines are wrapped in a pipe too, to 80 columns or to COLUMNS.
    """
    plain = bool(os.environ.get("NO_COLOR"))
    console = _PrintableConsole(
        file=unguarded(sys.stdout), highlight=False, no_color=plain, color_system=None if plain else "auto"
    )
    console.soft_wrap = not (console.is_terminal or wrap)
    return console


def stderr_console() -> Console:
    """Standard error."""
    return _PrintableConsole(file=unguarded(sys.stderr), stderr=True)
