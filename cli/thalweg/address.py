"""HOST:PORT as the command line takes it."""

from __future__ import annotations

import click


def address(text: str, option: str) -> tuple[str, int]:
    """Host, "" for all addresses, and port.

    Raises:
        click.BadParameter: it is no HOST:PORT; the message names the option.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise click.BadParameter(f'"{text}" is not HOST:PORT, such as 127.0.0.1:8080', param_hint=option)
    return host.strip("[]"), int(port)
