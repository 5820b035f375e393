"""Writes to pods that kube-scheduler binds: what the API server refuses is not sent again and again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from support.fake_api import Answer, answering, serving
from support.fake_cluster.steered import SteeredCluster
from support.operator import until
from support.recording_shell import RecordingShell
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.delivery.nominator import Nominator, PodWrite
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations import events
from thalweg_operator.reservations.effects import ClearNomination, Nominate, OpenGate, WakePod
from thalweg_operator.shell import Shell

from flowcore.model.pods import Pod, PodClass

POD = Pod("ns", "p", "u", PodClass(), gated=True)
NEVER = Backoff(first=1e6, longest=1e6)
SOON = Backoff(first=0.001, longest=0.001)
WRITES: dict[str, PodWrite] = {
    "nominate": Nominate(POD, "n", 1, 1),
    "clear": ClearNomination(POD, 1),
    "open": OpenGate(POD, 0),
    "wake": WakePod(POD, unseen=False),
}


class Server:
    """Answers patches of pods as it is told; ``patches`` counts them by pod."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.patches = answer, Counter[str]()
        self.app = web.Application()
        self.app.router.add_route("PATCH", "/api/v1/namespaces/ns/pods/{name}{tail:.*}", self._patch)

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        self.patches[request.match_info["name"]] += 1
        return await self.answer(request)


@asynccontextmanager
async def nominating(
    folder: Path, answer: Answer, refused: Backoff, shell: RecordingShell | Shell
) -> AsyncIterator[tuple[Server, Nominator]]:
    server = Server(answer)
    async with serving(server.app, folder) as connection:
        nominator = Nominator(connection, cast("Shell", shell), Metrics(), 4, backoff=SOON, refused=refused)
        task = asyncio.create_task(nominator.run())
        try:
            yield server, nominator
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("status", [403, 422])
async def test_a_refused_gate_opening_is_sent_once_in_a_back_off(tmp_path: Path, status: int) -> None:
    """However many rounds ask for it meanwhile; its pod is told why."""
    world = SteeredCluster()
    shell = world.state.shell
    async with nominating(tmp_path, answering(status, "webhook says no"), NEVER, shell) as (server, nominator):
        world.put_write = nominator.put
        pod = world.pod(gated=True)
        world.show()
        for _ in range(50):
            world.open(pod)
            await asyncio.sleep(0)
        await until(lambda: world.refused, 10, lambda: "the refusal")
        for _ in range(50):
            world.open(pod)
        world.pod("other", "u2", gated=True)
        world.show()
        nominator.put(OpenGate(world.api["ns/other"], 0))
        await until(lambda: server.patches["other"], 10, lambda: "a later write")
        assert server.patches["p"] == 1
    of_it = [refused for refused in world.refused if refused[0] == pod.key]
    assert of_it == [(pod.key, "the API server refused to remove its scheduling gate: webhook says no")]


@pytest.mark.parametrize("kind", ["open", "clear"])
async def test_what_is_needed_is_tried_again(tmp_path: Path, kind: str) -> None:
    """Until it is carried out, or not wanted any more."""
    shell = RecordingShell(max_refusals=5)
    async with nominating(tmp_path, answering(403, "no"), SOON, shell) as (server, nominator):
        nominator.put(WRITES[kind])
        await until(lambda: shell.ended, 10, lambda: "the end")
        assert (server.patches["p"], shell.refusals) == (5, ["no"] * 5)
        assert shell.answers[5:] == [(events.Answer.UNWANTED, "")]


@pytest.mark.parametrize(
    ("kind", "status"), [("nominate", 403), ("nominate", 422), ("wake", 403), ("open", 404), ("clear", 409)]
)
async def test_what_is_refused_for_good_ends(tmp_path: Path, kind: str, status: int) -> None:
    """A nomination is planned anew, and a pod that is gone needs nothing."""
    shell = RecordingShell()
    async with nominating(tmp_path, answering(status, "no"), SOON, shell) as (server, nominator):
        nominator.put(WRITES[kind])
        async with asyncio.timeout(10):
            await nominator.drain()
        assert (server.patches["p"], shell.answers) == (1, [(events.Answer.REFUSED, "no")])


async def test_an_error_that_passes_is_tried_again(tmp_path: Path) -> None:
    """The write is done in the end, and its end is told once."""
    shell = RecordingShell()
    script = [answering(500), answering(429), answering(503)]

    async def answer(request: web.Request) -> web.StreamResponse:
        return await script.pop(0)(request) if script else web.json_response({})

    async with nominating(tmp_path, answer, SOON, shell) as (server, nominator):
        nominator.put(WRITES["nominate"])
        await until(lambda: shell.answers, 10, lambda: "the end")
        assert (server.patches["p"], shell.answers) == (4, [(events.Answer.DONE, "")])
