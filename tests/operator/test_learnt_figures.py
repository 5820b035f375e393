"""The ConfigMap with what was learnt: written by the leader, read by the next one, and never in the way."""

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
from thalweg_operator.delivery.learnt_figures import LearntFigures
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.inputs.learnt_costs import LearntCosts
from thalweg_operator.settings import UsageSettings
from thalweg_operator.usage.poller import UsagePoller

from flowcore.api.policies import parse_policy
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.learning.saved_learning import VERSION
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.usage import UsageClass, UsageSample

BEGIN = 1_700_000_000.0
WEB = UsageClass("shop", ("web",))
SPEC: dict[str, Any] = {
    "selects": {"podSelector": {}},
    "cost": {
        "kinds": [{"name": "web", "pods": {"matchLabels": {"kind": "web"}}}],
        "learn": True,
        "machines": {"label": "gen"},
        "utilisation": "Larger",
    },
}


class Server:
    """Has the ConfigMap, or answers with another status."""

    def __init__(self, data: dict[str, str] | None = None) -> None:
        self.data, self.status, self.reads, self.writes = data or {}, 200, 0, 0
        self.app = web.Application()
        path = "/api/v1/namespaces/kube-system/configmaps/thalweg-learnt"
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
    """What a replica that leads knows: its cluster, what it learnt, its samples."""

    def __init__(self, api_client: ApiClient, now: float) -> None:
        self.now, self.cluster, self.metrics = now, Cluster(), Metrics()
        self.policy = parse_policy("p", SPEC, BUILT_IN_MODELS)
        self.cluster.policies.replace((self.policy,))
        self.costs = LearntCosts(self.cluster, lambda: self.now, lambda: self.now)
        self.usage = UsagePoller(
            api_client, self.cluster, UsageSettings(), self.metrics, BadInput(self.metrics), lambda: self.now
        )
        self.figures = LearntFigures(
            api_client, LeaseName(), self.cluster, self.costs, self.usage, self.metrics, lambda: self.now
        )

    def outcomes(self) -> dict[str, int]:
        """What the metric counts."""
        (family,) = self.metrics.learnt_figures.collect()
        return {
            sample.labels["outcome"]: int(sample.value) for sample in family.samples if sample.name.endswith("_total")
        }

    async def look(self) -> CostPolicy:
        """The policy's costs as the next round reads them."""
        self.now += 60.0
        (policy,) = await self.costs.applied([self.policy])
        return policy.cost

    def finished(self, count: int = 40) -> None:
        """Pods of one Job on nodes of two generations, the older of which is slower by a fifth."""
        for number in range(count):
            name, old = f"n{number}", number % 2
            self.cluster.put_node(Node(name, labels=(("gen", "old" if old else "new"),)))
            start = BEGIN + 10.0 * number
            self.cluster.put_pod(
                Pod(
                    "ns", f"p{number}", f"u{number}", PodClass(), node_name=name, labels=(("kind", "web"),),
                    owner="job", terminal=True, succeeded=True, ran=(start, start + (120.0 if old else 100.0)),
                )
            )  # fmt: skip


@asynccontextmanager
async def leader(server: Server, folder: Path, now: float = BEGIN + 5_000.0) -> AsyncIterator[Leader]:
    async with serving(server.app, folder) as connection:
        yield Leader(connection, now)


async def saved(folder: Path) -> tuple[Server, CostPolicy]:
    """A server with what a leader saved, and the costs that it knew."""
    server = Server()
    async with leader(server, folder) as first:
        await first.figures.restore()
        first.finished()
        known = await first.look()
        first.usage.store.put_pods(
            {f"web-{number}": UsageSample(first.now, 30.0, 100 + number, 2**20) for number in range(9)}, lambda _: WEB
        )
        await first.figures.save()
        assert first.outcomes() == {"written": 1}
    return server, known


async def test_the_next_leader_knows_what_the_last_one_knew(tmp_path: Path) -> None:
    """Though all the pods are gone; and it writes nothing while it knows nothing more."""
    server, known = await saved(tmp_path)
    assert known != parse_policy("p", SPEC, BUILT_IN_MODELS).cost
    async with leader(server, tmp_path, BEGIN + 9_000.0) as second:
        await second.figures.restore()
        assert await second.look() == known
        assert second.usage.store.foreseen(WEB) == (110, 1_100_000)
        assert second.outcomes() == {"read": 1}
        await second.figures.save()
        assert server.writes == 1


async def test_without_a_policy_that_asks_nothing_is_read(tmp_path: Path) -> None:
    """Most clusters have none."""
    server, _ = await saved(tmp_path)
    reads, writes = server.reads, server.writes
    async with leader(server, tmp_path) as second:
        second.cluster.policies.replace(())
        await second.figures.restore()
        await second.figures.save()
    assert (server.reads, server.writes) == (reads, writes)


async def test_text_that_cannot_be_read_is_written_anew(tmp_path: Path) -> None:
    """One line says so, and the operator learns by itself."""
    server = Server({"learnt.json": "{"})
    async with leader(server, tmp_path) as first:
        with capture_logs() as lines:
            await first.figures.restore()
        assert [each["event"] for each in lines] == ["learnt figures not read"]
        first.finished()
        await first.look()
        await first.figures.save()
        assert first.outcomes() == {"unreadable": 1, "written": 1}
    assert json.loads(server.data["learnt.json"])["version"] == VERSION


