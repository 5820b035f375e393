"""Every answer to an eviction leads to one pod less or to a pause, and budgets are kept to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web
from support.fake_api import Answer as ServerAnswer
from support.fake_api import answering, hang_up, refusal, serving
from support.operator import until
from support.recording_shell import RecordingShell
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.writes.events import EventWriter
from thalweg_operator.delivery.evictor import Evictor
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import Departure, Evict
from thalweg_operator.reservations.events import Answer
from thalweg_operator.shell import Shell

from flowcore.model.pods import Pod, PodClass
from flowcore.model.running_pods import EvictionKind

POD = Pod(namespace="ns", name="p", uid="u1", pod_class=PodClass(), node_name="n")


class EvictionServer:
    """Pods that can be evicted and read, by name; each eviction may be given an answer of its own."""

    def __init__(self) -> None:
        self.pods = {"p": "u1", "q": "u2"}
        self.evicted: list[str] = []
        self.events: list[dict[str, Any]] = []
        #: Conditions of pods that were evicted before.
        self.conditions: list[dict[str, Any]] = []
        self.script: list[ServerAnswer] = []
        self.posts = 0
        self.app = web.Application()
        self.app.router.add_post("/api/v1/namespaces/ns/pods/{name}/eviction", self._post)
        self.app.router.add_get("/api/v1/namespaces/ns/pods/{name}", self._get)
        self.app.router.add_patch("/api/v1/namespaces/ns/pods/{name}/status", self._patch)
        self.app.router.add_post("/api/v1/namespaces/ns/events", self._event)

    async def evict(self, request: web.Request) -> web.StreamResponse:
        """What an API server does."""
        name, body = request.match_info["name"], await request.json()
        assert (body["apiVersion"], body["kind"], body["metadata"]["name"]) == ("policy/v1", "Eviction", name)
        if name not in self.pods:
            return refusal(404, "not found")
        if body["deleteOptions"]["preconditions"]["uid"] != self.pods[name]:
            return refusal(409, "the UID in the precondition does not match")
        del self.pods[name]
        self.evicted.append(name)
        return web.json_response({"kind": "Status"}, status=201)

    async def check_dry_run(self, request: web.Request) -> web.StreamResponse:
        """Answers a dry run, and nothing else."""
        body = await request.json()
        assert body["deleteOptions"]["dryRun"] == ["All"]
        return web.json_response({"kind": "Status"}, status=201)

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        assert request.match_info["name"] in self.evicted
        self.conditions += (await request.json())["status"]["conditions"]
        return web.json_response({})

    async def evict_and_hang_up(self, request: web.Request) -> web.StreamResponse:
        """Evicts, and the answer is lost."""
        await self.evict(request)
        return await hang_up(request)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        self.posts += 1
        return await (self.script.pop(0) if self.script else self.evict)(request)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        return web.json_response({"metadata": {"uid": self.pods[name]}}) if name in self.pods else refusal(404, "no")

    async def _event(self, request: web.Request) -> web.StreamResponse:
        self.events.append(await request.json())
        return web.json_response({}, status=201)


class Case:
    """An evictor at work."""

    def __init__(self, server: EvictionServer, evictor: Evictor, shell: RecordingShell) -> None:
        self.server, self.evictor, self.shell = server, evictor, shell

    async def evict(self, pod: Pod = POD) -> None:
        """Asks for it, and waits until it is answered."""
        await self.carry_out(Evict(pod, "Its gang is there in part.", Departure.PARTIAL_GANG))

    async def carry_out(self, write: Evict) -> None:
        """Puts it in line, and waits until it is answered."""
        self.shell.answers.clear()
        self.evictor.put(write)
        await until(lambda: self.shell.ended, 10, lambda: f"done after {self.server.posts} posts")

    async def told(self, count: int) -> None:
        """Waits for so many Events."""
        await until(lambda: len(self.server.events) >= count, 10, lambda: f"{count} events: {self.server.events}")


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    """Pauses are short."""
    server = EvictionServer()
    async with serving(server.app, tmp_path) as connection:
        events = EventWriter(connection, Metrics())
        shell = RecordingShell()
        evictor = Evictor(connection, cast("Shell", shell), Metrics(), events, backoff=Backoff(0.001, 0.01))
        tasks = [asyncio.create_task(evictor.run()), asyncio.create_task(events.run())]
        try:
            yield Case(server, evictor, shell)
            assert not any(task.done() for task in tasks), tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_pod_is_evicted_once_and_told_why(case: Case) -> None:
    """And the ledger learns that it is done."""
    await case.evict()
    assert case.shell.answers == [(Answer.DONE, "")]
    assert (case.server.evicted, case.server.posts) == (["p"], 1)
    await case.told(1)
    (event,) = case.server.events
    assert (event["reason"], event["message"]) == ("Evicting", "Its gang is there in part.")
    assert event["involvedObject"]["uid"] == "u1"


async def test_a_budget_is_kept_to(case: Case) -> None:
    """429 from a PodDisruptionBudget: the pod stays, is told once, and is asked for again until it may go."""
    case.server.script = [answering(429, "violates the budget b", Retry_After="0.01")] * 3
    await case.evict()
    assert (case.server.evicted, case.server.posts) == (["p"], 4)
    await case.told(2)
    assert [event["message"].rpartition("part.")[2] for event in case.server.events] == [
        " It cannot be evicted now: violates the budget b",
        "",
    ]


async def test_what_a_budget_holds_up_does_not_hold_up_others(case: Case) -> None:
    """Nor is it waited for at the end."""
    case.server.script = [answering(429, "no")] * 5
    for number in range(5):
        case.evictor.put(Evict(Pod("ns", "p", f"x{number}", PodClass()), "", Departure.PARTIAL_GANG))
    await asyncio.wait_for(case.evictor.drain(), 10)
    await case.evict(Pod("ns", "q", "u2", PodClass()))
    assert case.server.evicted == ["q"]


async def test_an_eviction_that_is_not_wanted_any_more(case: Case) -> None:
    """Between two tries the gang became whole: the pod stays."""
    case.shell.max_refusals = 2
    case.server.script = [answering(429, "no")] * 9
    await case.evict()
    assert (case.server.evicted, case.server.posts) == ([], 2)
    assert case.shell.answers[-1] == (Answer.UNWANTED, "")


@pytest.mark.parametrize("there", [{}, {"p": "another"}])
async def test_a_pod_that_is_gone(case: Case, there: dict[str, str]) -> None:
    """404, or another pod under its name: done, and nothing else is evicted."""
    case.server.pods = dict(there)
    await case.evict()
    assert (case.server.evicted, case.server.posts) == ([], 1)


async def test_other_answers(case: Case) -> None:
    """A refusal for good is told and ends it; a conflict with another write and a lost answer are tried again."""
    case.server.script = [answering(403, "pods is forbidden")]
    await case.evict(Pod("ns", "q", "u2", PodClass()))
    assert case.server.evicted == []
    await until(lambda: "not evicted" in case.server.events[-1]["message"], 10, lambda: str(case.server.events))
    assert "It was not evicted: pods is forbidden" in case.server.events[-1]["message"]
    case.server.script = [answering(409, "the object has been modified"), answering(500), case.server.evict_and_hang_up]
    await case.evict()
    assert (case.server.evicted, case.server.posts) == (["p"], 5)


PREEMPTED = Evict(
    msgspec.structs.replace(POD, generation=3), "Preempted by pod uid-u on node n", Departure.PREEMPTION,
    "thalweg: preempting to accommodate a higher priority pod",
)  # fmt: skip


async def test_a_dry_run_evicts_nobody(case: Case) -> None:
    """The API server is asked with dryRun; neither condition nor Event is written."""
    case.server.script = [case.server.check_dry_run]
    await case.carry_out(msgspec.structs.replace(PREEMPTED, dry_run=True))
    assert case.shell.answers == [(Answer.DONE, "")]
    assert (case.server.evicted, case.server.conditions, case.server.events) == ([], [], [])


async def test_a_preempted_pod_is_told_for_whom_it_leaves(case: Case) -> None:
    """The condition is written after the eviction, which writes its own; and the Event is kube-scheduler's."""
    await case.carry_out(PREEMPTED)
    assert case.server.evicted == ["p"]
    await case.told(1)
    (condition,) = case.server.conditions
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "PreemptionByScheduler")
    assert (condition["message"], condition["observedGeneration"]) == (PREEMPTED.condition, 3)
    assert [(event["reason"], event["message"]) for event in case.server.events] == [("Preempted", PREEMPTED.message)]


@pytest.mark.parametrize("status", [429, 500, 403])
async def test_a_refusal_ends_an_eviction_of_a_plan(case: Case, status: int) -> None:
    """A budget, several budgets, a webhook: the ledger is told at once, and the pod is asked for no more."""
    case.server.script = [answering(status, "Cannot evict pod as it would violate the pod's disruption budget.")]
    await case.carry_out(PREEMPTED)
    assert (case.server.evicted, case.server.posts) == ([], 1)
    assert [answer for answer, _ in case.shell.answers] == [Answer.REFUSED]


async def test_an_api_server_that_is_busy_does_not_refuse(case: Case) -> None:
    """429 without a budget, 503 and a conflict say nothing of the pod: it is asked for again."""
    case.server.script = [answering(429, "too many requests"), answering(503), answering(409, "modified")]
    await case.carry_out(PREEMPTED)
    assert (case.server.evicted, case.server.posts) == (["p"], 4)
    assert case.shell.answers == [(Answer.DONE, "")]


def test_what_a_round_evicts_for_is_a_departure() -> None:
    """By the same word: it comes in the reply of the worker, and is written into the pod's condition."""
    assert {kind.value for kind in EvictionKind} < {departure.value for departure in Departure}
