"""Where the tasks of a method run: one after the other, or on several cores. The results are the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
Task_contra = TypeVar("Task_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


class Tasks(Protocol[Task_contra, Result_co]):
    """The tasks of one method, first in, first out."""

    def put(self, task: Task_contra) -> None:
        """Adds a task. It may begin at once."""

    def take(self) -> Result_co:
        """The result of the oldest task; removes the task.

        Raises:
            IndexError: there is none.
        """

    def close(self) -> None:
        """Drops all tasks."""


class Executor(Protocol):
    """Runs tasks. Tasks and results are values that can be pickled; they are small."""

    def start(self, run: Callable[[Task], Result]) -> Tasks[Task, Result]:
        """Place for the tasks of a function.

        Args:
            run: maps a task to its result, whatever ran before. It may read what exists now, such as a problem, and
                does not see later changes of that.
        """


class InTurn:
    """Runs each task when its result is taken, in this process."""

    def start(self, run: Callable[[Task], Result]) -> Tasks[Task, Result]:
        """See Executor."""
        return _TasksInTurn(run)


class _TasksInTurn(Generic[Task, Result]):
    def __init__(self, run: Callable[[Task], Result]) -> None:
        self._run = run
        self._tasks: deque[Task] = deque()

    def put(self, task: Task) -> None:
        self._tasks.append(task)

    def take(self) -> Result:
        return self._run(self._tasks.popleft())

    def close(self) -> None:
        self._tasks.clear()


IN_TURN = InTurn()
