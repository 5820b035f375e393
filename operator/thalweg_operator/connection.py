"""The way to the API server: kubernetes-asyncio's configuration and authentication, raw bytes in and out.

Its models cost forty times what reading the fields we need costs, and its binding call raises after the server has
bound the pod; so requests use its configuration, and a session of our own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from thalweg_operator.credentials import Credentials, read_credentials
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.fence import Fence
from thalweg_operator.json_reading import NotReadable, Reader
from thalweg_operator.outages import Outages

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

#: A watch event can be as large as what etcd stores, 1.5 MiB.
_READ_BUFFER = 2**21
_SECONDS = 30.0
_TIMEOUT = aiohttp.ClientTimeout(total=_SECONDS)
#: Seconds until an accepted watch must have begun.
_WATCH_BEGINS = 30.0
#: A probe after 30 s of silence, then every 10 s. What the peer does not acknowledge is not delivered after 5 s
#: (milliseconds), and the connection is lost: a write that begins at the end of the time to renew must not arrive after
#: the lease, so that is at most LeaseTimes.duration - LeaseTimes.renew.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 5_000}
_TOPIC = "API server"
#: Seconds of a Retry-After header that are heeded at most.
_LONGEST_RETRY_AFTER = 30.0


def api_path(base: str, *segments: str) -> str:
    """A path below one of ours, each segment quoted.

    Raises:
        ValueError: a segment is empty, or leads to another path.
    """
    if any(segment in ("", ".", "..") for segment in segments):
        raise ValueError(f"{segments} cannot be part of a path")
    return "/".join((base, *(quote(segment, safe="") for segment in segments)))


def pod_path(namespace: str, name: str, *subresource: str) -> str:
    """The path of a pod or of one of its subresources."""
    return api_path("/api/v1/namespaces", namespace, "pods", name, *subresource)


class _Status(msgspec.Struct):
    message: str | None = None
    reason: str | None = None


_statuses = Reader(_Status)


class Connection:
    """An authenticated session with one API server. Make it with ``connect``.

    Args:
        fence: asked immediately before each request that is not a GET; None where no lease is needed to write.

    Attributes:
        outages: what fails, for the log. The connection tells it when the API server does not answer.
    """

    def __init__(self, credentials: Credentials, session: aiohttp.ClientSession, fence: Fence | None = None) -> None:
        self.credentials = credentials
        self.outages = Outages()
        self._session = session
        self._fence = fence

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
    ) -> bytes:
        """The body of a successful answer.

        Raises:
            Refused: the server answered with an error.
            ConnectionLost: no answer; a write may have been carried out all the same.
            LeaseLost: a write that may not be sent.
        """
        headers = await self._headers()
        if body is not None:
            headers["Content-Type"] = content_type
        timeout = _TIMEOUT
        if self._fence is not None and method != "GET":
            # Waiting for a connection counts, and so does aiohttp's own second try: no write outlives the lease.
            timeout = aiohttp.ClientTimeout(total=min(_SECONDS, self._fence.seconds()))
        try:
            async with self._session.request(
                method,
                URL(self.server + path, encoded=True),  # as it is: nothing in it is unquoted or resolved
                data=body,
                headers=headers,
                params=params,
                timeout=timeout,
                **self._options(),
            ) as response:
                answer = await response.read()
                self.outages.over(_TOPIC)
                if response.status >= 400:
                    raise _refusal(response, answer)
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._lost(f"{method} {path}", error) from error

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str], silence: float) -> AsyncIterator[aiohttp.StreamReader]:
        """A watch's bytes as they come.

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
            raise self._lost(f"watch {path}", error) from error
        self.outages.over(_TOPIC)
        try:
            async with response:
                if response.status >= 400:
                    raise _refusal(response, await response.read())
                yield response.content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLost(f"watch {path}: {_words(error)}") from error

    def _lost(self, what: str, error: BaseException) -> ConnectionLost:
        problem = f"{what}: {_words(error)}"
        self.outages.failed(_TOPIC, "connection lost", problem)
        return ConnectionLost(problem)

    def _options(self) -> dict[str, Any]:
        return {"ssl": self.credentials.tls, "server_hostname": self.credentials.configuration.tls_server_name}

    async def another_session(self, trace_configs: list[aiohttp.TraceConfig]) -> aiohttp.ClientSession:
        """A session of the running event loop, logged in with the credentials as they are now."""
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
            # Asked for each time: service account tokens rotate, and the configuration reads them again.
            auth = await self.credentials.configuration.auth_settings()
        except Exception as error:  # whatever a token file or a login plug-in comes up with
            raise self._lost("no credentials", error) from error
        return {setting["key"]: setting["value"] for setting in auth.values() if setting["in"] == "header"}


@asynccontextmanager
async def connect(
    kubeconfig: Path | None, connections: int, fence: Fence | None = None, context: str | None = None
) -> AsyncIterator[Connection]:
    """Opens a connection from a kubeconfig file, or from the pod's service account when there is none.

    Args:
        fence: asked before each write.
        context: of the kubeconfig; None: its current context.

    Raises:
        ConnectionLost: the file or the service account cannot be used.
    """
    credentials = await read_credentials(kubeconfig, context)
    # Not kubernetes-asyncio's own session: that one looks proxies up in a thread for every request.
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, socket_factory=keepalive_socket),
        proxy=_proxy(credentials.configuration),
        read_bufsize=_READ_BUFFER,
        auto_decompress=True,
    ) as session:
        yield Connection(credentials, session, fence)
        await asyncio.sleep(0)  # lets connections that were just released close in order


def keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose other end is known to be away after 70 s at most, and on which nothing is delivered late.

    Without it a connection over which nothing is sent stays open for ever when a machine or a path to it is lost.
    """
    family, kind, protocol, *_ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # not on every system
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _proxy(configuration: Any) -> str | None:
    """The proxy that the kubeconfig or the environment names for this server."""
    if configuration.proxy:
        return str(configuration.proxy)
    server = urlsplit(configuration.host)
    if server.hostname is None or proxy_bypass(server.hostname):
        return None
    return getproxies().get(server.scheme)


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):  # its own words show the address of a Python object
        return f"cannot connect to {error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    return str(error) or type(error).__name__


def _refusal(response: aiohttp.ClientResponse, answer: bytes) -> Refused:
    try:
        status = _statuses.read(answer)
        reason = status.message or status.reason or ""
    except NotReadable:
        reason = answer[:200].decode(errors="replace")
    return Refused(response.status, reason, _retry_after(response.headers.get("Retry-After", "")))


def _retry_after(text: str) -> float:
    """Seconds that a Retry-After header asks to wait, limited: a proxy may write anything. A date counts as nothing."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(seconds, _LONGEST_RETRY_AFTER) if seconds > 0.0 else 0.0  # NaN is not greater than 0
