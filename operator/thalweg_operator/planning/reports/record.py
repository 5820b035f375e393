"""Records of rounds in files. ``thalweg replay`` plays a record again and gets the same plan.

A record holds the reply of a round and a complete request: the whole cluster, the pending pods, the policies, the seed,
and the number of steps that the clock allowed.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from flowcore.planning.plan_document import PlanDocument
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest, document_of

#: Number of files that are kept; older files are removed.
MAX_RECORDS = 20


#: Of the format. It rises when requests or replies change, so that no record is misread.
VERSION = 6


class _Header(msgspec.Struct):
    """What tells a record from other files; 0: written before records had a version."""

    version: int = 0


class RoundRecord(msgspec.Struct):
    """The request and the reply of a round."""

    request: RoundRequest
    reply: RoundReply
    version: int = VERSION

    def plan(self) -> PlanDocument:
        """The plan with its pods, and the nodes before the round."""
        return document_of(self.request, self.reply, nodes=True)


_encoder = msgspec.msgpack.Encoder()
_header = msgspec.msgpack.Decoder(_Header)
_decoder = msgspec.msgpack.Decoder(RoundRecord)


class UnreadableRecord(Exception):
    """The file is no record; the message says why."""


class OlderRecord(UnreadableRecord):
    """An older version wrote the record."""


class RecordWriter:
    """Writes the records of one process into a folder.

    File names begin with the start time of the process: they sort by age across restarts, and no process overwrites the
    files of another. Records describe the cluster, so only their owner may read them.
    """

    def __init__(self, folder: Path, began: datetime | None = None) -> None:
        """A writer into ``folder``; ``write`` creates the folder.

        Args:
            folder: where the files go.
            began: start time of the process; None: now.
        """
        self._folder = folder
        self._prefix = f"{began or datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"

    def write(self, request: RoundRequest, reply: RoundReply) -> Path:
        """Writes a record and removes the oldest beyond ``MAX_RECORDS``; returns its path.

        Args:
            request: a complete request, with the whole cluster.
            reply: the reply to it.

        Raises:
            OSError: the folder cannot be written to.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        request = msgspec.structs.replace(request, steps=reply.steps, record_in="")
        path = self._folder / f"round-{self._prefix}-{request.number:09}.msgpack"
        unfinished = self._folder / f"{self._prefix}.part"
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123
            file.write(_encoder.encode(RoundRecord(request, reply)))
        unfinished.rename(path)
        for old in record_paths(self._folder)[:-MAX_RECORDS]:
            old.unlink(missing_ok=True)
        return path


def _age_key(path: Path) -> tuple[bool, str]:
    """Sort key by age, the oldest first. Names without a time come from older versions."""
    return ("T" in path.name, path.name)


def read_record(path: Path) -> RoundRecord:
    """Reads a record.

    Raises:
        UnreadableRecord: the file cannot be read, is no record, or another version wrote it (``OlderRecord``).
    """
    try:
        content = path.read_bytes()
        version = _header.decode(content).version
        if version != VERSION:
            kind = OlderRecord if version < VERSION else UnreadableRecord
            raise kind(
                f"{path}: a record of version {version} of the format; this Thalweg reads version {VERSION}. "
                "Use the version of Thalweg that wrote it"
            )
        return _decoder.decode(content)
    except OSError as error:
        raise UnreadableRecord(f"{path}: {error.strerror}") from error
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UnreadableRecord(f"{path}: not the record of a round: {error}") from error


def record_paths(folder: Path) -> list[Path]:
    """The records in a folder, the oldest first."""
    return sorted(folder.glob("round-*.msgpack"), key=_age_key)


#: All that a plan decides.
_COMPARED = (
    "placements", "evictions", "proposals", "unplaced", "reasons", "cost", "lower_bound", "left_at_least", "steps",
    "method",
)  # fmt: skip


def differences(recorded: PlanDocument, again: PlanDocument) -> list[str]:
    """Differences between a recorded plan and its replay, a sentence each; empty if the plan is the same."""
    sentences = []
    for field in _COMPARED:
        before, after = getattr(recorded, field), getattr(again, field)
        if before == after:
            continue
        if isinstance(before, list):
            sentences.append(f"{field}: {len(before)} recorded, {len(after)} now, not the same")
        else:
            sentences.append(f"{field}: {before} recorded, {after} now")
    return sentences
