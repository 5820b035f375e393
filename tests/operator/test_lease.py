"""The lease: who holds it, when it is lost, and that nothing is written without it."""

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from support import virtual_time
from support.fake_api import serving
from support.leases import DirectLeaseClient, LeaseServer, LeaseStore
from support.profiles import examples
from thalweg_operator.api.client import DELIVERED_WITHIN, ApiClient, connect
from thalweg_operator.api.fence import Fence, boot_time
from thalweg_operator.api.leadership.leader_election import LeaderElector, LeaseName
from thalweg_operator.app import Operator
from thalweg_operator.errors import ConnectionLost, LeaseLost, OperatorError
from thalweg_operator.settings import Settings

NAME = LeaseName("kube-system", "thalweg")


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """A lease server, its clock, and electors of it."""

    def __init__(self, connection: ApiClient) -> None:
        self.connection, self.clock, self.server = connection, Clock(), LeaseServer()

    def elector(self, *, waits: bool = False) -> tuple[LeaderElector, Fence]:
        fence = Fence(self.clock)
        return LeaderElector(self.connection, fence, NAME, waits=waits), fence


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    server = LeaseServer()
    async with serving(server.app, folder) as connection:
        stage = Stage(connection)
        stage.server = server
        yield stage


async def test_taken_and_renewed(tmp_path: Path) -> None:
    """The first one makes the lease, holds it, and may write for ten seconds after each renewal."""
    async with staged(tmp_path) as stage:
        elector, fence = stage.elector()
        assert not fence.open
        await elector.attempt()
        assert (elector.held.is_set(), stage.server.store.holder) == (True, elector.identity)
        (lease,) = stage.server.store.leases.values()
        assert lease["metadata"] | {"resourceVersion": ""} == {
            "name": "thalweg",
            "namespace": "kube-system",
            "labels": {"app.kubernetes.io/name": "thalweg"},
            "resourceVersion": "",
        }
        assert lease["spec"]["leaseDurationSeconds"] == 15
        assert lease["spec"]["leaseTransitions"] == 1
        stage.clock.now += 9.9
        assert fence.open
        assert fence.seconds() == pytest.approx(4.1)
        await elector.attempt()
        assert stage.server.store.writes == 3  # made, taken, renewed
        stage.clock.now += 9.9
        assert fence.open
        stage.clock.now += 0.2
        assert not fence.open
        with pytest.raises(LeaseLost):
            fence.seconds()


async def test_time_counts_from_before_the_renewal_was_sent(tmp_path: Path) -> None:
    """An answer that takes four seconds leaves six of the ten."""
    async with staged(tmp_path) as stage:
        elector, fence = stage.elector()
        handle = stage.server.store.handle

        def slow(*arguments: Any) -> Any:
            stage.clock.now += 4
            return handle(*arguments)

        stage.server.store.handle = slow  # type: ignore[method-assign]
        released = {"holderIdentity": "", "leaseDurationSeconds": 1}
        metadata = {"name": "thalweg", "resourceVersion": "0"}
        stage.server.store.leases = {"thalweg": {"metadata": metadata, "spec": released}}
        await elector.attempt()
        stage.clock.now += 5.9
        assert fence.open
        stage.clock.now += 0.2
        assert not fence.open


async def test_stopped_for_longer_than_the_lease(tmp_path: Path) -> None:
    """A process that goes on after a minute is not ready, so kube-scheduler gets no answer, until it has the lease."""
    async with staged(tmp_path) as stage:
        elector, _ = stage.elector()
        operator = Operator(Settings(kubeconfig=None), stage.connection, elector)
        operator._before_leading = ""
        assert operator.readiness()["lease"] == "not acquired yet"
        await elector.attempt()
        assert operator.readiness()["lease"] == ""
        stage.clock.now += 60
        assert operator.readiness()["lease"] == "it could not be renewed"
        await elector.attempt()
        assert operator.readiness()["lease"] == ""


