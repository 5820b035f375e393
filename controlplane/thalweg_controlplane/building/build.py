"""Finds the control plane's binaries in the cache, or builds them there once.

A build takes minutes, so it reports progress, and a lock keeps two processes from building at the same time.
Only Go modules are downloaded, by the `go` tool, with the GOPROXY and GOFLAGS of the environment.
"""

import hashlib
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from thalweg_controlplane.building.cache import Report, Step, build_once, cache_root
from thalweg_controlplane.building.programs import GoProgram, build_program
from thalweg_controlplane.building.toolchain import BuildProgress, clock, find_go, go_environment, run_go

KUBERNETES_VERSION: Final = "v1.36.3"
KWOK: Final = GoProgram(name="kwok", package="sigs.k8s.io/kwok/cmd/kwok", version="v0.8.0")

_SOURCES: Final = Path(__file__).parents[1] / "go"
# Without these flags the API server reports version v0.0.0, and clients that check it misbehave.
_LDFLAGS: Final = " ".join(
    ["-s -w", f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"]
    + [
        f"-X k8s.io/component-base/version.git{part}={number}"
        for part, number in zip(("Major", "Minor"), KUBERNETES_VERSION.removeprefix("v").split("."), strict=False)
    ]
)


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

    def build(output: Path, sources: Path) -> None:
        go, environment = find_go(), go_environment()
        report(
            f"building Kubernetes {KUBERNETES_VERSION} and KWOK {KWOK.version} from source with {go}: "
            f"the first time takes 6 to 15 minutes on two cores; the result is kept in {cache_root() / key}. "
            "Go also fills its own cache with about 3.5 GB; `go clean -cache -modcache` empties it"
        )
        # A copy: an installed package may be read-only, and a checkout should not get Go's temporary files.
        shutil.copytree(_SOURCES, sources / "controlplane")
        _build_controlplane(go, sources / "controlplane", output / "controlplane", environment, report)
        (sources / "kwok").mkdir()
        build_program(go, KWOK, output, sources / "kwok", environment, report)

    key = source_key()
    folder = build_once(key, "the control plane", build, report)
    return Binaries(controlplane=folder / "controlplane", kwok=folder / KWOK.name)


def source_key() -> str:
    """Hash (16 hex digits) of all inputs of the binaries except the Go toolchain."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {_LDFLAGS} kwok {KWOK.version}".encode())
    for path in sorted(_SOURCES.iterdir()):
        digest.update(f"\0{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build_controlplane(go: Path, sources: Path, output: Path, environment: Mapping[str, str], report: Report) -> None:
    needed = BuildProgress()
    run_go(
        [go, "list", "-deps", "."],
        cwd=sources,
        environment=environment,
        on_line=needed,
        every_few_seconds=lambda seconds: report(
            Step(
                "fetching Go modules",
                f"fetching Go modules: {needed.fetched} so far, {clock(seconds)}",
                needed.fetched,
            )
        ),
    )
    compiled = BuildProgress()
    seconds = run_go(
        [go, "build", "-v", "-trimpath", "-buildvcs=false", f"-ldflags={_LDFLAGS}", "-o", output, "."],
        cwd=sources,
        environment=environment,
        on_line=compiled,
        every_few_seconds=lambda seconds: report(
            Step(
                "compiling Kubernetes",
                f"compiled {compiled.packages:,} of at most {needed.packages:,} packages, {clock(seconds)}",
                compiled.packages,
                needed.packages,
            )
        ),
    )
    report(f"built the control plane in {clock(seconds)}")
