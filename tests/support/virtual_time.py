"""An event loop whose clock jumps to the next timer: hours of back-off take milliseconds. For code without sockets."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: _Loop) -> None:
        super().__init__()
        self._jumping = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "every task waits for another one"
            self._jumping.jump(max(timeout, 0.0))
        return ready


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end in such a loop."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)
