"""``thalweg view`` on dumps and records: what it reads, what it refuses, and what it serves."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from support.cli import node, pod
from support.large_snapshots import large_snapshots
from support.model import node as model_node
from support.model import pod as model_pod
from support.model import snapshot
from support.profiles import examples
from support.recorded_rounds import request_of
from support.scenario_state import scenario_of
from thalweg.main import main
from thalweg.view.view import FixedSource, dump_source, record_source
from thalweg_operator.planning.reports import record
from thalweg_operator.planning.reports.record import RecordWriter, read_record
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica
from thalweg_view.callers.access import OneToken
from thalweg_view.web.page_files import read_page
from thalweg_view.web.serving import serving

from flowcore.cluster.arrays.snapshot import Snapshot


def write_rounds(folder: Path, crowd: Snapshot, *numbers: int) -> None:
    """Records of the same round under several numbers."""
    writer, request = RecordWriter(folder), request_of(crowd)
    reply = run_request(Replica(), request)
    for number in numbers:
        writer.write(msgspec.structs.replace(request, number=number), msgspec.structs.replace(reply, number=number))


def small() -> Snapshot:
    return snapshot([model_node("n0", 4000)], [model_pod("fits", 1000), model_pod("large", 9000)])


def view(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["view", *map(str, arguments)])


@asynccontextmanager
async def served(source: FixedSource) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a view without a page."""
    async with serving("127.0.0.1", 0, source, OneToken("secret"), page={}) as port:
        headers = {"Authorization": "Bearer secret"}
        url = f"http://127.0.0.1:{port}/api/v1/"
        async with aiohttp.ClientSession(url, headers=headers) as client:
            yield client


async def get(client: aiohttp.ClientSession, path: str) -> Any:
    async with client.get(path) as response:
        body = await response.json()
        assert response.status == 200, body
        return body


async def test_a_dump_is_served_with_its_plan() -> None:
    """The process that answers gets the dump and its round; it plans the pods of any scheduler, as `plan` does."""
    hostile = "<script>"
    objects = [node("n0"), node("n1"), pod("runs", nodeName="n0"), pod("web"), pod(hostile, "64")]
    async with served(dump_source(scenario_of(objects), "now.json")) as client:
        overview = await get(client, "overview")
        assert (overview["source"], overview["name"], overview["nodes"]) == ("dump", "now.json", 2)
        assert (overview["running"], overview["waiting"], overview["round"]["placed"]) == (1, 1, 1)
        (item,) = (await get(client, "pending"))["items"]
        assert (item["pod"], item["position"]) == (f"default/{hostile}", 1)
        assert (await get(client, "pods/default/%3Cscript%3E"))["reason"] == item["reason"]
        flow = await get(client, "flow")
        assert (flow["pods"], flow["placed"], flow["unplaced"]) == (2, 1, 1)
        async with client.get("pods/default/nobody") as response:
            assert response.status == 404
        async with client.get("overview", headers={"Authorization": "Bearer guess"}) as response:
            assert response.status == 401


async def test_records_are_served_round_by_round(tmp_path: Path) -> None:
    """Each recorded round has its own plan and its own nodes."""
    write_rounds(tmp_path, small(), 7, 8)
    more = snapshot([model_node("n0", 4000), model_node("n1", 16000)], [model_pod("large", 9000)])
    write_rounds(tmp_path, more, 9)
    async with served(record_source(tmp_path)) as client:
        assert (await get(client, "rounds"))["number"] == [7, 8, 9]
        assert (await get(client, "nodes"))["names"] == ["n0", "n1"]
        assert (await get(client, "nodes?round=7"))["names"] == ["n0"]
        first, last = await get(client, "overview?round=7"), await get(client, "overview")
        assert (first["source"], first["waiting"], first["nodes"]) == ("record", 1, 1)
        assert (last["waiting"], last["nodes"]) == (0, 2)
        assert [item["pod"] for item in (await get(client, "pending?round=8"))["items"]] == ["default/large"]
        assert (await get(client, "pods/default/large"))["node"] == "n1"
        for picture in ("flow", "gangs", "policies", "queues"):
            assert (await get(client, f"{picture}?round=8"))["round"] == 8
        async with client.get("nodes?round=1") as response:
            assert response.status == 404
        # The nodes of a record look empty without the pods that run there: no answer is better than a wrong one.
        async with client.post("what-if", json={"changes": []}) as response:
            assert response.status == 400
            assert "ask a dump or a running operator" in (await response.json())["error"]


