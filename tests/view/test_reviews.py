"""Who asks and what they may read: what the API server is asked, how often, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from thalweg_view.callers.access import Caller
from thalweg_view.callers.reviews import ACCESS_REVIEWS, HOLDS, TOKEN_REVIEWS, ReviewedAccess
from thalweg_view.callers.view_limits import DEFAULT_LIMITS
from thalweg_view.errors import RequestRefused, ReviewFailed

USER = {"username": "jane", "uid": "1", "groups": ["team", "system:authenticated"], "extra": {"a/b": ["c"]}}


class Reviewer:
    """An API server that knows the token "good", and lets Jane list pods of one namespace."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.now = 0.0
        self.known, self.audiences = {"good"}, ["thalweg-view"]
        self.gate = asyncio.Event()
        self.gate.set()
        self.problem = ""

    async def post(self, path: str, body: bytes) -> bytes:
        spec = json.loads(body)["spec"]
        self.asked.append((path, spec))
        if path == TOKEN_REVIEWS and spec["token"] not in self.known:
            await self.gate.wait()
        if self.problem:
            raise ReviewFailed(self.problem)
        if path == TOKEN_REVIEWS:
            good = spec["token"] in self.known
            status = {"authenticated": True, "user": USER, "audiences": self.audiences}
            return json.dumps({"status": status if good else {}}).encode()
        assert path == ACCESS_REVIEWS
        allowed = spec["resourceAttributes"]["namespace"] == "team"
        return json.dumps({"status": {"allowed": allowed, "reason": "RBAC"}}).encode()

    def access(self, **limits: Any) -> ReviewedAccess:
        return ReviewedAccess(self.post, replace(DEFAULT_LIMITS, **limits), lambda: self.now)


async def test_a_caller_is_asked_about_as_the_api_server_described_it() -> None:
    """Groups, UID and extra fields count: a role may be bound to any of them."""
    reviewer = Reviewer()
    access = reviewer.access()
    caller = await access.caller("good")
    assert await access.namespaces(caller, ["other", "team"]) == ["team"]
    assert not await access.may_list(caller, "policies")
    spec = reviewer.asked[-1][1]
    assert (spec["user"], spec["uid"], spec["groups"], spec["extra"]) == tuple(USER.values())
    wanted = {"verb": "list", "group": "scheduling.thalweg", "resource": "flowschedulingpolicies", "namespace": ""}
    assert spec["resourceAttributes"] == wanted


@pytest.mark.parametrize("audiences", [[], ["https://kubernetes.default.svc"]], ids=["none", "the API server's"])
async def test_a_token_for_another_audience_is_refused(audiences: list[str]) -> None:
    """The API server is asked about our audience alone; where it answers about another one, or none, that is a no."""
    reviewer = Reviewer()
    reviewer.audiences = audiences
    with pytest.raises(RequestRefused, match="--audience thalweg-view") as refused:
        await reviewer.access().caller("good")
    assert refused.value.status == 401
    assert reviewer.asked == [(TOKEN_REVIEWS, {"token": "good", "audiences": ["thalweg-view"]})]


async def test_answers_hold_for_some_seconds() -> None:
    """Many requests of a page ask once, and a token that is revoked is refused when the answer is old."""
    reviewer = Reviewer()
    access = reviewer.access()
    await asyncio.gather(*(access.caller("good") for _ in range(20)))
    assert len(reviewer.asked) == 1
    reviewer.known.clear()
    await access.caller("good")
    reviewer.now += HOLDS + 1
    with pytest.raises(RequestRefused) as refused:
        await access.caller("good")
    assert refused.value.status == 401
    assert len(reviewer.asked) == 2


async def test_an_error_is_no_answer() -> None:
    """While the API server says nothing nobody is let in, and nothing of that is kept."""
    reviewer = Reviewer()
    access = reviewer.access()
    reviewer.problem = "away"
    with pytest.raises(RequestRefused) as refused:
        await access.caller("good")
    assert refused.value.status == 503
    reviewer.problem = ""
    assert (await access.caller("good")).name == "jane"


async def test_strangers_do_not_keep_callers_out() -> None:
    """However many unknown tokens wait, one that was good is checked again at once, and few are under way."""
    reviewer = Reviewer()
    access = reviewer.access(reviews=8)
    await access.caller("good")
    reviewer.gate.clear()
    strangers = [asyncio.create_task(access.caller(f"stranger-{number}")) for number in range(100)]
    await asyncio.sleep(0)
    reviewer.now += HOLDS + 1
    async with asyncio.timeout(30):
        assert (await access.caller("good")).name == "jane"
    under_way = [spec for path, spec in reviewer.asked if path == TOKEN_REVIEWS and spec["token"] != "good"]  # noqa: S105
    assert 0 < len(under_way) <= 2
    reviewer.gate.set()
    found = await asyncio.gather(*strangers, return_exceptions=True)
    statuses = {each.status for each in found if isinstance(each, RequestRefused)}
    assert statuses == {401, 429}
    assert len(found) == 100


async def test_a_caller_that_goes_away_ends_no_review_of_others() -> None:
    """The others get the answer that was asked for once."""
    reviewer = Reviewer()
    access = reviewer.access()
    reviewer.gate.clear()
    first, second = (asyncio.create_task(access.caller("unknown")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    reviewer.gate.set()
    with pytest.raises(RequestRefused, match="does not accept"):
        await second
    assert len(reviewer.asked) == 1


async def test_a_caller_without_rights_takes_a_quarter_of_the_reviews() -> None:
    """However many accounts of one namespace ask about however many namespaces, others are asked about meanwhile."""
    reviewer = Reviewer()
    access = reviewer.access(reviews=8)
    under_way = asyncio.Event()

    async def hangs(path: str, body: bytes) -> bytes:
        spec = json.loads(body)["spec"]
        reviewer.asked.append((path, spec))
        if spec["resourceAttributes"]["namespace"] != "team":
            await under_way.wait()
        return b'{"status": {"allowed": false}}'

    access._post = hangs
    many = [f"n{number}" for number in range(100)]
    asked = [asyncio.create_task(access.namespaces(of_account(f"mallory:s{n}"), many)) for n in range(3)]
    for _ in range(20):
        await asyncio.sleep(0)
    # The question about all namespaces, which each of them asks first, does not count.
    named = [spec for _, spec in reviewer.asked if spec["resourceAttributes"]["namespace"]]
    assert len(named) <= 2
    under_way.set()
    assert await asyncio.gather(*asked) == [[]] * 3


def of_account(name: str) -> Caller:
    username = f"system:serviceaccount:{name}"
    return Caller(username, json.dumps({"username": username}).encode())


async def test_too_many_namespaces_are_not_asked_about() -> None:
    """A caller who may not list all pods names one; a named one is asked about alone."""
    reviewer = Reviewer()
    access = reviewer.access(namespaces=3)
    caller = await access.caller("good")
    with pytest.raises(RequestRefused, match="name one with the parameter namespace") as refused:
        await access.namespaces(caller, ["a", "b", "c", "team"])
    assert refused.value.status == 400
    assert await access.namespaces(caller, ["team"]) == ["team"]
