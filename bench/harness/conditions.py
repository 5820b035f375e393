"""Under which conditions a benchmark ran: figures without them cannot be compared."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from thalweg_controlplane.build import KUBERNETES_VERSION

_LOADED = 0.5


def conditions(*, pinned: bool = False) -> dict[str, str]:
    """By name, for people and programs.

    Args:
        pinned: whether the scheduler has a core of its own.
    """
    load, everything = os.getloadavg()[0], "scheduler, API server, etcd and load generator"
    shared = f"one for the scheduler, {(os.cpu_count() or 2) - 1} for API server, etcd and load generator"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": shared if pinned else f"{os.cpu_count()} for everything: {everything}",
        "processor": _processor(),
        "load before": f"{load:.2f}" + (" (something else runs: the figures are too low)" if load > _LOADED else ""),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "thalweg": f"{version('thalweg')} {_revision()}".strip(),
        "kubernetes": KUBERNETES_VERSION,
        "python": platform.python_version(),
        "libraries": ", ".join(f"{name} {version(name)}" for name in ("ortools", "numpy", "aiohttp", "msgspec")),
    }


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
