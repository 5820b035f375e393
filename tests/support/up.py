"""`thalweg up` as a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """`thalweg up`, and what it says once it serves."""
    command = [sys.executable, "-m", "thalweg", "up", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line.strip())
            if line.startswith("Ctrl-C"):
                break
        else:
            pytest.fail("\n".join(said))
        yield process, said
