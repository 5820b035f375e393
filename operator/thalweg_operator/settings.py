"""Settings of the operator, made from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from thalweg_operator.api.leadership.endpoint_slice import LeaderEndpoint
from thalweg_operator.api.leadership.leader_election import LeaseName
from thalweg_operator.api.watches.catch_up import OwnPod
from thalweg_operator.reservations.ledger.state import DEVICE_TIMEOUT


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """Where measured usage is read, and how often.

    Attributes:
        interval: seconds between two polls.
        prometheus_url: None: no Prometheus is asked.
        queries: PromQL by what it measures of nodes (usage/prometheus.py QUANTITIES).
    """

    interval: float = 30.0
    prometheus_url: str | None = None
    queries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one operator process.

    Attributes:
        kubeconfig: path, or several paths joined by the path separator; they are merged. None: the service account of
            the pod.
        context: context of the kubeconfig; None: its current context.
        source: what named the kubeconfig, for the log.
        host, port: address of /healthz, /readyz and /metrics.
        probes: a second address of the same pages, for the kubelet alone; None: there is none.
        lease: lease that the operator holds while it writes; one per cluster.
        replicated: whether to wait as a standby while another process holds the lease, instead of ending.
        own_pod: the pod that this process runs in; None: none.
        endpoints: Services that lead to this process while it leads.
        idle_window: seconds without a change after which a round starts.
        max_window: longest time in seconds from the first change to the start of a round.
        round_timeout: upper limit of a round in seconds; the deadline of a round is usually shorter (deadline.py).
        worker_memory: bytes that the worker process may use, 0 for no limit; None: half of the container's limit.
        round_budget: seconds that a round may spend on improving its plan.
        records: folder for the records of the last rounds; None: no records.
        dump_directory: folder for dumps on demand (SIGUSR1); None: there are none.
        bind_concurrency: bindings in flight for one namespace; the limit for all namespaces is a third higher.
        steer_concurrency: the same for nominations and other writes to steered pods.
        device_timeout: seconds that a driver may take until devices are ready that were allocated to a pod.
        device_gates: feature gate of devices -> whether it is on; others as in the API server's version.
        conditions_per_second: how many changed conditions of waiting pods are written in a second at most. The same
            number of conditions of PodGroups is written beside them.
        resync: seconds after which a round plans all waiting pods again at the latest, whatever has changed.
        usage: of measured usage.
        observes: whether it only observes: it plans, and writes nothing but its Lease.
        marks: whether governed pods get our mark, as kube-scheduler asks about no others.
        audit_interval: seconds between two audits of what placement costs; 0: there are none.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    source: str = "service account"
    host: str = "0.0.0.0"  # noqa: S104 - probes come from outside the pod
    port: int = 8080
    probes: tuple[str, int] | None = None
    lease: LeaseName = field(default_factory=LeaseName)
    replicated: bool = False
    own_pod: OwnPod | None = None
    endpoints: tuple[LeaderEndpoint, ...] = ()
    idle_window: float = 0.02
    max_window: float = 0.2
    round_timeout: float = 60.0
    worker_memory: int | None = None
    round_budget: float = 0.3
    records: Path | None = None
    dump_directory: Path | None = None
    bind_concurrency: int = 32
    steer_concurrency: int = 16
    device_timeout: float = DEVICE_TIMEOUT
    device_gates: Mapping[str, bool] = field(default_factory=dict)
    conditions_per_second: float = 100.0
    resync: float = 60.0
    usage: UsageSettings = field(default_factory=UsageSettings)
    observes: bool = False
    marks: bool = False
    audit_interval: float = 0.0
