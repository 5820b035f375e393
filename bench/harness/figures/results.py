"""Results of measurements on disk: one JSON file for each run, at one commit. What is there is not measured again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.conditions import busy
from harness.errors import BenchError
from harness.figures.measurements import Measurement

_BENCH = Path(__file__).resolve().parents[2]
#: What others use of the cores at most before a run, over so many seconds; and how long to wait for that.
_QUIET, _WATCHED_SECONDS, _PATIENCE = 0.05, 2.0, 180.0
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Results:
    """The folder of the results of one commit.

    Attributes:
        trial: whether the runs only show that the commands work.
    """

    folder: Path
    trial: bool = False

    def file(self, measurement: Measurement, run: int) -> Path:
        """Where a run's JSON is."""
        return self.folder / measurement.name.replace(" ", "-").replace(",", "") / f"{run}.json"

    def measure(self, measurement: Measurement, run: int, openb: Path | None) -> None:
        """Runs the command and keeps what it prints, unless that is there.

        Raises:
            BenchError: the command failed.
        """
        kept = self.file(measurement, run)
        if kept.exists():
            return
        if not self.trial:
            _wait_until_quiet()
        arguments = measurement.trial if self.trial else measurement.arguments
        command = [sys.executable, *measurement.command(openb, arguments)]
        done = subprocess.run(command, cwd=_BENCH, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise BenchError(f"{' '.join(command[1:])} ended with exit code {done.returncode}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(".partial")
        partial.write_bytes(done.stdout)
        partial.rename(kept)

    def runs(self, measurement: Measurement) -> list[Record]:
        """What each kept run printed, the first run first."""
        found: list[Record] = []
        while (file := self.file(measurement, len(found) + 1)).exists():
            found.append(msgspec.json.decode(file.read_bytes()))
        return found


def _wait_until_quiet() -> None:
    """Waits a few minutes at most."""
    deadline = time.monotonic() + _PATIENCE
    while busy(_WATCHED_SECONDS) > _QUIET and time.monotonic() < deadline:
        pass
