"""Builds Kubernetes' own tests of scheduling: its e2e tests, and integration tests that ask a cluster that runs.

An integration test of Kubernetes starts an API server and a scheduler in its own process. A copy of these tests asks
the cluster of KUBECONFIG: each test empties it first, and whoever schedules there is tested. The scheduler that a test
makes follows the API server, so that what tests ask of its cache works, and does nothing.
"""

import hashlib
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from thalweg_controlplane.building.build import KUBERNETES_VERSION, MINOR_VERSION, source_files, version_flags
from thalweg_controlplane.building.cache import Report, Step, build_once
from thalweg_controlplane.building.toolchain import BuildProgress, clock, find_go, go_environment, run_go
from thalweg_controlplane.errors import BuildError

E2E: Final = "e2e"
#: Package below test/integration/scheduler, by suite.
INTEGRATION: Final[Mapping[str, str]] = {
    "filters": "filters",
    "scoring": "scoring",
    "preemption": "preemption",
    "preemption-misc": "preemption/misc",
}
_HERE: Final = Path(__file__).parent
_GO: Final = (_HERE / "e2e.go", _HERE / "external.go")
#: As the go.mod of the control plane names it.
_MODULE: Final = "scheduling.thalweg/controlplane"
#: File below test/integration, what stands there once, and what is to stand there.
_EDITS: Final = (
    ("framework/etcd.go", "\tflag.Parse()\n", "\tflag.Parse()\n\tos.Exit(tests())\n"),
    (
        "util/util.go",
        "\ttestCtx := &TestContext{Ctx: tCtx}\n\n",
        "\ttestCtx := &TestContext{Ctx: tCtx}\n\texternal(t, testCtx, tCtx.Cancel, nsPrefix)\n\treturn testCtx\n\n",
    ),
    (
        "util/util.go",
        'cond.Reason == v1.PodReasonUnschedulable && pod.Spec.NodeName == ""',
        'unschedulable(cond.Reason) && pod.Spec.NodeName == ""',
    ),
)
_RUN: Final = re.compile(r"go (testCtx\.Scheduler|sched)\.Run\(")


def find_or_build_suites(report: Report) -> Mapping[str, Path]:
    """The executable of each suite; builds them first if they are missing (5 to 15 minutes on two cores).

    Blocks; during a build `report` gets a line about every ten seconds. Raises BuildError.
    """
    names = (E2E, *INTEGRATION)

    def build(output: Path, sources: Path) -> None:
        report(f"building the tests of Kubernetes {KUBERNETES_VERSION}: 5 to 15 minutes on two cores, the first time")
        _Build(output, sources, report).run()

    folder = build_once(f"upstream-{_key()}", f"the tests of Kubernetes {KUBERNETES_VERSION}", build, report)
    return {name: folder / name for name in names}


def _key() -> str:
    """Hash (16 hex digits) of all inputs except the Go toolchain."""
    inputs = [platform.system(), platform.machine(), version_flags(KUBERNETES_VERSION), INTEGRATION, _EDITS, _RUN]
    digest = hashlib.sha256(str(inputs).encode())
    for path in (*_modules(), *_GO):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _modules() -> list[Path]:
    """go.mod and go.sum of the control plane: what both need is compiled once."""
    return [path for path in source_files(MINOR_VERSION) if path.name in ("go.mod", "go.sum")]


class _Build:
    """One build in an empty folder."""

    def __init__(self, output: Path, sources: Path, report: Report) -> None:
        self._output, self._sources, self._report = output, sources, report
        self._go, self._environment = find_go(), go_environment()

    def run(self) -> None:
        for path in (*_modules(), _GO[0]):
            shutil.copy(path, self._sources)
        found: list[str] = []
        self._run("mod", "download", "k8s.io/kubernetes")
        self._run("list", "-mod=mod", "-m", "-f={{.Dir}}", "k8s.io/kubernetes", on_line=found.append)
        _copy(Path(found[-1]) / "test/integration", self._sources / "integration")
        flags = ("-mod=mod", "-trimpath", f"-ldflags={version_flags(KUBERNETES_VERSION)}")
        self._run("build", "-v", *flags, "-o", str(self._output / E2E), ".")
        for name, package in INTEGRATION.items():
            folder = f"./integration/scheduler/{package}"
            self._run("test", "-c", "-v", "-vet=off", *flags, "-o", str(self._output / name), folder)

    def _run(self, *words: str, on_line: Callable[[str], None] | None = None) -> None:
        progress = BuildProgress()
        what = f"go {words[0]} {words[-1]}"

        def say(seconds: float) -> None:
            line = f"{what}: {progress.packages:,} packages, {clock(seconds)}"
            self._report(Step("building the tests of Kubernetes", line, progress.packages))

        run_go(
            [self._go, *words],
            cwd=self._sources,
            environment=self._environment,
            on_line=on_line or progress,
            every_few_seconds=say,
        )


def _copy(upstream: Path, to: Path) -> None:
    """The integration tests, as the module says. Raises BuildError where upstream has other lines than expected."""
    for folder in ("framework", "util", *(f"scheduler/{package}" for package in INTEGRATION.values())):
        (to / folder).mkdir(parents=True)
        for path in (upstream / folder).glob("*.go"):
            text = path.read_text().replace('"k8s.io/kubernetes/test/integration/', f'"{_MODULE}/integration/')
            for file, old, new in _EDITS:
                if file == f"{folder}/{path.name}":
                    if text.count(old) != 1:
                        raise BuildError(f"{path} has {text.count(old)} times, and not once: {old}")
                    text = text.replace(old, new)
            (to / folder / path.name).write_text(_RUN.sub("go func(any) {}(", text))
    shutil.copy(_GO[1], to / "util")
