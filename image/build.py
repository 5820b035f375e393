"""Builds the image as an OCI layout, without a container daemon: ``python image/build.py OUT``.

The base comes from Debian's package archive instead of a registry, the wheels from pip. Everything between is
image/Containerfile. Two builds give the same digest as long as Debian's archive does not change. What was built
before is kept in ~/.cache/thalweg/image.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from thalweg_controlplane.building.cache import cache_root

ROOT: Final = Path(__file__).resolve().parent.parent
HERE: Final = ROOT / "image"
_REQUIREMENTS: Final = (HERE / "build-requirements.txt", HERE / "requirements.txt")
#: The release of Debian that image/Containerfile names, and its Python.
_SUITE: Final = "trixie"
_PYTHON: Final = "3.13"
_ARCHIVE: Final = "http://deb.debian.org"
_SOURCES: Final = tuple(
    f"deb {_ARCHIVE}/{archive} {_SUITE}{suffix} main"
    for archive, suffix in (("debian", ""), ("debian", "-updates"), ("debian-security", "-security"))
)
#: Oldest first; wheels name the oldest C library that they run on.
_GLIBC: Final = ("2_5", "2_12", "2_17", "2_24", "2_26", "2_27", "2_28", "2_34")
_PROGRAMS: Final = ("buildah", "mmdebstrap")


class CannotBuild(Exception):
    """The image cannot be built here; the message says what to do."""


def build(output: Path, *, name: str = "thalweg", fresh: bool = False) -> str:
    """Builds the image into an OCI layout and returns the digest of its manifest, ``sha256:...``.

    Args:
        output: folder of the layout; made if it is missing.
        name: what the layout calls the image, such as ``ghcr.io/acme/thalweg:1.0.0``.
        fresh: whether nothing of earlier builds is used, except wheels.

    Raises:
        CannotBuild: a program is missing, or one failed.
    """
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        raise CannotBuild(f"{' and '.join(missing)} not found: apt-get install {' '.join(_PROGRAMS)}")
    if os.geteuid() != 0:
        raise CannotBuild("the image is built as root: Debian's packages are unpacked with their owners")
    cache = cache_root().parent / "image"
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "lock"), tempfile.TemporaryDirectory(dir=cache) as scratch:
        _page()
        wheels = _wheels(cache)
        store = Path(scratch) if fresh else cache
        base = _base(store)
        arguments = {"BASE": base, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
        _buildah(
            store,
            *("bud", "--quiet", "--file", HERE / "Containerfile", "--ignorefile", ROOT / ".containerignore"),
            *(f"--build-arg={key}={value}" for key, value in arguments.items()),
            *("--volume", f"{wheels}:/wheels:ro", "--isolation", "chroot", "--network", "host"),
            *("--layers", "--timestamp", "0", "--identity-label=false"),
            *("--label", f"org.opencontainers.image.version={_version()}"),
            *("--tag", "thalweg", ROOT),
        )
        digest = Path(scratch) / "digest"
        _buildah(store, "push", "--quiet", "--digestfile", digest, "thalweg", f"oci:{output}:{name}")
        return digest.read_text().strip()


def _base(store: Path) -> str:
    """The name of the base image, made from Debian's packages if it is missing."""
    key = hashlib.sha256(" ".join(_SOURCES).encode()).hexdigest()[:16]
    name = f"localhost/base:{key}"
    if name in _buildah(store, "images", "--format", "{{.Name}}:{{.Tag}}"):
        return name
    with tempfile.TemporaryDirectory(dir=store) as folder:
        archive = Path(folder) / "base.tar"
        _run(
            *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", _SUITE, archive, *_SOURCES),
            environment={"SOURCE_DATE_EPOCH": "0"},
        )
        container = _buildah(store, "from", "scratch").strip()
        _buildah(store, "add", "--quiet", container, archive, "/")
        _buildah(store, "commit", "--quiet", "--rm", "--timestamp", "0", container, name)
    return name


def _page() -> None:
    """Gathers the web page's modules into the sources, because the build inside the image has no npm.

    Where they cannot be had, a warning says that the image has no page.
    """
    done = subprocess.run(  # noqa: S603 - our own argument list, no shell
        [sys.executable, ROOT / "view" / "build_page.py"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        problem = done.stderr.strip().removeprefix("Error: ")
        print(f"Warning: the image is built without the web page of the view: {problem}", file=sys.stderr)  # noqa: T201


def _wheels(cache: Path) -> Path:
    """A folder with the wheels of the requirements for this machine's architecture."""
    key = hashlib.sha256(b"".join(path.read_bytes() for path in _REQUIREMENTS)).hexdigest()[:16]
    folder = cache / f"wheels-{platform.machine()}-{key}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            for requirements in _REQUIREMENTS:
                _run(*download(requirements, Path(scratch), platform.machine()))
            shutil.copytree(scratch, folder)
    return folder


def download(requirements: Path, folder: Path, machine: str) -> Sequence[str | Path]:
    """The command that downloads wheels for an architecture (``x86_64``, ``aarch64``) into a folder."""
    return (
        *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", folder, "--requirement", requirements),
        *("--require-hashes", "--no-deps", "--only-binary=:all:", "--implementation", "cp"),
        *("--python-version", _PYTHON),
        *(f"--abi={abi}" for abi in (f"cp{_PYTHON.replace('.', '')}", "abi3", "none")),
        *(f"--platform=manylinux_{version}_{machine}" for version in _GLIBC),
        f"--platform=manylinux2014_{machine}",
    )


def _version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def _buildah(store: Path, *arguments: str | Path) -> str:
    folders = ("--root", store / "storage", "--runroot", store / "run", "--storage-driver", "overlay")
    return _run("buildah", *folders, *arguments)


def _run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(  # noqa: S603 - our own argument list, no shell
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if done.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise CannotBuild(
            f"`{words}` ended with exit code {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two builds at the same time would both do the work of one."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUT", help="folder for the OCI layout")
    parser.add_argument("--name", default="thalweg", help="what the layout calls the image (default: thalweg)")
    parser.add_argument("--fresh", action="store_true", help="use nothing of earlier builds")
    arguments = parser.parse_args()
    try:
        print(build(arguments.output, name=arguments.name, fresh=arguments.fresh))  # noqa: T201
    except CannotBuild as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
