"""Polls of an API metrics.k8s.io that is absent, away, forbidden, or says what no metrics-server would say."""

import asyncio
import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from support.fake_api import serving
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.metrics import Metrics
from thalweg_operator.settings import UsageSettings
from thalweg_operator.usage.poller import UsagePoller
from thalweg_operator.yielding import BURST

from flowcore.api.policies import parse_policy
from flowcore.cluster.cluster import Cluster
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.usage import MeasuredLoad, UsageClass, UsageSample

NOW = 1_700_000_000.0
GI = 2**30
CLASS = UsageClass("ns", ("app",), ())


def when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def node_metrics(name: str, cpu: str = "500m", memory: str = "1Gi", at: float = NOW, window: str = "30s") -> Any:
    usage = {"cpu": cpu, "memory": memory}
    return {"metadata": {"name": name}, "timestamp": when(at), "window": window, "usage": usage}


def pod_metrics(name: str, cpu: str = "100m", at: float = NOW) -> Any:
    containers = [{"name": each, "usage": {"cpu": cpu, "memory": "1Mi"}} for each in ("main", "side")]
    meta = {"name": name, "namespace": "ns"}
    return {"metadata": meta, "timestamp": when(at), "window": "30s", "containers": containers}


class MetricsServer:
    """Serves lists in pages, unless it gives an answer of its own."""

    def __init__(self) -> None:
        self.items: dict[str, list[Any]] = {"nodes": [], "pods": []}
        self.instead: web.Response | None = None
        self.page = 1000
        self.asked = 0

    def app(self) -> web.Application:
        """For one event loop."""
        app = web.Application()
        app.router.add_get("/apis/metrics.k8s.io/v1beta1/{plural}", self._list)
        return app

    async def _list(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.instead is not None:
            return web.Response(body=self.instead.body, status=self.instead.status)
        start, items = int(request.query.get("continue", "0")), self.items[request.match_info["plural"]]
        more = {"continue": str(start + self.page)} if start + self.page < len(items) else {}
        return web.json_response({"metadata": more, "items": items[start : start + self.page]})


class Scene:
    """A poller of a server, and the cluster that it polls for: nodes a and b, and pod ns/p on a."""

    def __init__(self, utilisation: str = "Measured") -> None:
        self.server, self.cluster, self.metrics, self.now = MetricsServer(), Cluster(), Metrics(), NOW
        for name in ("a", "b"):
            self.cluster.put_node(Node(name))
        self.cluster.put_pod(Pod("ns", "p", "u", PodClass(), node_name="a", usage_class=CLASS))
        spec = {"selects": {"podSelector": {}}, "cost": {"utilisation": utilisation}}
        self.cluster.policies.replace([parse_policy("p", spec, BUILT_IN_MODELS)])

    def polls(self, folder: Path, *steps: Any) -> UsagePoller:
        """Polls once after each step, a function of nothing."""

        async def run() -> UsagePoller:
            async with serving(self.server.app(), folder) as api:
                poller = UsagePoller(
                    api, self.cluster, UsageSettings(), self.metrics, BadInput(self.metrics), lambda: self.now
                )
                for step in steps or (lambda: None,):
                    step()
                    await poller.poll(None)
                return poller

        return asyncio.run(run())

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


def test_samples_of_all_pages_count(tmp_path: Path) -> None:
    """Also of an API that sends its lists in pages; the sum over containers is the pod's."""
    scene = Scene()
    scene.server.page = 1
    scene.server.items = {"nodes": [node_metrics("a"), node_metrics("b", "2")], "pods": [pod_metrics("p")]}
    poller = scene.polls(tmp_path)
    assert poller.store.measured_load("b", (), NOW) == MeasuredLoad("b", 2000, GI)
    sample = poller.store.pod_sample("ns/p")
    assert sample is not None
    assert (sample.cpu_milli, sample.memory_bytes) == (200, 2 * 2**20)
    assert poller.condition() == ("True", "Measured", "All 2 nodes have a sample of the last 180 s.")
    assert scene.metric("thalweg_usage_nodes", state="measured") == 2
    assert scene.metric("thalweg_usage_reads_total", source="nodes", outcome="read") == 1


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (node_metrics("b", "-1"), 'NodeMetrics b: usage.cpu: "-1" is negative'),
        (node_metrics("b", "NaN"), "NodeMetrics b: usage.cpu: "),
        (node_metrics("b", "1e30"), "NodeMetrics b: usage.cpu: "),
        (node_metrics("b", memory="-1Gi"), 'NodeMetrics b: usage.memory: "-1Gi" is negative'),
        (node_metrics("b", at=NOW + 3600), "NodeMetrics b: timestamp: it lies 3600 s in the future"),
        (node_metrics("b", window="soon"), 'NodeMetrics b: window: "soon" is not a duration'),
        (node_metrics("ghost"), "NodeMetrics ghost: there is no such node"),
        ({"metadata": {"name": "b"}}, "NodeMetrics b: Object missing required field"),
        ([], "NodeMetrics: Expected `object`, got `array`"),
    ],
)
def test_one_bad_sample(tmp_path: Path, bad: Any, sentence: str) -> None:
    """It is refused with a sentence in the policy's condition; the samples before and after it count."""
    scene = Scene()
    scene.cluster.put_node(Node("c"))
    scene.server.items["nodes"] = [node_metrics("a"), bad, node_metrics("c")]
    if "ghost" in sentence:
        scene.server.items["nodes"].append(node_metrics("b"))
    poller = scene.polls(tmp_path)
    assert [poller.store.is_measured(node, NOW) for node in ("a", "c")] == [True, True]
    assert poller.report is not None
    assert poller.report.refused == 1
    assert poller.report.refusal.startswith(sentence)
    if "ghost" in sentence:  # else node b has no sample, and the condition says that
        assert poller.condition() == ("False", "SampleRefused", f"1 sample is refused: {sentence}. The others count.")
    assert scene.metric("thalweg_refused_inputs_total", kind="NodeMetrics", field="sample") == 1


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (404, b'{"message": "the server could not find the requested resource"}', "install metrics-server"),
        (503, b'{"message": "service unavailable"}', "install metrics-server, or see why it is not available."),
        (403, b'{"message": "nodes.metrics.k8s.io is forbidden"}', "403: nodes.metrics.k8s.io is forbidden"),
        (200, b"<html>", "list: "),
    ],
)
def test_an_api_that_cannot_be_read(tmp_path: Path, status: int, body: bytes, told: str) -> None:
    """Nothing fails. The condition says why, samples count until they are stale, and one line is logged per change."""
    scene = Scene()
    scene.server.items = {"nodes": [node_metrics("a"), node_metrics("b")], "pods": [pod_metrics("p")]}

    def fail() -> None:
        scene.server.instead = web.Response(status=status, body=body)
        scene.now += 30

    def recover() -> None:
        scene.server.instead = None

    with capture_logs() as logs:
        poller = scene.polls(tmp_path, lambda: None, fail, fail, fail)
    kind, reason, message = poller.condition()
    assert (kind, reason) == ("False", "Unavailable")
    assert message.startswith("NodeMetrics cannot be read: ")
    assert told in message
    assert message.endswith("Where usage is not measured, requests count.")
    assert poller.store.is_measured("a", scene.now)
    assert not poller.store.is_measured("a", scene.now + 180)
    assert [line["source"] for line in logs if line["event"] == "usage not measured"] == ["nodes", "pods"]
    assert scene.metric("thalweg_usage_reads_total", source="nodes", outcome="failed") == 3
    with capture_logs() as logs:
        poller = scene.polls(tmp_path, fail, recover)
    assert poller.condition()[0] == "True"
    assert [line["source"] for line in logs if line["event"] == "usage measured again"] == ["nodes", "pods"]


