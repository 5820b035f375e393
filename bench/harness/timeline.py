"""When the steps of a round would end on so many cores: from one round on one core, whose tasks and steps are timed.

Tasks take as long on another core as on this one, and the rest of the round waits for the results that it needs. The
order of tasks and results does not depend on the number of cores, so one round says it for all.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.planning.round import Round
from flowcore.planning.solvers import Tasks

#: CPU seconds of a fork of a process with all libraries, in the parent, and after which a round forks
#: (thalweg_executor/forked.py).
FORK, WORTHWHILE = 0.004, 0.05


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened in the round.

    Attributes:
        tasks: which tasks: those of one start of the executor.
        seconds: CPU time of the round itself since the event before, without tasks; of a ``take`` also the task's.
    """

    kind: Literal["put", "take", "close", "step"]
    seconds: float
    tasks: int = 0
    task_seconds: float = 0.0


@dataclass(slots=True)
class Recorder:
    """An executor that runs tasks in turn and notes when."""

    events: list[Event] = field(default_factory=list)
    started: int = 0
    last: float = field(default_factory=time.process_time)

    def start(self, run: Callable[[Any], Any]) -> Tasks[Any, Any]:
        """See Executor."""
        self.started += 1
        return _Recorded(self, run, self.started)

    def note(self, kind: Literal["put", "take", "close", "step"], tasks: int = 0, task_seconds: float = 0.0) -> None:
        """Adds an event that happens now."""
        now = time.process_time()
        self.events.append(Event(kind, now - self.last - task_seconds, tasks, task_seconds))
        self.last = now


class _Recorded:
    def __init__(self, recorder: Recorder, run: Callable[[Any], Any], number: int) -> None:
        self._recorder, self._run, self._number = recorder, run, number
        self._tasks: deque[Any] = deque()

    def put(self, task: Any) -> None:
        self._tasks.append(task)
        self._recorder.note("put", self._number)

    def take(self) -> Any:
        began = time.process_time()
        result = self._run(self._tasks.popleft())
        self._recorder.note("take", self._number, time.process_time() - began)
        return result

    def close(self) -> None:
        self._recorder.note("close", self._number)


def record(snapshot: Snapshot, seconds: float) -> list[Event]:
    """The events of a round of so many CPU seconds."""
    recorder = Recorder()
    this, until = Round(snapshot, executor=recorder), time.process_time() + seconds
    while this.step():
        recorder.note("step")
        if time.process_time() >= until:
            break
    return recorder.events


def step_ends(events: list[Event], cores: int) -> list[float]:
    """Seconds from the beginning after which each step ends on so many cores."""
    durations: dict[int, deque[float]] = {}
    for event in events:
        if event.kind == "take":
            durations.setdefault(event.tasks, deque()).append(event.task_seconds)
    now, ends = 0.0, list[float]()
    idle: dict[int, list[float]] = {}  # when each child has no task any more
    waiting: dict[int, deque[float]] = {}
    finished: dict[int, deque[float]] = {}

    def give(tasks: int, moment: float) -> None:
        seconds = waiting[tasks].popleft()
        begin = max(moment, heapq.heappop(idle[tasks]))
        heapq.heappush(idle[tasks], begin + seconds)
        finished.setdefault(tasks, deque()).append(begin + seconds)

    for event in events:
        now += event.seconds
        if event.kind == "step":
            ends.append(now)
        elif event.kind == "put" and cores > 1 and durations.get(event.tasks):
            waiting.setdefault(event.tasks, deque()).append(durations[event.tasks].popleft())
            if event.tasks in idle:
                give(event.tasks, now)
        elif event.kind == "take" and cores == 1:
            now += event.task_seconds
        elif event.kind == "take" and event.tasks in idle:
            now = max(now, finished[event.tasks].popleft())
        elif event.kind == "take":
            children = min(cores, len(waiting[event.tasks])) if now >= WORTHWHILE else 0
            if children < 2:
                now += waiting[event.tasks].popleft()
                continue
            now += FORK * children
            idle[event.tasks] = [now] * children
            while waiting[event.tasks]:
                give(event.tasks, now)
            now = max(now, finished[event.tasks].popleft())
    return ends
