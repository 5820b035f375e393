"""Warnings of a command."""

from __future__ import annotations

from collections.abc import Iterable

import click


def warn(sentences: Iterable[str]) -> None:
    """Prints each sentence on standard error, once in a run of a command."""
    context = click.get_current_context(silent=True)
    said: set[str] = set() if context is None else context.meta.setdefault(__name__, set())
    for sentence in sentences:
        if sentence not in said:
            said.add(sentence)
            click.echo(f"Warning: {sentence}", err=True)
