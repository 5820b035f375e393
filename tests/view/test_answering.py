"""Who is answered when, and what happens when the state cannot be had or the view ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from support.operator import until
from support.view import TOKEN, Client, HeldSource, Two, compute_processes, small_scenario, viewed
from thalweg_view.callers.access import OneToken
from thalweg_view.web.serving import serving


async def test_who_goes_away_leaves_the_queue(tmp_path: Path) -> None:
    """Callers that hang up keep nobody waiting, and those who ask then are answered."""
    before = compute_processes()
    async with viewed(HeldSource(small_scenario(tmp_path), kind="dump"), Two()) as client:
        other = Client(client.port, client.session, "b")
        client.token = "a"  # noqa: S105 - of a caller that the test made up
        (pid,) = set(compute_processes()) - set(before)
        os.kill(pid, signal.SIGSTOP)
        tasks = len(asyncio.all_tasks())
        for _ in range(5):
            gone = [asyncio.create_task(client.get("/api/v1/pending")) for _ in range(8)]
            await asyncio.sleep(0.05)
            for each in gone:
                each.cancel()
            await asyncio.wait(gone)

        async def left() -> bool:
            return len(asyncio.all_tasks()) <= tasks + 3  # the one that has begun, and this one

        await until(left, 30, lambda: f"the queue to be left; there are {len(asyncio.all_tasks())} tasks")
        asked = [asyncio.create_task(each.get("/api/v1/pending")) for each in [client] * 7 + [other]]
        await asyncio.sleep(0.2)
        os.kill(pid, signal.SIGCONT)
        assert [status for status, _, _ in await asyncio.gather(*asked)] == [200] * 8


class Failing(HeldSource):
    """Its state cannot be made at first; later it takes a while."""

    fails = True

    async def state(self) -> AsyncIterator[bytes]:
        async for piece in super().state():
            yield piece
            if self.fails:
                raise RuntimeError("dictionary changed size during iteration")


async def test_a_failing_source_is_asked_again_and_the_end_is_clean(tmp_path: Path) -> None:
    """Whoever looks sees the state once it can be had; the end of the view ends streams and questions at once."""
    source, before = Failing(small_scenario(tmp_path)), compute_processes()
    async with aiohttp.ClientSession() as session:
        async with serving("127.0.0.1", 0, source, OneToken(TOKEN)) as port:
            client = Client(port, session)
            stream = await session.get(client.url("/api/v1/events"), headers={"X-Thalweg-Token": TOKEN})

            async def tried() -> bool:
                return source.states > 0

            await until(tried, 60, lambda: "the state to be asked for")
            assert (await client.get("/api/v1/overview"))[0] in (500, 503)
            source.fails = False
            await stream.content.readuntil(b"event: state\n")
            (pid,) = set(compute_processes()) - set(before)
            os.kill(pid, signal.SIGSTOP)
            questions = [asyncio.create_task(client.get("/api/v1/overview")) for _ in range(3)]
            await asyncio.sleep(0.2)
        for status, answer, _ in await asyncio.gather(*questions):
            assert (status, answer["error"]) == (503, "the view ends")
        assert (await stream.content.read()).endswith(b"\n\n")  # a stream that is cut off raises
    assert compute_processes() == before


async def test_lost_processes_do_not_make_the_source_write_without_a_pause(tmp_path: Path) -> None:
    """A state that takes long to write is not written again for each question that ends the process."""

    class Slow(HeldSource):
        async def state(self) -> AsyncIterator[bytes]:
            async for piece in super().state():
                yield piece
            await asyncio.sleep(1.0)

    source, before = Slow(small_scenario(tmp_path), kind="dump"), compute_processes()
    async with viewed(source) as client:
        (pid,) = set(compute_processes()) - set(before)
        os.kill(pid, signal.SIGKILL)
        for _ in range(3):
            status, answer, headers = await client.get("/api/v1/overview")
            assert status == 503, answer
            assert int(headers["Retry-After"]) >= 1
        assert source.states == 1
