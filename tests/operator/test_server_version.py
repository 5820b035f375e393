"""The API server's version, whose rules and defaults of feature gates the operator reads objects by."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from support.fake_api import serving
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.watches.server_version import read_version, watch_version

from flowcore.model.kubernetes_version import KNOWN, KubernetesVersion


@asynccontextmanager
async def answering(folder: Path, answer: Callable[[], web.Response]) -> AsyncIterator[ApiClient]:
    """A connection to a server that answers so to each question for its version."""

    async def handle(_request: web.Request) -> web.Response:
        return answer()

    app = web.Application()
    app.router.add_get("/version", handle)
    async with serving(app, folder) as connection:
        yield connection


def version(text: str) -> web.Response:
    return web.json_response({"major": "1", "minor": "x", "gitVersion": text})


async def read(folder: Path, *answers: web.Response) -> KubernetesVersion:
    left = list(answers)
    async with answering(folder, lambda: left.pop(0)) as connection:
        found = await read_version(connection)
    assert not left
    return found


@pytest.mark.parametrize("minor", KNOWN)
async def test_a_known_version(tmp_path: Path, minor: int) -> None:
    """Its own rules hold, and nothing is said."""
    with capture_logs() as logs:
        assert (await read(tmp_path, version(f"v1.{minor}.3"))).rules == minor
    assert not logs


@pytest.mark.parametrize(("text", "rules"), [("v1.34.1", KNOWN[0]), ("v1.38.0-beta.0", KNOWN[-1])])
async def test_another_version_has_the_rules_of_the_nearest(tmp_path: Path, text: str, rules: int) -> None:
    """The log names the version and the rules."""
    with capture_logs() as logs:
        assert (await read(tmp_path, version(text))).rules == rules
    assert [(each["event"], each["server_version"], each["rules"]) for each in logs] == [
        ("the API server's version is not a known one", text, f"1.{rules}")
    ]


async def test_a_server_that_does_not_answer_yet(tmp_path: Path) -> None:
    """It is asked again."""
    assert await read(tmp_path, web.Response(status=503), version("v1.36.0")) == KubernetesVersion("v1.36.0")


@pytest.mark.parametrize("answer", [web.Response(status=403), web.Response(text="no version")])
async def test_a_server_that_does_not_say_it(tmp_path: Path, answer: web.Response) -> None:
    """The rules are those of the newest known version, and the log says why."""
    with capture_logs() as logs:
        found = await read(tmp_path, answer)
    assert (found.text, found.rules) == ("", KNOWN[-1])
    assert [each["event"] for each in logs] == [
        "the API server's version cannot be read",
        "the API server's version is not a known one",
    ]


async def test_an_upgrade_is_said_once(tmp_path: Path) -> None:
    """A patch is none; a server that then fails to say its version is no upgrade either."""
    texts = ["v1.36.9", "v1.37.0", "v1.37.1", "", "v1.36.3", "v1.37.1"]
    asked: list[str] = []
    done = asyncio.Event()

    def answer() -> web.Response:
        text = texts[min(len(asked), len(texts) - 1)]
        asked.append(text)
        if len(asked) > len(texts):
            done.set()
        return version(text)

    async with answering(tmp_path, answer) as connection:
        with capture_logs() as logs:
            watching = asyncio.create_task(watch_version(connection, KubernetesVersion("v1.36.3"), period=0.001))
            async with asyncio.timeout(60):
                await done.wait()
            watching.cancel()
    said = [(each["before"], each["server_version"], each["rules"]) for each in logs]
    assert said == [("v1.36.3", "v1.37.0", "1.37")]