async def test_what_a_later_release_wrote_is_left_alone(tmp_path: Path) -> None:
    """It comes back perhaps, and finds what it knew. One line says so, until somebody deletes it."""
    later = f'{{"version": {VERSION + 1}}}'
    server = Server({"learnt.json": later})
    async with leader(server, tmp_path) as first:
        with capture_logs() as lines:
            await first.figures.restore()
            first.finished()
            await first.look()
            await first.figures.save()
            await first.figures.turn()
        assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
            "learnt figures not read and not saved"
        ]
        assert first.outcomes() == {"newer": 1}
        assert server.data["learnt.json"] == later
        server.data.clear()
        await first.figures.turn()
        await first.figures.turn()
        assert first.outcomes() == {"newer": 1, "written": 1}


@pytest.mark.parametrize(("status", "outcome"), [(404, "absent"), (403, "failed"), (500, "failed")])
async def test_nothing_is_overwritten_that_was_not_read(tmp_path: Path, status: int, outcome: str) -> None:
    """A replica that could not read what was learnt would replace it by the little that it knows."""
    server, known = await saved(tmp_path)
    writes = server.writes
    async with leader(server, tmp_path) as second:
        server.status = status
        await second.figures.restore()
        await second.figures.save()
        assert second.outcomes() == {outcome: 1}
        await second.figures.restore()
        assert second.outcomes() == {outcome: 1 if outcome == "absent" else 2}
        server.status = 200
        await second.look()
        await second.figures.save()
        assert server.writes == writes
        await second.figures.restore()
        assert await second.look() == known


async def test_a_write_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    """With the next turn."""
    server = Server()
    async with leader(server, tmp_path) as first:
        await first.figures.restore()
        first.finished()
        await first.look()
        server.status = 503
        await first.figures.save()
        server.status = 200
        await first.figures.save()
        assert first.outcomes() == {"failed": 1, "written": 1}
    assert server.writes == 2


async def test_other_kinds_begin_anew(tmp_path: Path) -> None:
    """What was learnt of other kinds says nothing of these."""
    server, _ = await saved(tmp_path)
    async with leader(server, tmp_path) as second:
        kinds = [{"name": "web", "pods": {"matchLabels": {"kind": "other"}}}]
        second.policy = parse_policy("p", {**SPEC, "cost": {**SPEC["cost"], "kinds": kinds}}, BUILT_IN_MODELS)
        await second.figures.restore()
        assert await second.look() == second.policy.cost


async def test_a_node_with_a_fast_clock_voids_nothing(tmp_path: Path) -> None:
    """Its pod ended tomorrow: the next leader reads what all pods told."""
    server = Server()
    async with leader(server, tmp_path) as first:
        await first.figures.restore()
        first.finished()
        tomorrow = BEGIN + 86_400.0
        first.cluster.put_pod(
            Pod(
                "ns", "fast", "u-fast", PodClass(), node_name="n1", labels=(("kind", "web"),), owner="job",
                terminal=True, succeeded=True, ran=(tomorrow, tomorrow + 120.0),
            )
        )  # fmt: skip
        known = await first.look()
        await first.figures.save()
    async with leader(server, tmp_path) as second:
        await second.figures.restore()
        assert second.outcomes() == {"read": 1}
        assert await second.look() == known != second.policy.cost


async def test_a_namespace_with_many_classes_leaves_those_of_others(tmp_path: Path) -> None:
    """Though it has more than are looked at, all of them younger."""
    server, _ = await saved(tmp_path)
    async with leader(server, tmp_path) as second:
        await second.figures.restore()
        crowd = {f"tenant/{number}": UsageClass("tenant", (f"image-{number}",)) for number in range(6_000)}
        sample = UsageSample(second.now, 30.0, 100, 2**20)
        second.usage.store.put_pods(dict.fromkeys(crowd, sample), crowd.get)
        await second.look()
        await second.figures.save()
    async with leader(server, tmp_path) as third:
        await third.figures.restore()
        assert third.usage.store.foreseen(WEB) == (110, 1_100_000)


@pytest.mark.parametrize("has_looked", [False, True], ids=["before any look", "after a look of its own"])
async def test_a_leader_that_ends_before_its_next_look_loses_nothing(tmp_path: Path, has_looked: bool) -> None:  # noqa: FBT001
    """It has read what was saved, and no round has taken it over."""
    server, known = await saved(tmp_path)
    async with leader(server, tmp_path, BEGIN + 9_000.0) as second:
        if has_looked:
            await second.look()
        await second.figures.restore()
        await second.figures.save()
    async with leader(server, tmp_path, BEGIN + 9_100.0) as third:
        await third.figures.restore()
        assert await third.look() == known


async def test_what_a_policy_learnt_that_does_not_learn_now_is_kept(tmp_path: Path) -> None:
    """It may learn again; what is too old is forgotten in the end, and the policy with it."""
    server, _ = await saved(tmp_path)
    for later, names in ((9_000.0, ["p", "q"]), (36 * 86_400.0, ["q"])):
        async with leader(server, tmp_path, BEGIN + later) as next_leader:
            next_leader.policy = parse_policy("q", SPEC, BUILT_IN_MODELS)
            next_leader.cluster.policies.replace((next_leader.policy,))
            await next_leader.figures.restore()
            await next_leader.look()
            await next_leader.figures.save()
        histories = json.loads(server.data["learnt.json"])["histories"]
        assert sorted(history["policy"] for history in histories) == names
