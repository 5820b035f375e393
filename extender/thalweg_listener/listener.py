"""Accepts connections, with TLS or without, within limits.

At the limit a new connection replaces the oldest connection without a request, so silent or slow connections do not
block others. If all connections have had a request, the new one is closed; where a connection has one request only, it
replaces the oldest. Where the limits say so, it replaces a connection whose request has been answered.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from thalweg_listener.limits import ConnectionLimits

_BACKLOG: Final = 128
#: Seconds to wait after a failed accept, for example without a free file descriptor.
_ACCEPT_PAUSE: Final = 1.0
#: Seconds for the rest of an unread body, for the TLS shutdown, and for responses in flight at shutdown.
_LINGERING, _TLS_END, _DRAIN = 1.0, 1.0, 5.0

_log = structlog.get_logger()

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
OnRefused: TypeAlias = Callable[[str, str, str], None]
"""Called for each refused request or connection. Arguments: name of the refused part (a fixed set), client, problem."""


class CannotListen(Exception):
    """The listener cannot use the address."""


@asynccontextmanager
async def listening(
    host: str,
    port: int,
    handler: Handler,
    limits: ConnectionLimits,
    on_refused: OnRefused,
    tls: Callable[[], ssl.SSLContext] | None = None,
) -> AsyncIterator[int]:
    """Serves while the block runs; yields the port.

    Args:
        host: address or host name; "": all addresses.
        port: port; 0: any free port.
        handler: answers requests.
        tls: the TLS context for a new connection; None: plain HTTP. A connection with another context than the present
            one ends with its next response.

    Raises:
        CannotListen: the address is in use, or not an address of this machine.
    """
    listener = _Listener(handler, tls, limits, on_refused)
    try:
        sock = _bound(host, port)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error}") from error
    accepting = asyncio.create_task(listener.accept(sock), name="listener")
    try:
        yield sock.getsockname()[1]
    finally:
        accepting.cancel()
        with suppress(asyncio.CancelledError):
            await accepting
        sock.close()
        await listener.end()


def _bound(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
    )[0]
    sock = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    sock.setblocking(False)
    return sock


class _Connections(web.Server):
    """All connections, and those without a request yet, the oldest first."""

    def __init__(self, handler: Handler, limits: ConnectionLimits, on_refused: OnRefused) -> None:
        super().__init__(
            handler,
            keepalive_timeout=limits.idle,
            lingering_time=_LINGERING,
            auto_decompress=False,  # a small body could decompress to a large one
            handler_cancellation=True,  # a client that disconnects leaves no state
            access_log=None,
        )
        self._limits, self._on_refused = limits, on_refused
        self._without_request: dict[RequestHandler, asyncio.TimerHandle] = {}
        #: Those that were answered and have not asked again, the oldest first.
        self._answered: dict[RequestHandler, None] = {}

    def __call__(self) -> RequestHandler:
        """The handler of a new connection."""
        return _Connection(self, self._loop, self._on_refused, self._kwargs)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._without_request[handler] = asyncio.get_running_loop().call_later(self._limits.head, self._expire, handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.request_received(handler)

    def request_received(self, handler: RequestHandler) -> None:
        """The connection has received the head of a request, or is closed."""
        self._answered.pop(handler, None)
        timer = self._without_request.pop(handler, None)
        if timer is not None:
            timer.cancel()

    def request_answered(self, handler: RequestHandler) -> None:
        """The answer to the connection's request is known; it may still be under way."""
        if handler in self.connections:
            self._answered[handler] = None

    def abort_oldest(self) -> bool:
        """Aborts the oldest connection that may be replaced; returns whether there was one."""
        handler = next(iter(self._without_request), None)
        if handler is None and self._limits.replaces_idle:
            handler = next(iter(self._answered), None)
        if handler is None and not self._limits.idle:
            handler = next(iter(self.connections), None)
        if handler is not None:
            self._abort(handler)
        return handler is not None

    def _expire(self, handler: RequestHandler) -> None:
        peer = handler.transport.get_extra_info("peername") if handler.transport is not None else None
        problem = f"the head of the first request did not arrive within {self._limits.head:g} s"
        self._on_refused("head time", str(peer[0]) if peer else "", problem)
        self._abort(handler)

    def _abort(self, handler: RequestHandler) -> None:
        self.request_received(handler)
        if handler.transport is not None:
            handler.transport.abort()  # closing would wait for the other side


class _Connection(RequestHandler):
    """Refuses what is no HTTP in a few words. aiohttp would log a traceback for each."""

    def __init__(
        self, server: _Connections, loop: asyncio.AbstractEventLoop, on_refused: OnRefused, options: dict[str, Any]
    ) -> None:
        super().__init__(server, loop=loop, **options)
        self._on_refused = on_refused

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500 or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        problem = (message or type(exc).__name__).splitlines()[0]
        self._on_refused("HTTP", request.remote or "", problem)
        response = web.Response(status=status, text=f"{problem}\n")
        response.force_close()
        return response


class _Listener:
    """Accepts connections, and passes them to the server after the TLS handshake."""

    def __init__(
        self,
        handler: Handler,
        tls: Callable[[], ssl.SSLContext] | None,
        limits: ConnectionLimits,
        on_refused: OnRefused,
    ) -> None:
        self._handler, self._tls, self._limits, self._on_refused = handler, tls, limits, on_refused
        self._server = _Connections(self._handle, limits, on_refused)
        #: Handshakes in progress, the oldest first.
        self._handshakes: dict[asyncio.Task[None], None] = {}

    async def accept(self, sock: socket.socket) -> None:
        """Accepts until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(sock)
            except OSError as error:
                self._on_refused("connection", "", f"it cannot be accepted: {error}")
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            peer = str(address[0])
            if len(self._handshakes) + len(self._server.connections) >= self._limits.connections:
                self._on_refused("connections", peer, f"more than {self._limits.connections} connections are open")
                if not self._drop_oldest():
                    connection.close()
                    continue
            task = asyncio.create_task(self._open(connection, peer))
            self._handshakes[task] = None
            task.add_done_callback(partial(self._handshakes.pop))

    def _drop_oldest(self) -> bool:
        # Handshakes first: a client that completed one has a certificate.
        oldest = next(iter(self._handshakes), None)
        if oldest is None:
            return self._server.abort_oldest()
        del self._handshakes[oldest]
        oldest.cancel()
        return True

    async def _open(self, connection: socket.socket, peer: str) -> None:
        context = None if self._tls is None else self._tls()
        seconds = {} if context is None else {"ssl_handshake_timeout": self._limits.handshake}
        if context is not None:
            seconds["ssl_shutdown_timeout"] = _TLS_END
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._server, connection, ssl=context, **seconds)
        except asyncio.CancelledError:
            connection.close()
            raise
        except (OSError, ssl.SSLError) as error:
            connection.close()
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            self._on_refused("TLS handshake", peer, f"it failed: {reason}")
        except Exception:  # noqa: BLE001 - one bad connection must not stop the listener
            connection.close()
            _log.exception("connection failed", peer=peer)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._server.request_received(request.protocol)
        response = await self._handler(request)
        self._server.request_answered(request.protocol)
        if not self._limits.idle:
            response.force_close()
        if self._tls is not None and request.protocol.ssl_context is not self._tls():
            response.force_close()  # its certificates are no longer in use
        return response

    async def end(self) -> None:
        """Closes all connections after the responses in flight are sent."""
        for task in list(self._handshakes):
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
        self._server.pre_shutdown()
        await self._server.shutdown(_DRAIN)
