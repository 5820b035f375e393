"""Traces of rounds reach a real OTLP/HTTP receiver; a receiver that fails holds nothing up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.operator import Operator, running_operator, until
from support.steering import count
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.objects import node, pod

pytestmark = pytest.mark.asyncio(loop_scope="module")


#: In place of a status: nobody listens.
GONE = 0


class Receiver:
    """What a collector takes: spans in the protocol's own encoding."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.spans: list[Span] = []
        self.service = ""
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        if self.status == 200:
            message = ExportTraceServiceRequest.FromString(await request.read())
            for resource in message.resource_spans:
                names = {each.key: each.value.string_value for each in resource.resource.attributes}
                self.service = names["service.name"]
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response(status=self.status, content_type="application/x-protobuf")


@asynccontextmanager
async def receiving(status: int) -> AsyncIterator[Receiver]:
    receiver, app = Receiver(status), web.Application()
    app.router.add_post("/v1/traces", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    if status == GONE:
        await site.stop()
    try:
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def traced(
    api: Api, kubeconfig: Path, status: int, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> AsyncIterator[tuple[Receiver, Operator]]:
    """An operator that sends spans to a receiver which answers with this status, and has bound a pod."""
    async with receiving(status) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")  # milliseconds
        async with running_operator(kubeconfig, folder / "log") as operator:
            await api.create_many([node(f"node-{name}"), pod(name, "100m")])
            path = f"/api/v1/namespaces/default/pods/{name}"
            await api.wait_for(path, lambda each: each["spec"].get("nodeName"), within=60)
            yield receiver, operator


async def test_a_round_is_a_trace(
    plane: tuple[ControlPlane, Api], account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round that placed a pod has a span with its figures, and below it its phases, within its time."""
    async with traced(plane[1], account, 200, tmp_path, monkeypatch, "traced") as (receiver, _):

        def placed() -> list[Span]:
            return [
                span
                for span in receiver.spans
                if any(each.key == "thalweg.placed" and each.value.int_value == 1 for each in span.attributes)
            ]

        await until(placed, 60, lambda: f"the span of a round; there are {len(receiver.spans)} spans")
        root = placed()[0]
        assert receiver.service == "thalweg"
        assert (root.name, root.parent_span_id) == ("round", b"")
        names = {"collect", "worker", "deliver", "snapshot", "problem", "solve", "result", "prices"}

        def below() -> dict[str, Span]:
            return {span.name: span for span in receiver.spans if span.trace_id == root.trace_id and span is not root}

        await until(lambda: below().keys() >= names, 60, lambda: f"all phases; there are {below().keys()}")
        spans = below()
        for name, span in spans.items():
            parent = root if name in ("collect", "worker", "deliver") else spans["worker"]
            assert span.parent_span_id == parent.span_id
            assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= root.end_time_unix_nano


@pytest.mark.parametrize("status", [400, GONE])
async def test_a_receiver_that_fails(
    plane: tuple[ControlPlane, Api], account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Pods are bound all the same. Lost spans are counted, the failure is one line of the log, and the end is clean."""
    async with traced(plane[1], account, status, tmp_path, monkeypatch, f"untraced-{status}") as (_, operator):

        async def failed() -> bool:
            return await count(operator, "thalweg_spans_total", "failed") > 0

        await until(failed, 60, lambda: "spans to be lost")
        assert operator.log.count("traces are not exported") == 1
        assert "Traceback" not in operator.log
        assert await operator.stop() == 0
