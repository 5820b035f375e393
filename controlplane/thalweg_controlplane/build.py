"""Finds the control plane's binaries in the cache, or builds them there once.

A build takes minutes, so it reports progress, and a lock keeps two processes from building at the same time.
Only Go modules are downloaded, by the `go` tool, with the GOPROXY and GOFLAGS of the environment.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from thalweg_controlplane.errors import BuildError
from thalweg_controlplane.toolchain import clock, find_go, run_go

KUBERNETES_VERSION: Final = "v1.36.3"
KWOK_VERSION: Final = "v0.8.0"

_SOURCES: Final = Path(__file__).parent / "go"
# Without these flags the API server reports version v0.0.0, and clients that check it misbehave.
_LDFLAGS: Final = " ".join(
    ["-s -w", f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"]
    + [
        f"-X k8s.io/component-base/version.git{part}={number}"
        for part, number in zip(("Major", "Minor"), KUBERNETES_VERSION.removeprefix("v").split("."), strict=False)
    ]
)

Report: TypeAlias = Callable[[str], None]
"""Takes one line of progress for people."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of the two executables."""

    controlplane: Path
    """etcd, kube-apiserver, kube-scheduler, kube-controller-manager, keygen and oracle, by first argument."""
    kwok: Path


def find_or_build(report: Report) -> Binaries:
    """The cached binaries; builds them first if they are missing (6 to 15 minutes on two cores).

    Blocks; during a build `report` gets a line about every ten seconds. Raises BuildError.
    """
    root = cache_root()
    key = source_key()
    cached = _complete(root / key)
    if cached:
        return cached
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{key}.lock", report):
        # Another process may have built them while this one waited for the lock.
        return _complete(root / key) or _build(root, key, report)


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder under which every version of the binaries is kept."""
    cache = environment.get("THALWEG_CACHE")
    if not cache:
        cache = str(Path(environment.get("XDG_CACHE_HOME") or "~/.cache") / "thalweg")
    return Path(cache).expanduser() / "controlplane"


def source_key() -> str:
    """Hash (16 hex digits) of all inputs of the binaries except the Go toolchain."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {_LDFLAGS} kwok {KWOK_VERSION}".encode())
    for path in sorted(_SOURCES.iterdir()):
        digest.update(f"\0{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _complete(folder: Path) -> Binaries | None:
    binaries = Binaries(controlplane=folder / "controlplane", kwok=folder / "kwok")
    return binaries if binaries.controlplane.exists() and binaries.kwok.exists() else None


@contextmanager
def _locked(path: Path, report: Report) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is building the control plane; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # closing the file releases the lock, and so does the end of the process


def _build(root: Path, key: str, report: Report) -> Binaries:
    go = find_go()
    report(
        f"building Kubernetes {KUBERNETES_VERSION} and KWOK {KWOK_VERSION} from source with {go}: "
        "the first time takes 6 to 15 minutes on two cores; the result is kept in " + str(root / key)
    )
    # In the folder of the final place, so that the rename stays within a file system. The sources are copied too: an
    # installed package may be read-only, and a checkout should not get Go's temporary files.
    workshop = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=root))
    try:
        sources, output = workshop / "src", workshop / "out"
        shutil.copytree(_SOURCES, sources)
        output.mkdir()
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
        _build_controlplane(go, sources, output / "controlplane", environment, report)
        _build_kwok(go, output, environment, report)
        output.replace(root / key)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    built = _complete(root / key)
    if built is None:
        raise BuildError(f"go reported success but left no binaries in {root / key}")
    return built


def _build_controlplane(go: Path, sources: Path, output: Path, environment: Mapping[str, str], report: Report) -> None:
    needed = _BuildProgress()
    run_go(
        [go, "list", "-deps", "."],
        cwd=sources,
        environment=environment,
        on_line=needed,
        every_ten_seconds=lambda seconds: report(f"fetching Go modules: {needed.fetched} so far, {clock(seconds)}"),
    )
    compiled = _BuildProgress()
    seconds = run_go(
        [go, "build", "-v", "-trimpath", "-buildvcs=false", f"-ldflags={_LDFLAGS}", "-o", output, "."],
        cwd=sources,
        environment=environment,
        on_line=compiled,
        every_ten_seconds=lambda seconds: report(
            f"compiled {compiled.packages:,} of at most {needed.packages:,} packages, {clock(seconds)}"
        ),
    )
    report(f"built the control plane in {clock(seconds)}")


def _build_kwok(go: Path, folder: Path, environment: Mapping[str, str], report: Report) -> None:
    compiled = _BuildProgress()
    seconds = run_go(
        [go, "install", "-v", "-trimpath", "-ldflags=-s -w", f"sigs.k8s.io/kwok/cmd/kwok@{KWOK_VERSION}"],
        cwd=folder,
        environment={**environment, "GOBIN": str(folder)},
        on_line=compiled,
        every_ten_seconds=lambda seconds: report(f"KWOK: compiled {compiled.packages:,} packages, {clock(seconds)}"),
    )
    report(f"built KWOK in {clock(seconds)}")


class _BuildProgress:
    """Counts lines of go's output: one per downloaded module, and one per listed or compiled package."""

    def __init__(self) -> None:
        self.fetched = 0
        self.packages = 0

    def __call__(self, line: str) -> None:
        if line.startswith("go: downloading "):
            self.fetched += 1
        else:
            self.packages += 1
