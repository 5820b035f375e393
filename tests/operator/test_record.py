"""Rounds that were recorded play again to the same plan."""

from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crowds import crowds
from support.model import node, pod, snapshot
from thalweg.main import main
from thalweg_operator import record, wire
from thalweg_operator.wire import LENGTH, RoundReply, RoundRequest, Told, Use, Waiting, reply_decoder, request_encoder
from thalweg_operator.worker import Replica, answer, serve

from flowcore.model.neighbours import Kind
from flowcore.model.policies import BUILT_IN
from flowcore.model.snapshot import Snapshot
from flowcore.model.volumes import Claim, ClaimVolume, CsiNode, PersistentVolume, StorageClass

CLAIM, MOUNTED = Claim("default", "data", storage_class="late"), (ClaimVolume("default", "data"),)


def _request(crowd: Snapshot, number: int = 1) -> RoundRequest:
    classes: dict[object, int] = {}
    waiting = [
        Waiting(pod.key, classes.setdefault(pod.pod_class, len(classes)), 0, pod.created, 0) for pod in crowd.pending
    ]
    return RoundRequest(
        number=number,
        generation=7,
        now=1000.0,
        fresh=number == 1,
        nodes=list(crowd.table.nodes),
        gone=[],
        uses=[Use(node.name, (), 1, 0, 0, (), MOUNTED) for node in crowd.table.nodes] if number == 1 else [],
        storage=[CLAIM, CsiNode("n0"), StorageClass("late")] if number == 1 else [PersistentVolume("v")],
        storage_gone=[] if number == 1 else [("CSINode", "", "n0")],
        policies=[BUILT_IN],
        classes=list(classes),  # type: ignore[arg-type]
        namespaces={"default": ()},
        kinds=[Kind("default", ())],
        neighbours=[],
        images=[("big:v1", 2**30)] if number == 1 else [],
        reports=[Told(node.name, (0,), 7) for node in crowd.table.nodes] if number == 1 else [],
        waiting=waiting,
        budget=0.05,
    )


def _served(requests: list[RoundRequest], folder: Path) -> list[RoundReply]:
    bodies = [request_encoder.encode(request) for request in requests]
    sink = BytesIO()
    serve(BytesIO(b"".join(LENGTH.pack(len(body)) + body for body in bodies)), sink, folder)
    sink.seek(0)
    return [reply_decoder.decode(sink.read(LENGTH.unpack(sink.read(LENGTH.size))[0])) for _ in requests]


@settings(max_examples=25, deadline=None)
@given(crowds())
def test_a_recorded_round_replays_to_the_same_plan(tmp_path_factory: pytest.TempPathFactory, crowd: Snapshot) -> None:
    """Whenever the clock stopped it, and though later rounds only told the worker what changed."""
    folder = tmp_path_factory.mktemp("rounds")
    first = _request(crowd)
    second = msgspec.structs.replace(_request(crowd, 2), nodes=[])
    replies = _served([first, second], folder)
    for path, reply in zip(sorted(folder.glob("round-*")), replies, strict=True):
        kept = record.read(path)
        again = answer(Replica(), kept.request)
        assert record.differences(reply, again) == []
        told = {each.node: each for each in kept.request.reports}
        assert told == {each.node: each for each in first.reports}
        assert {each.node: each.volumes for each in kept.request.uses} == dict.fromkeys(told, MOUNTED)
    assert kept.request.storage == [CLAIM, PersistentVolume("v"), StorageClass("late")]


def test_only_the_last_rounds_are_kept(tmp_path: Path) -> None:
    """The folder does not grow for ever."""
    request = _request(snapshot([node("a")], [pod("p")]))
    reply = answer(Replica(), request)
    keeper = record.Keeper(tmp_path, datetime(2026, 11, 22, 10, 15, 2, 7, UTC))
    for number in range(1, record.KEPT + 4):
        keeper.keep(msgspec.structs.replace(request, number=number), reply)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert len(kept) == record.KEPT
    assert kept[0] == "round-20261122T101502000007Z-000000004.msgpack"


def test_records_of_earlier_processes_go_first(tmp_path: Path) -> None:
    """Round numbers begin at 1 with each process: what it writes is the newest all the same, and overwrites nothing."""
    request = _request(snapshot([node("a")], [pod("p")]))
    reply = answer(Replica(), request)
    (tmp_path / "round-000001000.msgpack").write_bytes(b"of a version whose names had no time")
    first = record.Keeper(tmp_path, datetime(2026, 11, 22, 10, 0, 0, 0, UTC))
    for number in range(981, 1000):
        first.keep(msgspec.structs.replace(request, number=number), reply)
    assert len(list(tmp_path.iterdir())) == record.KEPT
    second = record.Keeper(tmp_path, datetime(2026, 11, 22, 10, 0, 0, 1, UTC))
    written = [second.keep(msgspec.structs.replace(request, number=number), reply) for number in range(1, 6)]
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == record.KEPT
    assert kept[-5:] == written
    assert kept[0].name.endswith("000000985.msgpack")


def test_records_are_for_nobody_else(tmp_path: Path) -> None:
    """They tell what runs in the cluster. A folder that was there keeps its mode."""
    request = _request(snapshot([node("a")], [pod("p")]))
    path = record.Keeper(tmp_path / "new").keep(request, answer(Replica(), request))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    record.Keeper(shared).keep(request, answer(Replica(), request))
    assert shared.stat().st_mode & 0o777 == 0o750


def test_the_command_says_whether_the_plan_is_the_same(tmp_path: Path) -> None:
    """Exit code 0 for the same, 1 for another plan, 2 for a file that is none."""
    request = _request(snapshot([node("a")], [pod("p")]))
    reply = answer(Replica(), request)
    keeper = record.Keeper(tmp_path)
    path = keeper.keep(request, reply)
    done = CliRunner().invoke(main, ["replay", str(path)])
    assert done.exit_code == 0, done.output
    assert "the recorded plan" in done.stdout
    keeper.keep(request, msgspec.structs.replace(reply, cost=reply.cost + 1))
    done = CliRunner().invoke(main, ["replay", str(path), "-o", "json"])
    assert done.exit_code == 1
    assert msgspec.json.decode(done.stdout)["differences"] == [f"cost: {reply.cost + 1} recorded, {reply.cost} now"]
    path.write_bytes(b"no record")
    done = CliRunner().invoke(main, ["replay", str(path)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {path}: not the record of a round")
    assert CliRunner().invoke(main, ["replay", str(tmp_path / "none")]).exit_code == 2


@given(crowds(), st.integers(1, 9))
def test_a_request_that_is_cut_is_whole_again(crowd: Snapshot, size: int) -> None:
    """Nothing is lost on the way to the worker, and nothing comes twice."""
    request = _request(crowd)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_PART", size)
        parts = list(wire.cut(request))
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert all(len(part.waiting) <= size for part in parts)
    assert wire.join(parts) == request
