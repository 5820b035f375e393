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

KUBERNETES: Final[Mapping[str, str]] = {"1.35": "v1.35.4", "1.36": "v1.36.3", "1.37": "v1.37.2"}
"""Minor versions of Kubernetes that can be built, each with the version that its go.mod has."""
MINOR_VERSION: Final = "1.36"
"""The one that is built unless another is asked for."""
KUBERNETES_VERSION: Final = KUBERNETES[MINOR_VERSION]
KWOK: Final = GoProgram(name="kwok", package="sigs.k8s.io/kwok/cmd/kwok", version="v0.8.0")

_SOURCES: Final = Path(__file__).parents[1] / "go"


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of the two executables.

    Attributes:
        controlplane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager, keygen and oracle, by first
            argument.
        minor_version: of Kubernetes, of `KUBERNETES`.
    """

    controlplane: Path
    kwok: Path
    minor_version: str = MINOR_VERSION


def find_or_build(report: Report, minor_version: str = MINOR_VERSION) -> Binaries:
    """The cached binaries; builds them first if they are missing (6 to 15 minutes on two cores).

    Blocks; during a build `report` gets a line about every ten seconds. Raises BuildError, and KeyError if KUBERNETES
    has no such version.
    """
    version = KUBERNETES[minor_version]

    def build(output: Path, sources: Path) -> None:
        go, environment = find_go(), go_environment()
        report(
            f"building Kubernetes {version} and KWOK {KWOK.version} from source with {go}: "
            f"the first time takes 6 to 15 minutes on two cores; the result is kept in {cache_root() / key}. "
            "Go also fills its own cache with about 3.5 GB; `go clean -cache -modcache` empties it"
        )
        # A copy: an installed package may be read-only, and a checkout should not get Go's temporary files.
        (sources / "controlplane").mkdir()
        for path in source_files(minor_version):
            shutil.copy(path, sources / "controlplane")
        _build_controlplane(go, sources / "controlplane", output / "controlplane", version, environment, report)
        (sources / "kwok").mkdir()
        build_program(go, KWOK, output, sources / "kwok", environment, report)

    key = source_key(minor_version)
    folder = build_once(key, f"the control plane {version}", build, report)
    return Binaries(folder / "controlplane", folder / KWOK.name, minor_version)


def source_key(minor_version: str = MINOR_VERSION) -> str:
    """Hash (16 hex digits) of all inputs of the binaries except the Go toolchain."""
    built = f"{platform.system()} {platform.machine()} {version_flags(KUBERNETES[minor_version])} kwok {KWOK.version}"
    digest = hashlib.sha256(built.encode())
    for path in source_files(minor_version):
        digest.update(f"\0{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def source_files(minor_version: str) -> list[Path]:
    """What all versions have in common, and what this one has of its own."""
    return sorted([*_SOURCES.glob("*.go"), *(_SOURCES / "versions" / minor_version).iterdir()])


def version_flags(version: str) -> str:
    """The linker's flags of a build of this version of Kubernetes."""
    # Without these flags the API server reports version v0.0.0, and clients that check it misbehave.
    parts = zip(("Major", "Minor"), version.removeprefix("v").split("."), strict=False)
    numbers = {"Version": version, **dict(parts)}
    return " ".join(
        ["-s -w", *(f"-X k8s.io/component-base/version.git{part}={number}" for part, number in numbers.items())]
    )


def _build_controlplane(
    go: Path, sources: Path, output: Path, version: str, environment: Mapping[str, str], report: Report
) -> None:
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
        [go, "build", "-v", "-trimpath", "-buildvcs=false", f"-ldflags={version_flags(version)}", "-o", output, "."],
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
