"""The real kube-scheduler takes what `thalweg scheduler-config` prints, and does what its comments say."""

import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.cli import thalweg
from support.controlplane import running
from thalweg_controlplane import Binaries
from thalweg_controlplane.certificates import Authority
from thalweg_controlplane.client.objects import node, object_path, pod


class Extender:
    """Lets every pod go where it wants, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.app = web.Application(client_max_size=2**26)
        for verb in ("filter", "prioritize", "preempt"):
            self.app.router.add_post(f"/extender/{verb}", self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        verb, body = request.path.rpartition("/")[2], await request.json()
        self.asked.append((verb, body["Pod"]["metadata"]["name"]))
        assert body.get("Nodes") is None
        names = body.get("NodeNames") or []
        answers: dict[str, Any] = {
            "filter": {"NodeNames": names},
            "prioritize": [{"Host": name, "Score": 10 if name == "b" else 0} for name in names],
            "preempt": {"NodeNameToMetaVictims": {}},
        }
        return web.json_response(answers[verb])


@pytest.mark.parametrize("options", [(), ("--ignorable", "--node-sample", "100")], ids=["strict", "ignorable"])
async def test_kube_scheduler_asks_and_what_it_does_alone(binaries: Binaries, options: tuple[str, ...]) -> None:
    """Without the extender strict schedules nothing, ignorable all; then both ask, for scores with a larger sample."""
    extender = Extender()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/extender"
    done = thalweg("scheduler-config", "--url", url, "--kubeconfig-path", "{kubeconfig}", *options)
    config = done.stdout.replace("leaderElect: true", "leaderElect: false")
    async with running(binaries, controller_manager=False, kwok=False, scheduler_config=config) as (plane, api):
        await api.create_many([node(name) for name in ("a", "b", "c")])
        early = pod("early", scheduler="thalweg-steered")
        await api.create(early)
        if options:
            await api.wait_for(object_path(early), lambda each: each["spec"].get("nodeName"))
        else:
            await api.wait_for(object_path(early), lambda each: each["status"].get("conditions"))
            assert "nodeName" not in (await api.get(object_path(early)))["spec"]
        runner = web.AppRunner(extender.app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            for name in ("thalweg-steered", "default-scheduler"):
                late = pod(name, scheduler=name)
                await api.create(late)
                seen = await api.wait_for(object_path(late), lambda each: each["spec"].get("nodeName"))
                assert seen["spec"]["nodeName"] == "b" or not options
            await api.wait_for(object_path(early), lambda each: each["spec"].get("nodeName"))
            for name in ("thalweg-steered", "default-scheduler"):
                assert ("filter", name) in extender.asked
                assert (("prioritize", name) in extender.asked) == bool(options)
        finally:
            await runner.cleanup()
        plane.check()


async def test_kube_scheduler_takes_every_option(binaries: Binaries, tmp_path: Path) -> None:
    """A second kube-scheduler, with a verified extender: it becomes ready, with its one profile."""
    bare = {"controller_manager": False, "kwok": False}
    async with running(binaries, scheduler=False, workdir=tmp_path, **bare):
        authority = tmp_path / "certs" / "apiserver.crt"
        client = Authority(tmp_path, "ca").client("client")
        done = thalweg(
            *("scheduler-config", "--beside", "--kubeconfig-path", "{kubeconfig}"),
            *("--url", "https://127.0.0.1:1/extender", "--ca-file", authority),
            *("--client-cert-file", str(client.certificate), "--client-key-file", str(client.key)),
        )
        assert done.returncode == 0, done.stderr
        async with running(binaries, scheduler_config=done.stdout, **bare) as (plane, api):
            theirs, ours = pod("theirs", scheduler="default-scheduler"), pod("ours", scheduler="thalweg-steered")
            await api.create_many([node("a"), theirs, ours])
            await api.wait_for(object_path(ours), lambda each: each["status"].get("conditions"))
            assert not (await api.get(object_path(theirs)))["status"].get("conditions")
            plane.check()
