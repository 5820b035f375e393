"""Questions under way: each is answered by a fork of the compute process, which ends with its answer.

The fork has the state as it is. It ends alone when its time is over or memory runs out, whatever its code does then.
What it changes of the state, nobody else sees. Forks share memory with the compute process until they write to it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from thalweg_view.compute_process.messages import UNAVAILABLE, OperationRequest, problem

TOO_MUCH_MEMORY: Final = "the answer needs more memory than the view's process has"
_PIECE: Final = 2**20
#: A question comes after the operator's rounds, and after the reading of states.
_NICER: Final = 5


@dataclass(slots=True, eq=False)
class AnswerFork:
    """A question under way.

    Attributes:
        key: of the answer, among those that are kept.
        pipe: file descriptor from which the answer comes.
        received: what has come of it.
        problem: why it was ended; "": it was not.
    """

    request: OperationRequest
    key: tuple[object, ...]
    process: int
    pipe: int
    received: bytearray = field(default_factory=bytearray)
    problem: str = ""

    def receive(self) -> bool:
        """Takes what has come of the answer; whether more may come."""
        piece = os.read(self.pipe, _PIECE)
        self.received += piece
        return bool(piece)

    def finish(self) -> tuple[int, bytes]:
        """Status and body of the answer; nothing more comes."""
        os.close(self.pipe)
        ended = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        if ended == 0:
            status, body = self.received.split(b" ", 1)
            return int(status), bytes(body)
        return UNAVAILABLE, problem(self.problem or self._why_it_ended(ended))

    def _why_it_ended(self, code: int) -> str:
        if code == -signal.SIGALRM:
            return f"the view had no answer after {self.request.seconds:g} s"
        if code == -signal.SIGKILL:
            return "the process of the answer was killed, most likely since memory ran out"
        how = signal.Signals(-code).name if code < 0 else f"code {code}"
        return f"the process of the answer ended ({how})"

    def end(self, why: str) -> None:
        """Ends its process; the asker is told why."""
        self.problem = why
        os.kill(self.process, signal.SIGKILL)


def begin(
    request: OperationRequest,
    key: tuple[object, ...],
    answer: Callable[[], tuple[int, bytes]],
    inherited: Sequence[int],
) -> AnswerFork:
    """Begins to answer a question in a fork.

    Args:
        answer: computes status and body in the fork.
        inherited: file descriptors that the fork closes: those that tell others whether this process still runs.

    Raises:
        OSError: there are too many processes, or there is too little memory.
    """
    receiving, sending = os.pipe()
    try:
        process = os.fork()
    except OSError:
        os.close(receiving)
        os.close(sending)
        raise
    if process:
        os.close(sending)
        return AnswerFork(request, key, process, receiving)
    code = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, request.seconds)  # the signal ends the fork
        for descriptor in inherited:
            os.close(descriptor)
        os.nice(_NICER)
        status, body = answer()
        with os.fdopen(sending, "wb") as sink:
            sink.write(b"%d " % status)
            sink.write(body)
        code = 0
    finally:
        os._exit(code)  # nothing of this process's own end: what it has buffered is the parent's


def end_largest(questions: Sequence[AnswerFork], memory: int) -> None:
    """Ends the largest question where all of them and this process together use more memory than they may, in bytes."""
    sizes = {each: _resident(each.process) for each in questions if not each.problem}
    if sizes and _resident(os.getpid()) + sum(sizes.values()) > memory:
        max(sizes, key=sizes.__getitem__).end(TOO_MUCH_MEMORY)


def _resident(process: int) -> int:
    """Memory of a process in bytes; what several share counts in parts. 0 where the kernel does not say."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(_kibibytes(lines))


def _kibibytes(lines: list[str]) -> Iterator[int]:
    for line in lines:
        if line.startswith("Pss:"):
            yield 1024 * int(line.split()[1])
