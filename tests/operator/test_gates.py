"""The admission policy that gates pods: what is built, and the upkeep where the API server refuses."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from support.fake_api import refusal, serving
from thalweg_operator.gate_admission import GateAdmission
from thalweg_operator.gates import ADMISSION, GATE_LABEL, gate, wants_gate
from thalweg_operator.policies import PolicyStore, parse
from thalweg_operator.policy_status import Counts, PolicyStatus

from flowcore.model.policies import BUILT_IN, GangTerms, Policy, WaitingMode
from flowcore.model.selectors import is_label_value

GATED: dict[str, Any] = {"delivery": "Extender", "waiting": "Gate", "selects": {"podSelector": {}}}


def gated(name: str, **more: Any) -> Policy:
    return parse(name, {**GATED, **more})


def holding_gangs(policy: Policy) -> Policy:
    """The policy, with gangs held too."""
    return msgspec.structs.replace(policy, gangs=GangTerms(waiting=WaitingMode.HOLD))


def test_only_extender_and_gate_want_one() -> None:
    """A held one does so for gangs alone, unless it holds those too; one that governs nothing, never."""
    assert wants_gate(gated("p"))
    assert wants_gate(gated("p", waiting="Hold"))
    assert not wants_gate(holding_gangs(gated("p", waiting="Hold")))
    assert not wants_gate(gated("p", selects={}))
    assert not wants_gate(BUILT_IN)


def test_pods_of_gangs_and_others_apart() -> None:
    """The condition says which; a rival is asked about those that it leaves and this one would gate."""
    both, gangs = gated("both"), gated("gangs", waiting="Hold")
    others, held = holding_gangs(gated("others")), holding_gangs(gated("held", waiting="Hold"))

    def only(policy: Policy) -> list[str]:
        conditions = gate(policy, "u", []).rule["spec"]["matchConditions"]
        return [each["expression"] for each in conditions if each["name"] == "gang"]

    def rivals(policy: Policy, first: Policy) -> str:
        asked: str = gate(policy, "u", [first, policy]).rule["spec"]["variables"][2]["expression"]
        return asked

    assert only(both) == []
    (gang,) = only(gangs)
    assert only(others) == [f"!({gang})"]
    assert rivals(both, others).endswith(f" && ({gang}))")
    assert rivals(both, gangs).endswith(f" && !({gang}))")
    assert gang not in rivals(both, held)
    assert gang not in rivals(gangs, others)
    assert (
        rivals(gangs, both) == rivals(others, both) == rivals(both, msgspec.structs.replace(both, name="x")) == "false"
    )


@pytest.mark.parametrize("name", ["p", "a." * 126 + "z", "b" * 60 + "." + "c" * 100])
def test_names_of_any_length(name: str) -> None:
    """A policy's name may be as long as an object's: the gate's still is one, and its label's value is valid."""
    made = gate(gated(name), "u", [])
    for each in (made.rule, made.binding):
        assert len(each["metadata"]["name"]) <= 253
        assert each["metadata"]["name"].startswith("thalweg-gate-")
        assert is_label_value(each["metadata"]["labels"][GATE_LABEL])
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("FlowSchedulingPolicy", name, "u")
    assert made.binding["spec"] == {"policyName": made.name}


def test_long_names_that_begin_alike_stay_apart() -> None:
    """What is cut off still counts."""
    first, second = (gate(gated("a" * 240 + end), "u", []) for end in ("bcdefghijklm", "bcdefghijkln"))
    assert first.name != second.name
    assert first.rule["metadata"]["labels"] != second.rule["metadata"]["labels"]


def test_only_policies_that_come_first_and_may_govern_are_asked() -> None:
    """Those behind, those of other schedulers, those that govern nothing and those that gate themselves are not."""
    first = gated("first", waiting="Hold", selects={"podSelector": {"matchLabels": {"asked": "yes"}}})
    others = [
        gated("gates-too", selects={"podSelector": {"matchLabels": {"asked": "no"}}}),
        gated("elsewhere", waiting="Hold", selects={"schedulerNames": ["other"]}),
        gated("nothing", waiting="Hold", selects={}),
    ]
    mine = gated("mine")
    behind = gated("behind", waiting="Hold", selects={"podSelector": {"matchLabels": {"asked": "no"}}})
    spec = gate(mine, "u", [first, *others, mine, behind]).rule["spec"]
    (asked,) = [each["expression"] for each in spec["variables"] if each["name"] == "anothers"]
    assert asked.count("object.spec.schedulerName") == 1
    assert '"asked" in variables.labels' in asked
    assert "no" not in json.dumps(asked).split('"')


async def look_at(app: web.Application, folder: Path, until: Any) -> tuple[GateAdmission, PolicyStore]:
    """An upkeep that ran against this server until a condition held."""
    store = PolicyStore()
    store.offer("p", "u", 1, GATED)
    async with serving(app, folder) as connection:
        gates = GateAdmission(connection, store)
        task = asyncio.create_task(gates.run())
        async with asyncio.timeout(20):
            while not until(gates):  # noqa: ASYNC110 - nobody else is to care who waits
                await asyncio.sleep(0.01)
        task.cancel()
    return gates, store


@pytest.mark.parametrize(
    ("status", "words"), [(404, "does not serve MutatingAdmissionPolicy"), (403, "you may not list these")]
)
async def test_a_server_that_has_none_or_forbids_them(tmp_path: Path, status: int, words: str) -> None:
    """The policy's Ready condition says that its pods are held, and why; the upkeep lives on."""
    app = web.Application()

    async def refuse(_request: web.Request) -> web.Response:
        return refusal(status, "you may not list these")

    app.router.add_route("*", "/{rest:.*}", refuse)
    gates, store = await look_at(app, tmp_path, lambda each: each.problems)
    writer: Any = PolicyStatus(None, None, store, type("Rounds", (), {"reports": {}})(), gates)  # type: ignore[arg-type]
    store.offer("held", "v", 1, {**GATED, "waiting": "Hold"})
    found = {each.name: writer._status(each, Counts())["conditions"][1] for each in store.standings}
    assert (found["p"]["status"], found["p"]["reason"]) == ("True", "HeldNotGated")
    assert words in found["p"]["message"]
    assert "but new pods are held" in found["p"]["message"]
    assert found["held"]["reason"] == "InForce"


