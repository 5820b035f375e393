"""Messages beside an answer: each is a line on standard error."""

from __future__ import annotations

import click

from thalweg.terminal.printable import printable


def tell_error(text: object) -> None:
    """What ended a command, or kept a part of it from being done."""
    _tell("Error", text)


def tell_warning(text: object) -> None:
    """What may make an answer wrong."""
    _tell("Warning", text)


def tell_note(text: object) -> None:
    """What a reader should know."""
    _tell("Note", text)


def _tell(word: str, text: object) -> None:
    click.echo(f"{word}: {printable(str(text))}", err=True)
