"""`thalweg` with a wall clock that jumps: SIGRTMIN an hour ahead, SIGRTMIN+1 an hour back.

Only Python's wall clock jumps: time.time and datetime.now. The monotonic clock goes on, as it does on a real machine
whose time is set. A clock of the whole machine cannot be set in a test; time namespaces do not have a wall clock.
"""

import signal
import time
from types import FrameType

import time_machine
from thalweg.main import main

#: The operator has other uses for SIGUSR1 and SIGUSR2.
AHEAD, BACK = signal.SIGRTMIN, signal.SIGRTMIN + 1
_HOUR = 3600.0


class JumpingClock:
    """Real until the first signal."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._travel: time_machine.travel | None = None

    def jump(self, number: int, _frame: FrameType | None) -> None:
        """A signal handler."""
        if self._travel is not None:
            self._travel.stop()
        self._ahead += _HOUR if number == AHEAD else -_HOUR
        self._travel = time_machine.travel(time.time() + self._ahead, tick=True)
        self._travel.start()


if __name__ == "__main__":
    clock = JumpingClock()
    for each in (AHEAD, BACK):
        signal.signal(each, clock.jump)
    main()
