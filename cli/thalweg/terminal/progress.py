"""How far long work is, on a terminal: a bar with an estimate, once the work takes longer than two seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from flowcore.model.amount_text import counted
from flowcore.questions.scenario import Scenario
from thalweg.terminal.consoles import stderr_console

#: Work that is done sooner shows nothing.
_DELAY_SECONDS: Final = 2.0
_TICK_SECONDS: Final = 0.2


def progress_bar(console: Console, *, estimated: bool = True) -> Progress:
    """Work, bar, time so far, and the part that is done and the time left; it disappears when the work is done."""
    so_far = TimeElapsedColumn(table_column=Column(min_width=7, no_wrap=True))
    done = TaskProgressColumn(table_column=Column(min_width=4, no_wrap=True))
    word = TextColumn("left:", table_column=Column(min_width=5, no_wrap=True))
    left = TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True))
    what = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (done, word, left) if estimated else ()
    return Progress(what, BarColumn(bar_width=20), so_far, *columns, console=console, transient=True, expand=True)


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Shows a bar on standard error if that is a terminal, from two seconds on.

    Args:
        what: the work, such as "reading now.yaml".
        total: how much there is to do; None: unknown, so the bar only shows that time passes.

    Yields:
        To be told how much is done so far.
    """
    console = stderr_console()
    bar = progress_bar(console, estimated=total is not None)
    task = bar.add_task(what, total=total)
    if not console.is_terminal:
        yield lambda _done: None
        return
    timer = threading.Timer(_DELAY_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done: bar.update(task, completed=done)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


@contextmanager
def passing(what: str, expected_seconds: float | None = None) -> Iterator[None]:
    """The same for work that cannot tell how far it is: the bar follows the time that it took before.

    Args:
        expected_seconds: None: unknown, so the bar only shows that time passes.
    """
    ended, began = threading.Event(), time.monotonic()
    with progress(what, expected_seconds) as told:

        def tell() -> None:
            while not ended.wait(_TICK_SECONDS):
                told(min(time.monotonic() - began, expected_seconds or 0.0))

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()


def planning(scenario: Scenario) -> AbstractContextManager[None]:
    """The same for one or more plans of a scenario."""
    pods, nodes = len(scenario.waiting()), len(scenario.cluster.nodes)
    return passing(f"planning {counted(pods, 'pending pod')} on {counted(nodes, 'node')}")
