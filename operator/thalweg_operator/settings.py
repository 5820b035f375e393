"""What the command line decides about a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from thalweg_operator.lease import LeaseName


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one operator process.

    Attributes:
        kubeconfig: None in a cluster: the pod's service account is used. Several paths with the path separator between
            them are merged.
        context: of the kubeconfig; None: its current context.
        source: what named the kubeconfig, for the log.
        host, port: where /healthz, /readyz and /metrics are served.
        lease: held while anything is written; one for each cluster.
        idle_window: seconds without a change after which a round starts.
        max_window: seconds after the first change at which a round starts in any case.
        round_timeout: seconds that a round may take at most; usually it is less (deadline.py).
        worker_memory: bytes that the worker process may use, 0 for no limit; None: half of what the container may use.
        round_budget: seconds after which a round takes no further step to make its plan better.
        records: folder in which the last rounds are kept for a replay; None keeps none.
        bind_concurrency: bindings under way at once for one namespace; for all of them a third more.
        steer_concurrency: the same of nominations and the like.
        told_per_second: how many waiting pods are told their reason per second, at most.
        resync: seconds between rounds when nothing changes.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    source: str = "service account"
    host: str = "0.0.0.0"  # noqa: S104 - probes come from outside the pod
    port: int = 8080
    lease: LeaseName = field(default_factory=LeaseName)
    idle_window: float = 0.02
    max_window: float = 0.2
    round_timeout: float = 60.0
    worker_memory: int | None = None
    round_budget: float = 0.3
    records: Path | None = None
    bind_concurrency: int = 32
    steer_concurrency: int = 16
    told_per_second: float = 100.0
    resync: float = 60.0
