"""Long work leaves the event loop to others after a while, counted in time and in parts."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from thalweg_operator import yielding

MILLISECOND = 0.001


class Work:
    """Work of which each part lasts for some time of a counted clock, beside a task that notes each turn it gets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, part: float) -> None:
        self.now, self.part = 0.0, part
        self.turns: list[float] = []
        monkeypatch.setattr(yielding, "perf_counter", lambda: self.now)

    def do(self, parts: int = 1) -> None:
        """Some parts of the work."""
        self.now += self.part * parts

    async def beside(self, work: Callable[[], Awaitable[None]]) -> float:
        """The longest time that the other task waits for a turn while this work goes on."""

        async def note() -> None:
            while True:
                self.turns.append(self.now)
                await asyncio.sleep(0)

        noting = asyncio.create_task(note())
        await asyncio.sleep(0)
        await work()
        await asyncio.sleep(0)
        noting.cancel()
        return max(after - before for before, after in pairwise(self.turns))


@pytest.mark.parametrize("part", [0.0, 0.01, 0.1, 1.0, 9.0, 30.0])
async def test_no_burst_lasts_longer_than_its_time_and_a_part(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    """However dear a part is: others wait for ten milliseconds and one part at most."""
    work = Work(monkeypatch, part * MILLISECOND)

    async def item_by_item() -> None:
        async for _ in yielding.yielding(range(1000)):
            work.do()

    waited = await work.beside(item_by_item)
    assert waited <= (10 + part + 1e-6) * MILLISECOND
    assert len(work.turns) >= 1000 // yielding.BURST


async def test_bursts_become_shorter_where_their_items_are_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one shows what an item costs; none is lost, and their order stays."""
    work, sizes, items = Work(monkeypatch, MILLISECOND), list[int](), list[int]()

    async def in_bursts() -> None:
        async for burst in yielding.bursts(range(1000)):
            sizes.append(len(burst))
            items.extend(burst)
            work.do(len(burst))

    await work.beside(in_bursts)
    assert items == list(range(1000))
    assert sizes == [yielding.BURST, *[10] * 80]
    work.part, sizes[:] = MILLISECOND / 1000, []
    await work.beside(in_bursts)
    assert sizes == [yielding.BURST] * 5
