"""A dump on demand of a running operator: ``plan`` makes the operator's plan of it, ``replay`` its round."""

import asyncio
import json
import os
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.cli import by_pod, thalweg
from support.cluster_scenario import ClusterScenario
from support.operator import Operator, running_operator, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operator") / "dumps"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(account: Path, dumps: Path) -> AsyncIterator[Operator]:
    options = ("--dump-directory", str(dumps))
    async with running_operator(account, dumps.parent / "log", extender=options) as operator:
        yield operator


def files(folder: Path) -> set[Path]:
    """Complete files in a folder, which need not exist."""
    return {path for path in folder.glob("*") if path.suffix != ".part"}


async def dump(operator: Operator, dumps: Path) -> tuple[Path, Path]:
    """Asks for a dump; the new files of state and round."""
    before = files(dumps)
    os.kill(operator.pid, signal.SIGUSR1)
    new: dict[str, Path] = {}

    def written() -> bool:
        new.update({path.suffix: path for path in files(dumps) - before})
        return {".jsonl", ".msgpack"} <= new.keys()

    await until(written, 30, lambda: f"a state and a round; there are {new}")
    return new[".jsonl"], new[".msgpack"]


async def test_plan_and_replay(scene: ClusterScenario, dumps: Path) -> None:
    """Pods that are only observed stay unplaced: ``plan`` places them all, and ``replay`` those of the recorded round.

    On a busy machine rounds plan some pods at a time. The recorded round has those whose turn it was.
    """
    await scene.nodes("small", cpu="2")
    await scene.nodes("large", cpu="8")
    await scene.create("runs", "1")
    await scene.node_of("runs")
    await scene.policy("observed", selects={"podSelector": {"matchLabels": {"mine": "yes"}}}, delivery="Observe")
    names = [f"{size}-{number}" for size in ("1", "3") for number in range(2)]
    for name in names:
        scene.ignored_reasons.add(name)
        await scene.create(name, name.partition("-")[0], labels={"mine": "yes"})
    await scene.create("waits", "64")
    reason = await scene.reason_of("waits", "Insufficient cpu")

    told: dict[str, str] = {}

    async def all_told() -> bool:
        for name in names:
            for event in await scene.events_of(name):
                if event["reason"] == "Observed":
                    told[f"{scene.namespace}/{name}"] = event["message"].rpartition(" ")[2]
        return len(told) == len(names)

    await until(all_told, 30, lambda: f"Events of {names}; there are {told}")
    state, record = await dump(scene.operator, dumps)
    for path in (state, record):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    planned = await asyncio.to_thread(thalweg, "plan", "-f", state, "-o", "json")
    replayed = await asyncio.to_thread(thalweg, "replay", record, "-o", "json")
    assert (planned.returncode, replayed.returncode) == (0, 0), planned.stderr + replayed.stderr
    plan, again = by_pod(planned.stdout), json.loads(replayed.stdout)
    assert again["same"], again["differences"]
    assert plan["placements"].keys() == told.keys()
    key = f"{scene.namespace}/waits"
    planned_pods = again["placements"].keys() | again["waiting"].keys()
    assert planned_pods, "a round is recorded in which there is something to plan"
    assert again["placements"].keys() == planned_pods & told.keys()
    if planned_pods >= told.keys():
        assert plan["placements"] == again["placements"]
    assert plan["pending"][key]["reason"] == again["waiting"].get(key, reason) == reason
    assert plan["warnings"] == []
    explained = await asyncio.to_thread(thalweg, "why", key, "--nodes", "-f", state, "-o", "json")
    assert explained.returncode == 0, explained.stderr
    await scene.delete(*names)


async def test_a_dump_has_no_more_than_scheduling_reads(scene: ClusterScenario, dumps: Path) -> None:
    """Nothing of a pod's environment or command is in its files."""
    container = {
        "name": "main",
        "image": "example.invalid/main",
        "command": ["a-hidden-command"],
        "env": [{"name": "PASSWORD", "value": "a-hidden-value"}],
    }
    await scene.create("waits", containers=[container], nodeSelector={"not": "there"})
    await scene.reason_of("waits")
    for path in await dump(scene.operator, dumps):
        content = path.read_bytes()
        assert b"a-hidden" not in content
        assert b"not" in content


async def test_without_a_directory(account: Path, tmp_path: Path) -> None:
    """The signal does no harm: a line in the log says which option is missing."""
    async with running_operator(account, tmp_path / "log", wait=False) as operator:
        await operator.answers("/healthz", 200)
        os.kill(operator.pid, signal.SIGUSR1)
        await until(lambda: "without --dump-directory" in operator.log, 60, lambda: "the line in the log")
        operator.check()
