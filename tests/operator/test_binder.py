"""Every answer to a binding leads to one binding or to none, and the ledger says which."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web
from support.fake_api import BindingServer, answering, connected, hang_up, refusal, serving
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.client import pod_path
from thalweg_operator.api.fence import Fence
from thalweg_operator.delivery import binder
from thalweg_operator.delivery.binder import Binder
from thalweg_operator.errors import ConnectionLost
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.reports.progress import ProgressLog
from thalweg_operator.reservations.effects import Bind, WriteCondition
from thalweg_operator.reservations.events import Answer, PoliciesChanged

from flowcore.model.constraints import OneDomain
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Delivery, Policy, Selects
from flowcore.model.selectors import LabelSelector, Requirement

POD = Pod(namespace="ns", name="p", uid="u1", pod_class=PodClass(requests=(("cpu", 500),)), scheduler_name="thalweg")
KEY = POD.key
#: Too large to fit beside it.
BESIDE = Pod(
    namespace="ns",
    name="b",
    uid="u2",
    pod_class=PodClass(requests=(("cpu", 600),)),
    node_name="n",
    usage=(("cpu", 600),),
)


class Case:
    def __init__(self, server: BindingServer, state: DrivenLedger, binder: Binder, metrics: Metrics) -> None:
        self.server, self.state, self.binder, self.metrics = server, state, binder, metrics
        self.fence = Fence()
        self.fence.extend(float("inf"), float("inf"))
        self.pauses: list[float] = []
        #: Called at each pause: what happens in the cluster meanwhile.
        self.meanwhile: list[Callable[[], object]] = []

    async def bind(self, node: str = "n") -> None:
        """Reserves, binds, and waits until everything was answered."""
        assert self.state.reserve(POD, node)
        self.binder.put(Bind(POD, node, self.state.generation))
        async with asyncio.timeout(10):
            await self.binder.drain()

    @property
    def refused(self) -> list[str]:
        """What the pod was told so far."""
        return [effect.reason for effect in self.state.effects if isinstance(effect, WriteCondition)]

    def answers(self, answer: str) -> float:
        return self.metrics.registry.get_sample_value("thalweg_bindings_total", {"answer": answer}) or 0.0

    @property
    def free_again(self) -> bool:
        """The pod waits and holds nothing."""
        return KEY in self.state.waiting and not self.state.reservations and not self.state.cluster.occupancy.usage

    @property
    def held(self) -> bool:
        """Its room is kept until the watch shows it bound."""
        return self.state.reservations[KEY].node == "n" and self.state.cluster.occupancy.usage["n"].pods == 1


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    async with binding(tmp_path) as made:
        yield made


class Pauses(Backoff):
    """No pauses; what a case has for them happens instead."""

    def __init__(self, pauses: list[float], meanwhile: list[Callable[[], object]]) -> None:
        super().__init__(0.0, 0.0)
        object.__setattr__(self, "_pauses", pauses)
        object.__setattr__(self, "_meanwhile", meanwhile)

    def pause(self, failures: int, at_least: float = 0.0) -> float:
        assert failures > 0
        self._pauses.append(at_least)
        if self._meanwhile:
            self._meanwhile.pop(0)()
        return 0.0


@asynccontextmanager
async def binding(folder: Path) -> AsyncIterator[Case]:
    server, state, metrics = BindingServer(), DrivenLedger(), Metrics()
    server.pods[KEY] = ("u1", "")
    for name in ("n", "m"):
        state.upsert_node(Node(name, allocatable=(("cpu", 1000), ("pods", 10))))
    state.upsert_pod(POD)
    pauses: list[float] = []
    meanwhile: list[Callable[[], object]] = []
    async with serving(server.app, folder) as connection:
        events: Any = SimpleNamespace(write=lambda *_arguments, **_options: None)
        binder = Binder(connection, state.shell, metrics, events, ProgressLog(), 4, backoff=Pauses(pauses, meanwhile))
        made = Case(server, state, binder, metrics)
        made.pauses, made.meanwhile = pauses, meanwhile
        connection._fence = made.fence
        task = asyncio.create_task(made.binder.run())
        try:
            yield made
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_bound(case: Case) -> None:
    """201: bound once, and the room stays reserved until the watch shows the pod on its node."""
    await case.bind()
    assert case.server.bound == [(KEY, "n")]
    assert case.held
    assert case.answers("bound") == 1


async def test_gone(case: Case) -> None:
    """404: the pod was deleted meanwhile; its room is free and nobody is told anything."""
    case.server.pods.clear()
    await case.bind()
    assert case.free_again
    assert case.refused == []
    assert case.server.posts == 1


async def test_conflict_bound_there(case: Case) -> None:
    """409 because it is on that very node: that is what was wanted."""
    case.server.pods[KEY] = ("u1", "n")
    await case.bind()
    assert case.held
    assert case.answers("bound") == 1
    assert case.server.posts == 1


async def test_conflict_bound_elsewhere(case: Case) -> None:
    """409 because another scheduler was faster: our room is given back and the pod is not told off."""
    case.server.pods[KEY] = ("u1", "m")
    await case.bind()
    assert case.free_again
    assert case.refused == []
    assert case.answers("bound elsewhere") == 1


async def test_conflict_unbound(case: Case) -> None:
    """409 although it has no node: the API server does not want it bound, and the pod is told in its words."""
    case.server.script = [answering(409, "pod is being deleted, cannot be assigned to a host")]
    await case.bind()
    assert case.free_again
    assert case.refused == [
        "the API server refused to bind it to n: pod is being deleted, cannot be assigned to a host"
    ]
    assert case.server.posts == 1


async def test_conflict_another_pod_of_that_name(case: Case) -> None:
    """409 because the name is another pod's now: ours is gone, and the other is not bound in its stead."""
    case.server.pods[KEY] = ("u2", "")
    await case.bind()
    assert case.free_again
    assert case.server.bound == []
    assert case.answers("replaced") == 1


