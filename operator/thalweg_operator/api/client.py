"""Client of the API server: configuration and login by kubernetes-asyncio, requests and answers as raw bytes.

kubernetes-asyncio's models cost forty times what decoding the needed fields costs, and its binding call raises after
the server has bound the pod. So requests use its configuration with an aiohttp session.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from flowcore.api.kinds import ObjectKind
from thalweg_operator.api.credentials import Credentials, read_credentials
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.missing_rights import MissingRights
from thalweg_operator.api.outages import Outages
from thalweg_operator.errors import ConnectionLost, Refused

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

#: Bytes. A watch event holds an object of at most 1.5 MiB, etcd's limit.
_READ_BUFFER = 2**21
_SECONDS = 30.0
#: Seconds within which the server must accept a watch.
_WATCH_BEGINS = 30.0
#: Seconds after which the kernel drops a connection whose peer does not acknowledge what was sent. A write that is sent
#: just before the fence closes must not arrive after others may take the lease: see LeaseTimes.
DELIVERED_WITHIN = 3.0
#: TCP keep-alive: a probe after 30 s of silence, then every 10 s. TCP_USER_TIMEOUT is in milliseconds.
_KEEPALIVE = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": round(DELIVERED_WITHIN * 1000),
}
#: Seconds that an idle connection is kept, so that a pod that comes alone needs no TLS handshake for its binding. API
#: servers close them after 90 s (staging/src/k8s.io/apiserver/pkg/server/secure_serving.go).
_IDLE_SECONDS = 60.0
_TOPIC = "API server"
#: An API server that starts answers 401 and 403 until it has read the roles, the accounts and the admission policies.
#: Seconds after a lost connection in which these answers do not count as final.
_STARTING = 30.0
#: Upper limit of a Retry-After header, in seconds.
_LONGEST_RETRY_AFTER = 30.0


def api_path(base: str, *segments: str) -> str:
    """The path ``base``/``segments``, with each segment quoted.

    Raises:
        ValueError: a segment is empty, "." or "..".
    """
    if any(segment in ("", ".", "..") for segment in segments):
        raise ValueError(f"{segments}: a segment of a path is empty, . or ..")
    return "/".join((base, *(quote(segment, safe="") for segment in segments)))


def namespaced_path(kind: ObjectKind, namespace: str, *segments: str) -> str:
    """The path of the objects of a kind in a namespace, of one of them or of a subresource of it."""
    return api_path(f"{kind.paths[0].rpartition('/')[0]}/namespaces", namespace, kind.plural, *segments)


def pod_path(namespace: str, name: str, *subresource: str) -> str:
    """The path of a pod or of a subresource of it."""
    return api_path("/api/v1/namespaces", namespace, "pods", name, *subresource)


class _Status(msgspec.Struct):
    message: str | None = None
    reason: str | None = None


_statuses = JsonReader(_Status)


class _TellingBody(aiohttp.BytesPayload):
    """A body that tells when it was handed to the connection: the headers leave with it."""

    def __init__(self, body: bytes, on_sent: Callable[[], None]) -> None:
        super().__init__(body)
        self._on_sent = on_sent

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Writes the body to the connection."""
        await super().write_with_length(writer, content_length)
        self._on_sent()


