"""Plays Kubernetes' own tests against a cluster, and compares with what kube-scheduler alone passes."""

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.upstream.building import E2E, INTEGRATION
from support.upstream.clusters import Placing, cluster
from thalweg_controlplane import Binaries
from thalweg_controlplane.processes import die_with_parent
from thalweg_operator.reservations.waiting_codes import NO_NODE_TAKES_IT

NODES: Final = 6
#: What kube-scheduler alone passes: a line `SUITE NAME` for each test.
PASSED: Final = Path(__file__).parent / "passed-by-kube-scheduler.txt"
#: Integration tests of feature gates that the cluster does not have as they want them, and of plug-ins and a
#: configuration that they give a scheduler of their own. Go wants tests before subtests here.
_NOT_OF_THE_CLUSTER: Final = (
    "TestPodGroupPreemption|TestNodeDeclaredFeaturesFilter|TestAsyncPreemption|TestDisablePreemption"
    "|TestPreemptionRespects|./:_false|./disabled|./preemption_with_filter|./with_preFilter|./with_most_allocated"
)
_WORD: Final = re.compile(r"\s*\[[^]]*\]")
_GO_RESULT: Final = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a test.

    Attributes:
        state: passed, failed or skipped; also others of ginkgo's, such as timedout.
        seconds: how long it took.
        why: it failed, in its own words; "": see the log.
    """

    state: str
    seconds: float
    why: str = ""


Results = dict[str, Result]
"""By suite and name: `scoring TestImageLocalityScoring`."""


async def play(
    placing: Placing,
    binaries: Binaries,
    suites: Mapping[str, Path],
    folder: Path,
    only: str = "",
    without: str = "",
) -> Results:
    """Plays suites, of ``building.find_or_build_suites``, with logs in ``folder``.

    Args:
        only: a regular expression of the names of tests, as ``go test -run`` or ginkgo takes it.
        without: likewise of those that are left out.
    """
    results: Results = {}
    for nodes, names in ((NODES, [E2E]), (0, list(INTEGRATION))):
        chosen = [name for name in names if name in suites]
        if not chosen:
            continue
        async with cluster(placing, binaries, folder, nodes) as plane:
            for name in chosen:
                playing = _play_e2e if name == E2E else _play_integration
                log = folder / f"{name}.log"
                played = await playing(suites[name], plane.kubeconfig, log, only, without)
                results |= {f"{name} {test}": result for test, result in played.items()}
    return results


def missed(results: Mapping[str, Result], suites: Mapping[str, Path], without: str = "") -> dict[str, Result | None]:
    """Tests of these suites that kube-scheduler alone passes and that did not pass; None: not played."""
    expected = (name for name in PASSED.read_text().splitlines() if name.partition(" ")[0] in suites)
    return {
        name: results.get(name)
        for name in expected
        if not (without and re.search(without, name)) and (name not in results or results[name].state != "passed")
    }


async def _play_e2e(program: Path, kubeconfig: Path, log: Path, only: str, without: str) -> Results:
    report = log.with_suffix(".json")
    flags = [
        *(f"--kubeconfig={kubeconfig}", "--provider=skeleton", f"--num-nodes={NODES}", "--minStartupPods=0"),
        *("--allowed-not-ready-nodes=0", "--dump-logs-on-failure=false", "--node-os-distro=custom"),
        *(
            "--ginkgo.v",
            "--ginkgo.no-color",
            "--ginkgo.seed=1",
            "--ginkgo.timeout=1h",
            "--ginkgo.poll-progress-after=0",
        ),
        *(f"--ginkgo.json-report={report}", f"--ginkgo.focus={only or 'sig-scheduling'}"),
        *([f"--ginkgo.skip={without}"] if without else []),
    ]
    await _run([str(program), *flags], log, {})
    return dict(_read_report(report))


def _read_report(report: Path) -> Iterator[tuple[str, Result]]:
    suites = json.loads(report.read_text()) if report.exists() else []
    for spec in (spec for suite in suites for spec in suite["SpecReports"] or ()):
        failure = spec.get("Failure", {})
        if spec["LeafNodeType"] == "It" and (spec["State"] != "skipped" or failure):
            words = " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])
            why = " ".join(failure.get("Message", "").split())
            yield _WORD.sub("", words).strip(), Result(spec["State"], spec["RunTime"] / 1e9, why)


async def _play_integration(program: Path, kubeconfig: Path, log: Path, only: str, without: str) -> Results:
    flags = ["-test.v", "-test.timeout=1h", *([f"-test.run={only}"] if only else [])]
    flags.append(f"-test.skip={f'{without}|' if without else ''}{_NOT_OF_THE_CLUSTER}")
    reasons = ",".join(sorted(NO_NODE_TAKES_IT))
    await _run([str(program), *flags], log, {"KUBECONFIG": str(kubeconfig), "NO_NODE_TAKES_IT": reasons})
    return _read_go_log(log)


def _read_go_log(log: Path) -> Results:
    found = {
        name: Result({"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}[state], float(seconds))
        for state, name, seconds in _GO_RESULT.findall(log.read_text(errors="replace"))
    }
    parents = {name.partition("/")[0] for name in found if "/" in name}
    return {name: result for name, result in found.items() if name not in parents}


async def _run(command: list[str], log: Path, environment: Mapping[str, str]) -> None:
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=log.parent,
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
            preexec_fn=die_with_parent(),
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
