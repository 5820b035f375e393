"""An operator whose view is asked at its own URL, not through the API server's proxy."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from thalweg_operator.api.client import ApiClient
from thalweg_operator.errors import ConnectionLost
from yarl import URL

from flowcore.model.amount_text import short_bytes
from thalweg.run.leader_endpoint import is_loopback
from thalweg.sources.operator_view.live import ANSWER_WITHIN, TOKEN_HEADER, LiveOperator, problem_of
from thalweg.sources.operator_view.live_service import CHARTS_VIEW
from thalweg.sources.source import SourceError, SourceOptions

_CONNECT_WITHIN: Final = 10.0
#: Bytes of an answer at most: several times the plan of 50,000 pods. A server that sends without end ends no machine.
_MAX_ANSWER: Final = 64 * 2**20


class ServerOperator(LiveOperator):
    """Answers of the view at ``options.server``. The API server is asked for a token only."""

    def __init__(self, client: ApiClient, options: SourceOptions, where: str, session: aiohttp.ClientSession) -> None:
        super().__init__(client, options, where)
        self._session, self._url = session, checked_url(options.server)

    async def _request(
        self, method: str, operation: str, *, body: bytes | None = None, params: Mapping[str, str] | None = None
    ) -> bytes:
        try:
            headers = {TOKEN_HEADER: await self._token.get(CHARTS_VIEW)}
        except ConnectionLost as error:
            raise SourceError(f"cannot use the API server ({self._where}): {error}") from error
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = self._url.joinpath("api", "v1", *operation.split("/"))
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                params=params,
                headers=headers,
                allow_redirects=False,  # the token is for this URL
            ) as response:
                answer = await _read(response)
        except _TooLongError:
            problem = f"answers with more than {short_bytes(_MAX_ANSWER)}: that is no answer of Thalweg"
            raise SourceError(f"the operator's view at {self._url} {problem}") from None
        except (aiohttp.ClientError, TimeoutError) as error:
            said = str(error) or "no answer in time"
            raise SourceError(f"the operator's view at {self._url} cannot be asked: {said}") from error
        if response.status != 200:
            raise SourceError(problem_of(answer) or f"the operator's view at {self._url} answers {response.status}")
        return answer


class _TooLongError(Exception):
    """An answer is longer than any answer is."""


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = list[bytes](), 0
    async for chunk in response.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > _MAX_ANSWER:
            raise _TooLongError
    return b"".join(parts)


def checked_url(text: str) -> URL:
    """The URL of --server.

    Raises:
        SourceError: it is none, or a token would cross a network in clear text.
    """
    try:
        url = URL(text)
    except ValueError as error:
        raise SourceError(f"--server {text}: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise SourceError(f"--server {text}: give a URL such as https://thalweg.example:8444 or http://127.0.0.1:8444")
    if url.scheme == "http" and not is_loopback(url.host):
        raise SourceError(f"--server {text}: a token is sent, and http does not hide it: use https")
    return url


@asynccontextmanager
async def server_session(options: SourceOptions) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client for the URL of --server.

    Raises:
        SourceError: the file of --server-ca cannot be used.
    """
    context = ssl.create_default_context()
    if options.server_ca is not None:
        try:
            context.load_verify_locations(options.server_ca)
        except OSError as error:
            raise SourceError(f"--server-ca {options.server_ca} cannot be used: {error.strerror or error}") from error
    timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN, connect=_CONNECT_WITHIN)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session:
        yield session
