"""The ConfigMap with what classes of pods use: written by the leader, read by the next one, and never in the way."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from support.fake_api import serving
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.leadership.leader_election import LeaseName
from thalweg_operator.metrics import Metrics
from thalweg_operator.settings import UsageSettings
from thalweg_operator.usage.poller import UsagePoller
from thalweg_operator.usage.saved_usage import SavedUsage

from flowcore.api.policies import parse_policy
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.usage_samples.saved_classes import VERSION
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.usage import UsageClass, UsageSample

BEGIN = 1_700_000_000.0
WEB = UsageClass("shop", ("web",))
SPEC: dict[str, Any] = {"selects": {"podSelector": {}}, "cost": {"utilisation": "Larger"}}
#: What is foreseen of the class once ``Leader.measure`` has measured it.
KNOWN = (110, 1_100_000)


class Server:
    """Has the ConfigMap, or answers with another status."""

    def __init__(self, data: dict[str, str] | None = None) -> None:
        self.data, self.status, self.reads, self.writes = data or {}, 200, 0, 0
        self.app = web.Application()
        path = "/api/v1/namespaces/kube-system/configmaps/thalweg-usage"
        self.app.router.add_get(path, self._get)
        self.app.router.add_patch(path, self._patch)

    async def _get(self, _request: web.Request) -> web.Response:
        self.reads += 1
        return web.json_response({"data": self.data} if self.data else {}, status=self.status)

    async def _patch(self, request: web.Request) -> web.Response:
        self.writes += 1
        if self.status == 200:
            self.data |= json.loads(await request.read())["data"]
        return web.json_response({}, status=self.status)


class Leader:
    """What a replica that leads knows: its cluster and its samples."""

    def __init__(self, api_client: ApiClient, now: float) -> None:
        self.now, self.cluster, self.metrics = now, Cluster(), Metrics()
        self.cluster.policies.replace((parse_policy("p", SPEC, BUILT_IN_MODELS),))
        self.usage = UsagePoller(
            api_client, self.cluster, UsageSettings(), self.metrics, BadInput(self.metrics), lambda: self.now
        )
        self.saved = SavedUsage(api_client, LeaseName(), self.cluster, self.usage, self.metrics, lambda: self.now)

    def outcomes(self) -> dict[str, int]:
        """What the metric counts."""
        (family,) = self.metrics.saved_usage.collect()
        return {
            sample.labels["outcome"]: int(sample.value) for sample in family.samples if sample.name.endswith("_total")
        }

    def measure(self) -> None:
        """Pods of one class are measured."""
        samples = {f"web-{number}": UsageSample(self.now, 30.0, 100 + number, 2**20) for number in range(9)}
        self.usage.store.put_pods(samples, lambda _: WEB)
        self.usage.store.refresh()

    def foreseen(self) -> tuple[int, int] | None:
        """What a pod of the class is expected to use."""
        return self.usage.store.foreseen(WEB)


@asynccontextmanager
async def leader(server: Server, folder: Path, now: float = BEGIN + 5_000.0) -> AsyncIterator[Leader]:
    async with serving(server.app, folder) as connection:
        yield Leader(connection, now)


async def written(folder: Path) -> Server:
    """A server with what a leader saved."""
    server = Server()
    async with leader(server, folder) as first:
        await first.saved.restore()
        first.measure()
        assert first.foreseen() == KNOWN
        await first.saved.save()
        assert first.outcomes() == {"written": 1}
    return server


async def test_the_next_leader_knows_what_the_last_one_knew(tmp_path: Path) -> None:
    """Though all the pods are gone; and it writes nothing while it knows nothing more."""
    server = await written(tmp_path)
    async with leader(server, tmp_path, BEGIN + 9_000.0) as second:
        assert second.foreseen() is None
        await second.saved.restore()
        assert second.foreseen() == KNOWN
        assert second.outcomes() == {"read": 1}
        await second.saved.save()
        assert server.writes == 1


async def test_without_a_policy_that_asks_nothing_is_read(tmp_path: Path) -> None:
    """Most clusters have none."""
    server = await written(tmp_path)
    reads, writes = server.reads, server.writes
    async with leader(server, tmp_path) as second:
        second.cluster.policies.replace(())
        await second.saved.restore()
        await second.saved.save()
    assert (server.reads, server.writes) == (reads, writes)


async def test_text_that_cannot_be_read_is_written_anew(tmp_path: Path) -> None:
    """One line says so, and the operator measures by itself."""
    server = Server({"usage.json": "{"})
    async with leader(server, tmp_path) as first:
        with capture_logs() as lines:
            await first.saved.restore()
        assert [each["event"] for each in lines] == ["saved usage not read"]
        first.measure()
        await first.saved.save()
        assert first.outcomes() == {"unreadable": 1, "written": 1}
    assert json.loads(server.data["usage.json"])["version"] == VERSION


async def test_what_a_later_release_wrote_is_left_alone(tmp_path: Path) -> None:
    """It comes back perhaps, and finds what it knew. One line says so, until somebody deletes it."""
    later = f'{{"version": {VERSION + 1}}}'
    server = Server({"usage.json": later})
    async with leader(server, tmp_path) as first:
        with capture_logs() as lines:
            await first.saved.restore()
            first.measure()
            await first.saved.save()
            await first.saved.turn()
        assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
            "saved usage not read, usage not saved"
        ]
        assert first.outcomes() == {"newer": 1}
        assert server.data["usage.json"] == later
        server.data.clear()
        await first.saved.turn()
        await first.saved.turn()
        assert first.outcomes() == {"newer": 1, "written": 1}


@pytest.mark.parametrize(("status", "outcome"), [(404, "absent"), (403, "failed"), (500, "failed")])
async def test_nothing_is_overwritten_that_was_not_read(tmp_path: Path, status: int, outcome: str) -> None:
    """A replica that could not read what was saved would replace it by the little that it knows."""
    server = await written(tmp_path)
    writes = server.writes
    async with leader(server, tmp_path) as second:
        server.status = status
        await second.saved.restore()
        await second.saved.save()
        assert second.outcomes() == {outcome: 1}
        await second.saved.restore()
        assert second.outcomes() == {outcome: 1 if outcome == "absent" else 2}
        server.status = 200
        await second.saved.save()
        assert server.writes == writes
        await second.saved.restore()
        assert second.foreseen() == KNOWN


async def test_a_write_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    """With the next turn."""
    server = Server()
    async with leader(server, tmp_path) as first:
        await first.saved.restore()
        first.measure()
        server.status = 503
        await first.saved.save()
        server.status = 200
        await first.saved.save()
        assert first.outcomes() == {"failed": 1, "written": 1}
    assert server.writes == 2


async def test_a_namespace_with_many_classes_leaves_those_of_others(tmp_path: Path) -> None:
    """Though it has more than are looked at, all of them younger."""
    server = await written(tmp_path)
    async with leader(server, tmp_path) as second:
        await second.saved.restore()
        crowd = {f"tenant/{number}": UsageClass("tenant", (f"image-{number}",)) for number in range(6_000)}
        sample = UsageSample(second.now, 30.0, 100, 2**20)
        second.usage.store.put_pods(dict.fromkeys(crowd, sample), crowd.get)
        await second.saved.save()
    async with leader(server, tmp_path) as third:
        await third.saved.restore()
        assert third.foreseen() == KNOWN
