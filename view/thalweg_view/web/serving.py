"""Serves a view on an address."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final

from thalweg_listener import CannotListen, OnRefused, listening

from thalweg_view.answering import Answering
from thalweg_view.callers.access import Access
from thalweg_view.callers.view_limits import DEFAULT_LIMITS, ViewLimits
from thalweg_view.compute_process.compute_client import ComputeClient
from thalweg_view.errors import RequestRefused, ViewError
from thalweg_view.source import ViewSource
from thalweg_view.view_data import SourceInfo
from thalweg_view.web.page_files import PageFile, read_page
from thalweg_view.web.server import OnRequest, ViewServer

#: Seconds that one answer may take.
DEADLINE: Final = 30.0


@asynccontextmanager
async def serving(
    host: str,
    port: int,
    source: ViewSource,
    access: Access,
    *,
    tls: Callable[[], ssl.SSLContext] | None = None,
    memory: int = 0,
    deadline: float = DEADLINE,
    limits: ViewLimits = DEFAULT_LIMITS,
    page: dict[str, PageFile] | None = None,
    on_request: OnRequest = lambda _operation, _status: None,
    on_refused: OnRefused = lambda _part, _client, _problem: None,
) -> AsyncIterator[int]:
    """Serves a view while the block runs; yields the port.

    Args:
        host: address or host name; "": all addresses. On loopback, requests must name a loopback address.
        port: port; 0: any free port.
        access: checks callers.
        tls: see ``thalweg_listener.listening``.
        memory: bytes that the compute process may use; 0: no limit.
        deadline: seconds that one answer may take.
        page: files of the web page; None: those of this package.
        on_request: see ``ViewServer``.
        on_refused: called for each connection or request that is no HTTP or beyond the limits of connections.

    Raises:
        ViewError: the address is in use, or not an address of this machine; or a dump or a record cannot be read.
    """
    compute = ComputeClient(SourceInfo(source.kind, source.name, source.version), deadline, memory)
    answering = Answering(source, compute, limits)
    files = read_page() if page is None else page
    server = ViewServer(source, access, answering, files, limits, on_request, loopback=is_loopback(host))
    refresher = asyncio.create_task(server.keep_fresh(), name="view")
    try:
        if source.kind != "live":
            await answering.refresh()  # so that the first page need not wait for it
        async with listening(host, port, server.answer, limits, on_refused, tls) as chosen:
            try:
                yield chosen
            finally:
                await server.end()
    except CannotListen as error:
        raise ViewError(f"{error} for the view") from error
    except RequestRefused as error:
        raise ViewError(str(error)) from error
    finally:
        refresher.cancel()
        await asyncio.wait([refresher])
        await answering.stop()


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
