"""Requests to an API server that is away or busy now and then."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from thalweg_controlplane import ApiError

#: Statuses of an API server that is away (0), starts, or cannot ask etcd in time.
PASSING = frozenset((0, 429, 500, 503, 504, 401, 403))


async def insist(action: Callable[[], Awaitable[Any]]) -> None:
    """Does it, also while the API server is away now and then; 409 and 404 mean that an earlier try got through."""
    while True:
        try:
            await action()
        except ApiError as error:
            if error.status in (409, 404):
                return
            if error.status not in PASSING:
                raise
            await asyncio.sleep(0.05)
        else:
            return
