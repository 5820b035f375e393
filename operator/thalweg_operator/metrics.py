"""The metrics that /metrics serves. Policy status and docs use the same words."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

#: Pods in a round.
_PODS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000)


class Metrics:
    """All metrics of one operator process, in one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        r = self.registry
        self.build = Info("thalweg_build", "Version of the operator, in its label.", registry=r)
        self.build.info({"version": version("thalweg")})
        self.leader = Gauge(
            "thalweg_leader",
            "1 while this process holds the lease and may write, else 0. A new leader first reads what it missed.",
            registry=r,
        )
        self.events = Counter("thalweg_watch_events", "Events received from the API server.", ["kind"], registry=r)
        self.relists = Counter("thalweg_relists", "Lists repeated after the first.", ["kind"], registry=r)
        self.watch_age = Gauge(
            "thalweg_watch_age_seconds",
            "Seconds since the API server last confirmed the snapshot of a kind.",
            ["kind"],
            registry=r,
        )
        self.unreadable = Counter("thalweg_unreadable_objects", "Objects that could not be read.", ["kind"], registry=r)
        self.refused_inputs = Counter(
            "thalweg_refused_inputs",
            "Objects and requests that were refused, whole or in part, by kind and field.",
            ["kind", "field"],
            registry=r,
        )
        self.rounds = Counter("thalweg_rounds", "Rounds finished.", ["method"], registry=r)
        self.rounds_failed = Counter(
            "thalweg_rounds_failed",
            "Rounds without a plan, by cause: timeout, memory, ended, error.",
            ["cause"],
            registry=r,
        )
        for cause in ("timeout", "memory", "ended", "error"):
            self.rounds_failed.labels(cause)  # a rate needs the zero before the first failure
        self.unsaid = Counter(
            "thalweg_unsaid",
            "Parts of what is said of rounds, such as shares and bounds, that could not be computed.",
            registry=r,
        )
        self.quarantined = Gauge(
            "thalweg_quarantined", "Pods, gangs and classes of pods that rounds leave out for now.", registry=r
        )
        self.round_seconds = Histogram(
            "thalweg_round_seconds", "Time from request to plan, by the worker.", buckets=_SECONDS, registry=r
        )
        self.round_phase_seconds = Histogram(
            "thalweg_round_phase_seconds",
            "Time of each phase of a round. The phase filters is a part of the others.",
            ["phase"],
            buckets=_SECONDS,
            registry=r,
        )
        self.round_pods = Histogram(
            "thalweg_round_pods", "Pods to plan in a round, of rounds with pods.", buckets=_PODS, registry=r
        )
        self.plan_left_at_least = Gauge(
            "thalweg_plan_left_at_least", "Pods that every plan of the last round leaves at least.", registry=r
        )
        self.plan_cost = Gauge("thalweg_plan_cost", "Cost of the last plan.", registry=r)
        self.plan_gap = Gauge(
            "thalweg_plan_gap_ratio",
            "Optimality gap of the last plan, 0 to 1: the part of its cost above the lower bound.",
            registry=r,
        )
        self.verdicts = Counter(
            "thalweg_cached_verdicts",
            "Columns of the verdict cache that rounds asked for, by filter and outcome: hit, refreshed or miss.",
            ["filter", "outcome"],
            registry=r,
        )
        self.verdict_rows = Counter(
            "thalweg_cached_verdict_rows",
            "Node verdicts computed, by filter: one for each node and column.",
            ["filter"],
            registry=r,
        )
        self.worker_restarts = Counter("thalweg_worker_restarts", "Restarts of the worker process.", registry=r)
        self.worker_memory = Gauge("thalweg_worker_memory_bytes", "Memory that the worker process uses.", registry=r)
        self.worker_memory_limit = Gauge(
            "thalweg_worker_memory_limit_bytes", "Memory that the worker process may use; 0: no limit.", registry=r
        )
        self.memory_limit = Gauge(
            "thalweg_memory_limit_bytes",
            "Memory that the operator and its worker may use together, by their container; 0: no limit.",
            registry=r,
        )
        self.placements = Counter("thalweg_placements", "Placements by outcome.", ["outcome"], registry=r)
        self.bindings = Counter("thalweg_bindings", "Bindings by the API server's answer.", ["answer"], registry=r)
        self.claim_writes = Counter(
            "thalweg_claim_writes",
            "Writes of claims of pods that we bind, by kind (allocate or release: devices; bind: a volume) and answer.",
            ["kind", "answer"],
            registry=r,
        )
        self.evictions = Counter(
            "thalweg_evictions", "Evictions by kind and the API server's answer.", ["kind", "answer"], registry=r
        )
        self.eviction_dry_runs = Counter(
            "thalweg_eviction_dry_runs",
            "Dry runs of evictions by kind and the API server's answer.",
            ["kind", "answer"],
            registry=r,
        )
        self.moves = Counter(
            "thalweg_moves",
            "Places for the replacements of pods that leave, by outcome: reserved, replaced, dropped or expired.",
            ["outcome"],
            registry=r,
        )
        self.writes_queued = Gauge(
            "thalweg_queued_writes",
            "Writes to the API server by queue and state: due, in flight, or resting until the next attempt.",
            ["queue", "state"],
            registry=r,
        )
        self.write_retries = Counter(
            "thalweg_write_retries",
            "Retries of writes, by queue and cause: lost, busy, error, conflict or refused.",
            ["queue", "cause"],
            registry=r,
        )
        self.events_written = Counter(
            "thalweg_events",
            "Events by reason and outcome: written, failed, dropped because the queue was full, or limited per object.",
            ["reason", "outcome"],
            registry=r,
        )
        self.steering_writes = Counter(
            "thalweg_steering_writes",
            "Writes to pods that kube-scheduler binds, by kind (nominate, clear, open, wake) and answer.",
            ["kind", "answer"],
            registry=r,
        )
        self.steered = Counter(
            "thalweg_steered",
            "Nominations by outcome: bound, elsewhere, erased, rejected, refused or expired.",
            ["outcome"],
            registry=r,
        )
        self.held = Counter(
            "thalweg_held_attempts",
            "Attempts of kube-scheduler that ended because filter let no node pass, by cause: unplanned, elsewhere or "
            "waiting.",
            ["cause"],
            registry=r,
        )
        for cause in ("unplanned", "elsewhere", "waiting"):
            self.held.labels(cause)
        self.extender_answers = Counter(
            "thalweg_extender_answers", "Answers to kube-scheduler.", ["verb", "outcome"], registry=r
        )
        self.extender_seconds = Histogram(
            "thalweg_extender_seconds",
            "Time to compute an answer, from the end of the request's body, by verb and outcome.",
            ["verb", "outcome"],
            buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0),
            registry=r,
        )
        self.view_requests = Counter(
            "thalweg_view_requests", "Requests to the view, by operation and HTTP status.", ["operation", "status"],
            registry=r,
        )  # fmt: skip
        self.certificate_expiration = Gauge(
            "thalweg_extender_certificate_expiration_timestamp_seconds",
            "When the extender's certificates expire, in seconds since the epoch: of each file the first to expire.",
            ["file"],
            registry=r,
        )
        self.client_certificate_expiration = Gauge(
            "thalweg_extender_client_certificate_expiration_timestamp_seconds",
            "When kube-scheduler's certificate expires, in seconds since the epoch: of the client that asked last; "
            "0: none has asked with a certificate.",
            registry=r,
        )
        self.binding_seconds = Histogram(
            "thalweg_creation_to_binding_seconds", "From a pod's creation to its binding.", buckets=_SECONDS, registry=r
        )
        self.nodes = Gauge("thalweg_nodes", "Nodes in the snapshot.", registry=r)
        self.pods = Gauge("thalweg_pods", "Pods in the snapshot.", registry=r)
        self.waiting = Gauge(
            "thalweg_waiting_pods",
            "Governed pods without a placement after the last round, by the code of their reason.",
            ["reason"],
            registry=r,
        )
        self.longest_wait = Gauge(
            "thalweg_longest_wait_seconds",
            "Longest time that a waiting pod has had the same reason, by its code; 0: no pod has this reason.",
            ["reason"],
            registry=r,
        )
        self.gated_pods = Gauge("thalweg_gated_pods", "Waiting pods behind our scheduling gate.", registry=r)
        self.watch_lag = Histogram(
            "thalweg_watch_lag_seconds",
            "From the API server's answer to a binding until the watch shows the pod bound.",
            buckets=_SECONDS,
            registry=r,
        )
        self.reservations = Gauge("thalweg_reservations", "Planned pods not yet seen bound.", registry=r)
        self.usage_reads = Counter(
            "thalweg_usage_reads",
            "Reads of measured usage, by source (nodes, pods, or a query of Prometheus) and outcome: read or failed.",
            ["source", "outcome"],
            registry=r,
        )
        self.saved_usage = Counter(
            "thalweg_saved_usage",
            "Reads and writes of the ConfigMap with what classes of pods use, by outcome: read, absent, unreadable, "
            "newer (of a later release), written or failed.",
            ["outcome"],
            registry=r,
        )
        self.usage_nodes = Gauge(
            "thalweg_usage_nodes",
            "Nodes by what counts on them while a policy asks for measured usage: measured, or unmeasured (requests "
            "count, since there is no sample or an old one).",
            ["state"],
            registry=r,
        )
        self.usage_poll_seconds = Histogram(
            "thalweg_usage_poll_seconds", "Time of a poll of measured usage.", buckets=_SECONDS, registry=r
        )
        self.spans = Counter(
            "thalweg_spans", "Spans of traces by outcome: exported or failed.", ["outcome"], registry=r
        )
        self.regret_pods = _regret("pods", "Pods that wait though a plan runs them and all that runs now", r)
        self.regret_gangs = _regret("gangs", "Gangs that wait though a plan runs them whole", r)
        self.regret_inversions = _regret(
            "inversions", "Pods that wait in such a plan, and run in one in which pods of lower priority leave", r
        )
        self.regret_nodes = _regret("nodes", "Nodes that hold pods and that a plan empties", r)
        self.regret_gpus = _regret("gpus", "GPUs that are stranded and that moves make usable", r)
        self.regret_memory = _regret("memory_bytes", "Memory that is stranded and that moves make usable", r)
        self.regret_open_pods = Gauge(
            "thalweg_regret_open_pods",
            "Of thalweg_regret_pods at least: pods whose room is free, so no placement closed it.",
            registry=r,
        )
        self.regret_closed = Counter(
            "thalweg_regret_closed_pods",
            "Pods that wait though a plan runs them, whose room a placement closed, each once while it waits, by the "
            "scheduler and namespace of the pod that was placed, and reason: Fragmentation or PriorityInversion.",
            ["scheduler", "pod_namespace", "reason"],
            registry=r,
        )
        self.regret_audits = Counter(
            "thalweg_regret_audits", "Audits by outcome: done or failed.", ["outcome"], registry=r
        )
        self.told = Counter("thalweg_reasons_written", "Reasons written to waiting pods.", registry=r)
        self.loop_lag = Histogram(
            "thalweg_event_loop_lag_seconds",
            "Delay of the event loop: how late it wakes a sleeping task.",
            buckets=_SECONDS,
            registry=r,
        )
        self.longest_lag = Gauge(
            "thalweg_event_loop_longest_lag_seconds",
            "Longest delay of the event loop since the snapshot was in sync; it includes waiting for a CPU.",
            registry=r,
        )
        self.longest_busy = Gauge(
            "thalweg_event_loop_longest_busy_seconds",
            "Most CPU time that the event loop used between two turns: upper bound for one step of the operator.",
            registry=r,
        )


def _regret(name: str, counted: str, registry: CollectorRegistry) -> Gauge:
    """A number of the last audit; it has no series before the first one."""
    return Gauge(
        f"thalweg_regret_{name}",
        f"{counted}, by the last audit: at least (a plan shows it) and at most (no plan does better).",
        ["at"],
        registry=registry,
    )
