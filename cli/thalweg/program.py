"""The group of commands of a program."""

from __future__ import annotations

import signal

import click


class Program(click.Group):
    """A group of commands. Ctrl-C ends each with exit code 130, as shells count it; click's own would be 1."""

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(128 + signal.SIGINT)
