"""The view's server attacked: what is no request of a good caller is refused, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import pytest
import pytest_asyncio
from support.operator import until
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of
from support.view import TOKEN, Client, HeldSource, Two, compute_processes, small_scenario, viewed
from thalweg_view.callers.access import Caller
from thalweg_view.callers.view_limits import DEFAULT_LIMITS
from thalweg_view.web.page_files import read_page

from flowcore.planning.plan_document import PlanPod
from flowcore.questions.scenario import Scenario, plan_scenario

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "</script><script>alert(1)</script>\r\nevent: round\ndata: x\u2028"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page, with a secret beside it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "secret.txt").write_text("secret")
    (folder / "page" / "vendor").mkdir(parents=True)
    (folder / "page" / "index.html").write_text("<!doctype html>")
    (folder / "page" / "app.js").write_text("export {}")
    (folder / "page" / "vendor" / "htm.js").write_text("export {}")
    return folder / "page"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def source(tmp_path_factory: pytest.TempPathFactory) -> HeldSource:
    return HeldSource(small_scenario(tmp_path_factory.mktemp("dump")), kind="dump")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(source: HeldSource, page: Path) -> AsyncIterator[Client]:
    async with viewed(source, page=read_page(page)) as client:
        yield client


async def raw(client: Client, text: bytes) -> tuple[int, bytes]:
    """Status and whole answer to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(text)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1]) if answer else 0, answer


def request(path: str, *headers: str, method: str = "GET", host: str = "127.0.0.1") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


AUTHORIZATION = f"Authorization: Bearer {TOKEN}"


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/vendor/../../secret.txt",
        "//secret.txt",
        "/./app.js/../../secret.txt",
        "/vendor",
        "/vendor/",
        "/app.js%00.html",
        "/\\..\\secret.txt",
    ],
)
async def test_only_the_files_of_the_page_are_served(client: Client, path: str) -> None:
    """No path leads out of the page's folder, however it is written."""
    status, answer = await raw(client, request(path))
    assert status in (400, 404)
    assert b"secret" not in answer.partition(b"\r\n\r\n")[2]


async def test_the_page_needs_no_token_and_its_headers_are_strict(client: Client) -> None:
    """Nothing inline runs, nothing comes from elsewhere, nobody frames it, and its types are not guessed."""
    script = "text/javascript"
    for path, content_type in (("/", "text/html"), ("/app.js", script), ("/vendor/htm.js", script)):
        status, _, headers = await client.get(path, headers={})
        assert status == 200
        assert headers["Content-Type"].startswith(content_type)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert (await client.get(path, headers={"If-None-Match": headers["ETag"]}))[0] == 304


async def test_without_the_gathered_modules_the_page_says_what_to_do(source: HeldSource) -> None:
    """Data is served all the same."""
    async with viewed(source, page={}) as client:
        status, answer, _ = await client.get("/", headers={})
        assert status == 503
        assert "pip install" in answer["error"]
        assert (await client.get("/api/v1/overview"))[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        (["Authorization: Basic eDp5"], 401),
        (["Authorization: Bearer "], 401),
        (["Authorization: Bearer wrong"], 401),
        (["Authorization: Bearer " + "a" * 7000], 401),
        (["X-Thalweg-Token: wrong"], 401),
        ([f"X-Thalweg-Token: {TOKEN}"], 200),
        ([AUTHORIZATION], 200),
        ([AUTHORIZATION, f"X-Thalweg-Token: {TOKEN}"], 200),
        ([AUTHORIZATION, "X-Thalweg-Token: of-somebody-else"], 400),
        ([f"X-Thalweg-Token: {TOKEN}", "X-Thalweg-Token: of-somebody-else"], 400),
        ([AUTHORIZATION, "Authorization: Bearer of-somebody-else"], 400),
        ([f"X_Thalweg_Token: {TOKEN}"], 401),
        ([f"Cookie: X-Thalweg-Token={TOKEN}"], 401),
        ([AUTHORIZATION, "Sec-Fetch-Site: cross-site"], 403),
        ([AUTHORIZATION, "Sec-Fetch-Site: same-origin"], 200),
    ],
)
async def test_tokens(client: Client, headers: list[str], status: int) -> None:
    """Data needs one token, in a header that no page of another site can set; two different ones are refused."""
    assert (await raw(client, request("/api/v1/overview", *headers)))[0] == status


@pytest.mark.parametrize(
    "path", ["/api/v1/overview", "/api/v2/overview", "/api/", "/api/v1/../v1/overview", "/api/v1/x"]
)
async def test_nothing_below_api_is_answered_without_a_token(client: Client, path: str) -> None:
    """Not even whether it exists."""
    assert (await raw(client, request(path)))[0] == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost", 200),
        ("[::1]:8080", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ],
)
async def test_a_page_cannot_reach_it_by_another_name_of_this_machine(client: Client, host: str, status: int) -> None:
    """DNS rebinding: a browser sends the name of the page that it shows."""
    for path in ("/api/v1/overview", "/"):
        assert (await raw(client, request(path, AUTHORIZATION, host=host)))[0] == status


