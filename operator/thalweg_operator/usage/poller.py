"""Polls measured usage while a policy in force asks for it, and keeps the samples.

Only the leader polls. A new leader has no samples of nodes and pods: until its first poll requests count. What classes
of pods use it reads (saved_usage.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import msgspec
import structlog

from flowcore.api.metrics import to_node_sample, to_pod_sample
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.usage_samples import STALE_AFTER, UsageStore
from flowcore.model.cost_policy import Utilisation
from flowcore.model.errors import ModelError
from flowcore.model.pods import Pod
from flowcore.model.usage import UsageClass, UsageSample
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.watches.watch_messages import Garbled
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.settings import UsageSettings
from thalweg_operator.usage.metrics_api import list_metrics
from thalweg_operator.usage.prometheus import NodeValues, PrometheusClient, QueryFailed, connect_prometheus
from thalweg_operator.usage.report import NOT_POLLED, UsageReport
from thalweg_operator.yielding import BURST, bursts, yielding

_log = structlog.get_logger()
#: Newest samples that are kept of each node and pod.
_SAMPLES = 20
#: Seconds between two looks whether a policy asks for measured usage.
_TICK = 1.0
#: Seconds before its time that a sample of Prometheus may reach back to: how far is up to the expression.
_QUERY_WINDOW = 60.0
#: Seconds that the sample of a node covers at most; metrics-server's cover 10 to 60.
_LONGEST_WINDOW = 600.0
#: Characters. Answers of strangers are quoted in logs and conditions.
_LONGEST_SENTENCE = 1000


def asks_for_usage(cluster: Cluster) -> bool:
    """Whether a policy in force plans with measured usage."""
    return any(policy.cost.utilisation is not Utilisation.REQUESTED for policy in cluster.policies.ordered)


@dataclass(slots=True)
class _Poll:
    """What a poll under way has found.

    Attributes:
        now: seconds since the epoch when it began.
        problems: a sentence for each source that could not be read.
        refused: samples that cannot be used.
        refusal: a sentence about the first of them.
    """

    now: float
    problems: list[str] = field(default_factory=list)
    refused: int = 0
    refusal: str = ""


class UsagePoller:
    """Polls the metrics API and Prometheus at each interval.

    Attributes:
        store: the samples.
        polls: number of polls so far; it tells a round that samples may have changed.
        report: what the last poll found; None: there was none since a policy began to ask.
    """

    def __init__(
        self,
        api_client: ApiClient,
        cluster: Cluster,
        settings: UsageSettings,
        metrics: Metrics,
        bad_input: BadInput,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """``wall_clock``: seconds since the epoch."""
        self._api_client, self._cluster, self._settings = api_client, cluster, settings
        self._metrics, self._bad_input, self._wall_clock = metrics, bad_input, wall_clock
        self.store = UsageStore(_SAMPLES)
        self.polls = 0
        self.report: UsageReport | None = None
        #: By source: why it could not be read last, "" where it was.
        self._problems: dict[str, str] = {}

    async def run(self) -> None:
        """Polls until cancelled."""
        async with AsyncExitStack() as stack:
            url, prometheus = self._settings.prometheus_url, None
            if url is not None:
                prometheus = await stack.enter_async_context(connect_prometheus(url))
            while True:
                if asks_for_usage(self._cluster) or "bandwidth" in self._settings.queries:
                    await self.poll(prometheus)
                    await asyncio.sleep(self._settings.interval)
                else:
                    self._forget()
                    await asyncio.sleep(_TICK)

    def condition(self) -> tuple[str, str, str]:
        """Status, reason and message of the condition UsageMeasured of policies that ask."""
        return NOT_POLLED if self.report is None else self.report.condition()

    def oldest_begin(self, now: float) -> float:
        """A time before which no sample began that is not stale."""
        return now - STALE_AFTER - _LONGEST_WINDOW

    async def poll(self, prometheus: PrometheusClient | None) -> None:
        """Reads all sources once. What cannot be read, or used, is reported and stops nothing else."""
        began, poll = time.monotonic(), _Poll(self._wall_clock())
        asked, queries = asks_for_usage(self._cluster), self._settings.queries
        if not asked:
            self._forget()
        else:
            if prometheus is not None and "cpu" in queries:
                await self._query_loads(prometheus, poll)
            else:
                await self._list_nodes(poll)
            await self._list_pods(poll)
        if prometheus is not None and "bandwidth" in queries:
            await self._query_bandwidth(prometheus, poll)
        await self._drop_what_is_gone()
        self.store.refresh()
        self.polls += 1
        self.report = await self._to_report(poll) if asked else None
        self._metrics.usage_poll_seconds.observe(time.monotonic() - began)

    async def _drop_what_is_gone(self) -> None:
        async for name in yielding(self.store.nodes):
            if name not in self._cluster.nodes:
                self.store.drop_node(name)
        async for key in yielding(self.store.pods):
            if self._class_of(key) is None:
                self.store.drop_pod(key)

    async def _to_report(self, poll: _Poll) -> UsageReport:
        nodes = list(self._cluster.nodes)
        unmeasured = [node async for node in yielding(nodes) if not self.store.is_measured(node, poll.now)]
        self._metrics.usage_nodes.labels("measured").set(len(nodes) - len(unmeasured))
        self._metrics.usage_nodes.labels("unmeasured").set(len(unmeasured))
        return UsageReport(
            tuple(poll.problems),
            len(nodes),
            len(nodes) - len(unmeasured),
            min(unmeasured, default=""),
            poll.refused,
            poll.refusal,
        )

    def _forget(self) -> None:
        """No policy asks any more."""
        if self.report is not None:
            self.report, self.store = None, UsageStore(_SAMPLES)
            self.polls += 1
            for state in ("measured", "unmeasured"):
                self._metrics.usage_nodes.labels(state).set(0)

    async def _list_nodes(self, poll: _Poll) -> None:
        await self._list(
            "nodes", "NodeMetrics", to_node_sample, lambda samples: self._put_nodes(samples, poll, "NodeMetrics"), poll
        )

    async def _list_pods(self, poll: _Poll) -> None:
        await self._list(
            "pods", "PodMetrics", to_pod_sample, lambda samples: self.store.put_pods(samples, self._class_of), poll
        )

    def _class_of(self, key: str) -> UsageClass | None:
        pod = self._cluster.pods.get(key)
        return pod.usage_class if pod is not None and _runs(pod) else None

    async def _list(
        self,
        plural: str,
        kind: str,
        to_sample: Callable[[msgspec.Raw, float], tuple[str, UsageSample]],
        put: Callable[[dict[str, UsageSample]], None],
        poll: _Poll,
    ) -> None:
        """Reads a list of metrics.k8s.io, and puts its samples into the store in bursts."""
        samples: dict[str, UsageSample] = {}
        problem = ""
        try:
            async for item in list_metrics(self._api_client, plural):
                try:
                    key, sample = to_sample(item, poll.now)
                    samples[key] = sample
                except ModelError as error:
                    self._refuse(kind, str(error), poll)
                if len(samples) == BURST:
                    put(samples)
                    samples = {}
        except Refused as error:
            problem = f"{kind} cannot be read: {error.status}: {error.reason.strip()}"
            if error.status in (404, 503):
                problem += "; install metrics-server, or see why it is not available"
        except (ConnectionLost, Garbled) as error:
            problem = f"{kind} cannot be read: {error}"
        put(samples)
        self._was_read(plural, problem, poll)

    async def _query_loads(self, prometheus: PrometheusClient, poll: _Poll) -> None:
        """CPU and memory of nodes, from Prometheus."""
        cpu, memory = [await self._query(prometheus, name, poll) for name in ("cpu", "memory")]
        if cpu is None or memory is None:
            return
        samples: dict[str, UsageSample] = {}
        for node in cpu.values.keys() & memory.values.keys():
            (cpu_time, cores), (memory_time, memory_bytes) = cpu.values[node], memory.values[node]
            when = min(cpu_time, memory_time)
            samples[node] = UsageSample(when, _QUERY_WINDOW, round(cores * 1000), round(memory_bytes))
        async for some in bursts(samples.items()):
            self._put_nodes(dict(some), poll, "Prometheus")

    async def _query(self, prometheus: PrometheusClient, name: str, poll: _Poll) -> NodeValues | None:
        values, problem = None, ""
        try:
            values = await prometheus.node_values(name, self._settings.queries[name], poll.now)
        except QueryFailed as error:
            problem = f"query {name} of Prometheus failed: {error}"
        self._was_read(f"query {name}", problem, poll)
        async for sentence in yielding(() if values is None else values.refused):
            self._refuse("Prometheus", sentence, poll)
        return values

    async def _query_bandwidth(self, prometheus: PrometheusClient, poll: _Poll) -> None:
        """Bandwidth of nodes, from Prometheus."""
        answer = await self._query(prometheus, "bandwidth", poll)
        by_time: dict[float, dict[str, int]] = {}
        for node, (when, bits) in {} if answer is None else answer.values.items():
            by_time.setdefault(when, {})[node] = round(bits)
        for when, measured in by_time.items():
            for sentence in self.store.put_bandwidth(measured, when, self._cluster.nodes):
                self._refuse("Prometheus", sentence, poll)

    def _put_nodes(self, samples: dict[str, UsageSample], poll: _Poll, kind: str) -> None:
        for sentence in self.store.put_nodes(samples, self._cluster.nodes):
            self._refuse(kind, sentence, poll)

    def _refuse(self, kind: str, sentence: str, poll: _Poll) -> None:
        sentence = sentence[:_LONGEST_SENTENCE]
        poll.refused += 1
        poll.refusal = poll.refusal or sentence
        self._bad_input.refuse(kind, "sample", "", sentence)

    def _was_read(self, source: str, problem: str, poll: _Poll) -> None:
        """Counts a read, and logs it where it ends otherwise than the one before."""
        problem = problem[:_LONGEST_SENTENCE]
        self._metrics.usage_reads.labels(source, "failed" if problem else "read").inc()
        before = self._problems.get(source, "")
        self._problems[source] = problem
        if problem:
            poll.problems.append(problem)
        if problem != before:
            if problem:
                _log.warning("usage not measured", source=source, problem=problem)
            else:
                _log.info("usage measured again", source=source)


def _runs(pod: Pod) -> bool:
    return bool(pod.node_name) and not pod.terminal
