"""The tables of docs/reference/performance.md: which fields of which measurement are its columns."""

from __future__ import annotations

from harness.figures.tables import Column, PageTable, Ratio

_NODES, _MIX, _ARRIVAL = Column("nodes", "nodes"), Column("pods", "mix"), Column("arrival", "arrival")
_SCHEDULER = Column("scheduler", "scheduler")
_CPU = (
    Column("CPU s", "cpu_seconds", 1),
    Column("API server CPU s", "api_server_cpu_seconds", 1),
    Column("etcd CPU s", "etcd_cpu_seconds", 1),
)
_OVER = Column("overcommitted", "overcommitted")
_ALONE = ("scheduler", "kube-scheduler")


def _rates(name: str, measurement: str) -> PageTable:
    return PageTable(
        name,
        measurement,
        (_MIX, _ARRIVAL, _SCHEDULER),
        (
            Column("pods/s", "pods_per_second"),
            Column("p50 ms", "p50_ms"),
            Column("p99 ms", "p99_ms"),
            *_CPU,
            Column("peak MiB", "peak_mib"),
            Column("calls", "filter_calls", 2, per="bound"),
            Column("held", "held"),
            Column("writes", "writes", 2, per="bound"),
            _OVER,
            Column("misplaced", "misplaced"),
        ),
        ratio=Ratio("pods_per_second", _ALONE),
    )


def _engine(part: str, *columns: Column, measurement: str = "engine") -> PageTable:
    keys = (Column("nodes / pending / classes / running", "case"), Column("load", "load"), Column("method", "method"))
    return PageTable(f"engine {part}", measurement, keys, columns, only={"part": part})


_PLACED, _LEFT, _GAP = Column("placed", "placed"), Column("left", "left"), Column("gap", "gap", 1, percent=True)
_ROUND_CPU, _AGAIN = Column("CPU s", "cpu_seconds", 3), Column("again", "again_seconds", 3)


def _openb(measurement: str) -> PageTable:
    return PageTable(
        measurement,
        measurement,
        (Column("list", "which"), Column("pods come", "arrival"), _SCHEDULER),
        (
            _PLACED,
            Column("fewer than the engine at once", "short", 1, percent=True),
            Column("than in rounds", "short_of_rounds", 1, percent=True),
            Column("pending", "pending"),
            Column("seconds", "seconds", 1),
            Column("pods/s", "pods_per_second"),
            _OVER,
            Column("GPUs allocated", "gpus"),
            Column("placed, of the pods that want several GPUs", "multi_gpu"),
        ),
        ratio=Ratio("pods_per_second", _ALONE),
    )


