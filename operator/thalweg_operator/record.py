"""Rounds kept in files, so that each can be played again to the same plan.

A record is the request of a round as a worker that knows nothing would need it: the whole cluster, what waits,
policies, seed, and the steps that the clock allowed; with the plan that came of it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from thalweg_operator.wire import RoundReply, RoundRequest

#: Files that are kept; older ones go.
KEPT = 20


class Record(msgspec.Struct):
    """A round, and what it gave."""

    request: RoundRequest
    reply: RoundReply


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


class UnreadableRecord(Exception):
    """A file that is no record; the message says why."""


def keep(folder: Path, request: RoundRequest, reply: RoundReply) -> None:
    """Writes a record and removes the oldest beyond ``KEPT``.

    Args:
        request: fresh, with the whole cluster.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    request = msgspec.structs.replace(request, steps=reply.steps)
    unfinished = folder / "round.part"
    unfinished.write_bytes(_encoder.encode(Record(request, reply)))
    unfinished.rename(folder / f"round-{request.number:09}.msgpack")
    for old in sorted(folder.glob("round-*.msgpack"))[:-KEPT]:
        old.unlink()


def read(path: Path) -> Record:
    """The record in a file.

    Raises:
        UnreadableRecord: it cannot be read or holds something else.
    """
    try:
        return _decoder.decode(path.read_bytes())
    except OSError as error:
        raise UnreadableRecord(f"{path}: {error.strerror}") from error
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UnreadableRecord(f"{path}: not the record of a round: {error}") from error


def differences(recorded: RoundReply, again: RoundReply) -> list[str]:
    """What a replay gave that differs from what was recorded; empty where the plan is the same."""
    found = []
    for what in ("placements", "left", "reasons", "cost", "lower_bound", "steps", "method"):
        before, after = getattr(recorded, what), getattr(again, what)
        if before != after:
            found.append(f"{what}: {len(before)} recorded, {len(after)} now, not the same" if isinstance(before, list)
                         else f"{what}: {before} recorded, {after} now")  # fmt: skip
    return found
