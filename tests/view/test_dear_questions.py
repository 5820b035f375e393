"""Dear questions: each has an end of its own, and holds neither other callers nor the view's state."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.operator import until
from support.scenario_state import manifest_node, manifest_pod, scenario_of
from support.view import Client, HeldSource, compute_processes, viewed
from thalweg_view.callers.access import Caller
from thalweg_view.callers.view_limits import DEFAULT_LIMITS

#: As many new nodes as a question may have.
DEAR = {"changes": [{"kind": "AddNodes", "count": 10_000, "like": "a"}]}


class AdminAndTenants:
    """An admin, and tenants whose names are their tokens: all may list nodes, tenants the pods of a namespace."""

    async def caller(self, token: str) -> Caller:
        return Caller(token)

    async def may_list(self, _caller: Caller, _kind: str) -> bool:
        return True

    async def namespaces(self, caller: Caller, _known: object) -> list[str] | None:
        return None if caller.name == "admin" else ["default"]


@asynccontextmanager
async def tenants_view(kinds: int = 100, **options: Any) -> AsyncIterator[tuple[Client, HeldSource, int]]:
    """A client, its source, and the compute process of the view.

    Args:
        kinds: of pods that wait, on which the time and the memory of a dear question depend.
    """
    waiting = (manifest_pod(f"p{number}", cpu=f"{4000 + number}m") for number in range(kinds))
    source = HeldSource(scenario_of([manifest_node("a", "z"), manifest_node("b", "z"), *waiting]), kind="dump")
    before = compute_processes()
    async with viewed(source, AdminAndTenants(), **options) as client:
        (process,) = set(compute_processes()) - set(before)
        yield client, source, process


def as_caller(client: Client, name: str) -> Client:
    return Client(client.port, client.session, name)


async def ask_dear(client: Client, name: str, number: int = 0) -> tuple[int, dict[str, Any]]:
    """Status and answer of a dear question; each number is another question."""
    body = {"changes": [*DEAR["changes"], {"kind": "SetPriority", "pod": f"default/p{number}", "priority": 1}]}
    found = await as_caller(client, name).get("/api/v1/what-if", {"X-Thalweg-Token": name}, "POST", json=body)
    return found[0], found[1]


def forks(process: int) -> list[int]:
    """Processes of the questions under way."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def threads(process: int) -> int:
    """How many threads a process has; 0: it is gone."""
    try:
        return len(list(Path(f"/proc/{process}/task").iterdir()))
    except FileNotFoundError:
        return 0


async def stopped(client: Client, process: int, name: str) -> tuple[int, asyncio.Task[tuple[int, dict[str, Any]]]]:
    """A dear question of a caller that is held within, so that it lasts until it may go on; and its process."""
    before = set(forks(process))
    for number in range(100):
        asked = asyncio.create_task(ask_dear(client, name, number))
        while not asked.done():
            for fork in set(forks(process)) - before:
                if os.getpriority(os.PRIO_PROCESS, fork) > os.getpriority(os.PRIO_PROCESS, process):  # its time runs
                    os.kill(fork, signal.SIGSTOP)
                    return fork, asked
            await asyncio.sleep(0.001)
    raise AssertionError("no question lasted long enough to be seen")


async def test_others_are_answered_while_a_dear_question_is_under_way() -> None:
    """An admin, a tenant and the refresh of the page need no end of it; more of the same caller wait for it."""
    async with tenants_view() as (client, _, process):
        fork, dear = await stopped(client, process, "mallory")
        more = [asyncio.create_task(ask_dear(client, "mallory", number)) for number in (1, 2)]
        for name in ("admin", "jane", "admin"):
            for operation in ("overview", "rounds", "pending"):
                assert (await as_caller(client, name).get(f"/api/v1/{operation}"))[0] == 200
        assert forks(process) == [fork], "no second question of the caller has begun"
        assert not dear.done()
        os.kill(fork, signal.SIGCONT)
        assert [status for status, _ in await asyncio.gather(dear, *more)] == [200, 200, 200]