@settings(max_examples=examples(15))
@given(large_snapshots())
def test_a_record_is_a_round_of_the_view(tmp_path_factory: pytest.TempPathFactory, crowd: Snapshot) -> None:
    """Nothing of the plan is lost between the file and the picture."""
    folder = tmp_path_factory.mktemp("rounds")
    write_rounds(folder, crowd, 3)
    (path,) = record.record_paths(folder)
    kept = read_record(path)
    plan = kept.plan()
    assert (plan.cost, plan.lower_bound, plan.steps) == (kept.reply.cost, kept.reply.lower_bound, kept.reply.steps)
    assert sorted([each.pod for each in plan.placements] + [place for place, _ in plan.unplaced]) == list(
        range(len(crowd.pending))
    )
    assert Counter(plan.codes[reason] for _, reason in plan.unplaced) == plan.waiting_by_code()
    assert plan.nodes is not None
    assert [each.name for each in plan.nodes] == [each.name for each in crowd.table.nodes]
    assert [plan.classes[each.pod_class].requests for each in plan.pending] == [
        each.pod_class.requests for each in crowd.pending
    ]


def test_rounds_of_earlier_runs_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers begin anew with each run of the operator: two rounds 1 would be one to the timeline."""
    write_rounds(tmp_path, small(), 1, 2)
    write_rounds(tmp_path, small(), 1)
    rounds = []
    record_source(tmp_path).on_round(rounds.append)
    assert [plan.number for plan in rounds] == [1]
    assert "2 records of earlier runs are not shown" in capsys.readouterr().err


def test_records_of_older_versions_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After an upgrade the folder has both: the run that can be read is shown."""
    write_rounds(tmp_path, small(), 1, 2)
    for path in record.record_paths(tmp_path):
        content = msgspec.msgpack.decode(path.read_bytes())
        path.write_bytes(msgspec.msgpack.encode({**content, "version": record.VERSION - 1}))
    write_rounds(tmp_path, small(), 3)
    rounds = []
    record_source(tmp_path).on_round(rounds.append)
    assert [plan.number for plan in rounds] == [3]
    assert "2 records of earlier runs are not shown" in capsys.readouterr().err


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    """One sentence with the file's name, and exit code 2; the same for `replay`."""
    write_rounds(tmp_path, small(), 1)
    (path,) = record.record_paths(tmp_path)
    content, later = msgspec.msgpack.decode(path.read_bytes()), record.VERSION + 1
    for version, others in (
        (later, {}),
        (later, {"request": "of another shape"}),
        (None, {}),
    ):
        changed = {**content, "version": version, **others}
        if version is None:
            del changed["version"]
        path.write_bytes(msgspec.msgpack.encode(changed))
        for result in (view("--record", tmp_path), CliRunner().invoke(main, ["replay", str(path)])):
            assert result.exit_code == 2
            (line,) = result.stderr.splitlines()
            assert line.startswith(f"Error: {path}: a record of version {version or 0} of the format;")


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    """A folder without records, a file that is none, a dump that is none: exit code 2."""
    empty, broken = tmp_path / "empty", tmp_path / "broken"
    empty.mkdir()
    broken.mkdir()
    (broken / "round-x.msgpack").write_bytes(b"nothing of the kind")
    dump = tmp_path / "dump.json"
    dump.write_text("{")
    for arguments, said in (
        (("--record", empty), "contains no record"),
        (("--record", broken), "not the record of a round"),
        (("-f", dump), "not valid JSON"),
        (("-f", tmp_path / "nowhere.json"), "cannot be read"),
    ):
        result = view(*arguments)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith("Error: ")
        assert said in line


def test_one_source_is_needed(tmp_path: Path) -> None:
    """Neither a dump nor records, or both, is an error of usage."""
    for arguments in ((), ("-f", "-", "--record", tmp_path)):
        result = view(*arguments)
        assert result.exit_code == 2
        assert "give a dump (-f FILE) or recorded rounds (--record FOLDER)" in result.stderr


def test_a_missing_page_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where npm could not be reached at the build: exit code 1, and how to get the page."""
    write_rounds(tmp_path, small(), 1)
    monkeypatch.setattr("thalweg.view.view.read_page", dict)
    result = view("--record", tmp_path)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "pip install ." in line


async def test_the_command_prints_an_address_with_a_token(tmp_path: Path) -> None:
    """The token is random, stands behind the #, and opens the data; without it nobody gets them."""
    if not read_page():
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("the page's modules from npm are not there")
    write_rounds(tmp_path, small(), 1)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "thalweg", "view", "--record", str(tmp_path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/#token=([\w-]{40,})", line)
        assert found is not None, line
        async with aiohttp.ClientSession() as client:
            async with client.get(f"{found[1]}/") as response:
                assert response.status == 200
            async with client.get(f"{found[1]}/api/v1/overview") as response:
                assert response.status == 401
            headers = {"Authorization": f"Bearer {found[2]}"}
            async with client.get(f"{found[1]}/api/v1/overview", headers=headers) as response:
                assert (await response.json())["source"] == "record"
    finally:
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
