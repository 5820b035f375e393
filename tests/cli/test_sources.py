"""What a question is asked of: files or a live cluster, as the options and the environment say."""

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner
from support.cli import Manifest, node, pod, thalweg, to_yaml
from support.fake_api import listening
from support.operator import free_address
from support.repository import ROOT
from thalweg.kubeconfig import users_kubeconfig
from thalweg.main import main
from thalweg.plugin import main as plugin
from thalweg.sources.source import target_of
from thalweg_view.operations import OPERATIONS


def test_targets_with_and_without_namespace() -> None:
    """Names as kubectl has them, with short names of kinds; a slash alone is a namespace, unless it follows a kind."""
    for text, target in {
        "cart-0": "shop/cart-0",
        "stock/cart-0": "stock/cart-0",
        "pod/cart-0": "shop/cart-0",
        "po/stock/cart-0": "stock/cart-0",
        "deploy/cart": "deployment/shop/cart",
        "Deployment/cart": "deployment/shop/cart",
        "sts/stock/db": "statefulset/stock/db",
        "ds/agent": "daemonset/shop/agent",
        "gang/train": "gang/shop/train",
    }.items():
        assert target_of(text, "shop") == target


def test_where_a_kubeconfig_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, then KUBECONFIG, then ~/.kube/config, as for kubectl."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert users_kubeconfig(None)[0] is None
    home = tmp_path / ".kube" / "config"
    home.parent.mkdir()
    home.write_text("")
    assert users_kubeconfig(None)[0] == home
    monkeypatch.setenv("KUBECONFIG", "/some/file")
    assert users_kubeconfig(None)[0] == Path("/some/file")
    assert users_kubeconfig(Path("/named"))[0] == Path("/named")


def test_no_api_server_is_one_sentence(tmp_path: Path) -> None:
    """Exit code 2, with the file and the address in it."""
    address = free_address()
    file = tmp_path / "config"
    file.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://{address}"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    for words in (("plan",), ("status",), ("why", "--nodes")):
        done = thalweg(*words, "--kubeconfig", file)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"Error: cannot use the API server (--kubeconfig {file}): ")
        assert f"cannot connect to {address}" in done.stderr
        assert done.stderr.count("\n") == 1


def test_no_kubeconfig_is_one_sentence(tmp_path: Path) -> None:
    """Nor a traceback, nor a question to the wrong cluster."""
    done = thalweg("plan", "--kubeconfig", tmp_path / "none")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "none: no such file" in done.stderr


