"""Programs of public Go modules, built at a fixed version. Only Go modules are downloaded, by the `go` tool."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from thalweg_controlplane.building.cache import Report, Step
from thalweg_controlplane.building.toolchain import BuildProgress, clock, run_go


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program and its version.

    Attributes:
        name: of the executable.
        package: import path of its main package.
        version: of the package's module, such as `v0.8.0`.
        ldflags: the linker's flags beside `-s -w`, such as `-X PACKAGE.VARIABLE=VALUE`.
        tags: build tags.
        main: Go source of the main package, of a module that has none; `package` is one that it imports.
    """

    name: str
    package: str
    version: str
    ldflags: str = ""
    tags: str = ""
    main: str = field(default="", repr=False)


def build_program(
    go: Path, program: GoProgram, output: Path, sources: Path, environment: Mapping[str, str], report: Report
) -> None:
    """Builds the executable `program.name` in the folder `output`. `sources` is an empty folder to work in.

    `report` gets a `Step` about every ten seconds, and one at the end. Raises BuildError.
    """
    fetched, needed, compiled = BuildProgress(), BuildProgress(), BuildProgress()
    what = f"{program.name} {program.version}"

    def say(seconds: float) -> None:
        line = f"{what}: {fetched.fetched} Go modules fetched, {clock(seconds)}"
        report(Step(f"fetching Go modules of {program.name}", line, fetched.fetched))

    def say_compiled(seconds: float) -> None:
        done, most = compiled.packages, needed.packages
        line = f"{what}: compiled {done:,} of at most {most:,} packages, {clock(seconds)}"
        report(Step(f"compiling {program.name}", line, done, most))

    # A module of its own, not `go install`: that refuses modules that replace others in their go.mod.
    def prepare(*words: str, on_line: Callable[[str], None] = fetched) -> float:
        return run_go([go, *words], cwd=sources, environment=environment, on_line=on_line, every_few_seconds=say)

    package = program.package
    if program.main:
        (sources / "main.go").write_text(program.main)
        package = "."
    tags = f"-tags={program.tags}"
    seconds = prepare("mod", "init", "program") + prepare("get", f"{program.package}@{program.version}")
    seconds += prepare("list", "-mod=mod", "-deps", tags, package, on_line=needed)
    flags = ["-v", "-mod=mod", "-trimpath", tags, f"-ldflags=-s -w {program.ldflags}"]
    seconds += run_go(
        [go, "build", *flags, "-o", output / program.name, package],
        cwd=sources,
        environment=environment,
        on_line=compiled,
        every_few_seconds=say_compiled,
    )
    report(f"built {what} in {clock(seconds)}")
