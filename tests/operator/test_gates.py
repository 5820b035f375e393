"""Which pods are gated, as the API server is told, and the upkeep where the API server refuses."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web
from support.fake_api import refusal, serving
from support.fake_cluster.steered import SteeredCluster
from support.operator import until
from thalweg_operator.constants import POLICIES_PATH
from thalweg_operator.delivery.status.policy_status import PolicyStatus
from thalweg_operator.policies.auto_waiting import GATE_FROM, HOLD_BELOW, describe, gating, policies_of_waiting
from thalweg_operator.policies.gate_admission import GateAdmission
from thalweg_operator.policies.gate_manifests import (
    ADMISSION,
    GATE_LABEL,
    GATE_NAME,
    gate_rules,
    open_patch,
    wants_gate,
)
from thalweg_operator.policies.store import PolicyStore
from thalweg_operator.reservations.events import ParentsFollowed, PodsUnplaced, UnplacedPod
from thalweg_operator.reservations.waiting_codes import UNSCHEDULABLE

from flowcore.api.kinds import JOB_SET
from flowcore.api.policies import GROUP, KIND, VERSION, parse_policy
from flowcore.cluster.indexes.policy_coverage import PolicyCoverage
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.gang_spec import (
    KUEUE_FAST_ADMISSION,
    KUEUE_SERVING,
    KUEUE_TOTAL_COUNT,
    NAMING_ANNOTATIONS,
    NAMING_LABELS,
)
from flowcore.model.policies import BUILT_IN, GATE, GangPolicy, Policy, WaitingMode

GATED: dict[str, Any] = {"delivery": "Extender", "waiting": "Gate", "selects": {"podSelector": {}}}
RIGHTS = Path(__file__).parents[2] / "rights"


def gated(name: str, **more: Any) -> Policy:
    return parse_policy(name, {**GATED, **more}, BUILT_IN_MODELS)


def holding_gangs(policy: Policy) -> Policy:
    """The policy, with gangs held too."""
    return msgspec.structs.replace(policy, gangs=GangPolicy(waiting=WaitingMode.HOLD))


def test_only_extender_and_gate_want_one() -> None:
    """A held one does so for gangs alone, unless it holds those too; one that governs nothing, never."""
    assert wants_gate(gated("p"))
    assert wants_gate(gated("p", waiting="Hold"))
    assert not wants_gate(holding_gangs(gated("p", waiting="Hold")))
    assert not wants_gate(gated("p", selects={}))
    for waiting, (groups, gangs) in {"Auto": (False, True), "Gate": (True, True), "Hold": (False, False)}.items():
        (rule,) = gate_rules(gated("p", waiting="Hold", gangs={"waiting": waiting}), [])
        assert (rule["podGroups"], rule["gangs"], rule["others"]) == (groups, gangs, False)
    assert not wants_gate(BUILT_IN)


def test_what_the_api_server_is_told() -> None:
    """Scheduler names, labels by every operator, and which kinds of pods are gated."""
    expressions = [{"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "done", "operator": "DoesNotExist"}]
    selects = {
        "schedulerNames": ["x", "y"],
        "podSelector": {"matchExpressions": expressions},
        "namespaceSelector": {"matchLabels": {"team": "ml"}},
    }
    assert gate_rules(gated("p", waiting="Hold", selects=selects), []) == [
        {
            "schedulerNames": ["x", "y"],
            "podLabels": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "done", "operator": "DoesNotExist", "values": []},
            ],
            "namespaceLabels": [{"key": "team", "operator": "In", "values": ["ml"]}],
            "podGroups": False,
            "gangs": True,
            "others": False,
        }
    ]


def test_only_policies_that_come_first_and_leave_pods_alone_are_told() -> None:
    """Those behind, those of other schedulers, those that govern nothing and those that gate themselves are not."""
    asked = gated("asked", waiting="Hold", selects={"podSelector": {"matchLabels": {"asked": "yes"}}})
    first = [
        asked,
        gated("gates-too", selects={"podSelector": {"matchLabels": {"asked": "no"}}}),
        gated("elsewhere", waiting="Hold", selects={"schedulerNames": ["other"]}),
        gated("nothing", waiting="Hold", selects={}),
    ]
    mine = gated("mine")
    behind = gated("behind", waiting="Hold", selects={"podSelector": {"matchLabels": {"asked": "no"}}})
    told = gate_rules(mine, [*first, mine, behind])
    assert told == [*gate_rules(asked, []), *gate_rules(mine, [])]


def test_pods_of_gangs_and_others_apart() -> None:
    """A rival counts only where it leaves a kind of pods alone that this policy gates."""
    both, gangs = gated("both"), gated("gangs", waiting="Hold")
    others, held = holding_gangs(gated("others")), holding_gangs(gated("held", waiting="Hold"))
    rivals = {
        (mine.name, other.name)
        for mine in (both, gangs, others)
        for other in (both, gangs, others, held)
        if mine is not other and len(gate_rules(mine, [other, mine])) == 2
    }
    assert rivals == {
        ("both", "gangs"),
        ("both", "others"),
        ("both", "held"),
        ("gangs", "others"),
        ("gangs", "held"),
        ("others", "gangs"),
        ("others", "held"),
    }


def test_auto_gates_while_many_wait() -> None:
    """From a hundred waiting pods on new ones are gated, until fewer than fifty wait: it does not go to and fro."""
    auto, held = gated("auto", waiting="Auto"), gated("held", waiting="Hold")
    decided, seen = frozenset[str](), []
    for waiting in (0, 99, 100, 99, 50, 49, 99):
        decided = gating(
            [auto, held, BUILT_IN], Counter(dict.fromkeys(("auto", "held", BUILT_IN.name), waiting)), decided
        )
        seen.append(set(decided))
    assert seen == [set(), set(), {"auto"}, {"auto"}, {"auto"}, set(), set()]
    assert [gate_rules(auto, [], each)[0]["others"] for each in (frozenset(), {"auto"})] == [False, True]
    assert describe(auto, frozenset())[:2] == ("True", "FewWait")
    assert describe(auto, {"auto"})[:2] == ("False", "ManyWait")


async def test_auto_tells_the_api_server_and_the_policy(tmp_path: Path) -> None:
    """New pods are gated once many wait, and no more later; the condition Held says which and why."""
    server, store, waiting = PolicyServer(), PolicyStore(), list[str]()
    store.offer("p", "u", 1, {**GATED, "waiting": "Auto"})
    async with serving(server.app, tmp_path) as connection:
        gates = GateAdmission(connection, store, lambda: waiting)
        rounds = type("Rounds", (), {"reports": {}, "contradictions": {}})()
        writer: Any = PolicyStatus(None, None, store, rounds, gates)  # type: ignore[arg-type]
        task = asyncio.create_task(gates.run())
        for count, reason in ((0, "FewWait"), (GATE_FROM, "ManyWait"), (HOLD_BELOW - 1, "FewWait")):
            waiting[:] = ["p"] * count
            gates.trigger()
            wanted = reason == "ManyWait"
            await until(
                lambda wanted=wanted: server.gates.get("p", {}).get("order", [{}])[-1].get("others") == wanted,
                20,
                lambda: str(server.gates),
            )
            (record,) = store.records
            (said,) = (
                each for each in writer._status(record, PolicyCoverage())["conditions"] if each["type"] == "Held"
            )
            assert (said["status"], said["reason"]) == (str(not wanted), reason)
        task.cancel()


def test_who_counts_for_auto() -> None:
    """Pods that are held or gated and have no reservation: kube-scheduler has not rejected them by itself."""
    world = SteeredCluster(waiting="Auto")
    for name in ("held", "planned", "fresh"):
        world.pod(name, f"u-{name}")
    world.pod("gated", "u-gated", gated=True)
    world.show()
    for name in ("held", "planned"):
        assert world.schedule(f"ns/{name}")[1] == []
    assert world.plan_pod("ns/planned", "a")
    found = Counter(policies_of_waiting(world.cluster, world.state.ledger))
    assert found == {"": 2, "steered": 2}


@pytest.mark.parametrize(("waiting", "condition", "opened"), [
    ("Auto", UNSCHEDULABLE, True), ("Auto", "QueueLimit", False), ("Gate", UNSCHEDULABLE, False),
])  # fmt: skip
def test_auto_lets_pods_out_that_a_new_node_would_help(waiting: str, condition: str, opened: bool) -> None:  # noqa: FBT001
    """Cluster autoscalers do not look at gated pods. With Gate, people wanted it so."""
    world = SteeredCluster(waiting=waiting)
    pod = world.pod(gated=True)
    world.show()
    policy = world.cluster.policies.of(pod, world.state.namespaces)
    assert policy is not None
    world.state.apply(PodsUnplaced([UnplacedPod(pod, policy, "no room", condition)]))
    assert world.write_kinds == ["open"] * opened


def test_auto_lets_pods_of_controllers_out_too() -> None:
    """The API server sees no mark on them, and gates them as it does pods of no gang."""
    world = SteeredCluster(waiting="Auto")
    world.apply(ParentsFollowed(frozenset({JOB_SET.qualified})))
    names = ("jobset-name", "t"), ("replicatedjob-name", "a"), ("job-index", "0")
    labels = tuple(sorted((f"jobset.sigs.k8s.io/{name}", value) for name, value in names))
    made = world.pod("t-a-0-0", gated=True, owner="j", controller="Job/t-a-0", controller_group="batch", labels=labels)
    world.show()
    pod = world.cluster.waiting[made.key]
    policy = world.cluster.policies.of(pod, world.state.namespaces)
    assert policy is not None
    assert pod.gang is not None
    assert set(policies_of_waiting(world.cluster, world.state.ledger)) == {"steered"}
    world.state.apply(PodsUnplaced([UnplacedPod(pod, policy, "no room", UNSCHEDULABLE)]))
    assert world.write_kinds == ["open"]


def test_the_static_policy_knows_our_names() -> None:
    """The manifest in rights/ is written by hand: its names are those of the code."""
    rule, binding, *_ = yaml.safe_load_all((RIGHTS / "gates.yaml").read_text())
    assert rule["apiVersion"] == binding["apiVersion"] == ADMISSION
    assert rule["metadata"] == binding["metadata"] == {"name": GATE_NAME, "labels": {GATE_LABEL: ""}}
    assert rule["spec"]["paramKind"] == {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND}
    (gang,) = [each["expression"] for each in rule["spec"]["variables"] if each["name"] == "inGang"]
    assert all(f'"{name}"' in gang for name in (*NAMING_ANNOTATIONS, *NAMING_LABELS))
    # Groups of Kueue that are no gangs: nobody would open the gate where there is no room.
    assert all(f'"{name}"' in gang for name in (KUEUE_TOTAL_COUNT, KUEUE_FAST_ADMISSION, KUEUE_SERVING))
    # One condition: the API server evaluates each of several, also where an earlier one is false.
    (condition,) = rule["spec"]["matchConditions"]
    early = condition["expression"]
    assert f"!has(object.spec.schedulingGroup) && each.gangs && ( {gang}))" in early
    assert '!(request.namespace in ["kube-system", ' in early
    assert f'each.name == "{GATE}"' in early
    assert f'{{name: "{GATE}"}}' in rule["spec"]["mutations"][0]["applyConfiguration"]["expression"]
    assert open_patch("u")["spec"]["schedulingGates"] == [{"name": GATE, "$patch": "delete"}]


class PolicyServer:
    """Takes what is written to policies' statuses.

    Attributes:
        gates: the last status.gate of each policy.
        writes: how many there were, by policy.
    """

    def __init__(self) -> None:
        self.gates: dict[str, Any] = {}
        self.writes: list[str] = []
        self.faults: dict[str, list[int]] = {}
        self.admission = 200
        self.app = web.Application()
        self.app.router.add_patch(f"{POLICIES_PATH}/{{name}}/status", self._patch)
        self.app.router.add_get(f"/apis/{ADMISSION}/{{rest:.*}}", self._get)

    async def _patch(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if faults := self.faults.get(name):
            return refusal(faults.pop(0), "too long")
        self.writes.append(name)
        self.gates[name] = (await request.json())["status"]["gate"]
        return web.json_response({})

    async def _get(self, _request: web.Request) -> web.Response:
        return web.json_response({}) if self.admission == 200 else refusal(self.admission, "you may not get this")


@pytest.mark.parametrize(
    ("status", "words"), [(404, "kubectl apply -f rights/gates.yaml"), (403, "you may not get this")]
)
async def test_a_server_that_has_none_or_forbids_it(tmp_path: Path, status: int, words: str) -> None:
    """The policy's Ready condition says that its pods are held, and why; the upkeep lives on."""
    server, store = PolicyServer(), PolicyStore()
    server.admission = status
    store.offer("p", "u", 1, GATED)
    store.offer("held", "v", 1, {**GATED, "waiting": "Hold", "gangs": {"waiting": "Hold"}})
    async with serving(server.app, tmp_path) as connection:
        gates = GateAdmission(connection, store)
        task = asyncio.create_task(gates.run())
        await until(lambda: gates.problems, 20, lambda: "a problem")
        rounds = type("Rounds", (), {"reports": {}, "contradictions": {}})()
        writer: Any = PolicyStatus(None, None, store, rounds, gates)  # type: ignore[arg-type]
        found = {each.name: writer._status(each, PolicyCoverage())["conditions"][1] for each in store.records}
        assert (found["p"]["status"], found["p"]["reason"]) == ("True", "HeldNotGated")
        assert words in found["p"]["message"]
        assert "but new pods are held" in found["p"]["message"]
        assert found["held"]["reason"] == "InForce"
        server.admission = 200
        gates.trigger()
        await until(lambda: not gates.problems, 20, lambda: str(gates.problems))
        task.cancel()


