"""The command ``thalweg view``."""

from __future__ import annotations

from pathlib import Path

import click

from thalweg import options


@click.command()
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE",
              help="Objects as JSON or YAML, as kubectl prints them. - is standard input. May be given several "
                   "times.")  # fmt: skip
@click.option("--record", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Folder with recorded rounds, as `thalweg run --record` writes them.")  # fmt: skip
@options.now
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535),
              help="Port on 127.0.0.1; 0: any free port.")  # fmt: skip
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def view(files: tuple[str, ...], record: Path | None, now: float | None, port: int, *, opens: bool) -> None:
    """Show a cluster dump or recorded rounds as a web page.

    The command plans the pending pods of a dump as `thalweg plan` does, and prints the address of the page. The
    page is served on 127.0.0.1 until Ctrl-C. The address contains a token: without it nobody sees the data. Nothing is
    fetched from other hosts, and no cluster is changed.

    For a live cluster, turn on the view of the operator: `thalweg run --view-listen`.

    Exit code 1: the page's modules are missing, or the port is in use. Exit code 2: a file cannot be read, is not a
    cluster dump or a recorded round, or another version of Thalweg wrote it.

    \b
    Examples:
      thalweg view -f now.json
      thalweg dump | thalweg view -f - --open
      thalweg view --record rounds --port 8081
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    if bool(files) == (record is not None):
        raise click.UsageError("give a dump (-f FILE) or recorded rounds (--record FOLDER)")
    if record is not None and now is not None:
        raise click.UsageError("--now is for a dump: a recorded round has its own time")
    from thalweg.view.view import run_view

    run_view(files, record, port, now, opens=opens)
