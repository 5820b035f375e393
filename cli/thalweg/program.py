"""The group of commands of a program, and how Ctrl-C ends them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection
from difflib import get_close_matches
from types import FrameType
from typing import Any, Final, NoReturn

import click

from thalweg.terminal.printable import guard_streams, unguarded

#: Commands that plan in their own process and only read.
PLANS: Final = frozenset((
    "audit", "demo", "explain", "headroom", "network", "plan", "replay", "simulate", "status", "view", "what-if", "why",
))  # fmt: skip
#: Of these, those that draw a screen with --watch. They must end by themselves, to leave the terminal as it was.
_DRAWN: Final = frozenset({"status"})
_CTRL_C: Final = 128 + signal.SIGINT
#: As shells count the end of a program that writes into a closed pipe: no finding has this code.
_CLOSED_PIPE: Final = 128 + signal.SIGPIPE
#: Signals that end a command.
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Show the cursor, and clear the line: what a bar may have hidden and left.
_CLEAN_LINE: Final = "\r\x1b[K\x1b[?25h"


class Program(click.Group):
    """A group of commands. Ctrl-C ends each with exit code 130, as shells count it; click's own would be 1.

    Args:
        plans: names of commands that Ctrl-C ends at once, also in the middle of a plan.
    """

    def __init__(self, *args: Any, plans: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._plans = plans

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program for a shell."""
        guard_streams()
        name, *words = sys.argv[1:] or [""]
        if name in self._plans and not (name in _DRAWN and self._watches(name, words)):
            _go_on_in_child()
        return super().__call__(*args, **kwargs)

    def _watches(self, name: str, words: list[str]) -> bool:
        """Whether a command with these arguments has --watch; whether they are right it says itself."""
        program = click.Context(self, **self.context_settings)
        with self.commands[name].make_context(name, [*words], program, resilient_parsing=True) as context:
            return bool(context.params.get("watch"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; of a name that is not there the nearest one is proposed.

        Raises:
            click.UsageError: there is none.
        """
        name = str(args[0])
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            shown = [known for known, command in self.commands.items() if not command.hidden]
            near = get_close_matches(name, shown, 1)
            ctx.fail(f"there is no command {name}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command. Where nobody reads standard output any more, as after ``head``, it ends without a word."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except KeyboardInterrupt:
            ctx.exit(_CTRL_C)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still in the buffer is written as Python ends
            ctx.exit(_CLOSED_PIPE)


def _go_on_in_child() -> None:
    """Returns in a child process. This process waits for it, and ends as it ends.

    OR-Tools holds Python's interpreter lock while it solves a flow, a minute on a large cluster. Python handles no
    signal meanwhile, so that another process must.
    """
    from thalweg_controlplane.processes import die_with_parent  # noqa: PLC0415 - help does not need it

    bind_to_parent = die_with_parent()
    # A signal that comes before the handlers are there waits for them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        bind_to_parent()
        return

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if sys.stderr.isatty():
            unguarded(sys.stderr).write(_CLEAN_LINE)
            sys.stderr.flush()
        os._exit(128 + number)

    for number in _ENDING:
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)