async def test_conflict_and_gone(case: Case) -> None:
    """409, and when asked the pod is not there any more."""

    async def conflict_then_gone(_request: web.Request) -> web.StreamResponse:
        case.server.pods.clear()
        return refusal(409, "conflict")

    case.server.script = [conflict_then_gone]
    await case.bind()
    assert case.free_again
    assert case.answers("404") == 1


async def not_utf8(_request: web.Request) -> web.StreamResponse:
    """A proxy's page."""
    return web.Response(body=b'{"metadata":{"uid":"\xff"},"spec":{}}')


@pytest.mark.parametrize("asked", [answering(500), answering(429), hang_up, answering(403), not_utf8])
async def test_conflict_that_cannot_be_settled_yet(
    case: Case, asked: Callable[[web.Request], Awaitable[web.Response]]
) -> None:
    """409, and the question what it meant fails: nothing is given back before it is known."""
    case.server.pods[KEY] = ("u1", "n")
    case.server.get_script = [asked] * 4
    seen: list[bool] = []
    case.meanwhile += [lambda: seen.append(case.held)] * 4
    await case.bind()
    assert set(seen) == {True}
    assert case.held
    assert case.server.bound == []


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"metadata": 5}', b"<html>"])
async def test_conflict_settled_by_garbage(case: Case, garbage: bytes) -> None:
    """A proxy's page in place of the pod says nothing: it is asked again, and the room stays reserved meanwhile."""
    case.server.pods[KEY] = ("u1", "n")

    async def page(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=garbage)

    case.server.get_script = [page]
    await case.bind()
    assert case.held
    assert case.answers("bound") == 1


async def test_too_many_requests(case: Case) -> None:
    """429: asked again, not before the server wants to be."""
    case.server.script = [answering(429, "slow down", Retry_After="7")]
    await case.bind()
    assert case.pauses == [7.0]
    assert case.server.bound == [(KEY, "n")]
    assert case.held
    assert case.refused == []


async def test_retry_after_that_is_no_number(case: Case) -> None:
    """A date there is no reason to lose the pod."""
    case.server.script = [answering(429, "slow down", Retry_After="Wed, 21 Oct 2026 07:28:00 GMT")]
    await case.bind()
    assert case.server.bound == [(KEY, "n")]


@pytest.mark.parametrize("lease", [True, False])
@pytest.mark.parametrize("taken", [True, False])
async def test_what_changes_before_anything_was_carried_out(case: Case, *, lease: bool, taken: bool) -> None:
    """Without the lease, or with 429, nothing is bound for certain; a node that changed or filled up gets no pod."""

    def change() -> None:
        if taken:
            case.state.upsert_pod(BESIDE)
        else:
            case.state.upsert_node(Node("n", allocatable=(("cpu", 1000), ("pods", 10)), unschedulable=True))
        case.fence.extend(float("inf"), float("inf"))

    if lease:
        case.server.script = [answering(429, "slow down")]
    else:
        case.fence.close()
    case.meanwhile += [change]
    await case.bind()
    assert case.server.bound == []
    assert case.server.posts == (1 if lease else 0)
    assert KEY in case.state.waiting
    assert not case.state.reservations