async def test_one_that_is_refused_keeps_no_other_from_its_gate(tmp_path: Path) -> None:
    """And a server that is busy for a moment is asked again."""
    store, made, busy = PolicyStore(), [], [True]
    store.offer("bad", "u", 1, GATED)
    store.offer("good", "v", 1, GATED)
    app = web.Application()

    async def listed(_request: web.Request) -> web.Response:
        if busy:
            busy.pop()
            return refusal(429, "later")
        return web.json_response({"items": []})

    async def create(request: web.Request) -> web.Response:
        body = await request.json()
        if body["metadata"]["name"] == "thalweg-gate-bad":
            return refusal(422, "too long")
        made.append((body["kind"], body["metadata"]["name"]))
        return web.json_response(body, status=201)

    for kind in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
        app.router.add_get(f"/apis/{ADMISSION}/{kind}", listed)
        app.router.add_post(f"/apis/{ADMISSION}/{kind}", create)
    async with serving(app, tmp_path) as connection:
        gates = GateAdmission(connection, store)
        task = asyncio.create_task(gates.run())
        async with asyncio.timeout(20):
            while not gates.problems:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()
    assert gates.problems == {"bad": "too long"}
    assert made == [
        ("MutatingAdmissionPolicy", "thalweg-gate-good"),
        ("MutatingAdmissionPolicyBinding", "thalweg-gate-good"),
    ]
