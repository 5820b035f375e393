"""What one binding costs: CPU time of each process for each pod bound, and how long the first binding took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.table import Table

from harness.schedulers import RAW
from harness.tables import console


class Case(Protocol):
    """What tells rows apart."""

    @property
    def scheduler(self) -> str: ...

    @property
    def nodes(self) -> int: ...

    @property
    def mix(self) -> str: ...

    @property
    def arrival(self) -> str: ...

    @property
    def run(self) -> int: ...


class Measured(Protocol):
    """What was measured of a row. CPU seconds of the scheduler include those of the worker."""

    @property
    def bound(self) -> int: ...

    @property
    def pods_per_second(self) -> float: ...

    @property
    def first_ms(self) -> float | None: ...

    @property
    def cpu_seconds(self) -> float: ...

    @property
    def worker_cpu_seconds(self) -> float | None: ...

    @property
    def api_server_cpu_seconds(self) -> float: ...

    @property
    def etcd_cpu_seconds(self) -> float: ...


def cpu_ms_per_pod(found: Measured) -> dict[str, float]:
    """By process; empty where nothing was bound."""
    if not found.bound:
        return {}
    worker = found.worker_cpu_seconds or 0.0
    seconds = {
        "own": found.cpu_seconds - worker,
        "worker": worker,
        "API server": found.api_server_cpu_seconds,
        "etcd": found.etcd_cpu_seconds,
    }
    seconds["all"] = sum(seconds.values())
    return {name: 1000 * each / found.bound for name, each in seconds.items()}


def print_costs(rows: Sequence[tuple[Case, Measured]]) -> None:
    """The table; rates beside those of the raw client, if it was measured in the same run."""
    table = Table(title="ms of CPU time for each pod bound; ms to the first binding")
    table.add_column("scheduler")
    columns = ("nodes", "mix", "arrival", "own", "worker", "API server", "etcd", "all", "first", "x raw")
    for column in columns:
        table.add_column(column, justify="right")
    raw = {_group(case): found.pods_per_second for case, found in rows if case.scheduler == RAW}
    for case, found in rows:
        costs, base = cpu_ms_per_pod(found), raw.get(_group(case))
        table.add_row(
            case.scheduler,
            str(case.nodes),
            case.mix,
            case.arrival,
            *(f"{each:.2f}" for each in costs.values() or [0.0] * 5),
            "-" if found.first_ms is None else f"{found.first_ms:.0f}",
            f"{found.pods_per_second / base:.2f}" if base else "-",
        )
    console.print(table)


def _group(case: Case) -> tuple[int, str, str, int]:
    return case.nodes, case.mix, case.arrival, case.run
