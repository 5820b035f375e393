"""`thalweg run` on an API server that is not there: few words, and it ends when it is told to."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from support.cli import thalweg
from support.operator import Operator, free_address, until


def kubeconfig(folder: Path, server: str, name: str = "kubeconfig") -> Path:
    """With one context, dead."""
    path = folder / name
    path.write_text(
        json.dumps(
            {
                "current-context": "dead",
                "contexts": [{"name": "dead", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    return path


async def test_few_lines_and_a_prompt_end(tmp_path: Path) -> None:
    """Where it works and what fails are said once; a second SIGTERM changes nothing; no traceback."""
    server = f"http://{free_address()}"
    operator = Operator(kubeconfig(tmp_path, server), tmp_path / "log")
    operator.begin()
    await until(lambda: "connection lost" in operator.log, 30, lambda: f"it to try: {operator.log}")
    await asyncio.sleep(5)
    lines = operator.log.splitlines()
    assert len(lines) == 3, operator.log  # the cluster, the address, the failure
    assert all(word in lines[0] for word in (server, "context=dead", "--kubeconfig"))
    assert (await operator.get("/healthz"))[0] == 200
    assert (await operator.get("/readyz"))[0] == 503
    os.kill(operator.pid, signal.SIGTERM)
    os.kill(operator.pid, signal.SIGTERM)
    async with asyncio.timeout(20):  # less than what bindings under way are given, and the last answers
        assert await operator.stop() == 0
    assert "Traceback" not in operator.log
    assert "InvalidStateError" not in operator.log


def _run(*arguments: str) -> tuple[int, str]:
    done = thalweg("run", "--log-format", "text", *arguments)
    return done.returncode, done.stderr


def test_the_kubeconfig_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several paths work, what is taken is said, and a context can be chosen."""
    first = kubeconfig(tmp_path, "http://127.0.0.1:1", "first")
    paths = f"{tmp_path / 'none'}{os.pathsep}{first}"
    monkeypatch.setenv("KUBECONFIG", paths)
    code, said = _run("--context", "other")
    assert code == 1
    assert f'kubeconfig {first} has no context "other"; it has dead' in said
    # It cannot listen there, so it ends after it has said where it works.
    code, said = _run("--listen", "203.0.113.1:1")
    assert code == 1
    assert all(word in said for word in ("context=dead", "server=http://127.0.0.1:1", f"KUBECONFIG={paths}"))


def test_without_a_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a cluster that is one sentence, and a context has nothing to be looked up in."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.setenv(name, "")
    code, said = _run()
    assert code == 1
    assert "neither --kubeconfig nor KUBECONFIG names a file" in said
    assert len(said.splitlines()) == 1
    code, said = _run("--context", "x")
    assert code == 2
    assert "--context needs a kubeconfig" in said
