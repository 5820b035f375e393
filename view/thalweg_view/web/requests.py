"""Reads requests: the question and the caller's token. A request that is not as it must be is refused."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Final

from aiohttp import web
from aiohttp.http import HttpProcessingError

from thalweg_view.callers.view_limits import ViewLimits
from thalweg_view.compute_process.messages import OperationShape
from thalweg_view.errors import RequestRefused

#: The API server's proxy of Services removes Authorization, so the token may come in this header.
TOKEN_HEADER: Final = "X-Thalweg-Token"  # noqa: S105 - a name
_SCHEME: Final = "bearer "
_LONGEST_TOKEN: Final = 8000


def token_of(request: web.BaseRequest) -> str:
    """The token of a request.

    Raises:
        RequestRefused: it has none (401), or more than one (400).
    """
    tokens = {value.strip() for value in request.headers.getall(TOKEN_HEADER, [])}
    for value in request.headers.getall("Authorization", []):
        if not value.lower().startswith(_SCHEME):
            raise RequestRefused(401, "Authorization must be `Bearer TOKEN`")
        tokens.add(value[len(_SCHEME) :].strip())
    if len(tokens) > 1:
        raise RequestRefused(400, f"the request has several tokens: send one, as {TOKEN_HEADER} or as a Bearer token")
    token = tokens.pop() if tokens else ""
    if not token:
        raise RequestRefused(401, f"a token is needed: send `Authorization: Bearer TOKEN` or `{TOKEN_HEADER}: TOKEN`")
    if len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable():
        raise RequestRefused(401, "this is no token")
    return token


def check_host(request: web.BaseRequest) -> None:
    """Checks that a request to a loopback address names one: a browser sends the name of the page that it is on.

    Raises:
        RequestRefused: it names something else (DNS rebinding).
    """
    hosts = request.headers.getall("Host", [])
    host = hosts[0] if len(hosts) == 1 else ""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.removeprefix("[").removesuffix("]").lower()
    try:
        loopback = name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise RequestRefused(421, "this address is served for this machine only: ask for localhost or 127.0.0.1")


def check_site(request: web.BaseRequest) -> None:
    """Checks that no page of another site asks.

    Raises:
        RequestRefused: a browser says so.
    """
    if request.headers.get("Sec-Fetch-Site", "none").lower() == "cross-site":
        raise RequestRefused(403, "pages of other sites may not ask")


def get_query(request: web.BaseRequest, operation: OperationShape, segments: list[str]) -> tuple[dict[str, str], str]:
    """The query of a GET, and the namespace that it is limited to; "": all.

    Raises:
        RequestRefused: a parameter is unknown, or given twice.
    """
    fields = set(operation.fields)
    query = dict(zip(operation.segments, segments, strict=True))
    namespace = query.get("namespace", "")
    for name, value in request.query.items():
        if name in query:
            raise RequestRefused(400, f"parameter {name}: it is given twice")
        if name == "namespace":
            namespace = value
        if name in fields:
            query[name] = value
        elif name != "namespace":
            known = ", ".join(sorted(fields | {"namespace"}))
            raise RequestRefused(400, f"there is no parameter of this name; parameters: {known}")
    return query, namespace


async def read_body(request: web.BaseRequest, limits: ViewLimits) -> bytes:
    """The JSON body of a POST.

    Raises:
        RequestRefused: it is not JSON by its type, too large, too slow, or did not arrive whole.
    """
    if request.content_type != "application/json" or request.headers.get("Content-Encoding"):
        raise RequestRefused(415, "send the query as Content-Type: application/json, not compressed")
    too_large = RequestRefused(413, f"the body is larger than {limits.body // 2**20} MiB")
    if (request.content_length or 0) > limits.body:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.read):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > limits.body:
                    raise too_large
    except TimeoutError as error:
        raise RequestRefused(408, f"the body did not arrive within {limits.read:g} s") from error
    except (ConnectionError, web.RequestPayloadError, HttpProcessingError) as error:
        raise RequestRefused(400, "the body is incomplete") from error
    return bytes(body)
