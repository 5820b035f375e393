"""Who gets a place in the view's queue: nobody without rights, and of the others each a share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack

import pytest
import pytest_asyncio
from support.operator import until
from support.view import Client, HeldSource, small_scenario, viewed
from thalweg_view.callers.access import Caller
from thalweg_view.callers.places import Places
from thalweg_view.errors import RequestRefused

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Visitors:
    """Callers by their names, which are their tokens: the admin sees all, tenants one namespace, others nothing."""

    async def caller(self, token: str) -> Caller:
        return Caller(token)

    async def may_list(self, caller: Caller, _kind: str) -> bool:
        return caller.name == "admin"

    async def namespaces(self, caller: Caller, known: Collection[str]) -> list[str] | None:
        if caller.name == "admin":
            return None
        tenant = caller.name.startswith(("system:serviceaccount:tenant", "jane"))
        return [name for name in known if tenant and name == "default"]


def account(namespace: str, number: int) -> str:
    return f"system:serviceaccount:{namespace}:s{number}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    source = HeldSource(small_scenario(tmp_path_factory.mktemp("dump")), kind="dump")
    async with viewed(source, Visitors()) as client:
        yield client


def as_caller(client: Client, name: str) -> Client:
    return Client(client.port, client.session, name)


async def without_body(client: Client, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A question whose body does not come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    head = f"POST /api/v1/why HTTP/1.1\r\nHost: localhost\r\nX-Thalweg-Token: {name}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 10\r\n\r\n".encode())
    return reader, writer


async def asks(client: Client) -> int:
    """Status of a question that is asked as a whole."""
    body = {"target": "default/waits", "fixes": False}
    return (await client.get("/api/v1/why", {"X-Thalweg-Token": client.token}, "POST", json=body))[0]


async def test_callers_without_any_right_hold_no_place(client: Client) -> None:
    """They are told so at once, also where no body comes, and the admin's questions are answered meanwhile."""
    admin = as_caller(client, "admin")
    peers = [await without_body(client, account("mallory", number % 3)) for number in range(40)]
    for reader, writer in peers:
        assert (await asyncio.wait_for(reader.readline(), 30)).split()[1] == b"403"
        await asyncio.wait_for(reader.read(), 30)  # it ends
        writer.close()
    assert await asks(admin) == 200


@pytest.mark.parametrize("path", ["overview", "events", "overview?namespace=default", "pods/default/waits", "pending"])
async def test_callers_without_any_right_see_nothing(client: Client, path: str) -> None:
    """Neither numbers of all namespaces nor the cluster's address; a namespace that they name is not theirs."""
    status, answer, _ = await as_caller(client, account("mallory", 0)).get(f"/api/v1/{path}")
    assert status == 403
    assert "may list nothing that the view shows" in answer["error"]
    assert "default" not in answer["error"]


async def test_a_tenant_is_answered_also_about_a_namespace_of_others(client: Client) -> None:
    """It sees something somewhere; of the other namespace it is told nothing."""
    jane = as_caller(client, "jane")
    assert (await jane.get("/api/v1/pending"))[1]["total"] == 1
    status, answer, _ = await jane.get("/api/v1/pending?namespace=other")
    assert (status, answer["total"]) == (200, 0)


async def test_accounts_of_one_namespace_are_one_caller(client: Client) -> None:
    """Any number of them holds as many bodies as one; the admin and another tenant are answered meanwhile."""
    peers = [await without_body(client, account("tenant", number)) for number in range(20)]
    lines = [asyncio.create_task(reader.readline()) for reader, _ in peers]
    await until(lambda: sum(line.done() for line in lines) >= 16, 30, lambda: f"16 to be refused; {lines}")
    assert await asks(as_caller(client, "jane")) == 200
    assert await asks(as_caller(client, "admin")) == 200
    for _, writer in peers:
        writer.close()
    refused = [answer for answer in await asyncio.gather(*lines) if answer]
    assert {answer.split()[1] for answer in refused} == {b"429"}
    assert len(refused) == 16


async def test_tenants_hold_half_of_the_streams(client: Client) -> None:
    """However many namespaces of them there are, and whatever each holds: the admin gets a stream."""
    streams = []
    for number in range(70):
        headers = {"X-Thalweg-Token": account(f"tenant-{number}", 0)}
        streams.append(await client.session.get(client.url("/api/v1/events"), headers=headers))
    assert [stream.status for stream in streams] == [200] * 32 + [503] * 38
    async with client.session.get(client.url("/api/v1/events"), headers={"X-Thalweg-Token": "admin"}) as stream:
        assert stream.status == 200
    for each in streams:
        each.close()


async def test_shares() -> None:
    """Half for those who do not see all, of the whole and of one caller; a place is free again after its block."""
    places = Places(8, 4, "questions", retry_after=1)

    def taken(callers: list[tuple[str, bool]]) -> list[int]:
        statuses = []
        with ExitStack() as stack:
            for name, sees_all in callers:
                try:
                    stack.enter_context(places.place(Caller(name), sees_all=sees_all))
                    statuses.append(200)
                except RequestRefused as error:
                    statuses.append(error.status)
        return statuses

    for _ in range(2):
        assert taken([("jane", False)] * 3) == [200, 200, 429]
        assert taken([("admin", True)] * 5) == [200] * 4 + [429]
        assert taken([(f"t{n}", False) for n in range(6)]) == [200] * 4 + [503] * 2
        assert taken([(f"a{n}", True) for n in range(9)]) == [200] * 8 + [503]
        assert taken([(f"t{n}", False) for n in range(9)] + [(f"a{n}", True) for n in range(5)])[9:] == [200] * 4 + [
            503
        ]
        assert taken([(account("n", n), False) for n in range(3)] + [("jane", False)]) == [200, 200, 429, 200]


async def test_whose_share() -> None:
    """Of service accounts the namespace's; of everybody else the own one."""
    assert Caller(account("shop", 1)).share == Caller(account("shop", 2)).share
    assert Caller(account("shop", 1)).share != Caller(account("shop2", 1)).share
    assert Caller("jane:doe").share == "jane:doe"
