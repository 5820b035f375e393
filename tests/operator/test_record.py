"""Rounds that were recorded play again to the same plan."""

from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.large_snapshots import large_snapshots
from support.model import node, pod, snapshot
from support.profiles import examples
from support.recorded_rounds import CLAIM, MOUNTED, request_of
from thalweg.main import main
from thalweg_operator.planning.reports import record
from thalweg_operator.planning.worker import messages as wire
from thalweg_operator.planning.worker.main import serve
from thalweg_operator.planning.worker.messages import (
    LENGTH,
    RoundReply,
    RoundRequest,
    reply_decoder,
    request_encoder,
)
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.volumes import PersistentVolume, StorageClass


def _served(requests: list[RoundRequest], folder: Path) -> list[RoundReply]:
    bodies = [request_encoder.encode(request) for request in requests]
    sink = BytesIO()
    serve(BytesIO(b"".join(LENGTH.pack(len(body)) + body for body in bodies)), sink, folder)
    sink.seek(0)
    return [reply_decoder.decode(sink.read(LENGTH.unpack(sink.read(LENGTH.size))[0])) for _ in requests]


@settings(max_examples=examples(12, quick=3), deadline=None)
@given(large_snapshots())
def test_a_recorded_round_replays_to_the_same_plan(tmp_path_factory: pytest.TempPathFactory, crowd: Snapshot) -> None:
    """Whenever the clock stopped it, and though later rounds only told the worker what changed."""
    folder = tmp_path_factory.mktemp("rounds")
    first = request_of(crowd)
    second = request_of(crowd, 2)
    second.changes.nodes = []
    replies = _served([first, second], folder)
    for path, reply in zip(sorted(folder.glob("round-*")), replies, strict=True):
        kept = record.read_record(path)
        again = run_request(Replica(), kept.request)
        assert record.differences(reply, again) == []
        told = {each.node: each for each in kept.request.changes.reports}
        assert told == {each.node: each for each in first.changes.reports}
        assert {each.node: each.volumes for each in kept.request.changes.usage} == dict.fromkeys(told, MOUNTED)
    assert kept.request.changes.storage == [CLAIM, PersistentVolume("v"), StorageClass("late")]


def test_only_the_last_rounds_are_kept(tmp_path: Path) -> None:
    """The folder does not grow for ever."""
    request = request_of(snapshot([node("a")], [pod("p")]))
    reply = run_request(Replica(), request)
    writer = record.RecordWriter(tmp_path, datetime(2026, 11, 22, 10, 15, 2, 7, UTC))
    for number in range(1, record.MAX_RECORDS + 4):
        writer.write(msgspec.structs.replace(request, number=number), reply)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert len(kept) == record.MAX_RECORDS
    assert kept[0] == "round-20261122T101502000007Z-000000004.msgpack"


def test_records_of_earlier_processes_go_first(tmp_path: Path) -> None:
    """Round numbers begin at 1 with each process: what it writes is the newest all the same, and overwrites nothing."""
    request = request_of(snapshot([node("a")], [pod("p")]))
    reply = run_request(Replica(), request)
    (tmp_path / "round-000001000.msgpack").write_bytes(b"of a version whose names had no time")
    first = record.RecordWriter(tmp_path, datetime(2026, 11, 22, 10, 0, 0, 0, UTC))
    for number in range(981, 1000):
        first.write(msgspec.structs.replace(request, number=number), reply)
    assert len(list(tmp_path.iterdir())) == record.MAX_RECORDS
    second = record.RecordWriter(tmp_path, datetime(2026, 11, 22, 10, 0, 0, 1, UTC))
    written = [second.write(msgspec.structs.replace(request, number=number), reply) for number in range(1, 6)]
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == record.MAX_RECORDS
    assert kept[-5:] == written
    assert kept[0].name.endswith("000000985.msgpack")


def test_records_are_for_nobody_else(tmp_path: Path) -> None:
    """They tell what runs in the cluster. A folder that was there keeps its mode."""
    request = request_of(snapshot([node("a")], [pod("p")]))
    path = record.RecordWriter(tmp_path / "new").write(request, run_request(Replica(), request))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    record.RecordWriter(shared).write(request, run_request(Replica(), request))
    assert shared.stat().st_mode & 0o777 == 0o750


def test_the_command_says_what_is_placed_and_what_waits(tmp_path: Path) -> None:
    """In the words of ``thalweg plan``."""
    request = request_of(snapshot([node("a", cpu=1000)], [pod("p", cpu=100), pod("large", cpu=2000)]))
    path = record.RecordWriter(tmp_path).write(request, run_request(Replica(), request))
    text = CliRunner().invoke(main, ["replay", str(path)]).stdout
    assert "1 placed, 1 pending, cost" in text
    assert "1 pod has no node; no plan leaves fewer" in text.splitlines()
    answer = msgspec.json.decode(CliRunner().invoke(main, ["replay", str(path), "-o", "json"]).stdout)
    assert answer["placements"] == {"default/p": "a"}
    assert answer["waiting"].keys() == {"default/large"}
    assert answer["leftAtLeast"] == {
        "waiting": 1,
        "pods": 1,
        "resource": "",
        "asked": 0,
        "amount": 0,
        "levels": [],
        "furtherLevels": 0,
        "boundNotes": [],
        "size": 2.0,
        "leastSize": 0.0,
    }


def test_the_command_says_whether_the_plan_is_the_same(tmp_path: Path) -> None:
    """Exit code 0 for the same, 1 for another plan, 2 for a file that is none."""
    request = request_of(snapshot([node("a")], [pod("p")]))
    reply = run_request(Replica(), request)
    writer = record.RecordWriter(tmp_path)
    path = writer.write(request, reply)
    done = CliRunner().invoke(main, ["replay", str(path)])
    assert done.exit_code == 0, done.output
    assert "same plan as recorded" in done.stdout
    writer.write(request, msgspec.structs.replace(reply, cost=reply.cost + 1))
    done = CliRunner().invoke(main, ["replay", str(path), "-o", "json"])
    assert done.exit_code == 1
    assert msgspec.json.decode(done.stdout)["differences"] == [f"cost: {reply.cost + 1} recorded, {reply.cost} now"]
    path.write_bytes(b"no record")
    done = CliRunner().invoke(main, ["replay", str(path)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {path}: not the record of a round")
    assert CliRunner().invoke(main, ["replay", str(tmp_path / "none")]).exit_code == 2


@given(large_snapshots(), st.integers(1, 9))
def test_a_request_that_is_cut_is_whole_again(crowd: Snapshot, size: int) -> None:
    """Nothing is lost on the way to the worker, and nothing comes twice."""
    request = request_of(crowd)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_CHUNK_SIZE", size)
        parts = list(wire.split_request(request))
    assert [part.has_more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert all(len(part.pending) <= size for part in parts)
    assert wire.join_request(parts) == request
