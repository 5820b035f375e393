"""What the worker process may use: memory, and time for one round. Memory is limited on Linux alone."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

#: Less than this is not enough to plan for an empty cluster.
LEAST_MEMORY: Final = 256 * 2**20
#: Memory limit of our control group, version 2 and version 1.
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
#: Version 1 says "no limit" with a number near 2**63.
_NO_LIMIT = 2**60
_OOM_SCORE = Path("/proc/self/oom_score_adj")


class RoundExpired(Exception):
    """A round took longer than it may."""


def default_memory(limits: tuple[Path, ...] = _CGROUP_LIMITS) -> int:
    """Half of what our container may use, in bytes: the operator needs the rest. 0, no limit, where it has none."""
    for path in limits:
        with suppress(OSError, ValueError):
            limit = int(path.read_text())
            if limit < _NO_LIMIT:
                return max(LEAST_MEMORY, limit // 2)
    return 0


def confine(memory: int) -> None:
    """Applies to this process: what it may allocate, in bytes (0: no limit), and that the kernel is to kill it first.

    Private memory counts (RLIMIT_DATA), not the address space: libraries map far more of that than they use.
    """
    if memory and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with suppress(OSError):
        _OOM_SCORE.write_text("1000")


def resident(pid: int | None) -> int:
    """Bytes of memory that a process has, 0 where it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0
    return pages * resource.getpagesize()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises RoundExpired in what runs inside once it took so long (0: never), and says where it was.

    For the main thread alone. Code that is not Python's is interrupted when it returns.
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
    """The innermost function of ours."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("flowcore."):
            return f"{module.removeprefix('flowcore.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "the worker"


def in_words(memory: int) -> str:
    """A number of bytes as people write it."""
    for suffix, unit in (("Gi", 2**30), ("Mi", 2**20)):
        if memory >= unit:
            return f"{memory / unit:.4g}{suffix}"
    return str(memory)
