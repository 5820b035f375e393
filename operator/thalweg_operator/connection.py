"""The way to the API server: kubernetes-asyncio's configuration and authentication, raw bytes in and out.

Its models cost forty times what reading the fields we need costs, and its binding call raises after the server has
bound the pod; so requests use its configuration, and a session of our own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.fence import Fence

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

#: A watch event can be as large as what etcd stores, 1.5 MiB.
_READ_BUFFER = 2**21
_SECONDS = 30.0
#: Milliseconds for which the kernel tries to deliver what the peer does not acknowledge. A write that begins at the end
#: of the time to renew must not arrive after the lease: at most LeaseTimes.duration - LeaseTimes.renew.
_UNACKNOWLEDGED = 5000
_TIMEOUT = aiohttp.ClientTimeout(total=_SECONDS)
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


class Connection:
    """An authenticated session with one API server. Make it with ``connect``.

    Args:
        fence: asked immediately before each request that is not a GET; None where no lease is needed to write.
    """

    def __init__(self, configuration: Any, session: aiohttp.ClientSession, fence: Fence | None = None) -> None:
        self._configuration = configuration
        self._session = session
        self._fence = fence
        self._server: str = configuration.host.rstrip("/")
        self._options: dict[str, Any] = {"server_hostname": configuration.tls_server_name}

    @property
    def configuration(self) -> Any:
        """kubernetes-asyncio's Configuration, for kopf's login."""
        return self._configuration

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
                URL(self._server + path, encoded=True),  # as it is: nothing in it is unquoted or resolved
                data=body,
                headers=headers,
                params=params,
                timeout=timeout,
                **self._options,
            ) as response:
                answer = await response.read()
                if response.status >= 400:
                    raise _refusal(response, answer)
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLost(f"{method} {path}: {error or type(error).__name__}") from error

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str], silence: float) -> AsyncIterator[aiohttp.StreamReader]:
        """A watch's bytes as they come.

        Args:
            silence: seconds without a byte after which the connection counts as lost.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        try:
            async with self._session.get(
                self._server + path,
                headers=await self._headers(),
                params=params,
                timeout=timeout,
                **self._options,
            ) as response:
                if response.status >= 400:
                    raise _refusal(response, await response.read())
                yield response.content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLost(f"watch {path}: {error or type(error).__name__}") from error

    async def _headers(self) -> dict[str, str]:
        # Asked for each time: service account tokens rotate, and the configuration re-reads them.
        try:
            auth = await self._configuration.auth_settings()
        except Exception as error:  # whatever a token file or a login plug-in comes up with
            raise ConnectionLost(f"no credentials: {error or type(error).__name__}") from error
        return {setting["key"]: setting["value"] for setting in auth.values() if setting["in"] == "header"}


@asynccontextmanager
async def connect(kubeconfig: Path | None, connections: int, fence: Fence | None = None) -> AsyncIterator[Connection]:
    """Opens a connection from a kubeconfig file, or from the pod's service account when there is none.

    Args:
        fence: asked before each write.

    Raises:
        ConnectionLost: the file or the service account cannot be used.
    """
    # Half a second and 50 MB that other commands need not pay for.
    from kubernetes_asyncio import config  # noqa: PLC0415
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415

    configuration = Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        tls = _tls(configuration)
    except Exception as error:  # the loader meets an unexpected shape with whatever Python raises there
        where = kubeconfig or "the pod's service account (no --kubeconfig was given)"
        raise ConnectionLost(f"cannot read {where}: {error or type(error).__name__}") from error
    # Not kubernetes-asyncio's own session: that one looks proxies up in a thread for every request.
    connector = aiohttp.TCPConnector(limit=connections, ssl=tls, socket_factory=_socket)
    async with aiohttp.ClientSession(
        connector=connector, proxy=_proxy(configuration), read_bufsize=_READ_BUFFER, auto_decompress=True
    ) as session:
        yield Connection(configuration, session, fence)
        await asyncio.sleep(0)  # lets connections that were just released close in order


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket on which nothing that was written is delivered late, not even after it was closed."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED)
    return made


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _proxy(configuration: Any) -> str | None:
    """The proxy that the kubeconfig or the environment names for this server."""
    if configuration.proxy:
        return str(configuration.proxy)
    server = urlsplit(configuration.host)
    if server.hostname is None or proxy_bypass(server.hostname):
        return None
    return getproxies().get(server.scheme)


def _refusal(response: aiohttp.ClientResponse, answer: bytes) -> Refused:
    try:
        status = msgspec.json.decode(answer, type=_Status)
        reason = status.message or status.reason or ""
    except msgspec.DecodeError:
        reason = answer[:200].decode(errors="replace")
    return Refused(response.status, reason, _retry_after(response.headers.get("Retry-After", "")))


def _retry_after(text: str) -> float:
    """Seconds that a Retry-After header asks to wait, limited: a proxy may write anything. A date counts as nothing."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(seconds, _LONGEST_RETRY_AFTER) if seconds > 0.0 else 0.0  # NaN is not greater than 0