async def test_cross_origin_requests_get_no_permission(client: Client) -> None:
    """No answer names an origin that may read it, and preflights are refused."""
    status, answer = await raw(
        client,
        request(
            "/api/v1/overview", "Origin: https://evil.example", "Access-Control-Request-Method: GET", method="OPTIONS"
        ),
    )
    assert status == 401
    assert b"access-control" not in answer.lower()
    _, answer = await raw(client, request("/api/v1/overview", AUTHORIZATION, "Origin: https://evil.example"))
    assert b"access-control" not in answer.lower()


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/v1/pending?limit=x", 400, "Expected `int`"),
        ("/api/v1/pending?limit=5&limit=6", 400, "given twice"),
        ("/api/v1/pending?colour=red", 400, "no parameter of this name"),
        ("/api/v1/pending/more", 404, "the path of pending"),
        ("/api/v1/pods/default", 404, "/api/v1/pods/NAMESPACE/NAME"),
        ("/api/v1/pods/default/%2e%2e", 404, ""),
        ("/api/v1/overview?round=99", 404, ""),
        ("/api/v2/overview", 404, "no such operation"),
        ("/api/v1/pods/default/%ff%fe", 404, ""),
    ],
)
async def test_bad_queries_get_one_sentence(client: Client, path: str, status: int, words: str) -> None:
    """It names what is wrong."""
    found, answer = await raw(client, request(path, AUTHORIZATION))
    assert found == status
    assert words in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


async def test_methods(client: Client) -> None:
    """An operation is asked by its own method; none changes anything."""
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await client.get("/api/v1/overview", method=method))[0] == 405
        assert (await client.get("/", headers={}, method=method))[0] == 405


async def test_an_answer_that_did_not_change_is_not_sent_again(client: Client) -> None:
    """By its ETag."""
    authorization = {"Authorization": f"Bearer {TOKEN}"}
    _, _, headers = await client.get("/api/v1/overview", authorization)
    assert (await client.get("/api/v1/overview", {**authorization, "If-None-Match": headers["ETag"]}))[0] == 304


async def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """In JSON and in events they neither end a line nor become a type that a browser shows as a page."""
    source = HeldSource(small_scenario(tmp_path))
    async with viewed(source) as client:
        pending = [PlanPod(f"default/{HOSTILE}", 0, 0)]
        async with client.session.get(client.url("/api/v1/events"), headers={"X-Thalweg-Token": TOKEN}) as stream:
            assert stream.status == 200
            await stream.content.readuntil(b"\n\n")
            source.plan(1, pending=pending, unplaced=[(0, 0)], reasons=[HOSTILE], codes=[HOSTILE])
            event = await stream.content.readuntil(b"\n\n")
        kind, data, *rest = event.split(b"\n")
        assert (kind, rest) == (b"event: round", [b"", b""])
        row = json.loads(data.removeprefix(b"data: "))
        assert row["codes"] == {HOSTILE: 1}
        status, answer, headers = await client.get("/api/v1/rounds")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert answer["number"] == [1]


async def test_floods_are_limited_and_others_are_answered(tmp_path: Path) -> None:
    """One caller's questions beyond its share are refused, and another caller is answered."""
    source = HeldSource(small_scenario(tmp_path))
    limits = replace(DEFAULT_LIMITS, questions_per_caller=3, streams_per_caller=2)
    async with viewed(source, Two(), limits=limits) as client:
        other = Client(client.port, client.session, "b")
        client.token = "a"  # noqa: S105 - of a caller that the test made up
        found = await asyncio.gather(*(client.get("/api/v1/pending") for _ in range(40)), other.get("/api/v1/overview"))
        statuses = Counter(status for status, *_ in found[:-1])
        assert set(statuses) <= {200, 429}
        assert statuses[200] >= 3
        assert statuses[429]
        assert found[-1][0] == 200
        retry = next(headers["Retry-After"] for status, _, headers in found if status == 429)
        assert int(retry) >= 1
        streams = [
            await client.session.get(client.url("/api/v1/events"), headers={"X-Thalweg-Token": "a"}) for _ in "123"
        ]
        assert [stream.status for stream in streams] == [200, 200, 429]
        for stream in streams:
            stream.close()


async def test_an_answer_is_not_given_to_who_may_see_less(tmp_path: Path) -> None:
    """The same question of two callers, one after the other: each is told what it may see."""
    async with viewed(HeldSource(small_scenario(tmp_path), kind="dump"), Two()) as client:
        for token, visible in (("a", True), ("b", False), ("a", True)):
            client.token = token
            status, answer, _ = await client.get("/api/v1/pods/default/waits")
            assert (status == 200) == visible, answer


