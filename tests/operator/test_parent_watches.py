"""Controllers that make gangs are watched while a policy follows them, and cost nothing elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web
from support.fake_api import connected, listening
from support.operator import until
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.watches.parent_watches import ParentWatches
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.events import ObjectSet, ParentsFollowed
from thalweg_operator.shell import Shell

from flowcore.api import Interner, WirePod, to_pod
from flowcore.api.kinds import JOB, JOB_SET, PARENTS, RAY_CLUSTER, VOLCANO_JOB
from flowcore.api.policies import parse_policy
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.kinds import GANG_PARENTS
from flowcore.model.cost_policy import KnownModels
from flowcore.model.gang_parents import GangParent, ParentKey, PartSize
from flowcore.model.pods import Pod

MODELS = KnownModels(("CPUMemory",))
JOB_SETS = JOB_SET.paths[0]


class _Shell:
    """Takes what watches show."""

    def __init__(self) -> None:
        self.cluster = Cluster()

    def apply(self, event: Any) -> None:
        match event:
            case ParentsFollowed(kinds, gone):
                self.cluster.follow_parents(kinds, gone)
            case ObjectSet(store, key, value):
                store.put(self.cluster, key, value)
            case _:
                raise AssertionError(event)


class _Server:
    """Serves JobSets and no other kind, or refuses them.

    Attributes:
        asked: how often each path was listed.
    """

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        self.refusal = 0
        self.items: list[dict[str, Any]] = []
        self.closed = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path] = self.asked.get(request.path, 0) + 1
        if self.refusal:
            return web.json_response({"kind": "Status", "code": self.refusal, "message": "no"}, status=self.refusal)
        if request.path != JOB_SETS:
            return web.json_response({"kind": "Status", "code": 404, "message": "not served"}, status=404)
        if "watch" in request.query:
            stream = web.StreamResponse()
            await stream.prepare(request)
            await self.closed.wait()
            return stream
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": self.items})


@asynccontextmanager
async def watching(folder: Path, server: _Server) -> AsyncIterator[tuple[_Shell, ParentWatches]]:
    """Watches of parents on that server."""
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    shell, metrics = _Shell(), Metrics()
    async with listening(app) as port, connected(port, folder) as client:
        watches = ParentWatches(cast("Shell", shell), client, metrics, BadInput(metrics))
        await watches.listed()
        task = asyncio.create_task(watches.run())
        try:
            yield shell, watches
        finally:
            server.closed.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def followed(shell: _Shell) -> frozenset[str]:
    """The kinds whose pods follow their parents."""
    kinds = shell.cluster.parent_gangs.followed
    assert kinds is not None
    return kinds


async def test_kinds_that_are_not_served_are_not_followed(tmp_path: Path) -> None:
    """Each is asked for once; JobSets are there, and Jobs and RayClusters are followed by no policy."""
    server = _Server()
    server.items = [{"metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": {}}]
    async with watching(tmp_path, server) as (shell, _):
        assert followed(shell) == {JOB_SET.qualified}
        assert [key.name for key in shell.cluster.gangs.parents] == ["train"]
        expected = {path for kind in (*PARENTS, VOLCANO_JOB) if kind not in (JOB, RAY_CLUSTER) for path in kind.paths}
        assert set(server.asked) == expected
        assert {server.asked[path] for path in expected - {JOB_SETS}} == {1}


@pytest.mark.parametrize("status", [403, 500], ids=["no right", "conversion webhook down"])
async def test_kinds_that_are_refused_are_not_followed_until_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Their pods are single pods meanwhile."""
    monkeypatch.setattr("thalweg_operator.api.watches.parent_watches._LONGEST_WAIT", 0.5)
    monkeypatch.setattr("thalweg_operator.api.watches.reflector._ABSENT", 0.2)
    server = _Server()
    server.refusal = status
    async with watching(tmp_path, server) as (shell, _):
        await until(lambda: followed(shell) == frozenset(), 10, lambda: str(followed(shell)))
        server.refusal = 0
        await until(lambda: followed(shell) == {JOB_SET.qualified}, 30, lambda: str(followed(shell)))


