"""Child processes that write a log, end cleanly, and never outlive us."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from thalweg_controlplane.errors import ComponentFailed

_TAIL_LINES: Final = 20
_POLL_SECONDS: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1

# Loaded here and not in the child: between fork and exec as little as possible may run.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn` after which the kernel kills the child when we die, however that happens (Linux only).

    The kernel watches the *thread* that starts the child: start children from a thread that stays.
    """
    parent = os.getpid()

    def before_exec() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before we asked
                os._exit(1)

    return before_exec


class Child:
    """One component's process. It can be started again after it has ended; its log then goes on in the same file."""

    def __init__(self, name: str, argv: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self.log = log
        self._argv = [str(word) for word in argv]
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<Child {self.name} pid={self.pid}>"

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Starts it; does nothing when it runs already. It may fail later: see `check`."""
        if self.pid is not None:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own argument list, no shell
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own group: Ctrl-C in the terminal reaches only us, and we stop our children in order.
                process_group=0,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl
            )

    def check(self) -> None:
        """Raises ComponentFailed when it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise ComponentFailed(self.name, self._process.returncode, self.tail())

    async def stop(self, grace: float = 10.0) -> int | None:
        """SIGTERM, and SIGKILL after `grace` seconds; returns the exit code (None: it never ran).

        Once this returns the process is gone and its ports are free.
        """
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while self.pid is not None and time.monotonic() < deadline:  # noqa: ASYNC110 - a process has no event that every loop understands
            await asyncio.sleep(_POLL_SECONDS)
        return self.kill()

    def kill(self) -> int | None:
        """SIGKILL, and waits until it is gone; returns the exit code (None: it never ran)."""
        self._signal(signal.SIGKILL)
        process, self._process = self._process, None
        return process.wait() if process else None

    def tail(self) -> str:
        """The last 20 lines of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        # Popen reaps inside poll(), so a pid that we see alive here cannot have been given to another process.
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


async def until_ready(child: Child, ready: Callable[[], Awaitable[bool]], within: float) -> None:
    """Polls `ready`; raises ComponentFailed when the child ends first, or after `within` seconds."""
    deadline = time.monotonic() + within
    while not await ready():
        child.check()
        if time.monotonic() > deadline:
            raise ComponentFailed(child.name, None, child.tail())
        await asyncio.sleep(_POLL_SECONDS)