TABLES: tuple[PageTable, ...] = (
    *(_rates(name, name) for name in ("rates, 1000 nodes", "rates, 5000 nodes")),
    *(_rates(name, name) for name in ("rates, 1000 nodes, a core each", "rates, 5000 nodes, a core each")),
    PageTable(
        "binding rate",
        "binding rate",
        (_MIX, _SCHEDULER),
        (Column("pods/s", "pods_per_second"), *_CPU),
        ratio=Ratio("pods_per_second", ("scheduler", "raw")),
    ),
    PageTable(
        "lone pods",
        "lone pods",
        (_NODES, Column("ms between pods", "every"), _SCHEDULER),
        (
            Column("p50 ms", "p50_ms", 1),
            Column("p99 ms", "p99_ms", 1),
            Column("CPU ms of a pod", "cpu_ms", 1),
            Column("API server CPU ms", "api_server_cpu_ms", 1),
            Column("etcd CPU ms", "etcd_cpu_ms", 1),
        ),
        ratio=Ratio("p50_ms", _ALONE),
    ),
    PageTable(
        "a large cluster",
        "a large cluster",
        (Column("what", "what"),),
        (
            Column("seconds", "seconds", 1),
            Column("of a round", "round", 2),
            Column("operator CPU s", "operator_cpu", 1),
            Column("worker CPU s", "worker_cpu", 1),
            Column("API server CPU s", "server_cpu", 1),
            Column("operator MiB", "operator_mib"),
            Column("worker MiB", "worker_mib"),
            Column("peak MiB", "peak_mib"),
        ),
    ),
    PageTable(
        "waiting",
        "beside waiting pods",
        (_MIX, _SCHEDULER),
        (
            Column("pods/s", "pods_per_second"),
            Column("p50 ms", "p50_ms"),
            Column("p99 ms", "p99_ms"),
            Column("rounds", "rounds"),
            Column("attempts", "attempts"),
            Column("kube-scheduler CPU s", "kube_scheduler_cpu_seconds", 1),
            Column("extender CPU s", "extender_cpu_seconds", 1),
            Column("of that the worker", "worker_cpu_seconds", 1),
            *_CPU[1:],
        ),
        ratio=Ratio(
            "pods_per_second",
            _ALONE,
            {"held": "alone", "steered": "alone", "gated": "alone gated"},
        ),
    ),
    PageTable(
        "calls",
        "API calls",
        (Column("call", "call"),),
        tuple(
            Column(header, kind, 2)
            for header, kind in (
                ("kube-scheduler", "kube-scheduler"),
                ("Binder", "thalweg"),
                ("Extender", "steered"),
                ("Extender, gated", "gated"),
            )
        ),
    ),
    PageTable(
        "answers",
        "extender answers",
        (Column("call", "verb"), Column("pod", "pod"), Column("node names", "names"), Column("withheld", "taken")),
        (
            Column("own p50 ms", "own_p50", 2),
            Column("own p99 ms", "own_p99", 2),
            Column("round trip p50 ms", "trip_p50", 2),
            Column("p99 ms", "trip_p99", 2),
        ),
    ),
    PageTable(
        "take-over",
        "take-over",
        (Column("the leader ends by", "fault"),),
        (
            Column("s to the lease", "lease", 1),
            Column("longest", "longest_lease", 1),
            Column("s to the first binding", "binding", 1),
            Column("longest", "longest_binding", 1),
        ),
    ),
    PageTable(
        "memory",
        "memory",
        (Column("when", "when"), Column("replica", "replica")),
        (Column("operator MiB", "operator"), Column("worker MiB", "worker")),
    ),
    PageTable(
        "preemption",
        "preemption",
        (_NODES, Column("urgent pods", "urgent"), _SCHEDULER),
        (
            Column("bound", "bound"),
            Column("pods/s", "pods_per_second", 1),
            Column("victims", "victims"),
            Column("by priority", "victims_by_priority"),
            *_CPU,
            _OVER,
        ),
        ratio=Ratio("pods_per_second", _ALONE),
    ),
    PageTable(
        "gangs on a cluster",
        "gangs on a cluster",
        (_SCHEDULER,),
        (
            Column("whole gangs", "whole"),
            Column("of high priority", "dear"),
            Column("partially placed", "partial"),
            Column("useless pods", "useless"),
            Column("longest partially placed, ms", "longest_partial_ms"),
            Column("seconds", "seconds", 1),
            _OVER,
        ),
    ),
    PageTable(
        "whole gangs",
        "whole gangs",
        (_NODES, _MIX, _SCHEDULER),
        (
            Column("pods/s", "pods_per_second"),
            Column("whole gangs/s", "gangs_per_second", 1),
            Column("whole gangs", "whole_gangs"),
            Column("p50 ms", "p50_ms"),
            Column("p99 ms", "p99_ms"),
            *_CPU,
            _OVER,
        ),
        ratio=Ratio("pods_per_second", _ALONE),
    ),
    *(_openb(name) for name in ("openb on a cluster", "openb on a cluster, other lists")),
    _engine(
        "sizes",
        _PLACED,
        _LEFT,
        _ROUND_CPU,
        _AGAIN,
        _GAP,
        Column("peak MiB", "peak_mib"),
        Column("goal", "goal"),
        Column("safe", "safe"),
    ),
    _engine("bounds", _PLACED, _LEFT, _ROUND_CPU, _GAP, Column("safe", "safe"), measurement="bounds"),
    _engine("rules", _PLACED, _LEFT, _ROUND_CPU, _GAP, Column("safe", "safe")),
    _engine("growth", _ROUND_CPU, Column("goal", "goal"), Column("note", "note")),
    _engine("classes", _PLACED, _LEFT, _ROUND_CPU, _AGAIN, _GAP),
    _engine("quality", _LEFT, Column("fewest", "fewest"), _ROUND_CPU, _GAP, Column("safe", "safe")),
    PageTable(
        "engine openb",
        "engine, openb",
        (Column("case", "case"), Column("method", "method")),
        (_PLACED, _LEFT, Column("GPUs", "gpus"), Column("stranded", "stranded"), _ROUND_CPU),
    ),
    PageTable(
        "gangs",
        "gangs",
        (Column("case", "case"), Column("gangs", "gangs"), Column("method", "method")),
        (
            Column("complete", "complete"),
            Column("pods of others", "incomplete_pods"),
            Column("worth", "worth"),
            Column("bound", "bound"),
            Column("CPU s", "seconds", 2),
        ),
    ),
    PageTable(
        "gangs in racks",
        "gangs in racks",
        (
            _NODES,
            Column("hours", "hours"),
            Column("load", "load"),
            Column("seed", "seed"),
            Column("placer", "placer"),
        ),
        (
            Column("started", "started"),
            Column("came", "gangs"),
            Column("of those that need a rack", "rack_started"),
            Column("came", "in_rack"),
            Column("a block", "block_started"),
            Column("came", "in_block"),
            Column("large", "large_started"),
            Column("came", "large"),
            Column("minutes to the start", "median"),
            Column("p95", "p95"),
            Column("of those that need a rack", "rack_median"),
            Column("p95", "rack_p95"),
            Column("of large ones", "large_median"),
            Column("longest", "large_longest"),
            Column("racks whole", "whole_racks", 1),
            Column("GPUs used", "utilisation", 1, percent=True),
            Column("longest round, CPU s", "longest", 2),
        ),
    ),
    PageTable(
        "running pods",
        "running pods",
        (Column("part", "part"), Column("case", "case")),
        (
            _PLACED,
            _LEFT,
            Column("preempted", "preempted"),
            Column("moved", "moved"),
            Column("fewest", "fewest"),
            Column("CPU s", "seconds", 3),
        ),
    ),
    PageTable(
        "openb day",
        "openb day",
        (Column("moved in the day, at most", "case"),),
        (
            Column("waiting", "waiting"),
            Column("GPUs in use", "gpus", 1),
            Column("stranded", "stranded", 1),
            Column("whole nodes free", "whole_nodes", 1),
            Column("moves", "moves"),
            Column("for gain", "for_gain"),
            Column("flaps", "flaps"),
            Column("CPU s", "cpu_seconds", 2),
        ),
    ),
    PageTable(
        "questions",
        "questions",
        (_NODES, Column("question", "question")),
        (Column("plan, CPU s", "plan", 1), Column("answer, CPU s", "seconds", 1)),
    ),
)
