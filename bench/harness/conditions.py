"""Under which conditions a benchmark ran: figures without them cannot be compared."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from thalweg_controlplane.building.build import KUBERNETES_VERSION

_STAT = Path("/proc/stat")
#: Others use more than this share of the cores.
_BUSY = 0.1
_WATCHED_SECONDS = 1.0


def conditions(*, pinned: bool = False) -> dict[str, str]:
    """By name, for people and programs.

    Args:
        pinned: whether the scheduler has a core of its own.
    """
    share, everything = busy(_WATCHED_SECONDS), "scheduler, API server, etcd and load generator"
    shared = f"one for the scheduler, {(os.cpu_count() or 2) - 1} for API server, etcd and load generator"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": shared if pinned else f"{os.cpu_count()} for everything: {everything}",
        "processor": _processor(),
        "busy with other work": f"{share:.0%}"
        + (" (something else runs: the figures are too low)" if share > _BUSY else ""),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "thalweg": f"{version('thalweg')} {_revision()}".strip(),
        "kubernetes": KUBERNETES_VERSION,
        "python": platform.python_version(),
        "libraries": ", ".join(f"{name} {version(name)}" for name in ("ortools", "numpy", "aiohttp", "msgspec")),
    }


def busy(seconds: float) -> float:
    """Share of the cores' time that somebody used in the next so many seconds, other machines on the same host too.

    The load average would still tell of the run before.
    """
    before = _ticks()
    time.sleep(seconds)
    used, total = (after - was for after, was in zip(_ticks(), before, strict=True))
    return used / total if total else 0.0


def _ticks() -> tuple[int, int]:
    """Time that was used, and all time, of all cores since the start of the machine."""
    user, nice, system, idle, io_wait, irq, soft_irq, steal = map(int, _STAT.read_text().split(maxsplit=9)[1:9])
    used = user + nice + system + irq + soft_irq + steal
    return used, used + idle + io_wait


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _revision() -> str:
    """The commit, and whether there are changes on top; empty outside of a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
