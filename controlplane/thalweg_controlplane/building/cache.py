"""The folder of what was built from source, and the lock that keeps two processes from building the same at once."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeAlias


class Step(str):
    """A line of progress that also says how far the work is.

    Attributes:
        what: the work, for a progress bar.
        done: how much of it is done.
        total: how much it is at most; 0: unknown.
    """

    __slots__ = ("done", "total", "what")
    what: str
    done: int
    total: int

    def __new__(cls, what: str, line: str, done: int, total: int = 0) -> Self:
        made = super().__new__(cls, line)
        made.what, made.done, made.total = what, done, total
        return made


Report: TypeAlias = Callable[[str], None]
"""Takes one line of progress for people, every few seconds a `Step`."""


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder under which every version of the executables is kept."""
    cache = environment.get("THALWEG_CACHE")
    if not cache:
        cache = str(Path(environment.get("XDG_CACHE_HOME") or "~/.cache") / "thalweg")
    return Path(cache).expanduser() / "controlplane"


def build_once(name: str, what: str, build: Callable[[Path, Path], None], report: Report) -> Path:
    """The folder `name` of the cache. If it is missing, `build` makes it first.

    Args:
        name: name of the folder; it changes with everything that the content depends on.
        what: what is built, for people.
        build: writes the content into the folder of its first argument; its second is a folder for files that go.
        report: gets a line if another process builds the same.

    Raises:
        BuildError: by `build`. Nothing of a failed build is left.
    """
    root = cache_root()
    if not (root / name).exists():
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f"{name}.lock", what, report):
            for left in root.glob(f"{name}.*/"):  # of a build that was killed
                shutil.rmtree(left, ignore_errors=True)
            # Another process may have built it while this one waited for the lock.
            if not (root / name).exists():
                _build(root, name, build)
    return root / name


@contextmanager
def _locked(path: Path, what: str, report: Report) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another process is building {what}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # closing the file releases the lock, and so does the end of the process


def _build(root: Path, name: str, build: Callable[[Path, Path], None]) -> None:
    # In the folder of the final place, so that the rename stays within a file system.
    workshop = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=root))
    try:
        output, sources = workshop / "out", workshop / "src"
        output.mkdir()
        sources.mkdir()
        build(output, sources)
        output.replace(root / name)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
