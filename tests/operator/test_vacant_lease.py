"""A Lease without a holder: only a release says that nobody writes any more."""

import asyncio
from typing import Any, cast

import pytest
from support.leases import DirectLeaseClient, LeaseStore
from thalweg_operator.api.client import DELIVERED_WITHIN, ApiClient
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.leadership.leader_election import LeaderElector, LeaseName, LeaseTimes
from thalweg_operator.errors import LeaseLost

NAME = LeaseName("kube-system", "thalweg")
RELEASED = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3}


class Scene:
    """A lease store, a clock that stands still, and electors."""

    def __init__(self, spec: dict[str, Any] | None = None) -> None:
        self.now, self.store = 1000.0, LeaseStore()
        if spec is not None:
            self.wipe(spec)

    def wipe(self, spec: dict[str, Any]) -> None:
        """Somebody replaces the Lease."""
        self.store.version += 1
        metadata = {"name": NAME.name, "resourceVersion": str(self.store.version)}
        self.store.leases[NAME.name] = {"metadata": metadata, "spec": spec}

    def elector(self, **options: bool) -> tuple[LeaderElector, Fence]:
        fence = Fence(lambda: self.now)
        return LeaderElector(cast("ApiClient", DirectLeaseClient(self.store)), fence, NAME, **options), fence

    async def seconds_until_held(self, elector: LeaderElector, fence: Fence, step: float = 0.5) -> float:
        """How long it takes."""
        began = self.now
        await elector.attempt()
        while not fence.open:
            assert not elector.held.is_set()
            self.now += step
            await elector.attempt()
        return self.now - began


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"holderIdentity": ""},
        {"holderIdentity": "", "leaseDurationSeconds": 15},
        {"leaseTransitions": 7},
        {"holderIdentity": "dead", "leaseDurationSeconds": 8},
    ],
    ids=str,
)
@pytest.mark.parametrize("waits", [False, True])
async def test_what_is_no_release_is_waited_for(spec: dict[str, Any], waits: bool) -> None:  # noqa: FBT001
    """A process that starts does not know who wrote before: it waits until all writes of another have ended."""
    scene, times = Scene(spec), LeaseTimes()
    elector, fence = scene.elector(waits=waits)
    assert await scene.seconds_until_held(elector, fence) == times.writes_end()


async def test_a_holder_that_says_more_gets_more() -> None:
    """A leaseDurationSeconds above ours is that of another version."""
    scene = Scene({"holderIdentity": "dead", "leaseDurationSeconds": 40})
    assert await scene.seconds_until_held(*scene.elector(waits=True)) == LeaseTimes().writes_end(40)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_release_is_taken_at_once(waits: bool) -> None:  # noqa: FBT001
    """By a process that starts, too."""
    scene = Scene(dict(RELEASED))
    assert await scene.seconds_until_held(*scene.elector(waits=waits)) == 0


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": "", "leaseDurationSeconds": 15}], ids=str)
async def test_emptied_while_its_holder_may_write(spec: dict[str, Any]) -> None:
    """A tool replaces the Lease: the standby never writes beside the holder, which does not notice yet."""
    scene = Scene()
    (first, mine), (second, fence) = scene.elector(), scene.elector(waits=True)
    await first.attempt()
    await second.attempt()
    scene.now += 5
    await first.attempt()
    scene.wipe(spec)
    taken = await scene.seconds_until_held(second, fence)
    assert taken >= LeaseTimes().renew
    assert not mine.open
    with pytest.raises(LeaseLost, match="took the lease"):
        await first.attempt()


async def test_emptied_twice() -> None:
    """A standby that misses the holder between two empty Leases waits for that one, too."""
    scene = Scene({})
    (first, mine), (second, fence) = scene.elector(), scene.elector(waits=True)
    await second.attempt()
    await scene.seconds_until_held(first, mine)
    scene.wipe({})
    await second.attempt()
    assert mine.open
    assert not fence.open
    assert await scene.seconds_until_held(second, fence) == LeaseTimes().writes_end()


async def test_a_deleted_lease_heals() -> None:
    """A standby makes it again, empty, and takes it after the holder's time, also if it never saw the holder."""
    scene, times = Scene(), LeaseTimes()
    elector, fence = scene.elector(waits=True)
    assert await scene.seconds_until_held(elector, fence) == times.writes_end()
    assert scene.store.holder == elector.identity


async def test_to_make_it_takes_it_from_nobody() -> None:
    """Another process made the Lease and took it between our read and our write: it keeps it."""
    scene = Scene()
    (first, mine), (second, fence) = scene.elector(), scene.elector()
    client = cast("Any", second.api_client)
    request = client.request

    async def late(method: str, *arguments: Any, **options: Any) -> bytes:
        if method != "GET" and not mine.open:
            await first.attempt()
        return cast("bytes", await request(method, *arguments, **options))

    client.request = late
    await second.attempt()
    assert mine.open
    assert not fence.open
    assert scene.store.holder == first.identity


async def test_the_release_covers_a_take_that_was_interrupted() -> None:
    """SIGTERM while the first PUT is under way, and it was carried out: the next one need not wait."""
    scene = Scene(dict(RELEASED))
    elector, _ = scene.elector(waits=True)
    client = cast("Any", elector.api_client)
    request, hangs = client.request, asyncio.Event()

    async def unanswered(method: str, *arguments: Any, **options: Any) -> bytes:
        answer = cast("bytes", await request(method, *arguments, **options))
        if method == "PUT" and not hangs.is_set():
            hangs.set()
            await asyncio.sleep(60)
        return answer

    client.request = unanswered
    task = asyncio.create_task(elector.attempt())
    await hangs.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (scene.store.holder, elector.held.is_set()) == (elector.identity, False)
    await elector.release()
    assert scene.store.holder == ""
    assert await scene.seconds_until_held(*scene.elector(waits=True)) == 0


async def test_what_was_seized_is_not_released_early() -> None:
    """While the old holder may still write, the Lease must not say that nobody does."""
    scene = Scene()
    (first, mine), (thief, _) = scene.elector(), scene.elector(seizes=True)
    await first.attempt()
    await thief.attempt()
    assert scene.store.holder == thief.identity
    await thief.release()
    assert mine.open
    assert scene.store.holder == thief.identity


def test_the_times_leave_room() -> None:
    """See LeaseTimes: what each of them must leave for the next."""
    times = LeaseTimes()
    # A renewal that is not answered leaves time for another one.
    assert times.retry + times.attempt + times.retry < times.renew
    # The last byte of a write leaves just before ``renew`` ends, and is delivered or dropped with a second to spare.
    assert times.renew + DELIVERED_WITHIN + 1.0 <= times.writes_end() < times.duration
    # kube-scheduler's own.
    assert (times.duration, times.renew, times.retry) == (15.0, 10.0, 2.0)
