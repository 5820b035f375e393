"""Files of a release that depend on their content alone: archives without times and owners, and checksums."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from pathlib import Path
from typing import Final

SUMS: Final = "SHA256SUMS"


class Changed(Exception):
    """A file of a release is missing, too many, or not what its checksum says."""


def write_tar(folder: Path, archive: Path, moment: int, *, compressed: bool = False) -> None:
    """Packs what is in a folder. Two folders with equal files give equal archives.

    Args:
        folder: names in the archive begin below it.
        archive: the file to write.
        moment: time of every entry, seconds since 1970.
        compressed: whether the archive is compressed by gzip.
    """
    with archive.open("wb") as raw:
        if compressed:
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=moment) as stream:
                _pack(folder, stream, moment)
        else:
            _pack(folder, raw, moment)


def _pack(folder: Path, stream: gzip.GzipFile | object, moment: int) -> None:
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = moment
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for path in sorted(folder.rglob("*")):
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=plain)


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_sums(folder: Path) -> None:
    """Writes the checksums of all files of a folder, as ``sha256sum --check`` reads them."""
    lines = [f"{sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.name != SUMS]
    (folder / SUMS).write_text("".join(lines))


def check_sums(folder: Path) -> None:
    """Compares the files of a folder with their checksums.

    Raises:
        Changed: they differ; the message names the file.
    """
    listed = folder / SUMS
    if not listed.is_file():
        raise Changed(f"{listed} is missing: {folder} is no release")
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in listed.read_text().splitlines())}
    there = {path.name for path in folder.iterdir()} - {SUMS}
    for name in sorted(there ^ sums.keys()):
        raise Changed(f"{folder / name} is {'not in ' + SUMS if name in there else 'missing'}")
    for name, digest in sums.items():
        if sha256(folder / name) != digest:
            raise Changed(f"{folder / name} is not the file of the release: its checksum differs")
