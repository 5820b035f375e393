"""CPU time and memory of a process and its descendants, as /proc tells them (Linux only)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import BenchError

#: What the operator starts as its worker: `python -m`.
WORKER_MODULE = "thalweg_operator.planning.worker.main"

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of several processes together.

    Attributes:
        cpu_seconds: user and system time, that of children which have ended included.
        peak_mib: sum of each process's highest resident size; pages that they share count in each of them.
    """

    cpu_seconds: float
    peak_mib: float


def family(pid: int) -> list[int]:
    """The process and all its living descendants."""
    parents = {each: fields[1] for each in _pids() if (fields := _stat(each)) is not None}
    found = [pid]
    for member in found:
        found += [each for each, parent in parents.items() if int(parent) == member]
    return found


def child_named(word: str, besides: int | None = None) -> int | None:
    """Our child whose first argument is this word, and not that one: so components are told apart."""
    mine = os.getpid()
    for pid in _pids():
        fields = _stat(pid)
        if pid != besides and fields is not None and int(fields[1]) == mine and _arguments(pid)[1:2] == [word]:
            return pid
    return None


def server_processes() -> tuple[int, int]:
    """The processes of our API server and our etcd."""
    api_server, etcd = child_named("kube-apiserver"), child_named("etcd")
    if api_server is None or etcd is None:
        raise BenchError("the processes of the API server and etcd are not found")
    return api_server, etcd


def workers(pids: Iterable[int]) -> list[int]:
    """Those of the processes that plan, the children of a round included."""
    return [each for each in pids if WORKER_MODULE in _arguments(each)]


def used(pids: Iterable[int]) -> Usage:
    """By these processes so far; one that has ended counts nothing."""
    ticks, peak = 0, 0
    for pid in pids:
        fields = _stat(pid)
        if fields is None:
            continue
        ticks += sum(map(int, fields[11:15]))
        peak += _kib(pid, "VmHWM:")
    return Usage(ticks / _TICKS, peak / 1024)


def resident_mib(pids: Iterable[int]) -> float:
    """What these processes hold in memory now, together."""
    return sum(_kib(pid, "VmRSS:") for pid in pids) / 1024


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _stat(pid: int) -> list[str] | None:
    """The fields from the state on; the name before it may hold anything, spaces and brackets too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _kib(pid: int, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)
