"""Accepts connections, with TLS or without, within limits.

A connection costs a socket and no more until its first byte comes. At the limit a new connection replaces one without a
request, and silent ones first, so silent or slow connections do not block others. If all connections have had a
request, the new one is closed; where a connection has one request only, it replaces the oldest. Where the limits say
so, it replaces a connection whose request has been answered. Each address has a share of its own of silent connections
and of new ones.
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

from thalweg_listener.at_once import AnswerMade, AtOnce, begun, response
from thalweg_listener.connection_limits import ConnectionLimits
from thalweg_listener.setups import Rates, Setup, Setups, SetupStage

_BACKLOG: Final = 128
#: Seconds to wait after a failed accept, for example without a free file descriptor.
_ACCEPT_PAUSE: Final = 1.0
#: Seconds for the rest of an unread body, for the TLS shutdown, and for responses in flight at shutdown.
_LINGERING, _TLS_END, _DRAIN = 1.0, 1.0, 5.0
#: Seconds until a request that is to be answered at once is aiohttp's, if it is not complete or waits for something.
_REST: Final = 0.01
#: More bytes than any request has.
_UNKNOWN: Final = 2**62
#: Seconds; connections without a request are closed here, whoever answered the last one.
_NEVER: Final = 365 * 86400.0
#: This machine, or this pod, alone: for `kubectl port-forward`, and for a view of one's own files.
_OWN: Final = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})

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
    at_once: AtOnce | None = None,
) -> AsyncIterator[int]:
    """Serves while the block runs; yields the port.

    Args:
        host: address or host name; "": all addresses.
        port: port; 0: any free port.
        handler: answers requests.
        tls: the TLS context for a new connection; None: plain HTTP. A connection with another context than the present
            one ends with its next response.
        at_once: answers requests that wait for nothing, before ``handler``.

    Raises:
        CannotListen: the address is in use, or not an address of this machine.
    """
    listener = _Listener(handler, tls, limits, on_refused, at_once)
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
    """All connections that aiohttp serves."""

    def __init__(
        self,
        handler: Handler,
        limits: ConnectionLimits,
        on_refused: OnRefused,
        setups: Setups,
        at_once: AtOnce | None,
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        super().__init__(
            handler,
            keepalive_timeout=_NEVER,
            lingering_time=_LINGERING,
            auto_decompress=False,  # a small body could decompress to a large one
            handler_cancellation=True,  # a client that disconnects leaves no state
            access_log=None,
        )
        self._limits, self._on_refused, self._setups, self._tls = limits, on_refused, setups, tls
        #: What answers before aiohttp; None where each connection has one request only.
        self.at_once = at_once if limits.idle else None
        #: Those that were answered and have not asked again, and when that was, the oldest first.
        self._answered: dict[RequestHandler, float] = {}
        self._idle_timer: asyncio.TimerHandle | None = None

    def handler_of(self, setup: Setup) -> RequestHandler:
        """The handler of a new connection."""
        return _Connection(self, self._loop, self._on_refused, self._kwargs, setup)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        setup = _setup_of(handler)
        if setup.ended:
            transport.abort()
            return
        setup.end = transport.abort  # closing would wait for the other side
        timer = asyncio.get_running_loop().call_later(self._limits.head, self._expire, setup)
        self._setups.put(setup, SetupStage.HEAD, timer)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.request_received(handler)

    def uses_old_certificates(self, handler: RequestHandler) -> bool:
        """Whether a connection was made with certificates that are no longer in use."""
        return self._tls is not None and handler.ssl_context is not self._tls()

    def request_received(self, handler: RequestHandler) -> None:
        """The connection has received the head of a request, or is closed."""
        self._answered.pop(handler, None)
        self._setups.remove(_setup_of(handler))

    def request_answered(self, handler: RequestHandler) -> None:
        """The answer to the connection's request is known; it may still be under way."""
        if handler in self.connections:
            self._answered[handler] = self._loop.time()
            self._close_idle()

    def _close_idle(self) -> None:
        """Closes connections that have not asked for too long, and looks again when the next one may be."""
        if self._idle_timer is not None and self._idle_timer.when() > self._loop.time():
            return
        self._idle_timer = None
        for handler, answered in list(self._answered.items()):
            if not self._limits.idle:
                return  # it ends with its response
            if (until := answered + self._limits.idle) > self._loop.time():
                self._idle_timer = self._loop.call_at(until, self._close_idle)
                return
            self.request_received(handler)
            handler.force_close()
            if handler.transport is not None:
                handler.transport.close()

    def abort_oldest(self) -> bool:
        """Aborts the oldest connection that has had a request and may be replaced; returns whether there was one."""
        handler = next(iter(self._answered), None) if self._limits.replaces_idle else None
        if handler is None and not self._limits.idle:
            handler = next(iter(self.connections), None)
        if handler is None:
            return False
        self.request_received(handler)
        if handler.transport is not None:
            handler.transport.abort()
        return True

    def _expire(self, setup: Setup) -> None:
        self._on_refused("head time", setup.source, _late_head(self._limits))
        self._setups.remove(setup)
        setup.end()


