"""How many cores this process may use."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

#: More processes have nothing to do: a search decides eight neighbourhoods side by side
#: (flowcore/planning/methods/lns.py).
MOST_CORES: Final = 8
#: By default no more, since a node has other work.
_DEFAULT: Final = 4
_CGROUP: Final = Path("/sys/fs/cgroup")


def available_cores(cgroup: Path = _CGROUP) -> int:
    """Cores that the scheduler and the container's CPU limit leave us, at most four; 1 where there is no fork."""
    if sys.platform != "linux":
        return 1
    quota = _quota(cgroup)
    mine = len(os.sched_getaffinity(0))
    return max(1, min(_DEFAULT, mine, mine if quota is None else int(quota)))


def _quota(cgroup: Path) -> float | None:
    """The CPU limit of our control group in cores, version 2 or version 1; None: it has none."""
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text()
        period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text()
        return None if int(quota) < 0 else int(quota) / int(period)
    return None
