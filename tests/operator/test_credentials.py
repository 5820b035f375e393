"""Kubeconfigs in every shape, and credentials that are replaced while the operator runs."""

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from support.certificates import Pair, authority, issued
from support.operator import until
from thalweg_operator.api import credentials
from thalweg_operator.api.client import connect, keepalive_socket
from thalweg_operator.api.credentials import read_credentials
from thalweg_operator.errors import ConnectionLost


def kubeconfig(path: Path, *contexts: str, server: str = "https://127.0.0.1:1", user: Any = None, **top: Any) -> Path:
    """A file with a cluster, a user and a context of each of these names."""
    document = {
        "clusters": [{"name": name, "cluster": {"server": f"{server}/{name}".rstrip("/")}} for name in contexts],
        "users": [{"name": name, "user": user or {"token": f"of-{name}"}} for name in contexts],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in contexts],
        **top,
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def test_the_current_context_or_another_one(tmp_path: Path) -> None:
    """As the file says, or as the caller does."""
    path = kubeconfig(tmp_path / "config", "staging", "live", **{"current-context": "live"})
    read = await read_credentials(path)
    assert (read.context, read.configuration.host) == ("live", "https://127.0.0.1:1/live")
    read = await read_credentials(path, "staging")
    assert (read.context, read.configuration.host) == ("staging", "https://127.0.0.1:1/staging")


async def test_several_files_are_merged(tmp_path: Path) -> None:
    """As kubectl does; those that are not there are passed over."""
    kubeconfig(tmp_path / "one", "a", **{"current-context": "a"})
    kubeconfig(tmp_path / "two", "b")
    paths = os.pathsep.join(map(str, (tmp_path / "none", tmp_path / "one", tmp_path / "two")))
    assert (await read_credentials(Path(paths))).context == "a"
    assert (await read_credentials(Path(paths), "b")).configuration.host == "https://127.0.0.1:1/b"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "is a list; expected an object with clusters, contexts and users"),
        ("- a\n- b", "is a list; expected an object"),
        ("", "is empty; expected an object"),
        ("just words", "is a single value; expected an object"),
        ("}{", "is not YAML: "),
        ("\x00", "is not YAML: "),
        ("[" * 5000, "is not YAML: "),
        ("a: 1", "names no current-context; choose one with --context"),
        ("current-context: a", 'has no context "a"; it has none'),
        ("clusters: 5", "clusters is not a list of objects with names"),
        ("users: [5]", "users is not a list of objects with names"),
        ("current-context: a\ncontexts: [{name: a}]", "cannot read"),
        ("current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]", "cannot read"),
    ],
)
async def test_what_is_no_kubeconfig_is_one_sentence(tmp_path: Path, content: str, says: str) -> None:
    """It names the file and what is wrong."""
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConnectionLost) as refused:
        await read_credentials(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """One sentence too."""
    with pytest.raises(ConnectionLost, match="no such file"):
        await read_credentials(tmp_path / "none")


def test_a_connection_that_is_dead_is_noticed_after_70_seconds() -> None:
    """The kernel probes it while nothing is sent; what is not acknowledged it gives up before another may write."""
    made = keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1)))

    def option(level: int, name: int) -> int:
        return made.getsockopt(level, name)

    with made:
        assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        probes = option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) * option(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        assert option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) + probes == 70
        assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 3_000


