"""The image, built as in production and taken apart again: its layers as folders, its configuration."""

import gzip
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.packages import can_install, install
from support.repository import ROOT
from thalweg_controlplane.building.cache import cache_root

#: Debian packages that the image is built and run with.
PACKAGES: Final = ("buildah", "mmdebstrap", "runc")
CACHE: Final = cache_root().parent / "image"
#: Programs, a shell and Python are in the first two layers: the base, and the stage `python`.
_BASE_LAYERS: Final = 2


class NoImage(Exception):
    """The image cannot be built or run on this machine; the message says why."""


@dataclass(frozen=True)
class Image:
    """An image.

    Attributes:
        layers: a folder for each layer, the lowest first, as overlay file systems want them.
        environment: variables of each container, NAME=VALUE.
        entrypoint: command of each container.
    """

    layers: tuple[Path, ...]
    environment: tuple[str, ...]
    entrypoint: tuple[str, ...]

    def base(self) -> "Image":
        """What it is built on: Debian with Python."""
        return Image(self.layers[:_BASE_LAYERS], ("PATH=/usr/bin:/bin",), ())


def build_image() -> str:
    """Builds the image by image/build.py into the layout of the tests, unless it is there; its digest."""
    require_packages()
    known = CACHE / "digests" / _inputs()
    if not known.exists():
        digest = run_build(CACHE / "layout")
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(digest)
    return known.read_text()


def run_build(layout: Path, *options: str) -> str:
    """Runs image/build.py; the digest that it prints."""
    command = [sys.executable, str(ROOT / "image" / "build.py"), *options, str(layout)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoImage(done.stderr)
    return done.stdout.strip()


def _inputs() -> str:
    """A hash of all files that the image is built from, but Debian's."""
    digest = hashlib.sha256()
    included = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")]
    files = [path for name in (*included, ".containerignore") for path in _files(ROOT / name)]
    for path in sorted(files):
        digest.update(f"\0{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file() and _counts(each)]


def _counts(path: Path) -> bool:
    return "__pycache__" not in path.parts


def read_image(digest: str) -> Image:
    """The image of a digest in the layout that ``build_image`` wrote, its layers unpacked once."""
    manifest = blob(digest)
    config = blob(manifest["config"]["digest"])["config"]
    layers = tuple(_unpacked(layer["digest"]) for layer in manifest["layers"])
    return Image(layers, tuple(config["Env"]), tuple(config["Entrypoint"]))


def blob(digest: str, layout: Path = CACHE / "layout") -> Any:
    """A JSON blob of a layout."""
    return json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())


def require_packages() -> None:
    """Installs what is missing in CI, where it may. Raises NoImage."""
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if os.geteuid() != 0:
        raise NoImage("the image is built and run as root only")
    if not missing:
        return
    if os.environ.get("CI") != "true" or not can_install():
        raise NoImage(f"missing: apt-get install {' '.join(missing)}")
    if problem := install(PACKAGES, PACKAGES):
        raise NoImage(problem)


def _unpacked(digest: str) -> Path:
    folder = CACHE / "layers" / digest.removeprefix("sha256:")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / "layer"
            made.mkdir(mode=0o755)
            path = CACHE / "layout" / "blobs" / digest.replace(":", "/")
            with gzip.open(path) as stream, tarfile.open(fileobj=stream) as archive:
                archive.extractall(made, filter="fully_trusted")  # noqa: S202 - our own image
            _mark_removed(made)
            try:
                made.rename(folder)
            except OSError:  # another process was faster
                assert folder.exists()
    return folder


def _mark_removed(layer: Path) -> None:
    """Files that a layer removes: `.wh.NAME` in the archive, a character device NAME for an overlay file system."""
    for path in sorted(layer.rglob(".wh.*")):
        assert path.name != ".wh..wh..opq", f"{path}: layers that replace folders are not read here"
        path.unlink()
        os.mknod(path.with_name(path.name.removeprefix(".wh.")), stat.S_IFCHR)


def run(*command: str) -> str:
    """Output of a program that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def mount_layers(layers: Sequence[Path], folder: Path) -> Path:
    """A root file system of these layers below a folder, with a writable layer of its own."""
    upper, work, root = (folder / name for name in ("upper", "work", "rootfs"))
    for each in (upper, work, root):
        each.mkdir(parents=True, exist_ok=True)
    upper.chmod(0o755)
    lower = ":".join(str(layer) for layer in reversed(layers))
    run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", str(root))
    return root
