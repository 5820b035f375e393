"""``thalweg status``: printed, or with --watch on a terminal drawn again as it changes, with keys."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from thalweg_view.status import StatusAnswer, StatusQuery

from thalweg.questions.status import QUESTION_OF_CLUSTER, QUESTION_OF_DUMP, SORTS, names, show, summary, tables_of
from thalweg.sources.asking import WATCH_INTERVAL, opened, run, tell
from thalweg.sources.source import SourceOperation, SourceOptions
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.printable import printable

#: Rows of each table: all are to fit on one screen.
_ROWS: Final = 8


def run_status(source: SourceOptions, query: StatusQuery, output: str, *, watch: bool) -> None:
    """Asks for the status and prints it; with ``watch`` on a terminal it is drawn until Ctrl-C or the key q."""
    console = stdout_console()
    asked = QUESTION_OF_DUMP if source.files else QUESTION_OF_CLUSTER
    if watch and output in ("table", "wide") and console.is_terminal and sys.stdin.isatty():
        run(_draw(source, console, asked, query))
    else:
        tell(source, asked, lambda _: query, names if output == "name" else show, output=output, watch=watch)


async def _draw(
    options: SourceOptions, console: Console, asked: SourceOperation[StatusQuery, StatusAnswer], query: StatusQuery
) -> None:
    async with opened(options) as source:
        answer, sort = await source.ask(asked, query), 0
        with (
            Live(screen_of(answer, SORTS[sort]), console=console, screen=True, auto_refresh=False) as live,
            _keys() as keys,
        ):
            while True:
                try:
                    key = await asyncio.wait_for(keys.get(), WATCH_INTERVAL)
                except TimeoutError:
                    answer = await source.ask(asked, query)
                else:
                    if key == "q":
                        return
                    sort = (sort + (key == "s")) % len(SORTS)
                live.update(screen_of(answer, SORTS[sort]), refresh=True)


@contextmanager
def _keys() -> Iterator[asyncio.Queue[str]]:
    """Yields keys as they are pressed, without Enter. Ctrl-C still interrupts."""
    import termios  # noqa: PLC0415 - only where there is a terminal
    import tty  # noqa: PLC0415

    pressed: asyncio.Queue[str] = asyncio.Queue()
    stdin, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    loop.add_reader(stdin, lambda: pressed.put_nowait(sys.stdin.read(1)))
    try:
        yield pressed
    finally:
        loop.remove_reader(stdin)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def screen_of(answer: StatusAnswer, sort: str) -> Group:
    """All that is drawn.

    Args:
        sort: one of ``SORTS``.
    """
    tables = (_table(header, rows) for header, rows in tables_of(answer, sort))
    keys = Text(f"q: quit   s: sort what waits, now by {sort}", style="reverse")
    return Group(
        *(Text(printable(line)) for line in summary(answer)), keys, *(each for table in tables for each in ("", table))
    )


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(*header, box=None, pad_edge=False, title="", title_justify="left")
    for row in rows[:_ROWS]:
        table.add_row(*map(Text, row))
    if len(rows) > _ROWS:
        table.add_row(Text(f"... and {len(rows) - _ROWS} more"))
    return table
