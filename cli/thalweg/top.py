"""``thalweg top``: what waits longest, whose and why, what was placed lately; drawn again as it changes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from thalweg_view.status import StatusAnswer, StatusQuery

from flowcore.questions.scenario.planned_workloads import PlannedWorkload
from flowcore.questions.scenario.reading.moment import parse_moment
from thalweg.asking import WATCH_INTERVAL, opened, run
from thalweg.source import SourceOptions
from thalweg.status import QUESTION, clock, code_rows, policy_rows, queue_rows, round_rows, summary
from thalweg.tables import print_table, stdout_console

#: Rows of each table: all are to fit on one screen.
_ROWS: Final = 8
#: Orders of the waiting workloads, as the key s goes through them.
_ORDERS: Final[dict[str, Callable[[PlannedWorkload], Any]]] = {
    "age": lambda row: (row.since or float("inf"), row.workload),
    "pods": lambda row: (-row.waiting, row.workload),
    "namespace": lambda row: (row.namespace, row.since),
    "reason": lambda row: (row.why, row.since),
}
SORTS: Final = tuple(_ORDERS)
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60

_Tables = list[tuple[tuple[str, ...], list[tuple[str, ...]]]]


def run_top(options: SourceOptions) -> None:
    """Draws until Ctrl-C or the key q; prints once without a terminal, and for a dump."""
    console = stdout_console()
    if options.files or not (console.is_terminal and sys.stdin.isatty()):
        run(_once(options, console))
    else:
        run(_live(options, console))


async def _once(options: SourceOptions, console: Console) -> None:
    async with opened(options) as source:
        answer = await source.ask(QUESTION, StatusQuery())
    for line in summary(answer):
        console.print(line, markup=False)
    for header, rows in tables_of(answer, SORTS[0]):
        console.print()
        print_table(console, header, rows)


async def _live(options: SourceOptions, console: Console) -> None:
    async with opened(options) as source:
        answer, sort = await source.ask(QUESTION, StatusQuery()), 0
        with (
            Live(screen_of(answer, SORTS[sort]), console=console, screen=True, auto_refresh=False) as live,
            _keys() as keys,
        ):
            while True:
                try:
                    key = await asyncio.wait_for(keys.get(), WATCH_INTERVAL)
                except TimeoutError:
                    answer = await source.ask(QUESTION, StatusQuery())
                else:
                    if key == "q":
                        return
                    sort = (sort + (key == "s")) % len(SORTS)
                live.update(screen_of(answer, SORTS[sort]), refresh=True)


@contextmanager
def _keys() -> Iterator[asyncio.Queue[str]]:
    """Keys as they are pressed, without Enter. Ctrl-C stays what it is."""
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
    return Group(*(Text(line) for line in summary(answer)), keys, *(each for table in tables for each in ("", table)))


def tables_of(answer: StatusAnswer, sort: str) -> _Tables:
    """Headers and rows of all tables that have rows."""
    now = parse_moment(answer.now) if answer.now else 0.0
    waiting = sorted((each for each in answer.workloads if each.waiting), key=_ORDERS[sort])
    tables: _Tables = [
        (("WAITS LONGEST" if sort == "age" else "WAITS", "FOR", "PODS", "QUEUE", "REASON"),
         [(each.workload, age(now - each.since) if each.since and now else "-", f"{each.waiting:,} of {each.pods:,}",
           each.queue or "-", each.why) for each in waiting]),
        (("PLACED LATELY", "PODS", "BOUND", "ROUND", "AT"),
         [(each.workload, f"{each.pods:,}", f"{each.bound:,}", str(each.round), clock(each.time))
          for each in answer.placed]),
        (("REASON", "PODS"), code_rows(answer)),
        (("QUEUE", "USED", "FAIR", "BORROWED", "WAITING"), queue_rows(answer.queues)),
        (("POLICY", "DELIVERY", "RUNNING", "WAITING", "PLACED"), policy_rows(answer)),
        (("ROUND", "AT", "PLACED", "PENDING", "LEAVE", "TIME", "PROOF"), round_rows(answer)),
        (("LEAVES", "NODE", "TO", "WHY"), [(each.pod, each.node, each.to or "-", each.kind) for each in answer.moves]),
    ]  # fmt: skip
    return [(header, rows) for header, rows in tables if rows]


def age(seconds: float) -> str:
    """A time span as kubectl has it: 45s, 12m, 3h, 2d."""
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 2 * unit or (unit == _MINUTE and seconds >= unit):
            return f"{int(seconds // unit)}{letter}"
    return f"{max(0, int(seconds))}s"


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(*header, box=None, pad_edge=False, title="", title_justify="left")
    for row in rows[:_ROWS]:
        table.add_row(*map(Text, row))
    if len(rows) > _ROWS:
        table.add_row(Text(f"... and {len(rows) - _ROWS} more"))
    return table
