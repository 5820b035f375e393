"""``thalweg top``: the status of a live operator, drawn again whenever it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from thalweg_view.status import StatusAnswer, StatusQuery

from thalweg.asking import WATCH_INTERVAL, opened, run
from thalweg.source import SourceOptions
from thalweg.status import QUESTION, code_rows, policy_rows, queue_rows, round_rows, show, summary
from thalweg.tables import stdout_console

#: Rows of each table: all are to fit on one screen.
_ROWS = 8


def run_top(options: SourceOptions) -> None:
    """Draws until Ctrl-C; prints once without a terminal, and for a dump."""
    console = stdout_console()
    if options.files or not console.is_terminal:
        run(_once(options))
    else:
        run(_live(options, console))


async def _once(options: SourceOptions) -> None:
    async with opened(options) as source:
        show(await source.ask(QUESTION, StatusQuery()))


async def _live(options: SourceOptions, console: Console) -> None:
    async with opened(options) as source:
        answer = await source.ask(QUESTION, StatusQuery())
        with Live(screen_of(answer), console=console, screen=True, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(WATCH_INTERVAL)
                live.update(screen_of(await source.ask(QUESTION, StatusQuery())), refresh=True)


def screen_of(answer: StatusAnswer) -> Group:
    """All that is drawn."""
    moves = [(each.pod, each.node, each.to or "-", each.kind) for each in answer.moves]
    tables = (
        _table(("ROUND", "AT", "PLACED", "PENDING", "LEAVE", "TIME", "COST", "PROOF"), round_rows(answer)),
        _table(("PENDING FOR", "PODS"), code_rows(answer)),
        _table(("QUEUE", "USED", "FAIR", "BORROWED", "WAITING"), queue_rows(answer.queues)),
        _table(("POLICY", "DELIVERY", "RUNNING", "WAITING", "PLACED"), policy_rows(answer)),
        _table(("LEAVES", "NODE", "TO", "WHY"), moves),
    )
    return Group(*(Text(line) for line in summary(answer)), *(each for each in tables if each is not None))


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table | None:
    if not rows:
        return None
    table = Table(*header, box=None, pad_edge=False, title="", title_justify="left")
    for row in rows[:_ROWS]:
        table.add_row(*map(Text, row))
    if len(rows) > _ROWS:
        table.add_row(Text(f"... and {len(rows) - _ROWS} more"))
    return table