class ApiClient:
    """An authenticated session with one API server. ``connect`` makes it.

    Args:
        fence: checked immediately before each request other than GET; None: writes need no lease.
        write_session: for these requests; None: ``session``.

    Attributes:
        outages: log of repeated failures. The client reports lost connections to it.
    """

    def __init__(
        self,
        credentials: Credentials,
        session: aiohttp.ClientSession,
        fence: Fence | None = None,
        write_session: aiohttp.ClientSession | None = None,
    ) -> None:
        self.credentials = credentials
        self.outages = Outages()
        self._session, self._write_session = session, write_session or session
        self._fence = fence
        self._missing_rights = MissingRights()
        #: The event loop's time when the server refused or closed a connection last; -inf: a write was accepted since.
        self._lost_at = float("-inf")

    @property
    def server(self) -> str:
        """URL of the API server, without a slash at its end."""
        return str(self.credentials.configuration.host).rstrip("/")

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> bytes:
        """The body of a successful answer.

        Args:
            headers: beside those of the login and of the body.
            seconds: longest wait for the answer; None: the usual one.
            on_sent: called when the request was handed to the connection, if it has a body.

        Raises:
            Refused: the server answered with an error.
            ConnectionLost: there was no answer; the server may have carried out a write all the same.
            LeaseLost: the lease is not held, so the write was not sent.
        """
        sent = {**(headers or {}), **await self._headers()}
        if body is not None:
            sent["Content-Type"] = content_type
        longest = _SECONDS if seconds is None else seconds
        timeout, session = aiohttp.ClientTimeout(total=longest), self._session
        fence = self._fence if method != "GET" else None
        if fence is not None:
            session = self._write_session
            # The total includes waiting for a connection and aiohttp's own retry, so no write outlives the lease.
            timeout = aiohttp.ClientTimeout(total=min(longest, fence.seconds()))
        try:
            async with session.request(
                method,
                URL(self.server + path, encoded=True),  # encoded: yarl neither unquotes nor resolves it
                data=body if body is None or on_sent is None else _TellingBody(body, on_sent),
                headers=sent,
                params=params,
                timeout=timeout,
                **self._options(),
            ) as response:
                answer = await response.read()
                self.outages.recovered(_TOPIC)
                if response.status >= 300:
                    raise self._refused(method, path, self._to_refused(response, answer))
                if method != "GET":
                    self._lost_at = float("-inf")  # the server knows our roles
                    self._missing_rights.accepted(method, path, self.outages)
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if fence is None or fence.open:  # else ``FencedSocket`` may have aborted the connection
                self._note_loss(error)
            raise self._connection_lost(f"{method} {path}", error) from error

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str], silence: float) -> AsyncIterator[aiohttp.StreamReader]:
        """The bytes of a watch as they arrive.

        Args:
            silence: seconds without a byte after which the connection counts as lost.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        headers = await self._headers()
        try:
            async with asyncio.timeout(_WATCH_BEGINS):
                response = await self._session.get(
                    self.server + path, headers=headers, params=params, timeout=timeout, **self._options()
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._note_loss(error)
            raise self._connection_lost(f"watch {path}", error) from error
        self.outages.recovered(_TOPIC)
        try:
            async with response:
                if response.status >= 300:
                    raise self._to_refused(response, await response.read())
                yield response.content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._note_loss(error)
            raise ConnectionLost(f"watch {path}: {_error_message(error)}") from error

    def _refused(self, method: str, path: str, error: Refused) -> Refused:
        if method != "GET" and not error.starting:
            self._missing_rights.refused(method, path, error, self.outages)
        return error

    def _to_refused(self, response: aiohttp.ClientResponse, answer: bytes) -> Refused:
        try:
            status = _statuses.read(answer)
            reason = status.message or status.reason or ""
        except UnreadableJson:
            reason = answer[:200].decode(errors="replace")
        if response.status < 400:
            reason = "a redirect, which is not followed"
        starting = response.status in (401, 403) and asyncio.get_running_loop().time() - self._lost_at < _STARTING
        return Refused(
            response.status,
            reason,
            _retry_after(response.headers.get("Retry-After", "")),
            starting=starting,
            answer=answer,
        )

    def _note_loss(self, error: BaseException) -> None:
        # A time-out may have its cause elsewhere, for example in a webhook, and does not show a restart.
        if not isinstance(error, TimeoutError):
            self._lost_at = asyncio.get_running_loop().time()

    def _connection_lost(self, what: str, error: BaseException) -> ConnectionLost:
        problem = f"{what}: {_error_message(error)}"
        self.outages.failed(_TOPIC, "connection lost", problem)
        return ConnectionLost(problem)

    def _options(self) -> dict[str, Any]:
        # An API server never redirects. What stands behind a Service may: to any path, with the caller's login.
        return {
            "ssl": self.credentials.tls,
            "server_hostname": self.credentials.configuration.tls_server_name,
            "allow_redirects": False,
        }

    async def new_session(self, trace_configs: list[aiohttp.TraceConfig]) -> aiohttp.ClientSession:
        """A session for the running event loop, with the present credentials."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.credentials.tls, socket_factory=keepalive_socket),
            headers=await self._login(),
            proxy=_proxy(self.credentials.configuration),
            trace_configs=trace_configs,
        )

    async def _headers(self) -> dict[str, str]:
        await self.credentials.refresh(self.outages)
        return await self._login()

    async def _login(self) -> dict[str, str]:
        try:
            # Read for each request: service account tokens rotate, and the configuration reloads them.
            auth = await self.credentials.configuration.auth_settings()
        except Exception as error:  # token files and login plug-ins raise anything
            raise self._connection_lost("no credentials", error) from error
        return {setting["key"]: setting["value"] for setting in auth.values() if setting["in"] == "header"}