async def test_tenants_leave_turns_to_who_sees_all() -> None:
    """Two tenants hold the turns of tenants: a third waits, the admin does not."""
    async with tenants_view() as (client, _, process):
        held = [await stopped(client, process, name) for name in ("mallory", "trudy")]
        third = asyncio.create_task(as_caller(client, "jane").get("/api/v1/overview"))
        for _ in range(3):
            assert (await as_caller(client, "admin").get("/api/v1/overview"))[0] == 200
        assert not third.done()
        fork, dear = held[0]
        os.kill(fork, signal.SIGCONT)
        assert (await third)[0] == 200
        os.kill(held[1][0], signal.SIGCONT)
        assert [(await each)[0] for each in (dear, held[1][1])] == [200, 200]


async def test_a_caller_whose_questions_took_long_waits_for_others() -> None:
    """Of two who wait, the one that has had less comes first, whoever asked first."""
    async with tenants_view(limits=replace(DEFAULT_LIMITS, answers=1)) as (client, _, process):
        assert (await ask_dear(client, "mallory"))[0] == 200
        fork, dear = await stopped(client, process, "admin")
        done: list[str] = []

        async def ask(name: str) -> None:
            assert (await as_caller(client, name).get("/api/v1/pending"))[0] == 200
            done.append(name)

        asked = []
        for name in ("mallory", "jane", "trudy"):
            asked.append(asyncio.create_task(ask(name)))
            await asyncio.sleep(0.1)
        os.kill(fork, signal.SIGCONT)
        await asyncio.gather(dear, *asked)
        assert done == ["jane", "trudy", "mallory"]


async def test_a_question_ends_by_its_time_and_the_state_stays() -> None:
    """The asker is told; nobody else's answer is lost, and the state is not read anew."""
    async with tenants_view(deadline=5.0) as (client, source, process):
        fork, dear = await stopped(client, process, "mallory")
        await asyncio.sleep(5.0)  # its time is over; the signal comes as it goes on
        os.kill(fork, signal.SIGCONT)
        status, answer = await dear
        assert (status, answer["error"]) == (503, "the view had no answer after 5 s; ask for less")
        assert (await as_caller(client, "admin").get("/api/v1/overview"))[0] == 200
        assert (os.getpgid(process), source.states) == (process, 1)
        assert forks(process) == []


async def test_a_question_ends_by_its_memory_and_the_state_stays() -> None:
    """It may use what the view has, and no more; nobody else's answer is lost, and the state is not read anew."""
    async with tenants_view(600, memory=170 * 2**20) as (client, source, process):
        status, answer = await ask_dear(client, "mallory")
        assert (status, answer["error"]) == (
            503,
            "the answer needs more memory than the view's process has; ask for less",
        )
        assert (await as_caller(client, "admin").get("/api/v1/overview"))[0] == 200
        assert (os.getpgid(process), source.states) == (process, 1)


async def test_a_killed_question_is_told_and_the_state_stays() -> None:
    """The kernel takes what is largest first, which is a question."""
    async with tenants_view() as (client, source, process):
        fork, dear = await stopped(client, process, "mallory")
        os.kill(fork, signal.SIGKILL)
        status, answer = await dear
        assert status == 503
        assert "was killed, most likely since memory ran out" in answer["error"]
        assert (await as_caller(client, "admin").get("/api/v1/overview"))[0] == 200
        assert source.states == 1


async def test_questions_end_with_the_view() -> None:
    """Nothing is computed for nobody."""
    async with tenants_view() as (client, _, process):
        fork, dear = await stopped(client, process, "mallory")
    await asyncio.wait([dear])

    async def gone() -> bool:
        return not threads(fork)

    await until(gone, 30, lambda: "the question to end")


async def test_what_forks_has_one_thread() -> None:
    """A lock that another thread held would stay locked in the fork."""
    async with tenants_view() as (client, _, process):
        for _ in range(2):
            assert (await as_caller(client, "admin").get("/api/v1/overview"))[0] == 200
            assert (await ask_dear(client, "admin"))[0] == 200
            assert threads(process) == 1