async def test_the_lease_is_overdue_and_renewed(case: Case) -> None:
    """What rested meanwhile is bound once."""
    case.fence.close()
    case.meanwhile += [lambda: case.fence.extend(float("inf"), float("inf"))]
    await case.bind()
    assert case.server.bound == [(KEY, "n")]
    assert case.held
    assert case.answers("no lease") == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_server_errors(case: Case, status: int) -> None:
    """The server's own trouble is waited out, however often."""
    case.server.script = [answering(status)] * 12
    await case.bind()
    assert case.server.posts == 13
    assert case.held
    assert case.answers(str(status)) == 12


async def test_a_server_error_after_it_was_bound(case: Case) -> None:
    """500 although the binding was stored: the next try finds out, and it is bound once."""

    async def bind_and_fail(request: web.Request) -> web.StreamResponse:
        await case.server.bind(request)
        return refusal(500, "etcdserver: request timed out")

    case.server.script = [bind_and_fail]
    await case.bind()
    assert case.server.bound == [(KEY, "n")]
    assert case.held


async def test_forbidden(case: Case) -> None:
    """403: the pod is told, its room is free, and the next round may try again."""
    case.server.script = [answering(403, "no")]
    await case.bind()
    assert case.free_again
    assert case.refused == ["the API server refused to bind it to n: no"]


async def test_connection_dropped_before(case: Case) -> None:
    """No answer and not bound: bound by the next try."""
    case.server.script = [hang_up, hang_up]
    await case.bind()
    assert case.server.bound == [(KEY, "n")]
    assert case.held
    assert case.answers("lost") == 2


async def test_connection_dropped_after(case: Case) -> None:
    """No answer and yet bound: found out, counted once, never bound elsewhere."""
    case.server.script = [case.server.bind_and_hang_up]
    await case.bind()
    assert case.server.bound == [(KEY, "n")]
    assert case.held
    assert case.answers("bound") == 1


async def test_the_watch_is_faster_than_the_answer(case: Case) -> None:
    """The pod is seen bound while the binder still asks: it holds its room once."""
    case.server.script = [case.server.bind_and_hang_up]
    seen = Pod(
        **{**{name: getattr(POD, name) for name in POD.__struct_fields__}, "node_name": "n", "usage": (("cpu", 500),)}
    )
    case.meanwhile += [lambda: case.state.upsert_pod(seen)]
    await case.bind()
    assert not case.state.reservations
    assert case.state.cluster.occupancy.usage["n"].amounts["cpu"] == 500
    assert not case.state.waiting


async def test_a_node_that_is_gone_before(case: Case) -> None:
    """The API server would bind to a node that does not exist: we do not ask it to."""
    assert case.state.reserve(POD, "n")
    case.state.delete_node("n")
    case.binder.put(Bind(POD, "n", case.state.generation))
    async with asyncio.timeout(10):
        await case.binder.drain()
    assert case.server.posts == 0
    assert case.free_again


async def test_a_node_that_goes_while_the_answer_is_lost(case: Case) -> None:
    """Not bound by the lost try, and the node is gone: not tried again."""
    case.server.script = [hang_up]
    case.meanwhile += [lambda: case.state.delete_node("n")]
    await case.bind()
    assert case.server.bound == []
    assert case.server.posts == 1
    assert case.free_again


async def test_a_node_that_goes_while_the_server_is_away(case: Case) -> None:
    """As long as the server cannot say whether the lost try got through, nothing is sent to a node that is gone."""
    case.server.script = [hang_up]
    case.server.get_script = [hang_up, answering(500)]
    case.meanwhile += [lambda: case.state.delete_node("n")]
    await case.bind()
    assert case.server.bound == []
    assert case.server.posts == 1
    assert case.free_again


async def test_a_pod_deleted_while_the_answer_is_lost(case: Case) -> None:
    """The reservation went with the pod; the binder finds out and ends."""

    def gone() -> None:
        case.server.pods.clear()
        case.state.delete_pod(KEY)

    case.server.script = [hang_up]
    case.meanwhile += [gone]
    await case.bind()
    assert not case.state.reservations
    assert not case.state.cluster.occupancy.usage
    assert case.answers("404") == 1


async def test_a_pod_replaced_while_the_answer_is_lost(case: Case) -> None:
    """The new pod of that name keeps a reservation of its own: the old one's end does not touch it."""
    new = Pod(**{**{name: getattr(POD, name) for name in POD.__struct_fields__}, "uid": "u2"})

    def replaced() -> None:
        case.server.pods[KEY] = ("u2", "")
        case.state.delete_pod(KEY)
        case.state.upsert_pod(new)
        assert case.state.reserve(new, "m")

    case.server.script = [hang_up]
    case.meanwhile += [replaced]
    await case.bind()
    assert case.state.reservations[KEY].node == "m"
    assert case.server.bound == []


