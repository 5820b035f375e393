"""Writes of volume claims against an API server that keeps resource versions: what is written, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.fake_api import refusal, serving
from support.operator import until
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.delivery.claims.volume_claims import VolumeClaimWriter
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import BindClaim
from thalweg_operator.reservations.events import Answer

from flowcore.api.storage_objects import SELECTED_NODE
from flowcore.model.pods import Pod, PodClass
from flowcore.model.volumes import VolumeChoice

SOON = Backoff(first=0.001, longest=0.001)
POD = Pod("default", "p", "u", PodClass())
KEEP = BindClaim(POD, "a", 1, VolumeChoice("default", "c", "c", "v"))
SELECT = BindClaim(POD, "a", 1, VolumeChoice("default", "c", "c"))
DELETED = "2026-01-01T00:00:00Z"


class StorageServer:
    """A volume and a claim; patches are kept."""

    def __init__(self) -> None:
        self.volume: dict[str, Any] = {
            "metadata": {"name": "v", "uid": "v", "resourceVersion": "1"},
            "spec": {},
            "status": {"phase": "Available"},
        }
        self.claim: dict[str, Any] = {"metadata": {"name": "c", "uid": "c", "resourceVersion": "1"}, "spec": {}}
        self.patches: list[dict[str, Any]] = []
        self.conflicts = 0
        self.app = web.Application()
        for path in ("/api/v1/persistentvolumes/v", "/api/v1/namespaces/default/persistentvolumeclaims/c"):
            self.app.router.add_get(path, self._get)
            self.app.router.add_patch(path, self._patch)

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self.volume if "volumes/" in request.path else self.claim)

    async def _patch(self, request: web.Request) -> web.Response:
        if self.conflicts:
            self.conflicts -= 1
            return refusal(409, "the object has been modified")
        self.patches.append(await request.json())
        return web.json_response({})


@asynccontextmanager
async def writing(server: StorageServer, folder: Path) -> AsyncIterator[tuple[VolumeClaimWriter, list[Any]]]:
    answers: list[tuple[Answer, str]] = []

    class WantingShell:
        """As much of a shell as the writer asks."""

        def is_wanted(self, _write: object) -> bool:
            return True

        def answered(self, _write: object, answer: Answer, reason: str = "") -> None:
            answers.append((answer, reason))

    async with serving(server.app, folder) as connection:
        writer = VolumeClaimWriter(connection, WantingShell(), Metrics(), 4, backoff=SOON)  # type: ignore[arg-type]
        task = asyncio.create_task(writer.run())
        try:
            yield writer, answers
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def answer(server: StorageServer, folder: Path, write: BindClaim) -> tuple[Answer, str]:
    """The answer to a write."""
    async with writing(server, folder) as (writer, answers):
        writer.put(write)
        await until(lambda: bool(answers), 10, lambda: "an answer")
        (only,) = answers
        return only


async def test_a_volume_is_kept_for_a_claim(tmp_path: Path) -> None:
    """As it was read: by its resource version, again after a conflict."""
    server = StorageServer()
    server.conflicts = 2
    assert await answer(server, tmp_path, KEEP) == (Answer.DONE, "")
    (patch,) = server.patches
    assert patch["metadata"] == {
        "resourceVersion": "1",
        "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
    }
    assert (patch["spec"]["claimRef"]["name"], patch["spec"]["claimRef"]["uid"]) == ("c", "c")


async def test_a_node_is_named_on_a_claim(tmp_path: Path) -> None:
    """By its resource version."""
    server = StorageServer()
    assert await answer(server, tmp_path, SELECT) == (Answer.DONE, "")
    assert server.patches == [{"metadata": {"resourceVersion": "1", "annotations": {SELECTED_NODE: "a"}}}]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"status": {"phase": "Released"}}, "is not available"),
        ({"status": {"phase": "Failed"}}, "is not available"),
        ({"metadata": {"uid": "v", "resourceVersion": "1", "deletionTimestamp": DELETED}}, "is being deleted"),
        ({"spec": {"claimRef": {"namespace": "default", "name": "other", "uid": "o"}}}, "is kept for another claim"),
        ({"spec": {"claimRef": {"namespace": "default", "name": "c", "uid": "o"}}}, "is kept for another claim"),
    ],
)
async def test_a_volume_that_is_not_to_be_had(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    """The watch did not show it yet: nothing is written."""
    server = StorageServer()
    server.volume |= changed
    assert await answer(server, tmp_path, KEEP) == (Answer.REFUSED, f'persistentvolume "v" {reason}')
    assert server.patches == []


async def test_a_claim_that_is_being_deleted(tmp_path: Path) -> None:
    """No volume is made for it."""
    server = StorageServer()
    server.claim["metadata"]["deletionTimestamp"] = DELETED
    assert await answer(server, tmp_path, SELECT) == (Answer.REFUSED, "it is being deleted")
    assert server.patches == []


async def test_a_volume_that_somebody_keeps_for_the_claim(tmp_path: Path) -> None:
    """It gets the claim's uid, in whatever phase it is; what is written already is not written again."""
    server = StorageServer()
    server.volume |= {"spec": {"claimRef": {"namespace": "default", "name": "c"}}, "status": {"phase": "Pending"}}
    assert await answer(server, tmp_path, KEEP) == (Answer.DONE, "")
    assert len(server.patches) == 1
    assert "annotations" not in server.patches[0]["metadata"]
    server.volume["spec"]["claimRef"]["uid"] = "c"
    assert await answer(server, tmp_path, KEEP) == (Answer.DONE, "")
    assert len(server.patches) == 1