class TlsServer:
    """Demands client certificates; tells who asked, and with which token."""

    def __init__(self, certificate: Pair, clients: Pair) -> None:
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(clients.certificate))
        self.tls.verify_mode = ssl.CERT_REQUIRED
        self.tls.load_cert_chain(certificate.certificate, certificate.key)
        self.release = asyncio.Event()
        self.waiting = 0

    async def who(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = dict(each[0] for each in request.transport.get_extra_info("peercert")["subject"])["commonName"]
        if "slow" in request.query:
            self.waiting += 1
            await self.release.wait()
        return web.Response(text=f"{subject} {request.headers.get('authorization', '')}")


@asynccontextmanager
async def listening(server: TlsServer, port: int = 0) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_get("/who", server.who)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=server.tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def replace(path: Path, by: Path) -> None:
    """As a kubelet replaces the files of a mounted secret."""
    shutil.copy(by, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


async def test_certificates_and_tokens_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new authority, client certificate and token file are used without a restart, and no request is dropped."""
    monkeypatch.setattr(credentials, "_CHECK_INTERVAL", 0.05)
    old, new = authority(tmp_path, "old"), authority(tmp_path, "new")
    first, second = issued(tmp_path, "first", old), issued(tmp_path, "second", new)
    mounted = {name: tmp_path / f"mounted-{name}" for name in ("ca", "crt", "key", "token")}
    for name, source in (("ca", old.certificate), ("crt", first.certificate), ("key", first.key)):
        shutil.copy(source, mounted[name])
    mounted["token"].write_text("one")
    server = TlsServer(issued(tmp_path, "server-old", old), old)
    async with listening(server) as port:
        path = tmp_path / "config"
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [
                        {
                            "name": "c",
                            "cluster": {
                                "server": f"https://127.0.0.1:{port}",
                                "certificate-authority": str(mounted["ca"]),
                            },
                        }
                    ],
                    "users": [
                        {
                            "name": "u",
                            "user": {
                                "client-certificate": str(mounted["crt"]),
                                "client-key": str(mounted["key"]),
                                "tokenFile": mounted["token"].name,
                            },
                        }
                    ],
                }
            )
        )
        async with connect(path, 4) as connection:
            assert await connection.request("GET", "/who") == b"first Bearer one"
            slow = asyncio.create_task(connection.request("GET", "/who", params={"slow": "1"}))
            await until(lambda: server.waiting, 5, lambda: "the slow request")
            replace(mounted["crt"], second.certificate)  # half of a change: the key is still the old one
            await asyncio.sleep(0.1)
            assert await connection.request("GET", "/who") == b"first Bearer one"
            replace(mounted["key"], second.key)
            replace(mounted["ca"], new.certificate)
            mounted["token"].write_text("two")
            await asyncio.sleep(0.1)
            server.tls.load_cert_chain(*_files(issued(tmp_path, "server-new", new)))
            server.tls.load_verify_locations(str(new.certificate))
            assert await connection.request("GET", "/who") == b"second Bearer two"
            server.release.set()
            assert await slow == b"first Bearer one"
            assert connection.credentials.reloads == 1


def _files(pair: Pair) -> tuple[Path, Path]:
    return pair.certificate, pair.key


async def test_a_kubeconfig_that_changes_does_not_lead_to_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's `kubectl config use-context` is not for a process that runs."""
    monkeypatch.setattr(credentials, "_CHECK_INTERVAL", 0.0)
    path = kubeconfig(tmp_path / "config", "a", "b", **{"current-context": "a"})
    async with connect(path, 4) as connection:
        kubeconfig(path, "a", "b", **{"current-context": "b"})
        assert (await connection._headers())["authorization"] == "Bearer of-a"
        assert connection.server.endswith("/a")
        kubeconfig(path, "a", server="https://127.0.0.1:2", **{"current-context": "a"})
        await connection._headers()
        assert connection.server == "https://127.0.0.1:1/a"
        path.write_text("[]")
        assert (await connection._headers())["authorization"] == "Bearer of-a"


async def test_a_token_of_a_plugin_is_replaced_before_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in is run again; where the token lasts it is not."""
    monkeypatch.setattr(credentials, "_CHECK_INTERVAL", 0.0)
    plugin = tmp_path / "plugin"
    status = '{"token": "%s", "expirationTimestamp": "%s"}'
    answer = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {status}}}'
    plugin.write_text(
        f"#!/bin/sh\ncd {tmp_path}\necho x >> runs\nprintf '{answer}' $(wc -l < runs) $(cat end)\n",
    )
    plugin.chmod(0o755)
    (tmp_path / "end").write_text("2000-01-01T00:00:00Z")
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    path = kubeconfig(tmp_path / "config", "a", user=user, **{"current-context": "a"})
    async with connect(path, 4) as connection:
        assert (await connection._headers())["authorization"] == "Bearer 2"
        (tmp_path / "end").write_text("2100-01-01T00:00:00Z")
        assert (await connection._headers())["authorization"] == "Bearer 3"
        assert (await connection._headers())["authorization"] == "Bearer 3"


async def test_a_plugin_that_hangs_holds_up_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token from before serves, the plug-in runs once at a time, and what it says in the end is used."""
    monkeypatch.setattr(credentials, "_CHECK_INTERVAL", 0.0)
    monkeypatch.setattr(credentials, "_WAIT", 0.05)
    plugin = tmp_path / "plugin"
    status = '{"token": "%s", "expirationTimestamp": "2000-01-01T00:00:00Z"}'
    answer = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {status}}}'
    script = (
        f"cd {tmp_path}\necho x >> runs\nwhile [ -e hang ]; do sleep 0.05; done\nprintf '{answer}' $(wc -l < runs)\n"
    )
    plugin.write_text(f"#!/bin/sh\n{script}")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    path = kubeconfig(tmp_path / "config", "a", user=user, **{"current-context": "a"})
    async with connect(path, 4) as connection:
        (tmp_path / "hang").touch()
        async with asyncio.timeout(10):
            for _ in range(20):
                assert (await connection._headers())["authorization"] == "Bearer 1"
        assert (tmp_path / "runs").read_text() == "x\nx\n"
        (tmp_path / "hang").unlink()
        await until(lambda: connection.credentials.reloads == 1, 10, lambda: "the plug-in to end")
        (tmp_path / "hang").touch()
        assert (await connection._headers())["authorization"] == "Bearer 2"
        (tmp_path / "hang").unlink()
        await until(lambda: connection.credentials.reloads == 2, 10, lambda: "the plug-in to end")


