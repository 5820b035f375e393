"""A TCP proxy that can stop forwarding without closing anything, as a lost path or a dead load balancer does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Proxy:
    """Forwards to one port.

    Attributes:
        connections: how many were ever made.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.connections = 0

    def freeze(self) -> None:
        """What is open stays open, and nothing comes through any more. New connections are served."""
        self._flowing.clear()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        flowing = self._flowing
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            with suppress(ConnectionError):
                await asyncio.gather(_pump(reader, other_writer, flowing), _pump(other_reader, writer, flowing))
        finally:
            writer.close()
            other_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event) -> None:
    while data := await reader.read(65536):
        await flowing.wait()
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def proxying(port: int) -> AsyncIterator[tuple[Proxy, int]]:
    """A proxy to a port of this machine, and its own port."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
