"""A release as tools/release.py makes it of a tagged clone, and a registry on this machine that it is published in."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from support.packages import can_install, install
from support.repository import ROOT

#: Programs that only these tests want, and Debian's packages with the same names.
PROGRAMS: Final = ("skopeo", "docker-registry")
_STARTS_WITHIN: Final = 30.0


@dataclass(frozen=True)
class Made:
    """A release.

    Attributes:
        clone: the repository that it was made of.
        files: folder of its files.
        image: name of its image in the registry, without a tag.
        version: of the release.
    """

    clone: Path
    files: Path
    image: str
    version: str


class NoRegistry(Exception):
    """A program is missing; the message says how to get it."""


def require_programs() -> None:
    """Installs what is missing in CI, where it may. Raises NoRegistry."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing and (os.environ.get("CI") != "true" or not can_install()):
        raise NoRegistry(f"missing: apt-get install {' '.join(missing)}")
    if missing and (problem := install(PROGRAMS, PROGRAMS)):
        raise NoRegistry(problem)


def tagged_clone(folder: Path, tag: str) -> Path:
    """A repository with one commit, of all files that git knows or would know here, always at the same time."""
    command = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.is_file():  # a deleted file is listed until the deletion is committed
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    moment = {f"GIT_{who}_DATE": "2026-01-02T03:04:05Z" for who in ("AUTHOR", "COMMITTER")}
    author = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "All"], ["tag", tag]):
        subprocess.run(["git", "-C", folder, *author, *words], check=True, env={**os.environ, **moment})
    return folder


def make_release(clone: Path, output: Path, image: str) -> Path:
    """Runs the clone's tools/release.py; the folder of the files."""
    command = [sys.executable, clone / "tools" / "release.py", "--output", output, "--image", image]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


@contextmanager
def running_registry(folder: Path) -> Iterator[str]:
    """A registry that speaks HTTP on loopback; its address with port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    storage = {"filesystem": {"rootdirectory": str(folder / "storage")}}
    config = {"version": 0.1, "log": {"level": "warn"}, "storage": storage, "http": {"addr": address}}
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", folder / "config.yml"], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _STARTS_WITHIN
        while not _answers(address):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "the registry does not answer"
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(10)


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/v2/", timeout=1) as answer:
        return bool(answer.status == 200)
    return False