@pytest.mark.parametrize("status", [429, 403])
async def test_a_gang_that_is_refused_in_part(case: Case, status: int) -> None:
    """One pod of two is refused while the other rests, after 429 or since the server just started: neither is bound."""
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    pods = [msgspec.structs.replace(POD, name=name, uid=name, gang=gang) for name in ("g0", "g1")]
    if status == 403:
        case.server.get_script = [hang_up] * 2
        with pytest.raises(ConnectionLost):
            await case.binder._api_client.request("GET", pod_path("ns", "p"))
    case.server.script = [answering(status)]
    refused = Bind(pods[1], "n", 0)
    case.meanwhile += [lambda: case.state.shell.answered(refused, Answer.REFUSED, "no")]
    for pod in pods:
        case.server.pods[pod.key] = (pod.uid, "")
        case.state.upsert_pod(pod)
        assert case.state.reserve(pod, "n")
    case.binder.put(Bind(pods[0], "n", case.state.generation))
    async with asyncio.timeout(10):
        while case.state.reservations:  # noqa: ASYNC110 - what rests ends them
            await asyncio.sleep(0.01)
    assert case.server.bound == []
    assert case.answers("gang incomplete") == 1


async def test_the_operator_ends(case: Case) -> None:
    """Of what stands in line, gangs that have begun are completed. The next leader plans all others."""
    case.state.upsert_node(Node("big", allocatable=(("cpu", 1_000_000), ("pods", 1000))))
    gangs = {
        name: GangRef(GangKey(GangSource.THALWEG, "ns", name), GangSpec(min_member=2)) for name in ("begun", "whole")
    }
    pods = [
        msgspec.structs.replace(POD, name=f"{name}-{number}", uid=f"{name}-{number}", gang=gangs.get(name))
        for number in range(2)
        for name in ("begun", "whole", "alone")
    ]
    writes = [Bind(pod, "big", case.state.generation) for pod in pods]
    for pod in pods:
        case.server.pods[pod.key] = (pod.uid, "")
        case.state.upsert_pod(pod)
        assert case.state.reserve(pod, "big")
    case.state.shell.answered(writes[0], Answer.UNCERTAIN)
    for write in writes:
        case.binder.put(write)
    case.binder.end()
    async with asyncio.timeout(10):
        await case.binder.drain()
    assert sorted(key for key, _ in case.server.bound) == ["ns/begun-0", "ns/begun-1"]
    assert len(case.state.reservations) == 2
    assert case.answers("operator ends") == 4


async def test_the_operator_ends_and_a_constraint_places_pods_together(case: Case) -> None:
    """What is in line of them is sent: the next leader could place the rest elsewhere."""
    together = OneDomain("together", LabelSelector(), "kubernetes.io/hostname")
    policy = Policy(
        "p", selects=Selects(scheduler_names=("thalweg",)), delivery=Delivery.BINDER, constraints=(together,)
    )
    case.state.set_namespace("ns", ())
    case.state.apply(PoliciesChanged((policy,)))
    pods = [msgspec.structs.replace(POD, name=f"p{number}", uid=f"p{number}") for number in range(2)]
    for pod in pods:
        case.server.pods[pod.key] = (pod.uid, "")
        case.state.upsert_pod(pod)
        assert case.state.reserve(pod, "n")
        case.binder.put(Bind(pod, "n", case.state.generation))
    case.binder.end()
    async with asyncio.timeout(10):
        await case.binder.drain()
    assert len(case.server.bound) == 2


def reserved(case: Case, *pods: Pod) -> list[Bind]:
    """Reservations for these pods on a large node, whose bindings are to be put in line before the operator ends."""
    case.state.upsert_node(Node("big", allocatable=(("cpu", 1_000_000), ("pods", 1000))))
    for pod in pods:
        case.server.pods[pod.key] = (pod.uid, "")
        case.state.upsert_pod(pod)
        assert case.state.reserve(pod, "big")
    return [Bind(pod, "big", case.state.generation) for pod in pods]


async def ended(case: Case, *writes: Bind) -> set[str]:
    """Which pods are bound when these bindings are in line and the operator ends."""
    for write in writes:
        case.binder.put(write)
    case.binder.end()
    async with asyncio.timeout(10):
        await case.binder.drain()
    return {key for key, _ in case.server.bound}