async def test_connections_that_have_asked_make_room(client: Client) -> None:
    """Strangers that hold more connections than there may be, each with a request answered, keep nobody out."""
    held = []
    for _ in range(DEFAULT_LIMITS.connections + 20):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        held.append(writer)
        writer.write(request("/").replace(b"Connection: close\r\n", b""))
        await reader.readuntil(b"\r\n\r\n")
    assert (await raw(client, request("/api/v1/overview", AUTHORIZATION)))[0] == 200
    for writer in held:
        writer.close()


async def test_a_caller_that_goes_away_costs_nobody_an_answer(client: Client) -> None:
    """The compute process goes on with what it does: it is neither ended nor out of step."""
    before = compute_processes()
    for _ in range(20):
        _, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(request("/api/v1/pending", AUTHORIZATION))
        await writer.drain()
        writer.transport.abort()
    assert (await client.get("/api/v1/overview"))[0] == 200
    assert compute_processes() == before


async def test_a_killed_process_comes_back_with_its_rounds(tmp_path: Path) -> None:
    """Questions are answered as before, at the latest when asked again."""
    source = HeldSource(small_scenario(tmp_path))
    async with viewed(source) as client:
        before = compute_processes()
        for number in range(1, 4):
            source.plan(number)
        assert (await client.get("/api/v1/rounds"))[1]["number"] == [1, 2, 3]
        (pid,) = set(compute_processes()) - set(before)
        os.kill(pid, signal.SIGKILL)
        found: list[object] = []

        async def came_back() -> bool:
            status, answer, _ = await client.get("/api/v1/rounds")
            assert status in (200, 503)
            found[:] = answer.get("number", [])
            return status == 200

        await until(came_back, 60, lambda: "an answer of a new process")
        assert found == [1, 2, 3]


async def test_an_answer_that_takes_too_long_ends_the_process_alone(tmp_path: Path) -> None:
    """The asker is told, and the next question is answered by a new process."""
    source = HeldSource(small_scenario(tmp_path))
    async with viewed(source, deadline=2.0) as client:
        before = compute_processes()
        assert (await client.get("/api/v1/overview"))[0] == 200
        (pid,) = set(compute_processes()) - set(before)
        os.kill(pid, signal.SIGSTOP)
        status, answer, _ = await client.get("/api/v1/overview")
        assert status == 503
        assert "no answer after 2 s" in answer["error"]

        async def came_back() -> bool:
            return (await client.get("/api/v1/overview"))[0] == 200

        await until(came_back, 60, lambda: "an answer of a new process")


async def test_a_standby_answers_503_and_closes_the_connection(tmp_path: Path) -> None:
    """Only callers with a token learn who leads."""
    source = HeldSource(small_scenario(tmp_path))
    source.problem = "lease: standby, another leads"
    async with viewed(source) as client:
        status, answer, headers = await client.get("/api/v1/overview")
        assert (status, answer["error"]) == (503, source.problem)
        assert headers["Connection"] == "close"
        assert (await client.get("/api/v1/overview", headers={}))[0] == 401
        assert source.states == 0


async def test_a_state_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """The source is at fault, not the asker, and the process lives."""

    class Broken(HeldSource):
        async def state(self) -> AsyncIterator[bytes]:
            yield b'{"saved": "ClusterState", "version": 99, "written": 0}\n'
            yield b"{}\n"

    async with viewed(Broken(Scenario())) as client:
        status, answer, _ = await client.get("/api/v1/overview")
        assert status == 503
        assert "version 99" in answer["error"]


async def test_a_quiet_cluster_keeps_its_generation(tmp_path: Path) -> None:
    """Read again, a state that did not change is the same generation; one that did is the next."""
    source = HeldSource(small_scenario(tmp_path))
    async with viewed(source, limits=replace(DEFAULT_LIMITS, state_age=0.1)) as client:

        async def generation(states: int) -> int:
            while source.states < states:
                status, answer, _ = await client.get("/api/v1/overview")
                assert status == 200
                await asyncio.sleep(0.05)
            found: int = answer["generation"]
            return found

        first = await generation(1)
        assert await generation(2) == first
        source.scenario.cluster.remove_node("n2")
        assert await generation(3) == first + 1


def large_body(size: int) -> AsyncIterator[bytes]:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(0, size, 2**16):
            yield b" " * 2**16

    return pieces()


JSON = {"Content-Type": "application/json"}


