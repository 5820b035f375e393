"""Callers of the extender: their certificates, what they ask, and what they are refused."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from support.extender import filter_request
from thalweg_controlplane.certificates import Authority, Pair
from thalweg_extender import CertificateFiles

from flowcore.model.advice import Advice

HERE = "127.0.0.1"
PASSING_ADVICE = Advice()


class Refusals:
    """What was refused, by field."""

    def __init__(self) -> None:
        self.fields: Counter[str] = Counter()

    def __call__(self, field: str, name: str, problem: str) -> None:
        assert field
        assert problem
        self.fields[field] += 1


def trusting(authority: Path, client: Pair | None = None) -> ssl.SSLContext:
    """As kube-scheduler is configured by caData, certFile and keyFile."""
    context = ssl.create_default_context(cafile=authority)
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    return context


def files(authority: Authority, *, verifies: bool = True) -> CertificateFiles:
    pair = authority.server("server", HERE)
    return CertificateFiles(pair.certificate, pair.key, authority.certificate if verifies else None)


async def post_filter(address: str, tls: ssl.SSLContext | bool = True, body: bytes | None = None) -> int:  # noqa: FBT001, FBT002
    """Status of one filter request on a connection of its own."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{address}/filter", data=body or filter_request(["n1"]), ssl=tls) as answer,
    ):
        await answer.read()
        return answer.status


@asynccontextmanager
async def opened(address: str, number: int, says: bytes = b"") -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections that say no more than this."""
    host, _, port = address.split("/")[2].partition(":")
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(number):
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            if says:
                writer.write(says)
            readers.append(reader)
        yield readers