def _setup_of(handler: RequestHandler) -> Setup:
    assert isinstance(handler, _Connection)  # noqa: S101 - there are no others
    return handler.setup


def _late_head(limits: ConnectionLimits) -> str:
    return f"the head of the first request did not arrive within {limits.head:g} s"


class _Connection(RequestHandler):
    """Answers what it can at once, and refuses what is no HTTP in a few words.

    aiohttp would log a traceback for each of the latter.
    """

    __slots__ = ("_at_once", "_connections", "_kept", "_missing", "_on_refused", "_timer", "_until", "_waits", "setup")

    def __init__(
        self,
        server: _Connections,
        loop: asyncio.AbstractEventLoop,
        on_refused: OnRefused,
        options: dict[str, Any],
        setup: Setup,
    ) -> None:
        super().__init__(server, loop=loop, **options)
        self._on_refused, self.setup = on_refused, setup
        self._connections, self._at_once = server, server.at_once
        #: Whether aiohttp has nothing of a request, and how many bytes of what it has are still to come, if that is
        #: known; after that the next request begins.
        self._waits, self._missing = True, _UNKNOWN
        #: A request of which the rest is to come, or that is tried again when a future ends; how long that may take.
        self._kept = b""
        self._timer: asyncio.TimerHandle | None = None
        self._until: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        if self._at_once is None or not self._waits or not data:
            self._missing -= len(data)
            super().data_received(data)
            return
        self._kept += data
        if self._until is not None:
            self._missing -= len(data)
            self._give_to_aiohttp()  # it asks again before it is answered, or says more than it announced
        else:
            self._try()
        if self._kept and self._timer is None:
            self._timer = self._loop.call_later(_REST, self._give_to_aiohttp)

    def _try(self) -> None:
        """Answers what is kept if that is possible at once, gives it to aiohttp, or waits a moment for the rest."""
        assert self._at_once is not None  # noqa: S101 - else nothing is kept
        request = begun(self._kept)
        self._missing = _UNKNOWN if request is None else request.missing
        if request is not None:
            self._connections.request_received(self)
        if (
            request is None
            or self.transport is None
            or request.path != self._at_once.path
            or len(request.body) + request.missing > self._at_once.largest
            or self.transport.get_write_buffer_size()  # the client does not read its answers: aiohttp waits for it
            or self._connections.uses_old_certificates(self)
        ):
            self._give_to_aiohttp()
        elif not request.missing:
            answer = self._at_once.answer(request.body, self.transport)
            if isinstance(answer, AnswerMade):
                self._forget()
                self.transport.write(response(answer.body))
                answer.when_written()
                self._connections.request_answered(self)
            elif answer is None:
                self._give_to_aiohttp()
            else:
                self._until = answer
                answer.add_done_callback(self._try_again)

    def _try_again(self, ended: asyncio.Future[None]) -> None:
        if ended is self._until:
            self._until = None
            self._try()

    def _give_to_aiohttp(self) -> None:
        """Gives aiohttp what is kept of a request."""
        if data := self._forget():
            self._waits = False
            super().data_received(data)

    def _forget(self) -> bytes:
        """Waits for nothing any more, and returns what was kept."""
        data, self._kept = self._kept, b""
        until, self._until, timer, self._timer = self._until, None, self._timer, None
        if until is not None:
            until.cancel()
        if timer is not None:
            timer.cancel()
        return data

    def close(self) -> None:
        self._give_to_aiohttp()
        super().close()

    def eof_received(self) -> None:
        self._give_to_aiohttp()
        super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._forget()
        super().connection_lost(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        ended = await super().finish_response(request, resp, start_time)
        self._waits = not self._missing and bool(ended[0].keep_alive)
        return ended

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
        at_once: AtOnce | None,
    ) -> None:
        self._handler, self._tls, self._limits, self._on_refused = handler, tls, limits, on_refused
        self._setups = Setups()
        self._server = _Connections(self._handle, limits, on_refused, self._setups, at_once, tls)
        self._rates = Rates(limits.accepts, limits.burst)
        self._openings: set[asyncio.Task[None]] = set()

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
            self._admit(loop, connection, str(address[0]))
            # While connections wait, accept() does not: others of the event loop take turns with each of them.
            await asyncio.sleep(0)

    def _admit(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, source: str) -> None:
        """Keeps a new connection, if need be in the place of another one, or closes it."""
        limits = self._limits
        if source not in _OWN and not self._rates.take(source, loop.time()):
            self._on_refused("connections", source, f"more than {limits.accepts:g} new connections a second")
            connection.close()
            return
        if self._open() >= limits.connections:
            self._on_refused("connections", source, f"more than {limits.connections} connections are open")
            if not self._drop_oldest():
                connection.close()
                return
        setup = Setup(source, connection.close)
        if _spoke(connection):
            self._start(setup, connection)
            return
        own = self._setups.silent_of(source)
        if len(own) >= limits.silent:
            self._on_refused("connections", source, f"more than {limits.silent} of its connections send nothing")
            self._end(own[0])
        setup.end = partial(_end_silent, loop, connection)
        seconds = limits.head if self._tls is None else limits.handshake
        self._setups.put(setup, SetupStage.SILENT, loop.call_later(seconds, self._expire, setup))
        loop.add_reader(connection, self._first_bytes, loop, setup, connection)

    def _open(self) -> int:
        """Number of open connections."""
        waiting = self._setups.count(SetupStage.SILENT) + self._setups.count(SetupStage.HANDSHAKE)
        return waiting + len(self._server.connections)

    def _drop_oldest(self) -> bool:
        setup = self._setups.first_to_end()
        if setup is None:
            return self._server.abort_oldest()
        self._end(setup)
        return True

    def _end(self, setup: Setup) -> None:
        setup.ended = True
        self._setups.remove(setup)
        setup.end()

    def _expire(self, setup: Setup) -> None:
        if self._tls is None:
            self._on_refused("head time", setup.source, _late_head(self._limits))
        else:
            self._on_refused("TLS handshake", setup.source, f"it did not begin within {self._limits.handshake:g} s")
        self._end(setup)

    def _first_bytes(self, loop: asyncio.AbstractEventLoop, setup: Setup, connection: socket.socket) -> None:
        loop.remove_reader(connection)
        if _spoke(connection):
            self._start(setup, connection)
        else:
            self._end(setup)  # the other side has closed it

    def _start(self, setup: Setup, connection: socket.socket) -> None:
        # The transport owns the socket soon: the connection is shut down, which the transport notices, and not closed.
        setup.end = partial(_shut_down, connection)
        self._setups.put(setup, SetupStage.HANDSHAKE)
        task = asyncio.create_task(self._open_connection(setup, connection))
        self._openings.add(task)
        task.add_done_callback(partial(self._opened, setup, connection))

    def _opened(self, setup: Setup, connection: socket.socket, task: asyncio.Task[None]) -> None:
        """Closes what did not become a connection of the server, also if the task was cancelled before it began."""
        self._openings.discard(task)
        if task.cancelled() or setup.stage is not SetupStage.HEAD:
            self._setups.remove(setup)
            connection.close()

    async def _open_connection(self, setup: Setup, connection: socket.socket) -> None:
        context = None if self._tls is None else self._tls()
        seconds = {} if context is None else {"ssl_handshake_timeout": self._limits.handshake}
        if context is not None:
            seconds["ssl_shutdown_timeout"] = _TLS_END
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(self._server.handler_of, setup), connection, ssl=context, **seconds
            )
        except (OSError, ssl.SSLError) as error:
            if not setup.ended:
                self._on_refused("TLS handshake", setup.source, _why_no_handshake(error))
        except Exception:  # noqa: BLE001 - one bad connection must not stop the listener
            _log.exception("connection failed", peer=setup.source)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._server.request_received(request.protocol)
        response = await self._handler(request)
        self._server.request_answered(request.protocol)
        if not self._limits.idle:
            response.force_close()
        if self._server.uses_old_certificates(request.protocol):
            response.force_close()
        return response

    async def end(self) -> None:
        """Closes all connections after the responses in flight are sent."""
        for setup in self._setups.all():
            if setup.stage is not SetupStage.HEAD:
                self._end(setup)
        await asyncio.gather(*self._openings, return_exceptions=True)
        self._server.pre_shutdown()
        await self._server.shutdown(_DRAIN)


def _spoke(connection: socket.socket) -> bool:
    """Whether the other side has sent something that is not read yet."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def _end_silent(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    loop.remove_reader(connection)
    connection.close()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side may have closed it
        connection.shutdown(socket.SHUT_RDWR)


def _why_no_handshake(error: OSError) -> str:
    """A sentence for the log: "the client closed the connection before it was set up"."""
    if isinstance(error, ConnectionError):
        return "the client closed the connection before it was set up"
    reason = getattr(error, "reason", None) or str(error) or type(error).__name__
    return f"the TLS handshake failed: {reason}"
