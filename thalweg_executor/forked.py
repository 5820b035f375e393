"""Tasks in child processes, which are forked when there is work for them and so have the problem without a copy.

Parent and children share memory until one of them writes (copy on write). So a round of a large cluster gets children
in milliseconds, and only tasks and results are sent. A child has one task at a time. Rounds that take as long as a few
forks get no children. What a lost child did not answer is run in this process: the results are the same.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Final, Generic, Self

from flowcore.planning.solvers.executor import Result, Task, Tasks
from thalweg_executor.data_limit import share_data_limit

_PR_SET_PDEATHSIG: Final = 1
#: Two forks take four to ten milliseconds, of a process with all libraries.
_WORTHWHILE: Final = 0.05


class ForkedExecutor:
    """Runs tasks in child processes. As a context it ends all that are left.

    Attributes:
        forked: how many children were started so far.
    """

    def __init__(self, cores: int, worthwhile: float = _WORTHWHILE) -> None:
        """Begins without children.

        Args:
            cores: at most so many children at a time; with one core none.
            worthwhile: CPU seconds that this process must have worked, since this was made, before it forks.
        """
        self._cores, self.forked = cores, 0
        self._worthwhile_at = time.process_time() + worthwhile
        self._started: list[_ForkedTasks[Any, Any]] = []
        self._collects_garbage = gc.isenabled()

    def start(self, run: Callable[[Task], Result]) -> Tasks[Task, Result]:
        """See Executor."""
        tasks = _ForkedTasks(run, self)
        self._started.append(tasks)
        return tasks

    def fork(self, run: Callable[[Task], Result], tasks: int) -> list[_Child[Task, Result]]:
        """Children for so many tasks; none for one, and fewer where others run or no more can be started."""
        if time.process_time() < self._worthwhile_at:
            return []
        count = min(self._cores - sum(each.children for each in self._started), tasks)
        children: list[_Child[Task, Result]] = []
        if count > 1:
            gc.disable()  # a collection would write to every page, and so copy it
            with suppress(OSError):  # no memory, or too many processes
                while len(children) < count:
                    children.append(_Child(run, count))
        self.forked += len(children)
        return children

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for tasks in self._started:
            tasks.end_children()
        self._started.clear()
        if self._collects_garbage:
            gc.enable()


@dataclass(slots=True)
class _Entry(Generic[Task, Result]):
    """A task on its way: ``given`` to a child; ``lost`` with its child; with its result in a tuple."""

    task: Task
    given: bool = False
    lost: bool = False
    result: tuple[Result] | None = None


class _ForkedTasks(Generic[Task, Result]):
    def __init__(self, run: Callable[[Task], Result], executor: ForkedExecutor) -> None:
        self._run, self._executor = run, executor
        self._entries: deque[_Entry[Task, Result]] = deque()
        #: None: not forked yet.
        self._children: list[_Child[Task, Result]] | None = None

    @property
    def children(self) -> int:
        """How many children run its tasks."""
        return len(self._children or ())

    def put(self, task: Task) -> None:
        self._entries.append(_Entry(task))
        self._give()

    def take(self) -> Result:
        if self._children is None:
            self._children = self._executor.fork(self._run, len(self._entries)) or None
            self._give()
        entry = self._entries[0]
        while entry.result is None and not entry.lost and self._children:
            self._receive(self._children)
        self._entries.popleft()
        return self._run(entry.task) if entry.result is None else entry.result[0]

    def close(self) -> None:
        self._entries.clear()
        self.end_children()

    def end_children(self) -> None:
        """Ends the children; what they have not answered is lost."""
        for child in self._children or ():
            child.end()
        self._children = []

    def _give(self) -> None:
        """Gives the oldest tasks to children that have none."""
        idle = [child for child in self._children or () if child.entry is None]
        waiting = (entry for entry in self._entries if not entry.given)
        for child, entry in zip(idle, waiting, strict=False):
            child.give(entry)

    def _receive(self, children: list[_Child[Task, Result]]) -> None:
        """Waits for results, and gives further tasks."""
        busy = {child.connection: child for child in children if child.entry is not None}
        for connection in wait(list(busy)):
            child = busy[connection]  # type: ignore[index]  # wait returns what it was given
            if not child.receive():
                child.end()
                children.remove(child)
        self._give()


class _Child(Generic[Task, Result]):
    def __init__(self, run: Callable[[Task], Result], siblings: int) -> None:
        fork = multiprocessing.get_context("fork")
        self.connection, theirs = fork.Pipe()
        self.entry: _Entry[Task, Result] | None = None
        self._process = fork.Process(target=_serve, args=(theirs, run, siblings, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, entry: _Entry[Task, Result]) -> None:
        """Sends a task. If the child is gone, that shows when its result is received."""
        self.entry, entry.given = entry, True
        with suppress(OSError):
            self.connection.send(entry.task)

    def receive(self) -> bool:
        """Takes over a result; False if the child is gone."""
        entry, self.entry = self.entry, None
        assert entry is not None  # noqa: S101 - only children with a task are waited for
        try:
            entry.result = (self.connection.recv(),)
        except (EOFError, OSError):
            entry.lost = True
        return not entry.lost

    def end(self) -> None:
        if self.entry is not None:
            self.entry.lost = True
        self._process.kill()
        self._process.join()
        self.connection.close()


def _serve(
    connection: Connection[Any, Any], run: Callable[[Task], Result], siblings: int, parent: int
) -> None:  # pragma: no cover - in the child
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    share_data_limit(siblings)
    # If a task fails, it fails again in the parent, which says how.
    with suppress(Exception):
        while True:
            connection.send(run(connection.recv()))