async def test_bodies(tmp_path: Path) -> None:
    """Too large, too slow, compressed, of another type, too deep or no JSON: refused, and the process lives."""
    limits = replace(DEFAULT_LIMITS, body=2**20, read=1.0)
    async with viewed(HeldSource(small_scenario(tmp_path)), limits=limits) as client:
        operations = (await client.get("/api/v1/none"))[1]["error"].partition("there are ")[2].split(", ")
        asked = {name: (await client.get(f"/api/v1/{name}"))[0] for name in operations if name != "events"}
        post = next(name for name, status in asked.items() if status == 405)

        async def status(headers: Mapping[str, str], body: object) -> int:
            sent = {"Authorization": f"Bearer {TOKEN}", **headers}
            try:
                async with client.session.post(client.url(f"/api/v1/{post}"), headers=sent, data=body) as answer:
                    return answer.status
            except aiohttp.ClientConnectionError:
                return 413  # it was closed while the body was sent

        assert await status(JSON, large_body(2**24)) == 413
        assert await status({**JSON, "Content-Encoding": "gzip"}, b"{}") == 415
        assert await status({"Content-Type": "text/plain"}, b"{}") == 415
        assert await status(JSON, b"[" * 500_000) == 400
        assert await status(JSON, b"\xff") == 400
        head = request(
            f"/api/v1/{post}", AUTHORIZATION, "Content-Type: application/json", "Content-Length: 9", method="POST"
        )
        assert (await raw(client, head))[0] == 408
        assert (await client.get("/api/v1/overview"))[0] == 200


class Readers:
    """Callers who may list the pods of all namespaces, of two of three, or of one; all other rights are everybody's."""

    OF: ClassVar = {"all": None, "both": ["default", "batch"], "one": ["default"], "thirds": ["third"]}

    async def caller(self, token: str) -> Caller:
        return Caller(token)

    async def may_list(self, _caller: Caller, _kind: str) -> bool:
        return True

    async def namespaces(self, caller: Caller, known: Collection[str]) -> list[str] | None:
        may = self.OF[caller.name]
        return None if may is None else [name for name in may if name in known]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def preempted() -> AsyncIterator[Client]:
    """A view in which pods of two other namespaces leave for an urgent pod: there is another node for one of them."""
    urgent = manifest_pod("urgent", cpu="4")
    web = manifest_pod("web", "b", "1")
    urgent["spec"]["priority"], web["spec"]["priority"] = 1000, 2000
    scenario = scenario_of([
        *(manifest_node(name, "z") for name in "ab"),
        manifest_pod("batch-0", "a", "2", namespace="batch"),
        manifest_pod("other", "a", "2", namespace="third"),
        web,
        urgent,
    ])  # fmt: skip
    source = HeldSource(scenario, kind="dump")
    async with viewed(source, Readers()) as client:
        for listener in source.listeners:
            listener(plan_scenario(scenario, NOW).document(seconds=0.5))
        yield client


async def told(client: Client, name: str, path: str) -> Any:
    status, answer, _ = await Client(client.port, client.session, name).get(f"/api/v1/{path}")
    assert status == 200, answer
    return answer


@pytest.mark.parametrize(
    ("name", "victims", "others"),
    [("all", {"batch/batch-0", "third/other"}, 0), ("both", {"batch/batch-0"}, 1), ("one", set(), 2)],
)
async def test_who_leaves_is_named_to_who_may_read_it(
    preempted: Client, name: str, victims: set[str], others: int
) -> None:
    """The page of a pod names pods of every namespace that its reader may read, not of the pod's alone."""
    page = await told(preempted, name, "pods/default/urgent")
    assert (set(page["victims"]), page["otherVictims"]) == (victims, others)
    evictions = (await told(preempted, name, "status?namespace=default"))["evictions"]
    assert {each["pod"] for each in evictions} == victims | ({"a pod of another namespace"} if others else set())


async def test_a_victim_says_for_whom_it_leaves_and_where_its_replacement_goes(preempted: Client) -> None:
    """The page of each that leaves; the names of others only to who may read them."""
    pages = [await told(preempted, "all", f"pods/{key}") for key in ("batch/batch-0", "third/other")]
    assert [each["leavesFor"] for each in pages] == [["default/urgent"]] * 2
    assert sorted(each["leavesTo"] for each in pages) == ["", "b"]
    page = await told(preempted, "thirds", "pods/third/other")
    assert (page["leavesFor"], page["leavesForOthers"]) == ([], 1)


async def test_the_parameter_namespace_narrows_what_is_shown(preempted: Client) -> None:
    """Of an operation that knows no namespace only the pods of this one are listed, to the admin too."""
    (narrowed,) = (await told(preempted, "all", "flow?namespace=batch"))["sources"]
    (whole,) = (await told(preempted, "all", "flow"))["sources"]
    assert (narrowed["name"], whole["name"]) == ("namespaces that you may not read", "replicaset/default/of-urgent")
