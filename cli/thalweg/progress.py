"""How far long work is, on a terminal: a bar with an estimate, once the work takes longer than two seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: Work that is done sooner shows nothing.
_DELAY_SECONDS: Final = 2.0


def progress_bar(console: Console) -> Progress:
    """Work, bar, percentage, time so far and time left; it disappears when the work is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Shows a bar on standard error if that is a terminal, from two seconds on.

    Args:
        what: the work, such as "reading now.yaml".
        total: how much there is to do; None: unknown, so the bar only shows that time passes.

    Yields:
        To be told how much is done so far.
    """
    console = Console(stderr=True)
    bar = progress_bar(console)
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