async def test_what_a_holder_waits_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it leads: first the kinds, then the policies. When it is told to stop, that is why it gives no answer."""
    said: list[str] = []

    async def look(*_arguments: Any) -> None:
        said.append(operator.readiness()["lease"])

    async def skip() -> None:
        pass

    async with staged(tmp_path) as stage:
        elector, _ = stage.elector()
        operator = Operator(Settings(kubeconfig=None), stage.connection, elector)
        monkeypatch.setattr(operator, "_read_cluster", skip)
        monkeypatch.setattr(operator._catch_up, "run", look)
        monkeypatch.setattr(operator._policy_resync, "catch_up", look)
        monkeypatch.setattr(operator._round_loop, "run", look)
        await elector.attempt()
        elector.tried.set()
        await operator._work()
        operator._stop.set()
        await look()
        await operator._shut_down()
        await look()
    assert said == [
        "held, the snapshot is being brought up to date",
        "held, the policies are being listed again",
        "",
        "the operator ends",
        "the operator ends",
    ]


async def test_a_second_one_refuses_while_the_first_renews(tmp_path: Path) -> None:
    """In one sentence with the holder and the lease; it never writes, and the first does not notice."""
    async with staged(tmp_path) as stage:
        (first, _), (second, fence) = stage.elector(), stage.elector()
        await first.attempt()
        await second.attempt()
        stage.clock.now += 2
        await first.attempt()
        with pytest.raises(OperatorError, match=r"another Thalweg works on this cluster: .* holds the lease") as caught:
            await second.attempt()
        assert first.identity in str(caught.value)
        assert "kube-system/thalweg" in str(caught.value)
        assert (fence.open, second.held.is_set(), stage.server.store.writes) == (False, False, 3)


async def test_one_that_waits_takes_over(tmp_path: Path) -> None:
    """A standby goes on waiting while the holder renews, and takes the lease once all its writes have ended."""
    async with staged(tmp_path) as stage:
        (first, _), (second, fence) = stage.elector(), stage.elector(waits=True)
        for _ in range(5):
            await first.attempt()
            await second.attempt()
            stage.clock.now += 2
        stage.clock.now += 11.9
        await second.attempt()
        assert not fence.open
        stage.clock.now += 0.2
        await second.attempt()
        assert fence.open
        assert stage.server.store.holder == second.identity
        (lease,) = stage.server.store.leases.values()
        assert lease["spec"]["leaseTransitions"] == 2


async def test_the_lease_of_a_dead_holder(tmp_path: Path) -> None:
    """Its writes end a second before the time that it says, counted from when it was first seen, not its renewTime."""
    async with staged(tmp_path) as stage:
        spec = {"holderIdentity": "dead", "leaseDurationSeconds": 18, "renewTime": "1999-01-01T00:00:00.000000Z"}
        metadata = {"name": "thalweg", "resourceVersion": "0", "labels": {"kept": "yes"}}
        stage.server.store.leases["thalweg"] = {"metadata": metadata, "spec": spec}
        elector, fence = stage.elector()
        for _ in range(17):
            await elector.attempt()
            assert not fence.open
            stage.clock.now += 1
        # Somebody's label is no renewal, but nobody knows what came before it.
        stage.server.store.leases["thalweg"]["metadata"] = metadata | {"resourceVersion": "00"}
        await elector.attempt()
        assert not fence.open
        stage.clock.now += 17
        await elector.attempt()
        assert fence.open
        assert stage.server.store.leases["thalweg"]["metadata"]["labels"] == {"kept": "yes"}


async def test_released_at_once(tmp_path: Path) -> None:
    """After a release the fence is closed, and another takes the lease at its first try."""
    async with staged(tmp_path) as stage:
        (first, mine), (second, fence) = stage.elector(), stage.elector()
        await first.attempt()
        await first.release()
        assert (mine.open, stage.server.store.holder) == (False, "")
        await second.attempt()
        assert fence.open
        # One that holds nothing gives nothing back.
        await first.release()
        assert stage.server.store.holder == second.identity


async def test_an_answer_that_was_lost(tmp_path: Path) -> None:
    """Taking, renewing: what got through is found out, and the time of the lost try does not count."""
    async with staged(tmp_path) as stage:
        elector, fence = stage.elector()
        stage.server.script = ["", "", "unanswered"]  # read, made; the answer to the PUT is lost
        await elector.attempt()
        assert stage.server.store.holder == elector.identity
        assert not fence.open
        await elector.attempt()
        assert fence.open
        stage.clock.now += 5
        stage.server.script = ["unanswered"]
        await elector.attempt()
        stage.clock.now += 4.9
        assert fence.open
        await elector.attempt()
        stage.clock.now += 9.9
        assert fence.open


@pytest.mark.parametrize("fault", [500, 403, 429, "unanswered"])
async def test_renewals_that_fail(tmp_path: Path, fault: int | str) -> None:
    """Ten seconds after the last good one nothing may be written; once one gets through, all goes on as before."""
    async with staged(tmp_path) as stage:
        elector, fence = stage.elector()
        await elector.attempt()
        for tries in range(1, 30):
            stage.clock.now += 2
            stage.server.script = [fault, 503]
            await elector.attempt()
            assert fence.open is elector.held.is_set() is (tries < 5)
        stage.server.script = []
        await elector.attempt()
        assert fence.open
        assert elector.held.is_set()
        assert stage.server.store.holder == elector.identity


@pytest.mark.parametrize("nonsense", [b"<html>", b"\xff", b"{}", b"[]", b'{"metadata":{},"spec":[]}', b"[" * 5000])
async def test_an_answer_that_is_no_lease(nonsense: bytes) -> None:
    """A proxy may answer anything. It counts as a failed try, and the next good answer helps."""
    clock, direct = Clock(), DirectLeaseClient(LeaseStore())
    fence = Fence(clock)
    elector = LeaderElector(cast("ApiClient", direct), fence, NAME)
    direct.nonsense = [nonsense] * 2
    await elector.attempt()
    assert not fence.open
    await elector.attempt()
    await elector.attempt()
    assert fence.open
    direct.nonsense = [nonsense]
    clock.now += 11
    await elector.attempt()
    assert not fence.open
    await elector.attempt()
    assert fence.open


async def test_overdue_and_taken_meanwhile(tmp_path: Path) -> None:
    """Another process held the lease while the API server could not be reached, be it for a moment: it is lost."""
    for gives_back in (False, True):
        async with staged(tmp_path) as stage:
            (first, mine), (second, _) = stage.elector(), stage.elector()
            await first.attempt()
            await second.attempt()
            stage.clock.now += 15
            stage.server.script = [503]
            await first.attempt()
            await second.attempt()
            if gives_back:
                await second.release()
            with pytest.raises(LeaseLost, match="took the lease kube-system/thalweg"):
                await first.attempt()
            assert not mine.open


async def test_deleted(tmp_path: Path) -> None:
    """Nobody knows who held it meanwhile: it is lost; a process that holds nothing makes it anew."""
    async with staged(tmp_path) as stage:
        (first, mine), (second, fence) = stage.elector(), stage.elector()
        await first.attempt()
        stage.server.store.leases.clear()
        with pytest.raises(LeaseLost, match="was deleted"):
            await first.attempt()
        assert not mine.open
        await second.attempt()
        assert fence.open


async def test_taken_by_another(tmp_path: Path) -> None:
    """A holder that slept past its lease learns it at its first try, and its fence was closed before that."""
    async with staged(tmp_path) as stage:
        (first, mine), (second, _) = stage.elector(), stage.elector()
        await first.attempt()
        await second.attempt()
        stage.clock.now += 15
        await second.attempt()
        assert not mine.open
        with pytest.raises(LeaseLost, match=f"{second.identity} took the lease kube-system/thalweg"):
            await first.attempt()


async def test_without_the_right(tmp_path: Path) -> None:
    """A cluster that was just started may refuse for a moment; after ten seconds the right is named."""
    async with staged(tmp_path) as stage:
        elector, fence = stage.elector()
        for _ in range(5):
            stage.server.script = [403]
            await elector.attempt()
            stage.clock.now += 2
        stage.server.script = [403]
        with pytest.raises(
            OperatorError, match=r"needs get, create, patch and update on leases\.coordination\.k8s\.io in the"
        ):
            await elector.attempt()
        assert not fence.open


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_never_two_at_once(seed: int) -> None:
    """Three processes that are stopped, cut off and restarted, and a Lease that others empty and delete: one writes."""
    asyncio.run(_never_two_at_once(seed))


async def _never_two_at_once(seed: int) -> None:
    draw = random.Random(seed)
    store, clock = LeaseStore(), Clock()
    held = 0
    weights = draw.choice([(90, 5, 5), (40, 30, 30)])

    def fault() -> str:
        clock.now += draw.choice([0.0, 0.01, 1.0])  # a request takes time
        return draw.choices(["", "lost", "unanswered"], weights)[0]

    def made() -> tuple[LeaderElector, Fence]:
        fence = Fence(clock)
        return LeaderElector(cast("ApiClient", DirectLeaseClient(store, fault)), fence, NAME, waits=True), fence

    pairs = [made() for _ in range(3)]
    asleep = [0.0] * 3
    for _ in range(400):
        clock.now += draw.choice([0.1, 0.5, 2.0])
        at = draw.randrange(3)
        if clock.now < asleep[at]:
            continue
        if draw.random() < 0.03:
            asleep[at] = clock.now + draw.choice([5.0, 14.0, 16.0, 40.0])
            continue
        try:
            await pairs[at][0].attempt()
        except LeaseLost:
            pairs[at] = made()  # started again
        if draw.random() < 0.02:
            await pairs[at][0].release()
        if draw.random() < 0.02:
            store.wipe(draw.choice([None, {}, {"holderIdentity": "", "leaseDurationSeconds": 15}]))
        open_now = [fence.open for _, fence in pairs]
        assert sum(open_now) <= 1
        held += any(open_now)
    assert held > 0


class Replica:
    """An elector that runs, and writes that take as long as the fence lets them."""

    def __init__(self, store: LeaseStore, draw: random.Random, writing: Counter[str]) -> None:
        self._draw, self._writing = draw, writing
        clock = asyncio.get_running_loop().time
        self.fence = Fence(clock)
        client = DirectLeaseClient(store, self._fault)
        handle = client.request

        async def request(*arguments: Any, **options: Any) -> bytes:
            # Longer than a renewal may take, now and then: the answer, or the request, comes too late.
            await asyncio.sleep(draw.choice([0.001, 0.1, 1.0, 6.0]))
            answer = await handle(*arguments, **options)
            await asyncio.sleep(draw.choice([0.001, 0.1, 1.0, 6.0]))
            return answer

        client.request = request  # type: ignore[method-assign]
        self.elector = LeaderElector(cast("ApiClient", client), self.fence, NAME, waits=True)
        self.writes = 0
        self.tasks = [asyncio.create_task(each) for each in (self.elector.run(), self._write())]

    def _fault(self) -> str:
        return self._draw.choices(["", "lost", "unanswered"], [90, 5, 5])[0]

    async def _write(self) -> None:
        """Writes that begin whenever the fence is open, and end within the time that it gives."""
        me = self.elector.identity
        while True:
            if self.fence.open:
                seconds = self.fence.seconds()
                self._writing[me] += 1
                self.writes += 1
                assert len(+self._writing) == 1, "two replicas write at once"
                await asyncio.sleep(self._draw.uniform(0.0, seconds))
                self._writing[me] -= 1
            await asyncio.sleep(self._draw.choice([0.1, 3.0]))

    async def end(self) -> None:
        """It is killed. What it has sent is carried out all the same."""
        self.tasks[0].cancel()
        self.fence.close()
        await asyncio.gather(self.tasks[0], return_exceptions=True)

    async def stop(self) -> None:
        """SIGTERM: writes end first, then the lease is released."""
        self.tasks[0].cancel()
        await asyncio.gather(self.tasks[0], return_exceptions=True)
        self.fence.close()
        while self._writing[self.elector.identity]:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
        await self.elector.release()


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_write_meets_that_of_another(seed: int) -> None:
    """Three replicas, late and lost requests, kills and stops, in virtual time: writes of two never overlap."""
    virtual_time.run(_no_write_meets_that_of_another(seed))


async def _no_write_meets_that_of_another(seed: int) -> None:
    draw, store, writing = random.Random(seed), LeaseStore(), Counter[str]()
    replicas = [Replica(store, draw, writing) for _ in range(3)]
    ended: list[Replica] = []
    for _ in range(15):
        await asyncio.sleep(draw.uniform(0.0, 40.0))
        for at, each in enumerate(replicas):
            assert not each.tasks[1].done(), each.tasks[1]
            action = draw.choice(["", "", "kill", "stop"])
            if action == "kill":
                await each.end()
            elif action == "stop":
                await each.stop()
            if action or each.tasks[0].done():
                if not writing[each.elector.identity]:
                    each.tasks[1].cancel()
                ended.append(each)
                replicas[at] = Replica(store, draw, writing)
    assert sum(each.writes for each in (*ended, *replicas)) > 0
    for each in (*ended, *replicas):
        for task in each.tasks:
            task.cancel()
        await asyncio.gather(*each.tasks, return_exceptions=True)


async def test_deleted_while_its_holder_may_write(tmp_path: Path) -> None:
    """A standby that saw the holder waits until the holder's writes have ended, as if it had died."""
    async with staged(tmp_path) as stage:
        (first, mine), (second, fence) = stage.elector(), stage.elector(waits=True)
        await first.attempt()
        await second.attempt()
        stage.server.store.leases.clear()
        for _ in range(6):
            await second.attempt()
            assert not fence.open
            stage.clock.now += 2
        assert not mine.open
        stage.clock.now += 2
        await second.attempt()
        assert fence.open