@pytest.mark.parametrize("option", ["--context", "--kubeconfig", "--service", "--service-account"])
def test_a_dump_is_no_live_cluster(option: str) -> None:
    """Options of both are a contradiction, and so is watching what does not change."""
    done = CliRunner().invoke(main, ["plan", "-f", "dump.json", option, "a/b"])
    assert done.exit_code == 2
    assert f"-f asks a dump and {option} a live cluster: give one of them" in done.output
    done = CliRunner().invoke(main, ["plan", "-f", "dump.json", "--watch"])
    assert done.exit_code == 2
    assert "--watch needs a live cluster: a dump does not change" in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--server", "thalweg.example:8444"), "give a URL such as https://thalweg.example:8444"),
        (("--server", "http://thalweg.example:8444"), "http does not hide it: use https"),
        (("--server", "https://a", "--service", "a/b"), "--server and --service both say where the view is"),
        (("--server-ca", "ca.pem"), "--server-ca is about --server: give both"),
        (("--direct", "--server", "https://a"), "--direct asks no operator, and --server is for one"),
        (("--direct", "--token-file", "ca.pem"), "--direct asks no operator, and --token-file is for one"),
    ],
)
def test_options_of_a_view_that_contradict_each_other(
    options: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one sentence; no token leaves for an address in clear text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").write_text("")
    user = {"name": "u", "user": {"token": "t"}}
    cluster = {"name": "c", "cluster": {"server": f"http://{free_address()}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {"current-context": "c", "contexts": [context], "clusters": [cluster], "users": [user]}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    done = thalweg("plan", "--kubeconfig", "config", *options)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def _kubeconfig(folder: Path, address: str) -> Path:
    user, context = {"name": "u", "user": {"token": "t"}}, {"name": "c", "context": {"cluster": "c", "user": "u"}}
    clusters = [{"name": "c", "cluster": {"server": f"http://{address}"}}]
    path = folder / "config"
    path.write_text(
        yaml.safe_dump({"current-context": "c", "contexts": [context], "clusters": clusters, "users": [user]})
    )
    return path


async def test_a_token_goes_to_no_other_address(tmp_path: Path) -> None:
    """What --server names may redirect: the token and the question stay with it."""
    heads: list[dict[str, str]] = []

    async def collects(request: web.Request) -> web.StreamResponse:
        heads.append(dict(request.headers))
        return web.json_response({"error": "collected"}, status=400)

    others, view = web.Application(), web.Application()
    others.router.add_route("*", "/{path:.*}", collects)
    claims = base64.urlsafe_b64encode(b'{"aud": ["thalweg-view"]}').decode().rstrip("=")
    (tmp_path / "token").write_text(f"a.{claims}.c")
    config = _kubeconfig(tmp_path, free_address())
    async with listening(others) as other:
        to = f"http://localhost:{other}/elsewhere"
        view.router.add_route("*", "/{path:.*}", _answering(status=307, Location=to))
        async with listening(view) as port:
            words = ("--server", f"http://127.0.0.1:{port}", "--token-file", tmp_path / "token")
            done = await asyncio.to_thread(thalweg, "plan", "--kubeconfig", config, *words)
    assert (done.returncode, done.stdout, heads) == (2, "", [])
    assert f"the operator's view at http://127.0.0.1:{port} answers 307" in done.stderr


async def test_an_answer_without_end_is_one_sentence(tmp_path: Path) -> None:
    """What --server names may send for ever: it is given up, and no memory fills."""
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b" " * 2**20)
            sent += 2**20

    view = web.Application()
    view.router.add_route("*", "/{path:.*}", endless)
    claims = base64.urlsafe_b64encode(b'{"aud": ["thalweg-view"]}').decode().rstrip("=")
    (tmp_path / "token").write_text(f"a.{claims}.c")
    config = _kubeconfig(tmp_path, free_address())
    async with listening(view) as port:
        words = ("--server", f"http://127.0.0.1:{port}", "--token-file", tmp_path / "token")
        done = await asyncio.to_thread(thalweg, "plan", "--kubeconfig", config, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"the operator's view at http://127.0.0.1:{port} answers with more than 64Mi" in done.stderr
    assert sent < 128 * 2**20


def test_a_file_of_two_tokens_is_none(tmp_path: Path) -> None:
    """A line break in a header is one sentence before anything is sent, and no traceback."""
    claims = base64.urlsafe_b64encode(b'{"aud": ["thalweg-view"]}').decode().rstrip("=")
    (tmp_path / "token").write_text(f"a.{claims}.c\nd.e.f")
    config = _kubeconfig(tmp_path, free_address())
    words = ("--server", f"http://{free_address()}", "--token-file", tmp_path / "token")
    done = thalweg("plan", "--kubeconfig", config, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "the token is not for the audience thalweg-view alone" in done.stderr


async def test_a_dump_on_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """What was written is no dump, so the exit code says so."""
    api = web.Application()
    lists = {"items": [{"metadata": {"name": "a"}, "spec": {}}]}
    api.router.add_get("/api/v1/{kind:nodes|pods}", _answering(lists))
    async with listening(api) as port:
        config = _kubeconfig(tmp_path, f"127.0.0.1:{port}")
        words = (sys.executable, "-m", "thalweg", "dump", "--kubeconfig", str(config))
        full = os.open("/dev/full", os.O_WRONLY)
        done = await asyncio.create_subprocess_exec(*words, stdout=full, stderr=asyncio.subprocess.PIPE)
        os.close(full)
        _, said = await done.communicate()
    assert (done.returncode, said.decode()) == (2, "Error: the dump cannot be written: No space left on device\n")


def _answering(body: object = None, status: int = 200, **headers: str) -> Callable[..., Awaitable[web.Response]]:
    async def handle(_request: web.Request) -> web.Response:
        return web.json_response(body, status=status, headers=headers)

    return handle


def test_a_dump_without_nodes_is_one_sentence(tmp_path: Path) -> None:
    """As for `plan`."""
    file = tmp_path / "dump.yaml"
    file.write_text(to_yaml(pod("p")))
    for command in ("plan", "status"):
        done = thalweg(command, "-f", file)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "no Node found" in done.stderr


def test_the_plugins_commands_are_those_of_thalweg() -> None:
    """There is one `plan`, whatever it is called by."""
    assert plugin.commands
    for name, command in plugin.commands.items():
        assert main.commands[name] is command


def test_the_status_in_a_pipe_is_lines(tmp_path: Path) -> None:
    """Tables as lines for a pipe: what waits, and for how long."""
    file = tmp_path / "dump.yaml"
    file.write_text(to_yaml(node("a"), pod("p", "9")))
    done = thalweg("status", "-f", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("1 node, 0 running pods; 1 pod waits: it has no node\n")
    assert "\npod/default/p  " in done.stdout


def completions(*words: str) -> list[str]:
    """The lines that kubectl reads, for these words after `kubectl thalweg`; the last one is to be completed."""
    executable = Path(sys.executable).with_name("kubectl_complete-thalweg")
    assert os.access(executable, os.X_OK)
    return subprocess.run([executable, *words], capture_output=True, text=True, check=True, timeout=60).stdout.split(
        "\n"
    )


@asynccontextmanager
async def _api(
    folder: Path, items: dict[str, list[Manifest]], refused: frozenset[str] = frozenset()
) -> AsyncIterator[Path]:
    """The kubeconfig of an API server with these objects, by plural name; it serves no others, and refuses some."""

    async def listed(request: web.Request) -> web.Response:
        kind = request.path.rpartition("/")[2]
        if kind in refused:
            return web.json_response({"message": f"{kind} is forbidden"}, status=403)
        if kind not in items:
            return web.json_response({"message": "not found"}, status=404)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items[kind]})

    api = web.Application()
    api.router.add_get("/{path:.*}", listed)
    async with listening(api) as port:
        yield _kubeconfig(folder, f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (frozenset(), 'persistentvolumeclaim "data" not found'),
        (frozenset({"persistentvolumeclaims"}), "cannot be judged: you may not list PersistentVolumeClaims"),
    ],
)
async def test_a_live_cluster_is_no_file(refused: frozenset[str], said: str, tmp_path: Path) -> None:
    """What it does not have is not there; what one may not list may be there."""
    claiming = pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    items: dict[str, list[Manifest]] = {"nodes": [node("a")], "pods": [claiming], "persistentvolumeclaims": []}
    async with _api(tmp_path, items, refused) as config:
        done = await asyncio.to_thread(thalweg, "plan", "--pods", "-v", "--direct", "--kubeconfig", config)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert "files" not in done.stdout + done.stderr
    assert "dump" not in done.stdout + done.stderr


@pytest.mark.parametrize("redact", [(), ("--redact",)], ids=["whole", "redacted"])
async def test_a_dump_has_the_kinds_that_policies_name(redact: tuple[str, ...], tmp_path: Path) -> None:
    """Else its plans would have single pods where the operator has gangs. Redacted they have their sizes alone."""
    rule = {"apiVersion": "example.com/v1", "kind": "Training", "plural": "trainings", "size": ["spec.n"]}
    spec = {"selects": {"podSelector": {}}, "gangs": {"parents": [rule]}}
    items: dict[str, list[Manifest]] = {
        "nodes": [node("a")],
        "pods": [pod("p")],
        "flowschedulingpolicies": [{"metadata": {"name": "own"}, "spec": spec}],
        "trainings": [{"metadata": {"name": "t", "namespace": "ml"}, "spec": {"n": 2, "env": "secret"}}],
    }
    async with _api(tmp_path, items) as config:
        done = await asyncio.to_thread(thalweg, "dump", *redact, "--kubeconfig", config)
    assert done.returncode == 0, done.stderr
    (training,) = (each for each in json.loads(done.stdout)["items"] if each["kind"] == "Training")
    assert training["apiVersion"] == "example.com/v1"
    assert training["spec"] == ({"n": 2} if redact else {"n": 2, "env": "secret"})


async def test_who_may_not_list_pods_is_told_what_to_ask_for(tmp_path: Path) -> None:
    """Not the command that just failed."""
    async with _api(tmp_path, {"nodes": [node("a")]}, frozenset({"pods"})) as config:
        done = await asyncio.to_thread(thalweg, "plan", "--direct", "--kubeconfig", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Ask for the right to list pods" in done.stderr
    assert "thalweg plan" not in done.stderr


async def test_a_cluster_without_nodes_is_one_sentence(tmp_path: Path) -> None:
    """It says which cluster, and not to dump one."""
    async with _api(tmp_path, {"nodes": [], "pods": [pod("p")]}) as config:
        done = await asyncio.to_thread(thalweg, "plan", "--direct", "--kubeconfig", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: the API server (--kubeconfig {config}) lists no Node\n"


def test_without_a_cluster_the_advice_is_a_sentence_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one full stop before it, whatever the client's words end in."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    done = thalweg("plan")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert ". Give --filename to ask a dump, or --kubeconfig to ask a cluster" in done.stderr
    assert ".." not in done.stderr


def test_completion_for_kubectl() -> None:
    """Commands, options and choices, each with what it is; the last line tells whether file names follow."""
    *found, directive, _ = completions("pl")
    assert [line.split("\t")[0] for line in found] == ["plan"]
    assert directive == ":4"
    *found, directive, _ = completions("plan", "--all")
    assert [line.split("\t")[0] for line in found] == ["--all-namespaces"]
    assert [*completions("plan", "-o", "")][:6] == ["table", "wide", "name", "json", "yaml", ":4"]
    assert completions("plan", "--kubeconfig", "")[-2] == ":0"
    assert completions("to") == [":4", ""]  # an old name


def test_every_question_has_an_operation() -> None:
    """What is asked of a dump can be asked of a live operator, by the same name and method, but for audits."""
    text = "".join(path.read_text() for path in (ROOT / "cli" / "thalweg").rglob("*.py"))
    asked = dict(re.findall(r'SourceOperation\("([\w-]+)"[^\n]*?(?:method="(\w+)")?\)\n', text))
    # An audit takes a processor for a while. Who asks for one makes it: docs/decisions/0123-what-an-audit-says.md.
    assert {asked.pop(name) for name in ("audit", "audit-apply")} == {""}
    assert len(asked) >= 5
    assert {name: method or "POST" for name, method in asked.items()} == {
        name: OPERATIONS[name].method for name in asked
    }
