"""Kinds that the account has no right to: which ones the operator does without."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import yaml
from aiohttp import web
from structlog.testing import capture_logs
from support.fake_api import serving
from support.leases import DirectLeaseClient, LeaseStore
from support.repository import ROOT
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.leadership.leader_election import LeaderElector
from thalweg_operator.api.watches.watched import REFUSABLE_KINDS
from thalweg_operator.app import Operator
from thalweg_operator.health import LEASE
from thalweg_operator.settings import Settings


class Server:
    """An API server without objects; it lets nobody list some kinds, and does not serve others."""

    def __init__(self, version: str, refused: Collection[str], unserved: Collection[str]) -> None:
        self._version, self._refused, self._unserved = version, refused, unserved
        self.app = web.Application()
        self.app.router.add_get("/{path:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"gitVersion": self._version})
        plural = request.path.rsplit("/", 1)[1]
        if plural in self._unserved:
            return web.json_response({"message": "not here"}, status=404)
        if plural in self._refused:
            return web.json_response({"message": f"you may not list {plural}"}, status=403)
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(60)
        return response


@asynccontextmanager
async def reading(
    folder: Path, refused: Collection[str], *, version: str = "v1.37.2", unserved: Collection[str] = ()
) -> AsyncIterator[Operator]:
    """An operator that lists and watches all kinds, once each has had its answer."""
    async with serving(Server(version, refused, unserved).app, folder, 64) as connection:
        settings = Settings(kubeconfig=None)
        elector = LeaderElector(cast("ApiClient", DirectLeaseClient(LeaseStore())), Fence(), settings.lease)
        operator = Operator(settings, connection, elector)
        await operator._watch_objects()
        try:
            yield operator
        finally:
            for task in operator._tasks:
                task.cancel()
            await asyncio.gather(*operator._tasks, return_exceptions=True)


async def listed(operator: Operator, within: float) -> bool:
    """Whether the operator goes on to lead with what it could read."""
    try:
        await asyncio.wait_for(operator._objects_listed(), within)
    except TimeoutError:
        return False
    return True


def not_ready(operator: Operator) -> set[str]:
    """Kinds that keep the process from being ready."""
    return {kind for kind, problem in operator.readiness().items() if problem} - {LEASE, "policies"}


@pytest.mark.parametrize("kind", sorted(REFUSABLE_KINDS))
async def test_the_operator_does_without(tmp_path: Path, kind: str) -> None:
    """It is ready, and the log names the kind once."""
    with capture_logs() as log:
        async with reading(tmp_path, {kind}) as operator:
            assert await listed(operator, 20)
            assert not_ready(operator) == set()
    assert [each["what"] for each in log if each["event"] == "failing"] == [kind]


def test_nobody_is_called_for_a_right_that_is_left_out() -> None:
    """Such a kind is never confirmed, and the process is ready: its age is no critical alert."""
    groups = yaml.safe_load((ROOT / "charts" / "thalweg" / "files" / "alerts.yaml").read_text())["groups"]
    rules = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    silent = re.search(r'kind!~"([^"]+)"', rules["ThalwegSnapshotStale"])
    assert silent is not None
    assert [kind for kind in sorted(REFUSABLE_KINDS) if not re.fullmatch(silent[1], kind)] == []


async def test_pods_are_not_placed_without_the_nodes(tmp_path: Path) -> None:
    """What every plan needs keeps the process from being ready."""
    async with reading(tmp_path, {"nodes"}) as operator:
        assert not await listed(operator, 1)
        assert not_ready(operator) == {"nodes"}


@pytest.mark.parametrize(
    ("version", "refused", "unserved", "known"),
    [
        ("v1.37.2", (), (), True),
        ("v1.37.2", ("devicetaintrules",), (), False),
        ("v1.37.2", (), ("devicetaintrules",), True),
        ("v1.36.3", ("devicetaintrules",), (), True),
        ("v1.37.2", ("resourceclaims",), (), False),
        ("v1.37.2", (), ("resourceslices",), False),
    ],
)
async def test_devices_are_planned_where_all_is_known(
    tmp_path: Path, version: str, refused: Collection[str], unserved: Collection[str], *, known: bool
) -> None:
    """A rule that cannot be read may taint any device; where there are none, or none counts, nothing is missing."""
    async with reading(tmp_path, refused, version=version, unserved=unserved) as operator:
        assert await listed(operator, 20)
        assert operator._knows_claims() is known
