"""Where the time goes: CPU time of each process for each pod bound, and how long the first binding took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.table import Table

from harness.schedulers import KUBE_SCHEDULER, RAW
from harness.tables import console

_PROCESSES = ("kube-scheduler", "operator", "worker", "API server", "etcd", "all")


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
    """What was measured of a row. CPU seconds of the scheduler are those of all its processes."""

    @property
    def bound(self) -> int: ...

    @property
    def pods_per_second(self) -> float: ...

    @property
    def first_ms(self) -> float | None: ...

    @property
    def cpu_seconds(self) -> float: ...

    @property
    def kube_scheduler_cpu_seconds(self) -> float: ...

    @property
    def worker_cpu_seconds(self) -> float: ...

    @property
    def api_server_cpu_seconds(self) -> float: ...

    @property
    def etcd_cpu_seconds(self) -> float: ...


def cpu_ms_per_pod(found: Measured) -> dict[str, float]:
    """By process; empty where nothing was bound.

    `operator` is what else the scheduler consists of: Thalweg without its worker, another extender, or a client.
    """
    if not found.bound:
        return {}
    kube_scheduler, worker = found.kube_scheduler_cpu_seconds, found.worker_cpu_seconds
    seconds = {
        "kube-scheduler": kube_scheduler,
        "operator": found.cpu_seconds - kube_scheduler - worker,
        "worker": worker,
        "API server": found.api_server_cpu_seconds,
        "etcd": found.etcd_cpu_seconds,
    }
    seconds["all"] = sum(seconds.values())
    return {name: 1000 * each / found.bound for name, each in seconds.items()}


def print_costs(rows: Sequence[tuple[Case, Measured]]) -> None:
    """The table; beside kube-scheduler alone, and rates beside the raw client's, if they are of the same run."""
    table = Table(title="ms of CPU time for each pod bound; ms to the first binding")
    table.add_column("scheduler")
    for column in ("nodes", "mix", "arrival", *_PROCESSES, "kube x alone", "API x alone", "first", "x raw"):
        table.add_column(column, justify="right")
    raw, alone = (
        {_group(case): found for case, found in rows if case.scheduler == base} for base in (RAW, KUBE_SCHEDULER)
    )
    for case, found in rows:
        costs, without = cpu_ms_per_pod(found), alone.get(_group(case))
        base = cpu_ms_per_pod(without) if without is not None else {}
        most = raw.get(_group(case))
        table.add_row(
            case.scheduler,
            str(case.nodes),
            case.mix,
            case.arrival,
            *(f"{costs.get(process, 0.0):.2f}" for process in _PROCESSES),
            *(_ratio(costs.get(process), base.get(process)) for process in ("kube-scheduler", "API server")),
            "-" if found.first_ms is None else f"{found.first_ms:.0f}",
            _ratio(found.pods_per_second, most.pods_per_second if most is not None else None),
        )
    console.print(table)


def _ratio(value: float | None, base: float | None) -> str:
    return f"{value / base:.2f}" if value is not None and base else "-"


def _group(case: Case) -> tuple[int, str, str, int]:
    return case.nodes, case.mix, case.arrival, case.run