def test_stale_samples(tmp_path: Path) -> None:
    """A server that goes on with old samples: the condition counts the nodes and names one."""
    scene = Scene()
    scene.server.items["nodes"] = [node_metrics("a"), node_metrics("b", at=NOW - 200)]
    poller = scene.polls(tmp_path)
    assert poller.condition() == (
        "False",
        "NoSample",
        "1 of 2 nodes, such as b, have no sample of the last 180 s. Where usage is not measured, requests count.",
    )
    assert scene.metric("thalweg_usage_nodes", state="unmeasured") == 1


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    """A node and a pod that are gone keep no samples of their own; the pod's stay with its class."""
    scene = Scene()
    scene.server.items = {"nodes": [node_metrics("a"), node_metrics("b")], "pods": [pod_metrics("p")]}

    def pass_time() -> None:
        scene.now += 30
        for items, name in ((scene.server.items["nodes"], "b"), (scene.server.items["pods"], "p")):
            items[:] = [each for each in items if each["metadata"]["name"] != name] + [
                pod_metrics("p", at=scene.now) if name == "p" else node_metrics("b", at=scene.now)
            ]

    def remove() -> None:
        scene.cluster.remove_pod("ns/p")
        scene.cluster.remove_node("b")

    poller = scene.polls(tmp_path, *[pass_time] * 5, remove)
    assert poller.store.pod_sample("ns/p") is None
    assert poller.store.node_sample("b") is None
    assert poller.store.foreseen(CLASS) is not None