async def test_every_write_asks_the_fence(tmp_path: Path) -> None:
    """While it is closed only GETs reach the server; other verbs are refused as a lost connection is."""
    seen: list[str] = []
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.method)
        return web.Response(body=b"{}")

    app.router.add_route("*", "/{rest:.*}", answer)
    async with serving(app, tmp_path) as plain, aiohttp.ClientSession() as session:
        clock = Clock()
        fence = Fence(clock)
        connection = ApiClient(plain.credentials, session, fence)
        verbs = ("POST", "PUT", "PATCH", "DELETE")
        for verb in verbs:
            with pytest.raises(ConnectionLost, match="does not hold the lease"):
                await connection.request(verb, "/things")
        await connection.request("GET", "/things")
        assert seen == ["GET"]
        fence.extend(clock.now + 10, clock.now + 15)
        for verb in verbs:
            await connection.request(verb, "/things")
        assert seen == ["GET", *verbs]
        clock.now += 10
        for verb in verbs:
            with pytest.raises(LeaseLost):
                await connection.request(verb, "/things")
        assert seen == ["GET", *verbs]


async def test_a_write_ends_with_the_lease(tmp_path: Path) -> None:
    """One that waits for a free connection is not sent after another process may hold the lease."""
    seen: list[str] = []
    going = asyncio.Event()
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.method)
        await going.wait()
        return web.Response(body=b"{}")

    app.router.add_route("*", "/{rest:.*}", answer)
    one = aiohttp.TCPConnector(limit=1)
    async with serving(app, tmp_path) as plain, aiohttp.ClientSession(connector=one) as session:
        fence = Fence()
        fence.extend(boot_time() + 0.2, boot_time() + 0.3)
        connection = ApiClient(plain.credentials, session, fence)
        first = asyncio.create_task(connection.request("GET", "/things"))
        await _until(lambda: bool(seen))
        with pytest.raises(ConnectionLost):
            await connection.request("POST", "/things")
        going.set()
        await first
        assert seen == ["GET"]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)


