"""Where kube-scheduler connects: an address of the extender's own, with TLS, and bounded in all that a caller can open.

A connection beyond the cap takes the place of the oldest that has not asked anything yet: connections that are opened
and then silent, or slow, keep nobody out. Where all have asked, the new one is closed.
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
from thalweg_extender.guide import Bind, Guide, OnAnswer, OnRefused
from thalweg_extender.limits import DEFAULT, Limits
from thalweg_extender.server import Requests

_BACKLOG: Final = 128
#: Seconds to wait where no connection can be accepted: no file descriptor is left.
_ACCEPT_PAUSE: Final = 1.0
#: Seconds for the rest of a body that is not read, for the end of TLS, and for answers under way at the end of all.
_LINGERING, _TLS_END, _DRAIN = 1.0, 1.0, 5.0

_log = structlog.get_logger()

_Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def listening(
    host: str,
    port: int,
    guide: Guide,
    *,
    certificates: Certificates | None = None,
    bind: Bind | None = None,
    on_answer: OnAnswer = lambda _verb, _outcome, _seconds: None,
    on_refused: OnRefused = lambda _field, _name, _problem: None,
    limits: Limits = DEFAULT,
) -> AsyncIterator[int]:
    """Serves the extender while the block runs; the port, where 0 was asked for.

    Args:
        host: an address or a name; "" is all addresses.
        certificates: None serves plain HTTP.
        bind, on_answer, on_refused: see ``Requests``.

    Raises:
        CannotListen: the address is taken, or not ours.
    """
    requests = Requests(guide, bind, limits, on_answer, on_refused)
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
    """All connections, and those of them that have not asked anything yet, the oldest first."""

    def __init__(self, handler: _Handler, limits: Limits) -> None:
        super().__init__(
            handler,
            keepalive_timeout=limits.idle,
            lingering_time=_LINGERING,
            auto_decompress=False,  # a small body could be a large one
            handler_cancellation=True,  # nothing is kept of a caller that left
            access_log=None,
        )
        self._head = limits.head
        self._silent: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._silent[handler] = asyncio.get_running_loop().call_later(self._head, self._abort, handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.asked(handler)

    def asked(self, handler: RequestHandler) -> None:
        """A whole head came, or nothing more will."""
        timer = self._silent.pop(handler, None)
        if timer is not None:
            timer.cancel()

    def end_silent(self) -> bool:
        """Ends the oldest that has not asked anything; whether there was one."""
        handler = next(iter(self._silent), None)
        if handler is not None:
            self._abort(handler)
        return handler is not None

    def _abort(self, handler: RequestHandler) -> None:
        self.asked(handler)
        if handler.transport is not None:
            handler.transport.abort()  # closing would wait for the other side


class _Listener:
    """Accepts connections and hands them over once TLS is through."""

    def __init__(
        self, answer: _Handler, certificates: Certificates | None, limits: Limits, on_refused: OnRefused
    ) -> None:
        self._answer, self._certificates, self._limits, self._on_refused = answer, certificates, limits, on_refused
        self._server = _Connections(self._handle, limits)
        #: Handshakes under way, the oldest first.
        self._opening: dict[asyncio.Task[None], None] = {}

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
            if len(self._opening) + len(self._server.connections) >= self._limits.connections:
                self._on_refused("connections", peer, f"more than {self._limits.connections} connections are open")
                if not self._make_room():
                    connection.close()
                    continue
            task = asyncio.create_task(self._open(connection, peer))
            self._opening[task] = None
            task.add_done_callback(partial(self._opening.pop))

    def _make_room(self) -> bool:
        # Handshakes first: whoever ended one has a certificate.
        oldest = next(iter(self._opening), None)
        if oldest is None:
            return self._server.end_silent()
        del self._opening[oldest]
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
        except Exception:  # noqa: BLE001 - whatever it is, the next connection is served
            connection.close()
            _log.exception("connection failed", peer=peer)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._server.asked(request.protocol)
        response = await self._answer(request)
        if self._certificates is not None and request.protocol.ssl_context is not self._certificates.context():
            response.force_close()  # it was let in by certificates that are not in use any more
        return response

    async def end(self) -> None:
        """Ends all connections, once the answers under way are given."""
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        self._server.pre_shutdown()
        await self._server.shutdown(_DRAIN)