def test_nobody_asks(tmp_path: Path) -> None:
    """With requested utilisation nothing is read, and earlier samples count no more."""
    scene = Scene()
    scene.server.items["nodes"] = [node_metrics("a"), node_metrics("b")]

    def stop_asking() -> None:
        spec = {"selects": {"podSelector": {}}}
        scene.cluster.policies.replace([parse_policy("p", spec, BUILT_IN_MODELS)])

    poller = scene.polls(tmp_path, lambda: None, stop_asking)
    assert scene.server.asked == 2
    assert poller.store.measured_load("a", (), NOW).is_empty
    assert poller.report is None
    assert scene.metric("thalweg_usage_nodes", state="measured") == 0


def test_a_poll_survives_any_one_object(tmp_path: Path) -> None:
    """Texts that are not UTF-8 and values nested without end: each is a refused sample, and the others count."""
    scene = Scene()
    items = [json.dumps(node_metrics(name)).encode() for name in ("a", "b")]
    bad = b'{"metadata": {"name": "\xff"}}', b'{"metadata": {"name": "b"}, "x": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    scene.server.instead = web.Response(
        body=b'{"metadata": {}, "items": [' + b", ".join((items[0], *bad, items[1])) + b"]}"
    )
    poller = scene.polls(tmp_path)
    assert [poller.store.is_measured(node, NOW) for node in ("a", "b")] == [True, True]
    assert poller.report is not None
    assert poller.report.refused == len(bad) + len([*items, *bad])  # the same list comes for pods, and none is one


def test_long_sentences_are_cut(tmp_path: Path) -> None:
    """What strangers write fits into a condition, whose message has at most 32,768 characters."""
    scene = Scene()
    scene.server.items["nodes"] = [node_metrics("a"), node_metrics("b"), node_metrics("b", window="x" * 100_000)]
    assert len(scene.polls(tmp_path).condition()[2]) < 32_768
    scene.server.instead = web.Response(status=403, body=b'{"message": "' + b"x" * 100_000 + b'"}')
    assert len(scene.polls(tmp_path).condition()[2]) < 32_768


def test_many_pods_that_are_gone_leave_other_tasks_their_turn(tmp_path: Path) -> None:
    """Between two turns of the event loop a poll drops no more pods than a burst."""
    scene = Scene()
    sizes: list[int] = []
    pods = [f"p{at}" for at in range(1000)]

    async def watch(poller: UsagePoller) -> None:
        while True:
            sizes.append(len(poller.store.pods))
            await asyncio.sleep(0)

    async def run() -> None:
        async with serving(scene.server.app(), tmp_path) as api:
            poller = UsagePoller(api, scene.cluster, UsageSettings(), scene.metrics, BadInput(scene.metrics))
            samples = {f"ns/{name}": UsageSample(NOW, 30, 1, 1) for name in pods}
            poller.store.put_pods(samples, lambda _: CLASS)
            watching = asyncio.create_task(watch(poller))
            await poller.poll(None)
            watching.cancel()

    asyncio.run(run())
    assert sizes[-1] < sizes[0] == len(pods)
    assert max(before - after for before, after in pairwise(sizes)) <= BURST
