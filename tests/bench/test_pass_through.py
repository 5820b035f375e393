"""The benchmarks' extender without a plan follows the protocol of ours."""

import json

import aiohttp
import pytest
from harness.pass_through import NoPlan
from support.extender import filter_request, pod, served

from flowcore.model.policies import STEERED_NAME


@pytest.mark.parametrize(("scheduler", "passed"), [("default-scheduler", ["a", "b"]), (STEERED_NAME, [])])
async def test_filter(scheduler: str, passed: list[str]) -> None:
    """Steered pods are held, others pass everywhere."""
    asked = pod()
    asked["spec"]["schedulerName"] = scheduler
    async with (
        served(NoPlan()) as address,
        aiohttp.ClientSession() as http,
        http.post(f"{address}/filter", data=filter_request(["a", "b"], asked)) as answer,
    ):
        assert answer.status == 200
        assert json.loads(await answer.text())["NodeNames"] == passed
