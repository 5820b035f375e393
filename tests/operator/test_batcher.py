"""A round begins when changes pause, or when the first has waited long enough."""

import asyncio

from thalweg_operator.planning.batcher import Batcher


async def _due(batcher: Batcher, resync: float = 60.0) -> None:
    async with asyncio.timeout(10):
        await batcher.wait(resync)


async def test_nothing_changes() -> None:
    """Then it is due for the resync alone."""
    await _due(Batcher(0.01, 0.1), resync=0.02)


async def test_a_change_before_the_wait_is_not_missed() -> None:
    """It may come while a round is under way."""
    batcher = Batcher(0.01, 0.1)
    batcher.trigger()
    await _due(batcher)


async def test_changes_that_never_pause() -> None:
    """The maximum window ends the gathering; and what came until then is not due once more."""
    batcher = Batcher(5.0, 0.05)

    async def keep_touching() -> None:
        while True:
            batcher.trigger()
            await asyncio.sleep(0.001)

    touching = asyncio.create_task(keep_touching())
    await _due(batcher)
    touching.cancel()


async def test_a_change_during_the_round_makes_another() -> None:
    """Touched after the wait returned, it is due again."""
    batcher = Batcher(0.001, 0.01)
    batcher.trigger()
    await _due(batcher)
    batcher.trigger()
    await _due(batcher)


async def test_a_long_round_makes_for_a_long_pause() -> None:
    """Changes must pause for as long as the last round took, but not for ever."""
    batcher, loop = Batcher(0.001, 10.0), asyncio.get_running_loop()
    for took, least in ((0.0, 0.0), (0.05, 0.05), (5.0, 0.1), (0.0, 0.0)):
        batcher.round_took(took)
        batcher.trigger()
        begun = loop.time()
        await batcher.wait(10.0)
        assert least <= loop.time() - begun + 1e-3