async def test_seized_from_a_holder_that_is_alive(tmp_path: Path) -> None:
    """It is taken at the first try, but nothing is written before the old holder's time is over."""
    async with staged(tmp_path) as stage:
        (first, mine), fence = stage.elector(), Fence(stage.clock)
        await first.attempt()
        thief = LeaderElector(stage.connection, fence, NAME, seizes=True)
        for _ in range(7):
            await thief.attempt()
            assert stage.server.store.holder == thief.identity
            assert not fence.open
            assert not thief.held.is_set()
            stage.clock.now += 2
        assert not mine.open
        stage.clock.now += 2
        await thief.attempt()
        assert fence.open
        with pytest.raises(LeaseLost, match="took the lease"):
            await first.attempt()


async def test_what_is_not_acknowledged_is_dropped(tmp_path: Path) -> None:
    """The kernel delivers nothing after others may take the lease, not even after the socket was closed."""
    found: list[int] = []
    app = web.Application()

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b"{}")

    app.router.add_get("/things", answer)
    async with serving(app, tmp_path) as connection:
        await connection.request("GET", "/things")
        connector = connection._session.connector
        assert connector is not None
        for waiting in connector._conns.values():
            for protocol, *_ in waiting:
                assert protocol.transport is not None
                held = protocol.transport.get_extra_info("socket")
                found.append(held.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    assert found == [DELIVERED_WITHIN * 1000]


async def test_no_byte_is_sent_once_the_fence_is_closed(tmp_path: Path) -> None:
    """Also of a request that was begun before: a process may be stopped between its check of the fence and the send."""
    seen: list[str] = []
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        seen.append((await request.read()).decode())
        return web.Response(body=b"{}")

    app.router.add_route("*", "/{rest:.*}", answer)
    async with serving(app, tmp_path):
        fence = Fence()
        fence.extend(boot_time() + 60, boot_time() + 60)
        async with connect(tmp_path / "kubeconfig", 4, fence) as connection:
            await connection.request("POST", "/things", body=b"before")

            class Stopped(Fence):
                """Open when it is asked first; then the process is stopped, and goes on after the lease has ended."""

                def seconds(self) -> float:
                    fence.close()
                    return 10.0

            connection._fence = Stopped()
            with pytest.raises(ConnectionLost):
                await connection.request("POST", "/things", body=b"after")
            await connection.request("GET", "/things")
            assert seen == ["before", ""]
