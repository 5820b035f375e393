"""What `thalweg doctor` hears of the view: a view that runs and cannot answer says why."""

from pathlib import Path

import pytest
from aiohttp import web
from support.fake_api import listening, serving
from thalweg.doctor.view_probe import ask_service, ask_url
from thalweg.option_types import NamespacedName

SERVICE = NamespacedName("ns", "view")


def view_that_answers(status: int, body: str) -> web.Application:
    """A view at /, and an API server that leads to it."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, content_type="application/json")

    async def service(_request: web.Request) -> web.Response:
        return web.json_response(
            {"metadata": {"name": "view", "namespace": "ns"}, "spec": {"ports": [{"port": 80, "name": "http"}]}}
        )

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/services/view", service)
    app.router.add_get("/api/v1/namespaces/ns/services/view:80/proxy/", answer)
    app.router.add_get("/", answer)
    return app


@pytest.mark.parametrize(
    ("status", "body", "by_service", "by_url"),
    [
        (200, "", "", ""),
        (503, '{"error": "the view ends"}', "503: the view ends", "503: the view ends"),
        (503, "", "it answers 503", "it answers 503"),
        (503, '{"kind": "Status", "message": "no endpoints"}', "503: no endpoints", "it answers 503"),
        (404, '{"kind": "Status", "message": "not found"}', "no operator has written its Endpoints", "it answers 404"),
    ],
)
async def test_the_answer_says_what_is_wrong(
    tmp_path: Path, status: int, body: str, by_service: str, by_url: str
) -> None:
    """Of the view as of the API server before it."""
    app = view_that_answers(status, body)
    async with serving(app, tmp_path) as api_client:
        answer = await ask_service(api_client, SERVICE, 5.0)
    assert answer is not None
    assert (answer.where, answer.problem) == ("Service ns/view", by_service)
    async with listening(view_that_answers(status, body)) as port:
        assert (await ask_url(f"http://127.0.0.1:{port}", 5.0)).problem == by_url