async def test_the_operator_ends_while_a_pod_of_a_gang_rests(case: Case) -> None:
    """It may not be sent any more, so another one of the gang is sent in its place."""
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    pods = [msgspec.structs.replace(POD, name=name, uid=name, gang=gang) for name in ("begun", "rests", "due", "more")]
    begun, _, due, more = reserved(case, *pods)
    case.state.shell.answered(begun, Answer.UNCERTAIN)
    assert await ended(case, due, more) == {"ns/due"}


async def test_the_operator_ends_and_a_constraint_holds_pods_of_a_gang(case: Case) -> None:
    """A constraint places one pod of the gang together with a pod by itself: all three are sent."""
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    labels, selector = (("t", "1"),), LabelSelector((Requirement("t", "In", ("1",)),))
    policy = Policy(
        "p", selects=Selects(scheduler_names=("thalweg",)), constraints=(OneDomain("together", selector, "host"),)
    )
    case.state.set_namespace("ns", ())
    case.state.apply(PoliciesChanged((policy,)))
    writes = reserved(
        case,
        msgspec.structs.replace(POD, name="b", uid="b", gang=gang),
        msgspec.structs.replace(POD, name="a", uid="a", gang=gang, labels=labels),
        msgspec.structs.replace(POD, name="alone", uid="alone", labels=labels),
    )
    assert await ended(case, *writes) == {"ns/a", "ns/b", "ns/alone"}


async def test_many_at_once(case: Case) -> None:
    """Hundreds of bindings with lost answers and errors in between: each pod is bound once."""
    case.state.upsert_node(Node("big", allocatable=(("cpu", 1_000_000), ("pods", 1000))))
    pods = [
        Pod(namespace="ns", name=f"p{number}", uid=f"uid{number}", pod_class=POD.pod_class, scheduler_name="thalweg")
        for number in range(300)
    ]
    trouble = [case.server.bind_and_hang_up, hang_up, answering(500), answering(429), case.server.bind]
    case.server.script = [trouble[number % len(trouble)] for number in range(300)]
    for pod in pods:
        case.server.pods[pod.key] = (pod.uid, "")
        case.state.upsert_pod(pod)
        assert case.state.reserve(pod, "big")
        case.binder.put(Bind(pod, "big", case.state.generation))
    async with asyncio.timeout(30):
        await case.binder.drain()
    assert sorted(key for key, _ in case.server.bound) == sorted(pod.key for pod in pods)
    assert len(case.state.reservations) == 300


class DeafServer(threading.Thread):
    """Takes one connection in a thread of its own, and never answers.

    Attributes:
        port: its port.
        received: set when it has a whole binding.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.received, self.ended = self._listener.getsockname()[1], threading.Event(), threading.Event()

    def run(self) -> None:
        connection, _ = self._listener.accept()
        with self._listener, connection:
            read = b""
            while b"Node" not in read:
                read += connection.recv(4096)
            self.received.set()
            self.ended.wait()


async def test_sent_means_that_it_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the event loop does from then on: the request is on its way."""
    monkeypatch.setattr(binder, "_SENT_WITHIN", 1000.0)
    server, state = DeafServer(), DrivenLedger()
    server.start()
    state.upsert_node(Node("n", allocatable=(("cpu", 1000), ("pods", 10))))
    state.upsert_pod(POD)
    async with connected(server.port, tmp_path) as connection:
        events: Any = SimpleNamespace(write=lambda *_arguments, **_options: None)
        made = Binder(connection, state.shell, Metrics(), events, ProgressLog(), 4)
        await asyncio.wait_for(made.until_sent(), 30)  # nothing was put in line
        task = asyncio.create_task(made.run())
        assert state.reserve(POD, "n")
        made.put(Bind(POD, "n", state.generation))
        async with asyncio.timeout(10):
            await made.until_sent()
        assert server.received.wait(10)  # and the loop stands still
        server.ended.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    server.join(10)


async def test_what_is_not_sent_is_not_waited_for(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is gone, so there is no request. And nobody waits for long where a request cannot leave."""
    monkeypatch.setattr(binder, "_SENT_WITHIN", 1000.0)
    assert case.state.reserve(POD, "n")
    case.state.delete_node("n")
    case.binder.put(Bind(POD, "n", case.state.generation))
    await asyncio.wait_for(case.binder.until_sent(), 10)
    assert not case.server.posts
    monkeypatch.setattr(binder, "_SENT_WITHIN", 0.01)
    case.binder._sent.clear()
    await asyncio.wait_for(case.binder.until_sent(), 10)