async def test_a_plugin_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a while that is logged, and it is run again."""
    for name, seconds in (("_CHECK_INTERVAL", 0.0), ("_WAIT", 0.01), ("_LONGEST", 0.05)):
        monkeypatch.setattr(credentials, name, seconds)
    path = kubeconfig(tmp_path / "config", "a", **{"current-context": "a"})
    async with connect(path, 4) as connection:
        runs = []

        async def never(*_: object) -> None:
            runs.append(1)
            await asyncio.Event().wait()

        monkeypatch.setattr(credentials, "_read", never)
        path.touch()
        async with asyncio.timeout(10):
            while len(runs) < 3:
                assert (await connection._headers())["authorization"] == "Bearer of-a"
                await asyncio.sleep(0.01)
    assert "reading them takes longer than 0.05 s" in capsys.readouterr().out


async def test_what_the_first_file_says_counts(tmp_path: Path) -> None:
    """As for kubectl: current context, clusters, users and namespaces of later files do not change it."""
    one = kubeconfig(tmp_path / "one", "a", **{"current-context": "a"})
    two = kubeconfig(tmp_path / "two", "a", "b", server="https://127.0.0.1:2", **{"current-context": "b"})
    with_namespace(one, "a", "first")
    with_namespace(two, "a", "second")
    read = await read_credentials(Path(f"{one}{os.pathsep}{two}"))
    assert (read.context, read.configuration.host, read.namespace) == ("a", "https://127.0.0.1:1/a", "first")


async def test_the_namespace_of_the_context(tmp_path: Path) -> None:
    """Each context has its own; `default` where it names none."""
    path = kubeconfig(tmp_path / "config", "a", "b", **{"current-context": "a"})
    with_namespace(path, "b", "shop")
    assert (await read_credentials(path)).namespace == "default"
    assert (await read_credentials(path, "b")).namespace == "shop"


def with_namespace(path: Path, context: str, namespace: str) -> None:
    document = yaml.safe_load(path.read_text())
    (entry,) = (each for each in document["contexts"] if each["name"] == context)
    entry["context"]["namespace"] = namespace
    path.write_text(yaml.safe_dump(document))
