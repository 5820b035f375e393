"""Reads NodeMetrics and PodMetrics from the API metrics.k8s.io, which metrics-server or an adapter serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.watches.list_items import list_chunks
from thalweg_operator.api.watches.watch_messages import Garbled
from thalweg_operator.yielding import yielding

_PATH = "/apis/metrics.k8s.io/v1beta1"
#: Objects that one answer is to have. metrics-server does not heed it.
_PAGE = 500


async def list_metrics(api_client: ApiClient, plural: str) -> AsyncIterator[msgspec.Raw]:
    """The objects of a list, with turns of the event loop between them.

    Args:
        plural: nodes or pods.

    Raises:
        Refused: the API server answered with an error: 404 where no server has the API, 503 while its server is away.
        ConnectionLost: there was no answer.
        Garbled: the answer is no list.
    """
    params = {"limit": str(_PAGE)}
    while True:
        answer = await api_client.request("GET", f"{_PATH}/{plural}", params=params)
        token, count = "", 0
        for chunk, token in list_chunks(answer):  # noqa: B007 - the last chunk has the token
            await asyncio.sleep(0)
            async for item in yielding(chunk):
                count += 1
                yield item
        if not token:
            return
        if not count:
            raise Garbled("list: a page that is not the last one has no object")
        params["continue"] = token