async def test_policies_begin_and_end_watches(tmp_path: Path) -> None:
    """A kind that no policy follows any more is forgotten, and one that a policy names is asked for."""
    server = _Server()
    server.items = [{"metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": {}}]
    async with watching(tmp_path, server) as (shell, watches):
        rule = {"apiVersion": "example.com/v1", "kind": "Training", "plural": "trainings", "size": ["spec.n"]}
        gangs = {"controllers": ["RayCluster"], "parents": [rule]}
        spec = {"selects": {"podSelector": {}}, "gangs": gangs}
        none = parse_policy("b", {"selects": {"podSelector": {}}, "gangs": {"controllers": []}}, MODELS)
        # Without the built-in policy, which follows all of them.
        shell.cluster.policies._ordered = (parse_policy("a", spec, MODELS), none)
        watches.look()
        assert not shell.cluster.gangs.parents
        await until(
            lambda: "/apis/example.com/v1/trainings" in server.asked, 15, lambda: f"the new kind; {server.asked}"
        )
        assert RAY_CLUSTER.paths[0] in server.asked
        await until(lambda: followed(shell) == frozenset(), 15, lambda: str(followed(shell)))


async def test_a_parent_that_is_not_there_is_gone_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pods wait that long for it, are then planned one by one, and are a gang again once it is seen."""
    server = _Server()
    async with watching(tmp_path, server) as (shell, _):
        shell.cluster.set_namespace("ml", ())
        shell.cluster.put_pod(job_set_pod())
        await asyncio.sleep(1.0)
        assert shell.cluster.pods["ml/train-a-0-0"].gang is not None
        monkeypatch.setattr("thalweg_operator.api.watches.parent_watches._LONGEST_WAIT", 0.5)
        await until(lambda: shell.cluster.pods["ml/train-a-0-0"].gang is None, 10, lambda: "still waits")
        (key,) = shell.cluster.parent_gangs.gone
        assert key.display_name == "JobSet ml/train"
        jobs = {"a": PartSize(1, jobs=1)}
        shell.apply(ObjectSet(GANG_PARENTS, key, GangParent(key, "u", jobs, owns_pods=False)))
        assert shell.cluster.pods["ml/train-a-0-0"].gang is not None
        await until(lambda: not shell.cluster.parent_gangs.gone, 10, lambda: "still gone")


async def test_looks_do_not_ask_again_about_all_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be very many that pods name and that are not there."""
    async with watching(tmp_path, _Server()) as (shell, watches):
        parents, asked = shell.cluster.parent_gangs, 0
        unseen = parents.unseen

        def counted() -> Collection[ParentKey]:
            nonlocal asked
            asked += 1
            return unseen()

        monkeypatch.setattr(parents, "unseen", counted)
        shell.cluster.set_namespace("ml", ())
        shell.cluster.put_pod(job_set_pod())
        for _ in range(3):
            watches.look()
        assert asked == 1
        shell.cluster.remove_pod("ml/train-a-0-0")
        watches.look()
        assert asked == 2


async def test_a_pod_that_asks_has_its_kind_watched(tmp_path: Path) -> None:
    """Jobs are followed by no policy. The watch stays when the pod goes: else it would begin anew with each pod."""
    server = _Server()
    async with watching(tmp_path, server) as (shell, watches):
        shell.cluster.set_namespace("ml", ())
        assert JOB.paths[0] not in server.asked
        asking = msgspec.structs.replace(job_set_pod(), labels=(), asks_gang=True)
        shell.cluster.put_pod(asking)
        await until(lambda: JOB.paths[0] in server.asked, 10, lambda: str(server.asked))
        shell.cluster.remove_pod(asking.key)
        watches.look()
        assert JOB in watches._watches


def job_set_pod() -> Pod:
    """A pod of a Job that the JobSet train made."""
    labels = {"jobset-name": "train", "replicatedjob-name": "a", "job-index": "0"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-a-0", "uid": "u", "controller": True}
    metadata = {"name": "train-a-0-0", "namespace": "ml", "uid": "u", "ownerReferences": [owner],
                "labels": {f"jobset.sigs.k8s.io/{name}": value for name, value in labels.items()}}  # fmt: skip
    spec = {"schedulerName": "thalweg", "containers": [{"name": "c", "image": "i"}]}
    return to_pod(msgspec.convert({"metadata": metadata, "spec": spec}, WirePod), Interner())
