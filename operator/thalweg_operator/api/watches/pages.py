"""A list, page by page. While one page is read the next is on its way: the API server needs about as long as we do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.rate_limiter import RateLimiter
from thalweg_operator.api.watches.watch_messages import PAGES, Garbled, Page, read
from thalweg_operator.errors import ConnectionLost, Refused

_PAGE: Final = 500
#: Attempts at a further page of a list before the list fails.
_TRIES: Final = 8
_BACKOFF: Final = Backoff(first=0.2, longest=10.0)


async def pages(api_client: ApiClient, path: str, rate_limiter: RateLimiter) -> AsyncGenerator[Page, None]:
    """The pages of a list. To be closed by its reader, which may stop at any page.

    Raises:
        Garbled: an answer is no page, or the list cannot end.
        Refused, ConnectionLost: the first page cannot be had, or another one after several attempts.
    """
    await rate_limiter.wait()
    tokens: set[str] = set()
    coming = _begin(api_client, path, {"limit": str(_PAGE)}, rate_limiter)
    try:
        while True:
            page = read(PAGES, await coming, "list")
            token = page.metadata.continue_
            if page.items is None or not page.metadata.resource_version:
                raise Garbled("list: no items or no resourceVersion")
            if token:
                if token in tokens or not page.items:
                    raise Garbled("list: a page that is not the last one brought no new object")
                tokens.add(token)
                if len(page.items) < _PAGE:  # full pages are not limited: a large cluster must be listed soon
                    await rate_limiter.wait()
                coming = _begin(api_client, path, {"limit": str(_PAGE), "continue": token}, rate_limiter)
            yield page
            if not token:
                return
    finally:
        coming.cancel()


def _begin(
    api_client: ApiClient, path: str, params: Mapping[str, str], rate_limiter: RateLimiter
) -> asyncio.Task[bytes]:
    task = asyncio.create_task(_fetch(api_client, path, params, rate_limiter))
    # Nobody asks how a page failed after the reader stopped at the one before it.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def _fetch(api_client: ApiClient, path: str, params: Mapping[str, str], rate_limiter: RateLimiter) -> bytes:
    """One page. Requests for further pages are retried: a new list would cost all pages again."""
    tries, at_least = 0, 0.0
    while True:
        try:
            return await api_client.request("GET", path, params=params)
        except (Refused, ConnectionLost) as error:
            tries += 1
            if isinstance(error, Refused):
                if not error.transient:
                    raise
                at_least = error.retry_after
            if "continue" not in params or tries >= _TRIES:
                raise
        await asyncio.sleep(_BACKOFF.pause(tries, at_least))
        await rate_limiter.wait()
