"""The compute process of a view: states, rounds and questions in, answers out.

A plan takes seconds, and Python computes in one thread at a time. So all answers are computed here, and the event loop
of the operator never waits for one. ``compute_client`` starts this module with ``python -m``.
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
from pathlib import Path
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
from thalweg_view.operations import OPERATIONS
from thalweg_view.view_data import SourceInfo, ViewData

_plans = msgspec.msgpack.Decoder(PlanDocument)
_json = msgspec.json.Encoder()
#: Answers that are kept: a page asks the same again with each of its readers.
_ANSWERS: Final = 64
#: The part of an answer's time after which it looks for no further fixes: the plan that is being made must end, too.
_PATIENCE: Final = 1 / 3
#: HTTP status of an answer for which memory was missing.
_OUT_OF_MEMORY: Final = 503


def serve(source: BinaryIO, sink: BinaryIO, info: SourceInfo) -> None:
    """Answers until the source ends."""
    data = ViewData(source=info)
    models = find_models().usable

    def send(message: Message) -> None:
        sink.write(framed(message))
        sink.flush()

    answers: dict[tuple[object, ...], Answered] = {}  # of the present generation
    send(Ready({name: each.shape for name, each in OPERATIONS.items()}))
    while (message := _read(source)) is not None:
        match message:
            case StatePiece():
                send(_read_state(message, source, data))
            case NewRound(plan):
                data.rounds.put(_plans.decode(plan))
            case OperationRequest():
                if data.generation != message.generation or len(answers) >= _ANSWERS:
                    answers.clear()
                data.generation = message.generation
                sees = sees_all if message.namespaces is None else frozenset(message.namespaces).__contains__
                # All that the answer depends on beside the state: a caller with fewer rights gets less.
                seen = None if message.namespaces is None else tuple(message.namespaces)
                key = (message.operation, message.query, seen, message.nodes)
                answered = answers.get(key) or answer(
                    message,
                    data,
                    AnswerContext(data.scenario.moment, models, sees, message.nodes, _patience(message.seconds)),
                )
                if answered.status == 200:
                    answers[key] = answered
                send(answered)
                if answered.status == _OUT_OF_MEMORY:
                    sys.exit("memory ran out")  # a change may be half undone: a new process reads the state again


def _patience(seconds: float) -> Callable[[], bool]:
    """Whether a good part is left of the seconds that an answer may take from now on."""
    end = time.monotonic() + _PATIENCE * seconds
    return lambda: time.monotonic() < end


def _read(source: BinaryIO) -> StatePiece | NewRound | OperationRequest | None:
    header = source.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    message: StatePiece | NewRound | OperationRequest = request_decoder.decode(source.read(LENGTH.unpack(header)[0]))
    return message


def _read_state(first: StatePiece, source: BinaryIO, data: ViewData) -> StateRead:
    """Puts the state whose first piece has come in the place of the one before."""
    pieces = _pieces(first, source)
    try:
        scenario = read_state(line for piece in pieces for line in piece.decode().rstrip("\n").split("\n"))
    except UnreadableState as error:
        for _ in pieces:
            pass  # what follows is not read either
        return StateRead([], f"the state cannot be read: {error}")
    data.scenario = scenario
    newest = data.rounds.find()
    data.state_after = 0 if newest is None else newest.number
    gc.collect()
    return StateRead(sorted({pod.namespace for pod in scenario.cluster.pods.values()}))


def _pieces(piece: StatePiece, source: BinaryIO) -> Iterator[bytes]:
    yield piece.lines
    while not piece.last:
        following = _read(source)
        if not isinstance(following, StatePiece):
            raise SystemExit("a state ended within")  # the other side is gone
        piece = following
        yield piece.lines


def answer(request: OperationRequest, data: ViewData, context: AnswerContext) -> Answered:
    """The answer to a question; an error of the request, or of its answer, becomes a response too."""
    operation = OPERATIONS.get(request.operation)
    if operation is None:
        return Answered(404, problem(f"there is no operation {request.operation}"))
    try:
        query = msgspec.convert(msgspec.json.decode(request.query), operation.query, strict=request.strict)
        return Answered(200, _json.encode(operation.answer(data, query, context)))
    except UnknownName as error:
        return Answered(404, problem(str(error)))
    except (ModelError, msgspec.DecodeError, UnicodeDecodeError) as error:
        return Answered(400, problem(str(error)))
    except RecursionError:
        return Answered(400, problem("the query is nested too deeply"))
    except MemoryError:
        return Answered(_OUT_OF_MEMORY, problem("the answer needs more memory than the view's process has"))
    except Exception as error:  # noqa: BLE001 - one question must not end the process
        sys.stderr.write(f"the view failed to answer {request.operation}: {error!r}\n")
        return Answered(500, problem("internal error of the view; read the operator's log"))


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
    serve(sys.stdin.buffer, sink, SourceInfo(kind, name, version))


if __name__ == "__main__":
    main(sys.argv[1:])
