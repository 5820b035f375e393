"""The compute process of a view: states, rounds and questions in, answers out.

A plan takes seconds, and Python computes in one thread at a time. So all answers are computed here, and the event loop
of the operator never waits for one. Each is computed by a fork (``questions``): this process itself only reads, so it
is never long busy, has one thread, and keeps its state whatever becomes of a question. ``compute_client`` starts this
module with ``python -m``.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import BinaryIO, Final

import msgspec

from flowcore.cluster.saved_state import UnreadableState
from flowcore.model.errors import ModelError
from flowcore.planning.plan_document import PlanDocument
from flowcore.questions.scenario.context import AnswerContext, UnknownName, sees_all
from flowcore.questions.scenario.reading.saved import read_state
from thalweg_cost_models import find_models
from thalweg_view.compute_process.messages import (
    LENGTH,
    UNAVAILABLE,
    Answered,
    Message,
    NewRound,
    OperationRequest,
    Ready,
    StatePiece,
    StateRead,
    framed,
    problem,
    request_decoder,
)
from thalweg_view.compute_process.questions import TOO_MUCH_MEMORY, AnswerFork, begin, end_largest
from thalweg_view.operations import OPERATIONS
from thalweg_view.view_data import SourceInfo, ViewData

_plans = msgspec.msgpack.Decoder(PlanDocument)
_json = msgspec.json.Encoder()
#: Answers that are kept: a page asks the same again with each of its readers.
_ANSWERS: Final = 64
#: The part of an answer's time after which it looks for no further fixes: the plan that is being made must end, too.
_PATIENCE: Final = 1 / 3
#: Seconds between two looks at the memory that questions use.
_LOOK: Final = 0.2


class ComputeProcess:
    """Takes messages from a pipe until it ends, and answers.

    Args:
        source: unbuffered, so that a message that has come can be seen from outside.
        memory: bytes that this process and the questions under way may use together; 0: no limit.
    """

    def __init__(self, source: FileIO, sink: BinaryIO, info: SourceInfo, memory: int = 0) -> None:
        self._source, self._sink, self._memory = source, sink, memory
        self._data = ViewData(source=info)
        self._models = find_models().usable
        #: Bodies of answers of the present generation.
        self._answers: dict[tuple[object, ...], bytes] = {}
        self._selector = DefaultSelector()
        self._under_way: list[AnswerFork] = []

    def serve(self) -> None:
        """Answers until the source ends; questions under way end with it."""
        self._send(Ready({name: each.shape for name, each in OPERATIONS.items()}))
        self._selector.register(self._source, EVENT_READ)
        while True:
            for ready, _ in self._selector.select(_LOOK if self._under_way and self._memory else None):
                if isinstance(ready.data, AnswerFork):
                    self._go_on(ready.data)
                elif (message := _read(self._source)) is not None:
                    self._take(message)
                else:
                    for question in self._under_way:
                        question.end("the view ends")
                    return
            if self._memory:
                end_largest(self._under_way, self._memory)

    def _send(self, message: Message) -> None:
        self._sink.write(framed(message))
        self._sink.flush()

    def _take(self, message: StatePiece | NewRound | OperationRequest) -> None:
        match message:
            case StatePiece():
                self._send(_read_state(message, self._source, self._data))
            case NewRound(plan):
                self._data.rounds.put(_plans.decode(plan))
            case OperationRequest():
                self._answer(message)

    def _answer(self, request: OperationRequest) -> None:
        data = self._data
        if data.generation != request.generation or len(self._answers) >= _ANSWERS:
            self._answers.clear()
        data.generation = request.generation
        # All that the answer depends on beside the state: a caller with fewer rights gets less.
        seen = None if request.namespaces is None else tuple(request.namespaces)
        key = (request.operation, request.query, seen, request.nodes)
        if (known := self._answers.get(key)) is not None:
            self._send(Answered(request.number, 200, known))
            return
        sees = sees_all if request.namespaces is None else frozenset(request.namespaces).__contains__
        moment, models = data.scenario.moment, self._models

        def compute() -> tuple[int, bytes]:
            return answer(request, data, AnswerContext(moment, models, sees, request.nodes, _patience(request.seconds)))

        try:
            question = begin(request, key, compute, (self._source.fileno(), self._sink.fileno()))
        except OSError as error:
            text = f"the process of the answer cannot be started: {error.strerror}"
            self._send(Answered(request.number, UNAVAILABLE, problem(text)))
            return
        self._under_way.append(question)
        self._selector.register(question.pipe, EVENT_READ, question)

    def _go_on(self, question: AnswerFork) -> None:
        if question.receive():
            return
        self._selector.unregister(question.pipe)
        self._under_way.remove(question)
        status, body = question.finish()
        if status == 200 and question.request.generation == self._data.generation:
            self._answers[question.key] = body
        self._send(Answered(question.request.number, status, body))


def _patience(seconds: float) -> Callable[[], bool]:
    """Whether a good part is left of the seconds that an answer may take from now on."""
    end = time.monotonic() + _PATIENCE * seconds
    return lambda: time.monotonic() < end


def _read(source: FileIO) -> StatePiece | NewRound | OperationRequest | None:
    """The next message; None: the other side is gone."""
    header = _bytes(source, LENGTH.size)
    body = None if header is None else _bytes(source, LENGTH.unpack(header)[0])
    if body is None:
        return None
    message: StatePiece | NewRound | OperationRequest = request_decoder.decode(body)
    return message


def _bytes(source: FileIO, number: int) -> bytes | None:
    """The next ``number`` bytes; None: there are fewer."""
    read = bytearray()
    while len(read) < number:
        piece = source.read(number - len(read))
        if not piece:
            return None
        read += piece
    return bytes(read)


def _read_state(first: StatePiece, source: FileIO, data: ViewData) -> StateRead:
    """Puts the state whose first piece has come in the place of the one before."""
    pieces = _pieces(first, source)
    try:
        scenario = read_state(line for piece in pieces for line in piece.decode().rstrip("\n").split("\n"))
    except UnreadableState as error:
        for _ in pieces:
            pass  # what follows is not read either
        return StateRead([], f"the state cannot be read: {error}")
    gc.unfreeze()
    data.scenario = scenario
    newest = data.rounds.find()
    data.state_after = 0 if newest is None else newest.number
    gc.collect()
    gc.freeze()  # collections in forks do not write to what they share
    return StateRead(sorted({pod.namespace for pod in scenario.cluster.pods.values()}))


def _pieces(piece: StatePiece, source: FileIO) -> Iterator[bytes]:
    yield piece.lines
    while not piece.last:
        following = _read(source)
        if not isinstance(following, StatePiece):
            raise SystemExit("a state ended within")  # the other side is gone
        piece = following
        yield piece.lines


def answer(request: OperationRequest, data: ViewData, context: AnswerContext) -> tuple[int, bytes]:
    """Status and body of the answer to a question; an error of the request, or of its answer, has these too."""
    operation = OPERATIONS.get(request.operation)
    if operation is None:
        return 404, problem(f"there is no operation {request.operation}")
    try:
        query = msgspec.convert(msgspec.json.decode(request.query), operation.query, strict=request.strict)
        return 200, _json.encode(operation.answer(data, query, context))
    except UnknownName as error:
        return 404, problem(str(error))
    except (ModelError, msgspec.DecodeError, UnicodeDecodeError) as error:
        return 400, problem(str(error))
    except RecursionError:
        return 400, problem("the query is nested too deeply")
    except MemoryError:
        return UNAVAILABLE, problem(TOO_MUCH_MEMORY)
    except Exception as error:  # noqa: BLE001 - one question must not end the process
        sys.stderr.write(f"the view failed to answer {request.operation}: {error!r}\n")
        return 500, problem("internal error of the view; read the operator's log")


def limit_memory(memory: int) -> None:
    """Limits what this process may allocate, in bytes (0: no limit), and lets the kernel kill it first."""
    if memory and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def main(arguments: list[str]) -> None:
    """Serves on standard input and output; ``arguments``: memory limit in bytes; kind, name, version of the source."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    memory, kind, name, version = arguments
    limit_memory(int(memory))
    os.nice(5)  # the operator's rounds come first
    # A library that prints must not disturb the messages.
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with FileIO(sys.stdin.fileno()) as source:
        ComputeProcess(source, sink, SourceInfo(kind, name, version), int(memory)).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
