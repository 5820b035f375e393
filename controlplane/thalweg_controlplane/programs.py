"""Programs of public Go modules, built at a fixed version. Only Go modules are downloaded, by the `go` tool."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from thalweg_controlplane.cache import Report
from thalweg_controlplane.toolchain import BuildProgress, clock, run_go


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program and its version.

    Attributes:
        name: of the executable.
        package: import path of its main package.
        version: of the package's module, such as `v0.8.0`.
        ldflags: the linker's flags beside `-s -w`, such as `-X PACKAGE.VARIABLE=VALUE`.
        tags: build tags.
    """

    name: str
    package: str
    version: str
    ldflags: str = ""
    tags: str = ""


def build_program(
    go: Path, program: GoProgram, output: Path, sources: Path, environment: Mapping[str, str], report: Report
) -> None:
    """Builds the executable `program.name` in the folder `output`. `sources` is an empty folder to work in.

    `report` gets a line about every ten seconds, and one at the end. Raises BuildError.
    """
    fetched, compiled = BuildProgress(), BuildProgress()
    what = f"{program.name} {program.version}"

    # A module of its own, not `go install`: that refuses modules that replace others in their go.mod.
    def prepare(*words: str) -> float:
        return run_go(
            [go, *words],
            cwd=sources,
            environment=environment,
            on_line=fetched,
            every_ten_seconds=lambda seconds: report(f"{what}: {fetched.fetched} Go modules fetched, {clock(seconds)}"),
        )

    seconds = prepare("mod", "init", "program") + prepare("get", f"{program.package}@{program.version}")
    flags = ["-v", "-trimpath", f"-tags={program.tags}", f"-ldflags=-s -w {program.ldflags}"]
    seconds += run_go(
        [go, "build", *flags, "-o", output / program.name, program.package],
        cwd=sources,
        environment=environment,
        on_line=compiled,
        every_ten_seconds=lambda seconds: report(f"{what}: compiled {compiled.packages:,} packages, {clock(seconds)}"),
    )
    report(f"built {what} in {clock(seconds)}")
