"""The command ``thalweg replay``."""

from __future__ import annotations

from pathlib import Path

import click

from thalweg import options


@click.command()
@click.argument("record", type=click.Path(dir_okay=False, path_type=Path))
@options.output
def replay(record: Path, output: str) -> None:
    """Replay a recorded round and compare the plans.

    `thalweg run --record` writes the records. Exit code 1: the plans differ. Exit code 2: the file cannot be read.

    \b
    Examples:
      thalweg replay rounds/round-20261122T101502123456Z-000000042.msgpack
      thalweg replay rounds/round-20261122T101502123456Z-000000042.msgpack -o json
    """  # noqa: D301 - click's mark for "leave these lines as they are"
    from thalweg.plans.replay import run_replay

    run_replay(record, output)
