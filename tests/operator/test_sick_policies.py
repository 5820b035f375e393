"""Policies and gates: whatever is answered to their lists and watches, nothing ends and requests stay few."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from support import virtual_time
from support.fake_api import serving
from support.operator import until
from support.profiles import examples
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.outages import Outages
from thalweg_operator.constants import POLICIES_PATH
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.metrics import Metrics
from thalweg_operator.policies.gate_admission import GateAdmission
from thalweg_operator.policies.handlers import watch_policies
from thalweg_operator.policies.resync import LISTED_WITHIN, PolicyResync
from thalweg_operator.policies.store import PolicyStore

from flowcore.api.policies import GROUP, PLURAL, VERSION

CRDS = "apiextensions.k8s.io"
DEEP = "[" * 50_000 + "]" * 50_000


def policy(name: str, generation: int = 1, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}", "generation": generation}, "spec": spec}


GOOD = json.dumps({"items": [policy("a", selects={"schedulerNames": ["x"]})]}).encode()


class Fixed:
    """A connection that answers as it is told."""

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer, self.outages = answer, Outages()
        self.asked: dict[str, list[float]] = defaultdict(list)

    async def request(self, method: str, path: str, **_options: Any) -> bytes:
        self.asked[path].append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def busiest(self) -> int:
        """Most requests for one path in any ten seconds."""
        return max(sum(at <= other < at + 10 for other in asked) for asked in self.asked.values() for at in asked)


ANSWERS: list[bytes | Exception] = [
    b"<html>maintenance</html>",
    b'{"items": null}',
    b"{}",
    b'{"items": [{"metadata": {"name": "a", "uid": "u"}, "spec": null}]}',
    b'{"items": [{"metadata": {"name": "a", "uid": "u", "generation": 1}, "spec": {"precedence": 99999999999999999}}]}',
    b'{"items": [{"metadata": {"name": "a\xff"}}]}',
    b'{"items": [{}]}',
    b'{"items": [5]}',
    b'{"items": [{"metadata": {"name": "a", "labels": null, "resourceVersion": "1"}}]}',
    f'{{"items": [{{"metadata": {{"name": "a", "uid": "u"}}, "spec": {{"x": {DEEP}}}}}]}}'.encode(),
    ConnectionLost("reset"),
    *(Refused(status, "no") for status in (400, 401, 403, 404, 409, 410, 429, 500, 503)),
]


def _runs(answer: bytes | Exception) -> None:
    async def main() -> None:
        connection: Any = Fixed(GOOD)
        triggers: list[Callable[[], None]] = []
        store = PolicyStore(put_in_force=lambda _: [trigger() for trigger in triggers])
        resync = PolicyResync(connection, store, BadInput(Metrics()))
        assert await resync.once()
        gates = GateAdmission(connection, store)
        triggers.append(gates.trigger)
        connection.answer = answer
        tasks = [asyncio.create_task(resync.run()), asyncio.create_task(gates.run())]
        for generation in range(2, 102):  # a tenant who changes a policy all the time
            store.offer("b", "u-b", generation, {"precedence": generation})
            await asyncio.sleep(0.5)
        assert not any(task.done() for task in tasks), tasks
        assert connection.busiest() <= 20
        connection.answer = GOOD
        await asyncio.sleep(15)
        assert [each.name for each in store.records] == ["a"]
        for task in tasks:
            task.cancel()

    virtual_time.run(main())


@pytest.mark.parametrize("answer", ANSWERS)
def test_lists_of_policies_and_gates_survive(answer: bytes | Exception) -> None:
    """Neither task ends, neither asks more than twice a second, and the next good list is taken."""
    _runs(answer)


@settings(deadline=None, max_examples=examples(60))
@given(st.binary(max_size=80) | st.integers(0, len(GOOD)).map(lambda at: GOOD[:at]))
def test_lists_of_any_bytes_are_survived(answer: bytes) -> None:
    """The same for arbitrary bytes and for lists that were cut off."""
    _runs(answer)


def test_a_policy_whose_new_version_cannot_be_read_keeps_the_last_good_one() -> None:
    """It is counted, and the others are taken."""

    async def main() -> None:
        connection: Any = Fixed(GOOD)
        store, metrics = PolicyStore(), Metrics()
        resync = PolicyResync(connection, store, BadInput(metrics))
        await resync.once()
        connection.answer = json.dumps({"items": [{**policy("a", 2), "spec": 5}, policy("b")]}).encode()
        assert await resync.once()
        assert [(each.name, each.in_force_generation) for each in store.records] == [("a", 1), ("b", 1)]
        count = metrics.registry.get_sample_value
        assert count("thalweg_refused_inputs_total", {"kind": "policy", "field": "spec"}) == 1

    virtual_time.run(main())


def test_a_policy_that_goes_while_it_is_listed_does_not_come_back() -> None:
    """Nor does it take the place of another one of its name that has come meanwhile."""

    async def main() -> None:
        connection: Any = Fixed(json.dumps({"items": [policy("a"), policy("b")]}).encode())
        store = PolicyStore()
        resync = PolicyResync(connection, store, BadInput(Metrics()))
        await resync.once()
        listing = asyncio.create_task(resync.once())
        await asyncio.sleep(0)  # the request is under way
        store.forget("a", "u-a")
        store.forget("b", "u-b")
        store.offer("b", "another", 1, {})
        assert await listing
        assert store.uids == {"b": "another"}

    virtual_time.run(main())


def _group(name: str, version: str) -> dict[str, Any]:
    served = {"version": version, "groupVersion": f"{name}/{version}"}
    return {"name": name, "preferredVersion": served, "versions": [served]}


def _resource(plural: str, kind: str) -> dict[str, Any]:
    verbs = ["list", "watch", "patch"]
    return {"name": plural, "kind": kind, "singularName": kind.lower(), "namespaced": False, "verbs": verbs}


class KopfServer:
    """Serves what kopf reads: discovery, CRDs and policies."""

    def __init__(self) -> None:
        self.asked: dict[str, list[float]] = defaultdict(list)
        self.policies = [policy("a")]
        self.sick: Callable[[web.Request], web.Response] | None = None
        self.app = web.Application()
        self.app.router.add_get("/{path:.*}", self._serve)

    def busiest(self) -> int:
        return max(sum(at <= other < at + 10 for other in asked) for asked in self.asked.values() for at in asked)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path].append(time.monotonic())
        if self.sick is not None and request.path == POLICIES_PATH:
            return self.sick(request)
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            for each in self.policies if request.path == POLICIES_PATH else ():
                await response.write(json.dumps({"type": "ADDED", "object": each}).encode() + b"\n")
            await asyncio.sleep(60)
            return response
        answers: dict[str, Any] = {
            "/api": {"versions": ["v1"]},
            "/apis": {"groups": [_group(GROUP, VERSION), _group(CRDS, "v1")]},
            "/api/v1": {"resources": [_resource("namespaces", "Namespace")]},
            f"/apis/{CRDS}/v1": {"resources": [_resource("customresourcedefinitions", "CustomResourceDefinition")]},
            f"/apis/{GROUP}/{VERSION}": {"resources": [_resource(PLURAL, "FlowSchedulingPolicy")]},
            POLICIES_PATH: {"metadata": {"resourceVersion": "1"}, "items": self.policies[:1]},
        }
        return web.json_response(answers.get(request.path, {"metadata": {"resourceVersion": "1"}, "items": []}))


@pytest.mark.parametrize(
    "sick",
    [
        lambda _request: web.Response(text="<html>maintenance</html>", content_type="text/html"),
        lambda request: web.Response(
            body=b"" if "watch" in request.query else b'{"metadata": {"resourceVersion": "1"}, "items": []}',
            content_type="application/json",
        ),
        lambda request: web.Response(
            body=b'{"type": "ERROR", "object": {"code": 410}}\n'
            if "watch" in request.query
            else b'{"metadata": {"resourceVersion": "1"}, "items": []}',
            content_type="application/json",
        ),
        lambda _request: web.Response(body=b'{"items": null}', content_type="application/json"),
    ],
    ids=["a page of a proxy", "a watch that ends at once", "expired", "null items"],
)
async def test_kopf_under_a_sick_server(
    sick: Callable[[web.Request], web.Response], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not end the operator, is held to two requests a second, and serves policies when the server is well."""
    monkeypatch.setattr("thalweg_operator.policies.handlers._BACKOFF", Backoff(first=0.1, longest=0.3))
    server, store = KopfServer(), PolicyStore()
    server.sick = sick
    async with serving(server.app, tmp_path) as connection:
        task = asyncio.create_task(watch_policies(connection, store))
        await asyncio.sleep(6)  # kopf takes five seconds to end
        assert not task.done(), task
        assert len(server.asked[POLICIES_PATH]) > 1
        assert server.busiest() <= 20
        server.sick = None
        server.policies.append(policy("b"))
        await until(lambda: [each.name for each in store.records] == ["a", "b"], 30, lambda: "the policies")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def listed() -> tuple[Fixed, PolicyStore, PolicyResync]:
    """A connection, and policies that were listed by it once."""
    connection, store = Fixed(GOOD), PolicyStore(put_in_force=lambda _accepted: None)
    resync = PolicyResync(connection, store, BadInput(Metrics()))  # type: ignore[arg-type]
    await resync.until_listed()
    return connection, store, resync


@pytest.mark.parametrize("answer", [Refused(403, "no"), Refused(500, "conversion webhook failed"), b"<html>"])
def test_a_new_leader_cannot_list_policies(answer: bytes | Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """It tries for a while and goes on with those it knows, and says so: nobody else would place pods meanwhile."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        connection, store, resync = await listed()
        connection.answer = answer
        await asyncio.sleep(5)
        since = loop.time()
        async with asyncio.timeout(600):
            await resync.catch_up(since)
        assert loop.time() - since == pytest.approx(LISTED_WITHIN)
        assert [each.name for each in store.records] == ["a"]

    virtual_time.run(main())
    said = capsys.readouterr()
    assert "leading although the policies could not be listed again" in said.out + said.err


def test_a_new_leader_lists_policies_once() -> None:
    """Only those of before it held the lease are listed again."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        connection, _, resync = await listed()
        before = loop.time()
        await asyncio.sleep(5)
        await resync.catch_up(before)
        assert len(connection.asked[POLICIES_PATH]) == 1
        await resync.catch_up(loop.time())
        assert len(connection.asked[POLICIES_PATH]) == 2

    virtual_time.run(main())
