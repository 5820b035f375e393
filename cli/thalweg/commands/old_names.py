"""Commands under the names that they had. They work for one release, say the new name, and no help lists them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import click

from thalweg.commands.plan import plan
from thalweg.commands.status import status
from thalweg.commands.why import why


def _old_name(name: str, command: click.Command, now: str, run: Callable[..., None]) -> click.Command:
    """A command under an old name.

    Args:
        command: it as it is called now; the options are the same.
        now: how it is called now to do the same.
        run: does it.
    """

    def told(**arguments: Any) -> None:
        click.echo(f"Note: thalweg {name} is now thalweg {now}. The old name goes with the next release.", err=True)
        run(**arguments)

    return click.Command(name, params=command.params, callback=told, help=command.help, hidden=True)


def _simulate(**arguments: Any) -> None:
    """It asked no operator, and had the pods of all namespaces."""
    arguments |= {"direct": not arguments["files"], "all_namespaces": True}
    click.get_current_context().invoke(plan, **arguments)


def _explain(**arguments: Any) -> None:
    click.get_current_context().invoke(why, **{**arguments, "nodes": True})


def _top(**arguments: Any) -> None:
    """It printed once where there was no terminal, and for a dump."""
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    click.get_current_context().invoke(status, **{**arguments, "watch": on_terminal and not arguments["files"]})


OLD_TOP: Final = _old_name("top", status, "status --watch", _top)
OLD_NAMES: Final = (
    _old_name("simulate", plan, "plan", _simulate),
    _old_name("explain", why, "why --nodes", _explain),
    OLD_TOP,
)
