"""Limits of the worker process: memory (on Linux only), and time for one round."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

#: An empty cluster needs this much.
LEAST_MEMORY: Final = 256 * 2**20
#: Memory limit of our control group, version 2 and version 1.
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
#: Version 1 says "no limit" with a number near 2**63.
_NO_LIMIT = 2**60
_OOM_SCORE = Path("/proc/self/oom_score_adj")


class RoundExpired(BaseException):
    """A round took longer than its deadline. No handler of errors in what a round runs may take it for its own."""


def container_memory(limits: tuple[Path, ...] = _CGROUP_LIMITS) -> int:
    """Our container's memory limit in bytes; 0 where it has none."""
    for path in limits:
        with suppress(OSError, ValueError):
            limit = int(path.read_text())
            if limit < _NO_LIMIT:
                return limit
    return 0


def default_memory(limits: tuple[Path, ...] = _CGROUP_LIMITS) -> int:
    """Half of our container's memory limit in bytes; the operator needs the rest. 0 (no limit) where it has none."""
    limit = container_memory(limits)
    return max(LEAST_MEMORY, limit // 2) if limit else 0


def limit_memory(memory: int) -> None:
    """Limits what this process may allocate, in bytes (0: no limit), and lets the kernel kill it first.

    RLIMIT_DATA limits private memory, not the address space: libraries map far more than they use.
    """
    if memory and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with suppress(OSError):
        _OOM_SCORE.write_text("1000")


def resident_memory(pid: int | None) -> int:
    """Resident memory of a process in bytes; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError):
        return 0


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises RoundExpired inside the block after ``seconds`` (0: never); the message says where it was.

    Only for the main thread. Native code is interrupted when it returns to Python.
    """

    def expire(_signal: int, frame: FrameType | None) -> None:
        raise RoundExpired(f"no plan after {seconds:.0f} s, in {_place(frame)}")

    if not seconds:
        yield
        return
    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _place(frame: FrameType | None) -> str:
    """The innermost function of the core."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("flowcore."):
            return f"{module.removeprefix('flowcore.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "the worker"
