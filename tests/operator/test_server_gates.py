"""The feature gates of devices that the operator reads with: the API server's version, or what settings say."""

from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from support.fake_api import serving
from thalweg_operator.api.watches.server_gates import read_device_gates

from flowcore.model.device_gates import DEVICE_TAINTS, ON_SINCE, PRIORITIZED_LIST


async def off(folder: Path, answers: list[web.Response], **settings: bool) -> frozenset[str]:
    """The gates that are off, with a server that gives these answers to questions for its version."""

    async def answer(_request: web.Request) -> web.Response:
        return answers.pop(0)

    app = web.Application()
    app.router.add_get("/version", answer)
    async with serving(app, folder) as connection:
        gates = await read_device_gates(connection, settings)
    assert not answers
    return gates.off


def version(text: str) -> web.Response:
    return web.json_response({"major": "1", "minor": "x", "gitVersion": text})


async def test_the_version_decides_and_settings_count_instead(tmp_path: Path) -> None:
    """Of an old server some are off; a setting turns each on or off. What is off is said once."""
    with capture_logs() as logs:
        assert await off(tmp_path, [version("v1.36.3")]) == frozenset()
    assert not logs
    old = await off(tmp_path, [version("v1.34.1")])
    assert DEVICE_TAINTS in old
    assert PRIORITIZED_LIST not in old
    with capture_logs() as logs:
        given = await off(tmp_path, [version("v1.34.1")], DRADeviceTaints=True, DRAPrioritizedList=False)
    assert given == (old | {PRIORITIZED_LIST}) - {DEVICE_TAINTS}
    assert [(each["event"], each["gates"]) for each in logs] == [("feature gates off", sorted(given))]


async def test_a_server_that_does_not_answer_yet(tmp_path: Path) -> None:
    """It is asked again."""
    assert await off(tmp_path, [web.Response(status=503), version("v1.33.0")]) == ON_SINCE.keys() - {
        "DRAResourceClaimDeviceStatus"
    }


@pytest.mark.parametrize("answer", [web.Response(status=403), web.Response(text="no version")])
async def test_a_server_that_does_not_say_it(tmp_path: Path, answer: web.Response) -> None:
    """All gates are on, but for what the command line says, and the log says why."""
    with capture_logs() as logs:
        assert await off(tmp_path, [answer], DRADeviceTaints=False) == {DEVICE_TAINTS}
    assert logs[0]["event"] == "the API server's version is not known"
