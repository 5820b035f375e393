"""What ``thalweg up`` says on standard error while it builds and starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from thalweg_controlplane.cache import Step

from thalweg.progress import progress_bar


@contextmanager
def reporting() -> Iterator[Callable[[str], None]]:
    """Takes lines. On a terminal the steps of a build are a bar with an estimate, elsewhere they are lines too."""
    console = Console(stderr=True)
    bar = progress_bar(console)
    task = bar.add_task("")

    def report(line: str) -> None:
        if not console.is_terminal or not isinstance(line, Step):
            if bar.live.is_started:  # to stop a bar writes an empty line
                bar.stop()
            click.echo(line, err=True)
            return
        if bar.tasks[0].description != line.what:
            bar.reset(task, description=line.what)
        bar.update(task, completed=line.done, total=line.total or None)
        bar.start()

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
