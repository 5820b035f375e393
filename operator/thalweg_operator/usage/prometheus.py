"""Asks Prometheus, or a server with its HTTP API, for samples by node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from flowcore.model.errors import ModelError
from flowcore.model.usage import check_time, checked_use
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.errors import OperatorError
from thalweg_operator.yielding import yielding

#: What a query may measure of a node: cores, bytes, and bits per second.
QUANTITIES: Final = ("cpu", "memory", "bandwidth")
_TIMEOUT = aiohttp.ClientTimeout(total=20)
#: Bytes. 12,500 samples with ten labels each take 5 MB.
_LARGEST_ANSWER = 2**26


class QueryFailed(OperatorError):
    """Prometheus did not answer a query, or not with samples. The message says why."""


@dataclass(frozen=True, slots=True)
class NodeValues:
    """The result of one query.

    Attributes:
        values: by name of the node: seconds since the epoch, and the value.
        refused: a sentence for each sample that cannot be used.
    """

    values: dict[str, tuple[float, float]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


class _Labels(msgspec.Struct):
    node: str = ""


class _Sample(msgspec.Struct):
    metric: _Labels
    value: tuple[float, str]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: list[msgspec.Raw]


class _Reply(msgspec.Struct):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""


_replies, _data, _samples = JsonReader(_Reply), JsonReader(_Data), JsonReader(_Sample)


class PrometheusClient:
    """Instant queries. ``connect_prometheus`` makes it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        # aiohttp sends the user and the password of a URL as basic authentication, before what netrc says of the host.
        self._with_password = URL(url.rstrip("/"))
        self._url = self._with_password.with_user(None)
        self._session = session

    async def node_values(self, name: str, expression: str, now: float) -> NodeValues:
        """The value of an expression on each node.

        Args:
            name: of the query, for sentences.
            expression: PromQL. Each sample of its result has the label node, and no two have the same.
            now: seconds since the epoch.

        Raises:
            QueryFailed: there is no result.
        """
        values = NodeValues()
        async for raw in yielding(await self._result(expression)):
            try:
                _add(values.values, raw, now)
            except ModelError as error:
                values.refused.append(f"query {name}: {error}")
        return values

    async def _result(self, expression: str) -> list[msgspec.Raw]:
        """The samples of an expression now."""
        url = self._with_password / "api/v1/query"
        try:
            async with self._session.get(url, params={"query": expression}) as response:
                parts, size = list[bytes](), 0
                async for chunk in response.content.iter_any():
                    parts.append(chunk)
                    size += len(chunk)
                    if size > _LARGEST_ANSWER:
                        raise QueryFailed(f"the answer has over {_LARGEST_ANSWER:,} bytes: write sum by (node) (...)")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise QueryFailed(f"{self._url} does not answer: {str(error) or type(error).__name__}") from error
        answer = b"".join(parts)
        try:
            reply = _replies.read(answer)
            if reply.status != "success":
                raise QueryFailed(f"{response.status}: {reply.error or 'no reason is given'}")
            data = _data.read(reply.data)
        except UnreadableJson as error:
            raise QueryFailed(f"{response.status}: {answer[:200].decode(errors='replace')}") from error
        if data.result_type != "vector":
            raise QueryFailed(f"the result is a {data.result_type}, not a vector: write an expression without a range")
        return data.result


def _add(values: dict[str, tuple[float, float]], raw: msgspec.Raw, now: float) -> None:
    try:
        sample = _samples.read(raw)
        timestamp, value = sample.value[0], float(sample.value[1])
    except (UnreadableJson, ValueError) as error:
        raise ModelError("sample", str(error)) from error
    node = sample.metric.node
    if not node:
        raise ModelError("sample", "it has no label node: write sum by (node) (...)")
    if node in values:
        raise ModelError(f"node {node}", "there are two samples of it: write sum by (node) (...)")
    check_time(timestamp, now, f"node {node}: time")
    values[node] = timestamp, checked_use(value, f"node {node}: value")


@asynccontextmanager
async def connect_prometheus(url: str) -> AsyncIterator[PrometheusClient]:
    """A client of the Prometheus at a URL."""
    async with aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=True) as session:
        yield PrometheusClient(url, session)