async def test_one_that_is_refused_keeps_no_other_from_its_gate(tmp_path: Path) -> None:
    """And a server that is busy for a moment is asked again."""
    server, store = PolicyServer(), PolicyStore()
    server.faults = {"bad": [429, 422, 422, 422, 422]}
    store.offer("bad", "u", 1, GATED)
    store.offer("good", "v", 1, GATED)
    async with serving(server.app, tmp_path) as connection:
        gates = GateAdmission(connection, store)
        task = asyncio.create_task(gates.run())
        await until(lambda: gates.problems, 20, lambda: "a problem")
        task.cancel()
    assert gates.problems == {"bad": "too long"}
    assert list(server.gates) == ["good"]
    assert server.gates["good"]["order"] == gate_rules(gated("good"), [])
    assert server.gates["good"]["heartbeat"].endswith("Z")


async def test_changes_are_told_and_nothing_else(tmp_path: Path) -> None:
    """What is as it was is not written again before a heartbeat is due; at the end gates are taken back."""
    server, store = PolicyServer(), PolicyStore()
    store.offer("a", "u", 1, GATED)
    store.offer("never", "v", 1, {"selects": {"podSelector": {}}})
    async with serving(server.app, tmp_path) as connection:
        gates = GateAdmission(connection, store)
        task = asyncio.create_task(gates.run())
        # A policy that wants none may have wanted one before this process was started.
        await until(lambda: server.gates.keys() == {"a", "never"}, 20, lambda: str(server.gates))
        assert server.gates["never"] is None
        store.offer("b", "w", 1, {**GATED, "precedence": -1})
        gates.trigger()
        await until(lambda: "b" in server.gates, 20, lambda: str(server.gates))
        assert server.writes == ["a", "never", "b"]
        store.offer("a", "u", 2, {**GATED, "delivery": "Observe", "waiting": "Hold"})
        gates.trigger()
        await until(lambda: server.gates["a"] is None, 20, lambda: str(server.gates))
        await until(lambda: len(server.gates["b"]["order"]) == 1, 20, lambda: str(server.gates))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await gates.stop()
    assert server.gates == {"a": None, "never": None, "b": None}
