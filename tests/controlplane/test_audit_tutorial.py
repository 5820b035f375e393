"""The tutorial about audits, line by line: each command works, and says what the page shows of its output."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.operator import free_address
from support.repository import ROOT
from support.tools import kubectl
from support.up import started
from thalweg_controlplane import Binaries

__all__ = ["kubectl"]

#: A block, and the text before it.
_BLOCK = re.compile(r"(.*?)^```(\w*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"[Ss]ave (?:this|it) as `([^`]+)`:\s*$")
#: What a reader installs is what runs these tests.
_PROGRAMS = ".venv/bin/"
#: Seconds until the page's output is there.
_WAIT = 120.0


def blocks() -> Iterator[tuple[str, str, str]]:
    """Language, text, and the name of the file that it is saved as; addresses are free ones."""
    text = (ROOT / "docs/tutorial/audit-kube-scheduler.md").read_text()
    for address in set(re.findall(r"127\.0\.0\.1:\d+", text)):
        text = text.replace(address, free_address())
    for before, language, block in _BLOCK.findall(text):
        name = _FILE.search(before)
        yield language, block, name[1] if name else ""


def _start_of(line: str) -> str:
    """The words of a line before the first name of a pod: these names differ."""
    return " ".join(line.partition(" default/")[0].split()).rstrip(".")


class Reader:
    """A reader with a terminal."""

    def __init__(self, folder: Path, kubeconfig: str, kubectl: Path) -> None:
        self._folder = folder
        path = os.pathsep.join([str(kubectl.parent), os.environ["PATH"]])
        self._environment = {**os.environ, "KUBECONFIG": kubeconfig, "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}

    def save(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def run(self, line: str) -> None:
        done = self._run(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)

    def sees(self, command: str, text: str) -> None:
        """A command prints these lines, once what the page waits for has happened."""
        wanted = [_start_of(line) for line in text.splitlines() if line]
        deadline = time.monotonic() + _WAIT
        while True:
            done = self._run(command)
            lines = [_start_of(line) for line in done.stdout.splitlines()]
            missing = [start for start in wanted if not any(line.startswith(start) for line in lines)]
            if not missing and done.returncode == 0:
                return
            assert time.monotonic() < deadline, (command, missing, done.stdout, done.stderr)
            time.sleep(1)

    @contextmanager
    def second_terminal(self, line: str) -> Iterator[None]:
        """Has a command run until the end; Ctrl-C ends it cleanly."""
        log = self._folder / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                shlex.split(_installed(line)), cwd=self._folder, env=self._environment, stdout=output, stderr=output
            )
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(60)
        assert code == 0, log.read_text()

    def _run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", _installed(line)],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def _installed(line: str) -> str:
    return line.replace(_PROGRAMS, f"{Path(sys.executable).parent}/")


def test_every_line(binaries: Binaries, kubectl: Path, tmp_path: Path) -> None:
    """In the page's order, on the cluster that its first command starts."""
    (_, command, _), *rest = blocks()
    with started(*shlex.split(command)[2:]) as (process, said):
        try:
            (kubeconfig,) = [line.rpartition("=")[2] for line in said if line.startswith("export KUBECONFIG=")]
            read(rest, Reader(tmp_path, kubeconfig, kubectl))
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def read(rest: list[tuple[str, str, str]], reader: Reader) -> None:
    """Does what is left of the page. After the command that serves, the rest is read beside it."""
    for number, (language, text, name) in enumerate(rest):
        after = rest[number + 1 :]
        if language == "yaml":
            reader.save(name, text)
        elif " run " in text:
            with reader.second_terminal(text):
                read(after, reader)
            return
        elif language == "sh":
            *lines, last = text.splitlines()
            for line in lines:
                reader.run(line)
            if after and not after[0][0]:
                reader.sees(last, after[0][1])
            else:
                reader.run(last)
