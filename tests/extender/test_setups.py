"""Which connections a listener gives up first, what becomes of them, and how many each address may open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from aiohttp import web
from support.callers import Refusals, files, post_filter, trusting
from support.extender import UNPACED_LIMITS, StubPlanView, served
from support.operator import until
from thalweg_controlplane.certificates import Authority
from thalweg_extender import Certificates
from thalweg_listener import ConnectionLimits, listening
from thalweg_listener.setups import Rates, Setup, Setups, SetupStage

from flowcore.model.advice import Advice

LIMITS = ConnectionLimits(connections=16, idle=0.0)
#: The first byte of a TLS handshake.
CLIENT_HELLO = b"\x16"
Peer: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _ok(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="ok\n")


@asynccontextmanager
async def answering(limits: ConnectionLimits, refused: Refusals | None = None) -> AsyncIterator[int]:
    """A plain listener that answers every request; its port."""
    async with listening("127.0.0.1", 0, _ok, limits, refused or Refusals()) as port:
        yield port


async def connect(port: int, source: str = "127.0.0.1", says: bytes = b"") -> Peer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(says)
    return reader, writer


def ended(peers: list[Peer]) -> int:
    """How many of them were closed by the listener."""
    return sum(reader.at_eof() or reader.exception() is not None for reader, _ in peers)


def close(peers: list[Peer]) -> None:
    for _, writer in peers:
        writer.transport.abort()


async def test_silent_connections_are_given_up_before_one_that_has_begun_to_ask() -> None:
    """Half a head, then more silent connections than there may be, of many addresses: the request is answered."""
    async with answering(LIMITS) as port:
        reader, writer = await connect(port, says=b"GET / HTTP/1.1\r\nHost: a\r\n")
        silent = [await connect(port, f"127.0.1.{number}") for number in range(1, 61)]
        await until(lambda: ended(silent) >= 45, 10, lambda: "45 to be closed")
        writer.write(b"\r\n")
        assert (await asyncio.wait_for(reader.readline(), 10)).split()[1] == b"200"
        assert ended(silent) == 45
        close([*silent, (reader, writer)])


async def test_silent_connections_are_given_up_before_a_tls_handshake(tmp_path: Path) -> None:
    """A handshake that has begun goes on beside any number of silent connections; callers are answered."""
    ours = Authority(tmp_path, "ours")
    limits, certificates = replace(UNPACED_LIMITS, connections=16), Certificates(files(ours))
    async with served(StubPlanView(Advice()), certificates=certificates, limits=limits) as address:
        port = int(address.split("/")[2].rpartition(":")[2])
        begun = [await connect(port, says=CLIENT_HELLO) for _ in range(3)]
        silent = [await connect(port, f"127.0.1.{number}") for number in range(1, 61)]
        await until(lambda: ended(silent) >= 47, 10, lambda: "47 to be closed")
        assert await post_filter(address, trusting(ours.certificate, ours.client("client"))) == 200
        assert ended(begun) == 0
        assert ended(silent) <= 48
        close(begun + silent)


@pytest.mark.parametrize("says", [b"", b"GET / HTTP/1.1\r\n"], ids=["silent", "half a head"])
async def test_what_is_given_up_is_closed(says: bytes) -> None:
    """Connections that all arrive before the listener has a turn: none stays open that leads nowhere."""
    async with answering(LIMITS) as port:
        sockets = [socket.create_connection(("127.0.0.1", port), 5, (f"127.0.2.{n}", 0)) for n in range(1, 61)]
        for each in sockets:
            each.send(says)
            each.setblocking(False)

        def closed() -> int:
            found = 0
            for each in sockets:
                try:
                    found += each.recv(1) == b""
                except BlockingIOError:
                    continue
                except ConnectionResetError:
                    found += 1
            return found

        await until(lambda: closed() >= 60 - LIMITS.connections, 10, lambda: f"44 to be closed; {closed()} are")
        assert closed() == 60 - LIMITS.connections
        for each in sockets:
            each.close()


async def test_an_address_has_a_few_silent_connections() -> None:
    """Its own oldest ones are given up for its new ones, and those of others stay."""
    refused = Refusals()
    async with answering(replace(LIMITS, connections=100, silent=8), refused) as port:
        other = await connect(port, "127.0.0.3")
        many = [await connect(port, "127.0.0.2") for _ in range(30)]
        await until(lambda: ended(many[:22]) == 22, 10, lambda: "22 to be closed")
        assert ended([other, *many[22:]]) == 0
        close([other, *many])
    assert refused.fields == {"connections": 22}


async def test_an_address_has_a_rate_of_new_connections() -> None:
    """Beyond it they are closed, whatever they say; other addresses are answered, and so is this machine's own."""
    refused = Refusals()

    async def asks(port: int, source: str) -> bytes:
        reader, writer = await connect(port, source, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        try:
            return (await asyncio.wait_for(reader.read(), 10))[9:12]
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async with answering(replace(LIMITS, accepts=1e-6, burst=5), refused) as port:
        assert [await asks(port, "127.0.0.2") for _ in range(8)] == [b"200"] * 5 + [b""] * 3
        assert await asks(port, "127.0.0.3") == b"200"
        assert [await asks(port, "127.0.0.1") for _ in range(8)] == [b"200"] * 8
    assert refused.fields == {"connections": 3}


def test_rates_grow_again_and_are_bounded() -> None:
    """A token comes back in its time and never more than the burst; any number of addresses takes bounded memory."""
    rates = Rates(rate=2.0, burst=3)
    assert [rates.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert [rates.take("a", 0.5) for _ in range(2)] == [True, False]
    assert [rates.take("a", 1000.0) for _ in range(4)] == [True, True, True, False]
    for number in range(10_000):
        assert rates.take(str(number), 1000.0)
    assert len(rates._tokens) <= 4096


def test_the_address_with_most_gives_way() -> None:
    """The oldest one of it; silent ones go first, handshakes and heads count together."""
    setups = Setups()

    def add(source: str, stage: SetupStage) -> Setup:
        setup = Setup(source, lambda: None)
        setups.put(setup, stage)
        return setup

    lone = add("lone", SetupStage.HANDSHAKE)
    first, second = add("many", SetupStage.HANDSHAKE), add("many", SetupStage.HEAD)
    silent = [add(source, SetupStage.SILENT) for source in ("lone", "many", "many")]
    order = []
    while (setup := setups.first_to_end()) is not None:
        order.append(setup)
        setups.remove(setup)
    assert order == [silent[1], silent[0], silent[2], first, lone, second]
    assert setups.all() == []
