"""Options that take lists, as click's callbacks."""

from __future__ import annotations

from collections.abc import Callable

import click


def numbers(_context: click.Context, _parameter: click.Parameter, text: str) -> list[int]:
    """Numbers above zero, with commas between them."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise click.BadParameter(f'"{text}" is not a list of numbers such as 1000,5000')
    return found


def words(allowed: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Words of these, with commas between them."""

    def check(_context: click.Context, _parameter: click.Parameter, text: str) -> list[str]:
        found = text.split(",")
        for word in found:
            if word not in allowed:
                raise click.BadParameter(f'"{word}" is none of {", ".join(allowed)}')
        return found

    return check
