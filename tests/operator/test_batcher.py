"""When a round is due: at once for a pod that began to wait, after a pause or a maximum window otherwise."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from thalweg_operator.planning.batcher import GATHER_ROOM, REST_PER_POD, Batcher

#: A window that does not end while a test runs.
_NEVER = 1000.0


async def _due(batcher: Batcher, resync: float = 60.0) -> None:
    async with asyncio.timeout(10):
        await batcher.wait(resync)


@asynccontextmanager
async def _triggered_again_and_again(batcher: Batcher, *, at_once: bool = False) -> AsyncIterator[None]:
    async def trigger() -> None:
        while True:
            batcher.trigger(at_once=at_once)
            await asyncio.sleep(0.001)

    task = asyncio.create_task(trigger())
    yield
    task.cancel()


async def _is_due_soon(batcher: Batcher) -> bool:
    """Whether the round is due without any window: some turns of the event loop are enough."""
    waiting = asyncio.create_task(batcher.wait(60.0))
    for _ in range(10):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return done


async def test_nothing_changes() -> None:
    """Then it is due for the resync alone."""
    await _due(Batcher(0.01, 0.1), resync=0.02)


async def test_a_change_before_the_wait_is_not_missed() -> None:
    """It may come while a round is under way."""
    batcher = Batcher(0.01, 0.1)
    batcher.trigger()
    await _due(batcher)


async def test_a_pod_waits_for_nobody() -> None:
    """No window passes before the round of a pod that began to wait, also where it comes during the window."""
    batcher = Batcher(_NEVER, _NEVER)
    batcher.trigger(at_once=True)
    assert await _is_due_soon(batcher)
    batcher.trigger()
    assert not await _is_due_soon(batcher)
    waiting = asyncio.create_task(_due(batcher))
    batcher.trigger()
    await asyncio.sleep(0)
    batcher.trigger(at_once=True)
    await waiting


async def test_the_next_round_does_not_inherit_the_haste() -> None:
    """What made one round start at once is done with."""
    batcher = Batcher(_NEVER, _NEVER)
    batcher.trigger(at_once=True)
    await _due(batcher)
    batcher.trigger()
    assert not await _is_due_soon(batcher)


@pytest.mark.parametrize("pods", [1, 10, 1000])
async def test_a_round_rests_for_its_pods(pods: int) -> None:
    """Pods that come right after a round wait for a time that grows with its pods, up to the maximum window."""
    batcher, loop = Batcher(_NEVER, 0.1), asyncio.get_running_loop()
    ended = loop.time()
    batcher.round_ended(0.001, pods, pods)
    async with _triggered_again_and_again(batcher, at_once=True):
        await _due(batcher)
    assert loop.time() - ended >= min(0.1, pods * REST_PER_POD)


async def test_kube_scheduler_waits_for_no_long_rest() -> None:
    """The rest is as after a round of one pod; after one of none there is no rest."""
    batcher, loop = Batcher(_NEVER, _NEVER), asyncio.get_running_loop()
    ended = loop.time()
    batcher.round_ended(0.001, 1_000_000, 1_000_000)
    batcher.trigger(at_once=True, asked=True)
    await _due(batcher)
    assert loop.time() - ended >= REST_PER_POD
    batcher.round_ended(0.001, 0, 0)
    batcher.trigger(asked=True)
    assert await _is_due_soon(batcher)
    batcher.round_ended(0.001, 1_000_000, 1_000_000)
    batcher.trigger(at_once=True)
    assert not await _is_due_soon(batcher)


async def test_a_pause_ends_the_rest() -> None:
    """Once a burst is over nothing more is waited for."""
    batcher = Batcher(0.01, _NEVER)
    batcher.round_ended(0.001, 1_000_000, 1_000_000)
    batcher.trigger(at_once=True)
    await _due(batcher)


async def test_a_round_without_pods_makes_no_rest() -> None:
    """The worker was told of changes: a pod that comes then is planned at once."""
    batcher = Batcher(_NEVER, _NEVER)
    batcher.round_ended(5.0, 0, 0)
    batcher.trigger(at_once=True)
    assert await _is_due_soon(batcher)


async def test_changes_that_never_pause() -> None:
    """The maximum window ends the gathering; and what came until then is not due once more."""
    batcher = Batcher(5.0, 0.05)
    async with _triggered_again_and_again(batcher):
        await _due(batcher)


async def test_a_change_during_the_round_makes_another() -> None:
    """Touched after the wait returned, it is due again."""
    batcher = Batcher(0.001, 0.01)
    batcher.trigger()
    await _due(batcher)
    batcher.trigger()
    await _due(batcher)


async def test_a_long_round_makes_for_a_long_pause() -> None:
    """Changes that no pod waits for must pause for as long as the last round took, but not for ever."""
    batcher, loop = Batcher(0.001, 10.0), asyncio.get_running_loop()
    for took, least in ((0.0, 0.0), (0.05, 0.05), (5.0, 0.1), (0.0, 0.0)):
        batcher.round_ended(took, 0, 0)
        batcher.trigger()
        begun = loop.time()
        await batcher.wait(10.0)
        assert least <= loop.time() - begun + 1e-3


async def test_room_for_a_waiting_pod_is_gathered_for_a_moment() -> None:
    """No window passes, though changes never pause; what comes free within a moment is one round's."""
    batcher, loop = Batcher(_NEVER, _NEVER), asyncio.get_running_loop()
    began = loop.time()
    batcher.trigger(room=True)
    async with _triggered_again_and_again(batcher):
        await _due(batcher)
    assert loop.time() - began >= GATHER_ROOM - 1e-3
    batcher.trigger()
    assert not await _is_due_soon(batcher), "the haste is over"


@pytest.mark.parametrize(
    ("seconds", "pods", "placed", "rest"),
    [(0.05, 100, 1, 0.05), (0.0, 100, 8, 8 * REST_PER_POD), (0.0, 100, 0, 0.1), (5.0, 100, 100, 0.1), (0.0, 0, 0, 0.0)],
    ids=["as long as it took", "for each pod that it placed", "it placed none", "no longer than the window", "no pods"],
)
async def test_rounds_for_room_rest(seconds: float, pods: int, placed: int, rest: float) -> None:
    """Pods end all the time: rounds for their room take half of the time at most, and less where they bring nothing."""
    batcher, loop = Batcher(_NEVER, 0.1), asyncio.get_running_loop()
    ended = loop.time()
    batcher.round_ended(seconds, pods, placed)
    batcher.trigger(room=True)
    await _due(batcher)
    assert loop.time() - ended >= rest - 1e-3
