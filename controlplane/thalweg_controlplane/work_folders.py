"""Temporary folders that are removed at the latest when the next one is made, even after SIGKILL."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

_LOCK: Final = "in-use"


class WorkFolder:
    """A temporary folder, locked as long as this process lives. Folders of processes that were killed are removed.

    Args:
        prefix: of the folder's name; only folders with the same prefix are removed.
    """

    def __init__(self, prefix: str) -> None:
        for path in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
            _remove_unless_in_use(path)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock: IO[str] = (self.path / _LOCK).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Removes the folder. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


@contextmanager
def work_folder(prefix: str) -> Iterator[Path]:
    """A `WorkFolder` for a block."""
    folder = WorkFolder(prefix)
    try:
        yield folder.path
    finally:
        folder.remove()


def _remove_unless_in_use(lock: Path) -> None:
    try:
        with lock.open("r+") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
    except OSError:  # in use, of another user, or removed meanwhile
        return
