"""Option types that click lacks."""

from __future__ import annotations

from typing import NamedTuple

import click


class Address(NamedTuple):
    """Address to listen on; host "": all addresses."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class AddressType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.4 alone
    """HOST:PORT; the host may be empty, or an IPv6 address in brackets."""

    name = "HOST:PORT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, Address):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            self.fail(f'"{value}" is not HOST:PORT, such as 127.0.0.1:8080', param, ctx)
        return Address(host.strip("[]"), int(port))


HOST_PORT = AddressType()
