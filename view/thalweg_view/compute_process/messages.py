"""Messages between a view and its compute process: MessagePack, each after its length."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

LENGTH: Final = struct.Struct(">Q")
#: HTTP status of a question that took too much, or whose process was lost.
UNAVAILABLE: Final = 503
#: Kinds that a caller must be allowed to list in the whole cluster.
Need = Literal["nodes", "policies", "queues"]


class Message(msgspec.Struct, frozen=True, tag=True):
    """One message."""


class StatePiece(Message, frozen=True):
    """Whole lines of a saved state; the last piece puts the state in the place of the one before."""

    lines: bytes
    last: bool


class NewRound(Message, frozen=True):
    """A round (rounds.py PlanDocument) in MessagePack."""

    plan: bytes


class OperationRequest(Message, frozen=True):
    """A request, answered with ``Answered``.

    Attributes:
        number: that the answer has too; several may be under way.
        operation: its name.
        query: the query as a JSON object.
        strict: whether numbers and booleans must not come as strings.
        namespaces: whose pods the caller may read; None: of all.
        nodes: whether the caller may read nodes.
        generation: of what the process knows.
        seconds: that the answer may take.
    """

    number: int
    operation: str
    query: bytes
    strict: bool
    namespaces: list[str] | None
    nodes: bool
    generation: int
    seconds: float


class OperationShape(msgspec.Struct, frozen=True):
    """What the server must know of an operation (operations.py ``Operation``).

    Attributes:
        fields: of its query.
        more_needs: field, value, kind: where the field has the value, the caller must be allowed to list that kind too.
    """

    method: Literal["GET", "POST"]
    needs: frozenset[Need]
    segments: tuple[str, ...]
    fields: tuple[str, ...]
    more_needs: tuple[tuple[str, str, Need], ...] = ()

    def needs_for(self, asked: Mapping[str, str]) -> frozenset[Need]:
        """The kinds that the caller must be allowed to list for a query."""
        return self.needs.union(kind for field, value, kind in self.more_needs if asked.get(field) == value)


class Ready(Message, frozen=True):
    """The process is ready, and can be asked this."""

    operations: dict[str, OperationShape]


class StateRead(Message, frozen=True):
    """A state was read.

    Attributes:
        namespaces: that have pods.
        problem: why it could not be read; "": it was.
    """

    namespaces: list[str]
    problem: str = ""


class Answered(Message, frozen=True):
    """The answer to a request.

    Attributes:
        number: of the request.
        status: of the HTTP response; see ``UNAVAILABLE``.
        body: JSON.
    """

    number: int
    status: int
    body: bytes


encoder = msgspec.msgpack.Encoder()
request_decoder = msgspec.msgpack.Decoder(StatePiece | NewRound | OperationRequest)
reply_decoder = msgspec.msgpack.Decoder(Ready | StateRead | Answered)


def framed(message: Message) -> bytes:
    """A message after its length."""
    body = encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def problem(text: str) -> bytes:
    """The JSON body of an error."""
    return msgspec.json.encode({"error": text})
