"""What a terminal shows, and a pipe, with and without NO_COLOR: the real command in a pseudo-terminal."""

import asyncio
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path

import pytest
from aiohttp import web
from support.cli import node, pod, thalweg
from support.fake_api import listening
from thalweg.main import main
from thalweg.program import PLANS
from thalweg.questions.status import QUESTION_OF_DUMP
from thalweg.sources.dump_source import DumpSource
from thalweg.terminal.progress import passing, progress
from thalweg_view.status import StatusAnswer, StatusQuery

from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext

LONG = "worker-" + "7" * 60
OBJECTS = [node(LONG), node("b"), pod("p", "3"), pod("[bold]q", "5"), *(pod(f"more-{at}") for at in range(3))]


@contextmanager
def terminal(
    *arguments: str, columns: int, bar: bool = False, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command with a pseudo-terminal as standard output; and the other end of that.

    `bar`: as standard error too, where a command that takes more than two seconds draws a bar.
    """
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    with subprocess.Popen(
        [sys.executable, "-m", "thalweg", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs if bar else subprocess.DEVNULL,
        env={**kept, "TERM": "xterm-256color", **environment},
    ) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def read_all(ours: int) -> str:
    """Everything until the other end is closed."""
    found = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how Linux ends a pseudo-terminal
            return found.decode()
        if not part:
            return found.decode()
        found += part


@pytest.fixture
def dump(tmp_path: Path) -> str:
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"kind": "List", "items": OBJECTS}))
    return str(path)


@pytest.mark.parametrize("columns", [80, 200])
def test_on_a_terminal(dump: str, columns: int) -> None:
    """Lines fit, long names are whole, headings are bold, and no digit and no name has a colour."""
    with terminal("plan", "-f", dump, "--pods", columns=columns) as (_, ours):
        text = read_all(ours)
    assert "\x1b[1m" in text
    assert "\x1b[1;3" not in text
    assert "\x1b[3" not in text
    plain = text.replace("\x1b[1m", "").replace("\x1b[0m", "")
    lines = [line.rstrip("\r") for line in plain.split("\n")]
    assert max(map(len, lines[:6])) <= columns
    assert "…" not in plain
    assert "default/[bold]q" in plain.replace("\r\n", "")
    assert "".join(line.strip() for line in lines).count("7" * 20) >= 1


def test_no_color_means_no_escape_at_all(dump: str) -> None:
    """Neither colours nor bold text."""
    for arguments in (("plan", "-f", dump, "--pods"), ("why", "--nodes", "-f", dump)):
        with terminal(*arguments, columns=80, NO_COLOR="1") as (_, ours):
            assert "\x1b" not in read_all(ours), arguments


@pytest.mark.parametrize("command", [("plan", "--pods"), ("plan", "--compare"), ("why", "--nodes", "default/p")])
def test_in_a_pipe(dump: str, command: tuple[str, ...]) -> None:
    """A row is one line, whatever COLUMNS says, and no line ends in blanks or has a style."""
    done = thalweg(*command, "-f", dump, columns=20)
    assert "\x1b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if line != line.rstrip()] == []
    if "--compare" not in command:
        assert max(map(len, done.stdout.splitlines())) > 40
        assert any("nodes are available" in line for line in done.stdout.splitlines())
    assert done.stderr == ""


def test_ctrl_c_is_130(tmp_path: Path) -> None:
    """Also of a command that reads or plans, and with no traceback."""
    path = tmp_path / "large.yaml"
    item = "- {kind: Pod, metadata: {name: p%d}, spec: {containers: [{name: c, image: i}]}}"
    path.write_text("\n".join(["kind: List", "items:", *(item % at for at in range(40_000))]))
    with terminal("plan", "-f", str(path), columns=80, bar=True) as (process, ours):
        shown = b""
        while b"reading" not in shown:  # the bar of a large file, two seconds after its reading began
            assert select.select([ours], [], [], 60)[0], shown
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        rest = read_all(ours)
        assert process.wait(timeout=60) == 128 + signal.SIGINT
    assert b"%" in shown + rest.encode()
    assert "Traceback" not in rest


def test_a_bar_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    """Work of any kind goes on and its errors come through."""
    with progress("work", 10) as told, passing("more", 0.1):
        told(5)
        time.sleep(0.01)
    with pytest.raises(KeyError), passing("failing"):
        raise KeyError
    assert capsys.readouterr() == ("", "")


#: A program with commands that keep the interpreter lock for hours, as OR-Tools does for a minute.
HOLDING = """
import os
import click
from thalweg.program import PLANS, Program

main = Program(plans=PLANS)

@main.command()
@click.option("-o", "--output")
@click.option("-w", "--watch", is_flag=True)
def status(output, watch):
    click.echo(f"pid {os.getpid()}" if watch else "begins")
    watch or sum(range(10**13))

main.add_command(status, "plan")
main()
"""


@pytest.mark.parametrize("name", ["plan", "status"])
def test_ctrl_c_ends_a_solver(name: str) -> None:
    """At once, with exit code 130, although Python handles no signal there; and its process is gone."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"begins\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 128 + signal.SIGINT
        assert process.stdout.read() == process.stderr.read() == b""  # both ends are closed


@pytest.mark.parametrize("words", [("--watch",), ("-w",), ("-wo", "json"), ("-o", "json", "-w")])
def test_a_command_that_draws_a_screen_ends_by_itself(words: tuple[str, ...]) -> None:
    """It is no child that Ctrl-C kills, or the terminal would stay as the screen has it."""
    with subprocess.Popen([sys.executable, "-c", HOLDING, "status", *words], stdout=subprocess.PIPE) as process:
        assert process.communicate(timeout=60)[0].decode() == f"pid {process.pid}\n"


def test_all_commands_that_may_plan_are_ended_at_once() -> None:
    """Whoever asks a source may plan here."""
    asking = {name for name, command in main.commands.items() if any(each.name == "files" for each in command.params)}
    assert asking - PLANS == {"top"}


def test_questions_about_a_dump_show_a_bar(dump: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the answer is computed; here as soon as that begins."""
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr("thalweg.terminal.progress._DELAY_SECONDS", 0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")

    def compute(scenario: Scenario, query: StatusQuery, context: AnswerContext) -> StatusAnswer:
        until = time.monotonic() + 60
        while "planning 5 pending pods on 2 nodes" not in shown.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        return QUESTION_OF_DUMP.compute(scenario, query, context)

    asyncio.run(DumpSource((dump,), "default").ask(replace(QUESTION_OF_DUMP, compute=compute), StatusQuery()))
    assert "planning 5 pending pods on 2 nodes" in shown.getvalue()


@pytest.mark.parametrize("words", [("status", "--watch"), ("top",)], ids=lambda words: words[0])
async def test_the_status_on_a_screen(words: tuple[str, ...], tmp_path: Path) -> None:
    """Drawn until the key q; s sorts what waits in another way, and the terminal is left as it was."""
    async with _cluster(tmp_path) as live:
        shown = await asyncio.to_thread(_on_screen, *words, *live)
    assert "pod/default/large" in shown
    assert "now by pods" in shown
    assert "1 node, 0 running pods; 1 pod waits: it has no node" in shown


async def test_json_on_a_terminal_has_an_end(tmp_path: Path) -> None:
    """The old name of `status --watch` too draws nothing then."""
    async with _cluster(tmp_path) as live:
        shown = await asyncio.to_thread(_on_screen, "top", "-o", "json", *live)
    assert json.loads(shown)["overview"]["source"] == "listing"


@asynccontextmanager
async def _cluster(folder: Path) -> AsyncIterator[tuple[str, ...]]:
    """The options of a live cluster with one pod that fits nowhere."""
    api = web.Application()
    items = {"nodes": [node("a")], "pods": [pod("large", "9")]}

    async def listed(request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items[request.match_info["kind"]]})

    api.router.add_get("/api/v1/{kind:nodes|pods}", listed)
    async with listening(api) as port:
        (folder / "config").write_text(json.dumps({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }))  # fmt: skip
        yield "--direct", "--kubeconfig", str(folder / "config")


def _on_screen(*arguments: str) -> str:
    """What the command draws: s is pressed until it sorts by pods, then q until it ends."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
    before, until = termios.tcgetattr(theirs), time.monotonic() + 60
    command = [sys.executable, "-m", "thalweg", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        shown = b""
        while process.poll() is None and time.monotonic() < until:
            if select.select([ours], [], [], 0.2)[0]:
                shown += os.read(ours, 65536)
            if b"now by age" in shown:  # keys that come before the command reads keys are lost
                os.write(ours, b"q" if b"now by pods" in shown else b"s")
        process.kill()
    assert process.returncode == 0, shown
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)
    return shown.decode()