@asynccontextmanager
async def connect(
    kubeconfig: Path | None, connections: int, fence: Fence | None = None, context: str | None = None
) -> AsyncIterator[ApiClient]:
    """Opens a session by a kubeconfig file, or by the pod's service account without one.

    Args:
        fence: checked before each write.
        context: context of the kubeconfig; None: its current context.

    Raises:
        ConnectionLost: the file or the service account cannot be used.
    """
    credentials = await read_credentials(kubeconfig, context)

    def session(sockets: Callable[[aiohttp.AddrInfoType], socket.socket]) -> aiohttp.ClientSession:
        # kubernetes-asyncio's own session would look up proxies in a thread for every request.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, socket_factory=sockets, keepalive_timeout=_IDLE_SECONDS),
            proxy=_proxy(credentials.configuration),
            read_bufsize=_READ_BUFFER,
            auto_decompress=True,
        )

    async with AsyncExitStack() as stack:
        reads = await stack.enter_async_context(session(keepalive_socket))
        writes = reads
        if fence is not None:
            writes = await stack.enter_async_context(session(partial(keepalive_socket, fence=fence)))
        yield ApiClient(credentials, reads, fence, writes)
        await asyncio.sleep(0)  # a turn of the loop, so that released connections close


class FencedSocket(socket.socket):
    """A socket that sends only while its fence is open.

    A process may be stopped after it asked the fence and before the request is sent, and the event loop runs what was
    ready before time-outs when it goes on. So the fence is asked again where bytes leave the process.

    Attributes:
        fence: to be set before the first byte is sent.
    """

    fence: Fence

    def send(self, *arguments: Any) -> int:
        """Sends bytes, unless the fence is closed.

        Raises:
            ConnectionAbortedError: the fence is closed.
        """
        self._check()
        return super().send(*arguments)

    def sendmsg(self, *arguments: Any) -> int:
        """Sends buffers, unless the fence is closed."""
        self._check()
        return super().sendmsg(*arguments)

    def _check(self) -> None:
        if not self.fence.open:
            raise ConnectionAbortedError("not sent: this process does not hold the lease")


def keepalive_socket(address: aiohttp.AddrInfoType, fence: Fence | None = None) -> socket.socket:
    """A socket with keep-alive (``_KEEPALIVE``): the loss of the peer shows after 70 s at most.

    Without keep-alive an idle connection stays open for ever when the peer or the path to it is lost.
    """
    family, kind, protocol, *_ = address
    if fence is None:
        sock = socket.socket(family=family, type=kind, proto=protocol)
    else:
        sock = FencedSocket(family=family, type=kind, proto=protocol)
        sock.fence = fence
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # not on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock


def _proxy(configuration: Any) -> str | None:
    """The proxy that the kubeconfig or the environment names for this server."""
    if configuration.proxy:
        return str(configuration.proxy)
    server = urlsplit(configuration.host)
    if server.hostname is None or proxy_bypass(server.hostname):
        return None
    return getproxies().get(server.scheme)


def _error_message(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):  # its text shows the address of a Python object
        return f"cannot connect to {error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    return str(error) or type(error).__name__


def _retry_after(text: str) -> float:
    """Seconds of a Retry-After header, at most ``_LONGEST_RETRY_AFTER``; 0 for a date or another text."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(seconds, _LONGEST_RETRY_AFTER) if seconds > 0.0 else 0.0  # NaN is not greater than 0
