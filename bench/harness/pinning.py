"""One core for the scheduler, the others for the control plane and the load: nearer to a cluster where they share none.

On Linux only, and with two cores or more. A process that starts later inherits the cores of its parent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from harness.errors import BenchError


def leave_a_core() -> int:
    """Takes one core from this process and all that it will start; returns that core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("to give the scheduler a core of its own the machine needs two cores")
    os.sched_setaffinity(0, cores[1:])
    return cores[0]


def pin(pids: Iterable[int], core: int) -> None:
    """All threads of these processes run on this core only; threads that they start later do too."""
    for pid in pids:
        try:
            threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
        except OSError:
            continue
        for thread in threads:
            try:
                os.sched_setaffinity(thread, {core})
            except ProcessLookupError:
                continue
