"""Debian's packages that some tests want, installed one process at a time: apt refuses a second one."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_LOCK = Path(tempfile.gettempdir()) / "thalweg-tests-apt.lock"


def can_install() -> bool:
    """Whether packages may be installed here: as root, with apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(commands: Sequence[str], packages: Sequence[str]) -> str:
    """Installs packages unless all their commands are there; what apt-get said if it failed, else ""."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of this run may install the same
        if all(shutil.which(command) is not None for command in commands):
            return ""
        for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            command = ["apt-get", *arguments]
            done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return ""
