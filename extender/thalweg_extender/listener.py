"""The listener for kube-scheduler: accepts TLS connections, within limits.

At the limit a new connection replaces the oldest connection without a request, so silent or slow connections do not
block others. If all connections have had a request, the new one is closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from thalweg_extender.certificates import Certificates
from thalweg_extender.errors import CannotListen
from thalweg_extender.limits import DEFAULT_LIMITS, Limits
from thalweg_extender.plan_view import Bind, OnAnswer, OnRefused, PlanView
from thalweg_extender.server import VerbDispatcher

_BACKLOG: Final = 128
#: Seconds to wait after a failed accept, for example without a free file descriptor.
_ACCEPT_PAUSE: Final = 1.0
#: Seconds for the rest of an unread body, for the TLS shutdown, and for responses in flight at shutdown.
_LINGERING, _TLS_END, _DRAIN = 1.0, 1.0, 5.0

_log = structlog.get_logger()

_Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def listening(
    host: str,
    port: int,
    plan_view: PlanView,
    *,
    certificates: Certificates | None = None,
    bind: Bind | None = None,
    on_answer: OnAnswer = lambda _verb, _outcome, _seconds: None,
    on_refused: OnRefused = lambda _field, _name, _problem: None,
    limits: Limits = DEFAULT_LIMITS,
) -> AsyncIterator[int]:
    """Serves the extender while the block runs; yields the port.

    Args:
        host: address or host name; "": all addresses.
        port: port; 0: any free port.
        plan_view: gives advice about pods.
        certificates: None: plain HTTP.
        bind, on_answer, on_refused: see ``VerbDispatcher``.
        limits: limits of the listener.

    Raises:
        CannotListen: the address is in use, or not an address of this machine.
    """
    requests = VerbDispatcher(plan_view, bind, limits, on_answer, on_refused)
    listener = _Listener(requests.answer, certificates, limits, on_refused)
    try:
        sock = _bound(host, port)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port} for kube-scheduler: {error}") from error
    accepting = asyncio.create_task(listener.accept(sock), name="extender")
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

    def __init__(self, handler: _Handler, limits: Limits) -> None:
        super().__init__(
            handler,
            keepalive_timeout=limits.idle,
            lingering_time=_LINGERING,
            auto_decompress=False,  # a small body could decompress to a large one
            handler_cancellation=True,  # a client that disconnects leaves no state
            access_log=None,
        )
        self._head = limits.head
        self._without_request: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._without_request[handler] = asyncio.get_running_loop().call_later(self._head, self._abort, handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.request_received(handler)

    def request_received(self, handler: RequestHandler) -> None:
        """The connection has received the head of a request, or is closed."""
        timer = self._without_request.pop(handler, None)
        if timer is not None:
            timer.cancel()

    def abort_silent(self) -> bool:
        """Aborts the oldest connection without a request; returns whether there was one."""
        handler = next(iter(self._without_request), None)
        if handler is not None:
            self._abort(handler)
        return handler is not None

    def _abort(self, handler: RequestHandler) -> None:
        self.request_received(handler)
        if handler.transport is not None:
            handler.transport.abort()  # closing would wait for the other side


class _Listener:
    """Accepts connections, and passes them to the server after the TLS handshake."""

    def __init__(
        self, answer: _Handler, certificates: Certificates | None, limits: Limits, on_refused: OnRefused
    ) -> None:
        self._answer, self._certificates, self._limits, self._on_refused = answer, certificates, limits, on_refused
        self._server = _Connections(self._handle, limits)
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
            return self._server.abort_silent()
        del self._handshakes[oldest]
        oldest.cancel()
        return True

    async def _open(self, connection: socket.socket, peer: str) -> None:
        context = None if self._certificates is None else self._certificates.context()
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
        response = await self._answer(request)
        if self._certificates is not None and request.protocol.ssl_context is not self._certificates.context():
            response.force_close()  # its certificates are no longer in use
        return response

    async def end(self) -> None:
        """Closes all connections after the responses in flight are sent."""
        for task in list(self._handshakes):
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
        self._server.pre_shutdown()
        await self._server.shutdown(_DRAIN)
