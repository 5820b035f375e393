"""SIGTERM: the lease is released only if nothing may still be carried out that the next leader does not know of."""

import asyncio
from typing import Any, cast

import pytest
from support import virtual_time
from support.leases import DirectLeaseClient, LeaseStore
from thalweg_operator import app, draining
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.leadership.leader_election import LeaderElector
from thalweg_operator.api.writes import write_queue
from thalweg_operator.api.writes.write_queue import (
    CARRIED_OUT_WITHIN,
    Finished,
    Outcome,
    Retry,
    WriteQueue,
    retry_after_error,
)
from thalweg_operator.errors import ConnectionLost, LeaseLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.settings import Settings

from flowcore.model.pods import Pod, PodClass

POD = Pod("ns", "p", "u", PodClass())


@pytest.mark.parametrize(
    ("error", "uncertain"),
    [
        (ConnectionLost("lost"), True),
        (LeaseLost("not sent"), False),
        (Refused(503, ""), True),
        (Refused(429, ""), False),
        (Refused(403, ""), False),
        (Refused(403, "", starting=True), False),
    ],
)
def test_what_may_have_been_carried_out(error: ConnectionLost | Refused, uncertain: bool) -> None:  # noqa: FBT001
    """A write without an answer, or with a server's error; not one that was not sent, or refused."""
    assert retry_after_error(error).uncertain is uncertain


async def drained(queue: WriteQueue[str]) -> None:
    """An item is put in line, and the queue drained."""
    task = asyncio.create_task(queue.run())
    queue.put("a", "ns")
    async with asyncio.timeout(10):
        await queue.drain(resting=False)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_drain_waits_for_certainty() -> None:
    """An item whose answer was lost rests between two tries, and counts until its last try was answered."""
    script: list[Outcome] = [Retry("lost", uncertain=True), Retry("busy"), Finished.ANSWERED]
    unanswered: list[bool] = []

    async def attempt(_item: str, _tries: int) -> Outcome:
        return script.pop(0)

    queue = WriteQueue("test", 1, attempt, Metrics(), Backoff(0.01, 0.01))
    settle = queue._settle

    def settled(*arguments: Any) -> None:
        settle(*arguments)
        unanswered.append(queue.unanswered)

    queue._settle = settled  # type: ignore[method-assign]
    assert not queue.unanswered
    await drained(queue)
    assert unanswered == [True, True, False]
    assert script == []


@pytest.mark.parametrize("since", [CARRIED_OUT_WITHIN - 5.0, CARRIED_OUT_WITHIN + 5.0])
def test_what_was_not_answered_is_forgotten(since: float) -> None:
    """A budget refuses for hours what was tried again: the first try counts until the server has given it up."""

    async def attempt(_item: str, tries: int) -> Outcome:
        return Retry("busy" if tries else "lost", uncertain=not tries)

    async def main() -> None:
        loop, queue = asyncio.get_running_loop(), WriteQueue("test", 1, attempt, Metrics(), Backoff(1.0, 5.0))
        task = asyncio.create_task(queue.run())
        queue.put("a", "ns")
        begun = loop.time()
        await asyncio.sleep(since)
        assert len(queue) == 1
        assert queue.unanswered is (since < CARRIED_OUT_WITHIN)
        async with asyncio.timeout(600):
            await queue.drain(resting=False)
        assert loop.time() - begun <= max(since, CARRIED_OUT_WITHIN) + 0.1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    virtual_time.run(main())


async def test_a_drain_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No later try wakes it."""
    monkeypatch.setattr(write_queue, "CARRIED_OUT_WITHIN", 0.05)

    async def attempt(_item: str, _tries: int) -> Outcome:
        return Retry("lost", uncertain=True)

    queue = WriteQueue("test", 1, attempt, Metrics(), Backoff(600.0, 600.0))
    await drained(queue)


@pytest.fixture
async def leader(monkeypatch: pytest.MonkeyPatch) -> app.Operator:
    """One that holds the lease, and has nothing to write."""
    monkeypatch.setattr(draining, "_PASSING_SECONDS", 0.05)
    monkeypatch.setattr(app, "_DRAIN_SECONDS", 0.5)
    client, fence = cast("ApiClient", DirectLeaseClient(LeaseStore())), Fence()
    settings = Settings()
    elector = LeaderElector(client, fence, settings.lease)
    await elector.attempt()
    assert elector.may_write
    return app.Operator(settings, client, elector)


async def test_nothing_is_under_way(leader: app.Operator) -> None:
    """So the lease may be released."""
    assert not leader._shell.ledger.ends
    assert await leader._drain() == ""
    assert leader._shell.ledger.ends, "no eviction begins any more"


async def test_kube_scheduler_may_be_binding(leader: app.Operator) -> None:
    """A pod that it was let through with and that is not seen bound in time: the next leader does not know of it."""
    leader._shell.ledger.in_flight.let_through(POD, frozenset({"a"}), float("inf"))
    assert "kube-scheduler" in await leader._drain()


@pytest.mark.parametrize("writer", ["_nominator", "_evictor"])
async def test_other_writes_count(leader: app.Operator, monkeypatch: pytest.MonkeyPatch, writer: str) -> None:
    """A nomination or an eviction whose answer was lost may be carried out yet."""
    monkeypatch.setattr(type(getattr(leader, writer)), "unanswered", True)
    assert "was not answered" in await leader._drain()
