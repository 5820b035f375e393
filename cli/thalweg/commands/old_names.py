"""Commands under the names that they had. They work for one release, say the new name, and no help lists them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any, Final

import click

from thalweg import options
from thalweg.commands.plan import plan
from thalweg.commands.status import status
from thalweg.commands.why import why
from thalweg.terminal.telling import tell_note


class _OldName(click.Command):
    """A command under an old name. Its help and its errors are those of the command that it is now."""

    def __init__(
        self, name: str, command: click.Command, now: str, run: Callable[..., None], without: Collection[str] = ()
    ) -> None:
        """A command.

        Args:
            command: it as it is called now; the options are the same.
            now: how it is called now to do the same.
            run: does it.
            without: names of options that it does not have.
        """
        self._now_named, self._told = str(command.name), f"thalweg {name} is now thalweg {now}."
        params = [each for each in command.params if each.name not in without]
        text = f"{self._told} The old name goes with the next release.\n\n{command.help}"
        super().__init__(name, params=params, callback=run, help=text, hidden=True)

    def make_context(
        self,
        info_name: str | None,  # noqa: ARG002 - errors and help have the new name
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Reads the arguments."""
        if not extra.get("resilient_parsing"):
            tell_note(f"{self._told} The old name goes with the next release.")
        return super().make_context(self._now_named, args, parent, **extra)


def _simulate(**arguments: Any) -> None:
    """It asked no operator, and had the pods of all namespaces."""
    everywhere = arguments["all_namespaces"] or not arguments["namespace"]
    _run(plan, {**arguments, "direct": not arguments["files"], "all_namespaces": everywhere})


def _explain(**arguments: Any) -> None:
    _run(why, {**arguments, "nodes": True})


def _top(**arguments: Any) -> None:
    """It printed once where there was no terminal, for a dump, and as JSON."""
    drawn = arguments["output"] == "table" and sys.stdin.isatty() and sys.stdout.isatty() and not arguments["files"]
    _run(status, {**arguments, "watch": drawn})


def _run(command: click.Command, arguments: dict[str, Any]) -> None:
    """Runs a command with these values of its options."""
    assert command.callback is not None  # noqa: S101 - each has one
    command.callback(**arguments)


OLD_TOP: Final = _OldName("top", status, "status --watch", _top)
OLD_NAMES: Final = (
    _OldName("simulate", plan, "plan", _simulate, without=options.OF_OPERATOR),
    _OldName("explain", why, "why --nodes", _explain, without=(*options.OF_OPERATOR, "nodes")),
    OLD_TOP,
)
