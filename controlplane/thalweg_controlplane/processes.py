"""Child processes with a log. They stop cleanly and never outlive their parent."""

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

# Loaded here, not in the child: little code may run between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn` that makes the kernel kill the child when this process ends for any reason (Linux only).

    The kernel watches the *thread* that starts the child, so start children from a thread that does not end.
    """
    parent = os.getpid()

    def before_exec() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the parent ended before prctl
                os._exit(1)

    return before_exec


class Child:
    """The process of a component. It can be started again after its end and appends to the same log file."""

    def __init__(self, name: str, argv: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self.log = log
        self._argv = [str(word) for word in argv]
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<Child {self.name} pid={self.pid}>"

    @property
    def pid(self) -> int | None:
        """Process id; None while the process does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Starts the process unless it runs. It may fail later: see `check`."""
        if self.pid is not None:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own argument list, no shell
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own process group: Ctrl-C reaches only the parent, which stops its children in order.
                process_group=0,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl
            )

    def check(self) -> None:
        """Raises ComponentFailed when the process has exited."""
        if self._process is not None and self._process.poll() is not None:
            raise ComponentFailed(self.name, self._process.returncode, self.tail())

    async def stop(self, grace: float = 10.0) -> int | None:
        """Sends SIGTERM, and SIGKILL after `grace` seconds; returns the exit code (None: it never ran).

        When this returns, the process has exited and its ports are free.
        """
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while self.pid is not None and time.monotonic() < deadline:  # noqa: ASYNC110 - a process has no event that every loop understands
            await asyncio.sleep(_POLL_SECONDS)
        return self.kill()

    def kill(self) -> int | None:
        """Sends SIGKILL and waits for the exit; returns the exit code (None: it never ran)."""
        self._signal(signal.SIGKILL)
        process, self._process = self._process, None
        return process.wait() if process else None

    def tail(self) -> str:
        """The last 20 lines of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        # Popen reaps in poll(), so the pid of a live process cannot belong to another process.
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


async def until_ready(child: Child, ready: Callable[[], Awaitable[bool]], within: float) -> None:
    """Polls `ready`; raises ComponentFailed when the child exits first, or after `within` seconds."""
    deadline = time.monotonic() + within
    while not await ready():
        child.check()
        if time.monotonic() > deadline:
            raise ComponentFailed(child.name, None, child.tail())
        await asyncio.sleep(_POLL_SECONDS)
