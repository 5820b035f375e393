"""Dumps on demand: the state of the cluster as the operator sees it, and the next round.

``thalweg plan`` and ``thalweg why`` read the state, ``thalweg replay`` reads the round. Dumps describe the
cluster, so only their owner may read them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import structlog

from thalweg_operator.observability.saved_lines import SavedLines

_log = structlog.get_logger()
#: Number of states that are kept; older files are removed.
MAX_STATES = 5


class StateDump:
    """Writes dumps into a folder whenever it is asked to."""

    def __init__(self, folder: Path | None, lines: SavedLines, record_next_round: Callable[[Path], None]) -> None:
        """A writer of dumps.

        Args:
            folder: where the files go; None: dumps are turned off.
            lines: of the state.
            record_next_round: has the next round recorded in a folder.
        """
        self._folder, self._lines, self._record_next_round = folder, lines, record_next_round
        self._wanted = asyncio.Event()

    def request(self) -> None:
        """Asks for a dump; returns at once."""
        if self._folder is None:
            _log.warning("no dump", problem="thalweg run was started without --dump-directory")
        self._wanted.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._folder is not None:
                await self._write(self._folder)

    async def _write(self, folder: Path) -> None:
        lines = self._lines(time.time())
        first = next(lines)  # from here on the objects are those of this moment
        try:
            path = await asyncio.to_thread(_write_state, folder, first, lines)
        except OSError as error:
            _log.error("state not dumped", folder=str(folder), problem=str(error))
            return
        self._record_next_round(folder)
        _log.info("state dumped", path=str(path), round="the next round is recorded in the same folder")


def _write_state(folder: Path, first: bytes, lines: Iterator[bytes]) -> Path:
    """Writes a state and removes the oldest beyond ``MAX_STATES``; returns its path."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"state-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.jsonl"
    unfinished = path.with_suffix(".part")
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123
            file.write(first)
            file.writelines(lines)
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
    for old in sorted(folder.glob("state-*.jsonl"))[:-MAX_STATES]:
        old.unlink(missing_ok=True)
    return path
