"""Rounds kept in files, so that each can be played again to the same plan.

A record is the request of a round as a worker that knows nothing would need it: the whole cluster, what waits,
policies, seed, and the steps that the clock allowed; with the plan that came of it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
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


class Keeper:
    """Writes the records of one process into a folder.

    Their names begin with the time at which the process began, so that names sort by age over restarts and no process
    overwrites what another one wrote. Records tell what runs in the cluster: nobody else may read them.
    """

    def __init__(self, folder: Path, began: datetime | None = None) -> None:
        """Into ``folder``, which is made if it is not there.

        Args:
            began: when the process began; None: now.
        """
        self._folder = folder
        self._prefix = f"{began or datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"

    def keep(self, request: RoundRequest, reply: RoundReply) -> Path:
        """Writes a record and removes the oldest beyond ``KEPT``; returns its path.

        Args:
            request: fresh, with the whole cluster.

        Raises:
            OSError: the folder cannot be written to.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        request = msgspec.structs.replace(request, steps=reply.steps)
        path = self._folder / f"round-{self._prefix}-{request.number:09}.msgpack"
        unfinished = self._folder / f"{self._prefix}.part"
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123
            file.write(_encoder.encode(Record(request, reply)))
        unfinished.rename(path)
        for old in sorted(self._folder.glob("round-*.msgpack"), key=_age)[:-KEPT]:
            old.unlink(missing_ok=True)
        return path


def _age(path: Path) -> tuple[bool, str]:
    """Orders records, the oldest first. Names without a time were written before names had one."""
    return ("T" in path.name, path.name)


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
