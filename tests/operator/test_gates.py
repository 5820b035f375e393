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
from thalweg.crds import custom_resource_definitions
from thalweg_operator.delivery.status.policy_status import PolicyStatus
from thalweg_operator.policies.auto_waiting import GATE_FROM, HOLD_BELOW, describe, gating, policies_of_waiting
from thalweg_operator.policies.gate_admission import NEW_POD_RULES_PATH, GateAdmission
from thalweg_operator.policies.gate_manifests import (
    ADMISSION,
    GATE_LABEL,
    GATE_NAME,
    MOST_BYTES,
    MOST_RULES,
    NEW_POD_RULES,
    RULES_NAME,
    new_pod_rules,
    open_patch,
    wants_gate,
)
from thalweg_operator.policies.store import PolicyStore
from thalweg_operator.reservations.events import ParentsFollowed, PodsUnplaced, UnplacedPod
from thalweg_operator.reservations.waiting_codes import UNSCHEDULABLE

from flowcore.api.kinds import JOB_SET
from flowcore.api.policies import parse_policy
from flowcore.cluster.indexes.policy_coverage import PolicyCoverage
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.gang_spec import (
    KUEUE_FAST_ADMISSION,
    KUEUE_SERVING,
    KUEUE_TOTAL_COUNT,
    NAMING_ANNOTATIONS,
    NAMING_LABELS,
)
from flowcore.model.policies import BUILT_IN, GATE, MARK, GangPolicy, Policy, WaitingMode

GATED: dict[str, Any] = {"delivery": "Extender", "waiting": "Gate", "selects": {"podSelector": {}}}
RIGHTS = Path(__file__).parents[2] / "rights"


def gated(name: str, **more: Any) -> Policy:
    return parse_policy(name, {**GATED, **more}, BUILT_IN_MODELS)


def holding_gangs(policy: Policy) -> Policy:
    """The policy, with gangs held too."""
    return msgspec.structs.replace(policy, gangs=GangPolicy(waiting=WaitingMode.HOLD))


def rules_of(*ordered: Policy) -> list[dict[str, Any]]:
    """What the API server is told."""
    rules, beyond = new_pod_rules(ordered)
    assert not beyond
    return rules


def test_only_extender_and_gate_want_one() -> None:
    """A held one does so for gangs alone, unless it holds those too; one that governs nothing, never."""
    assert wants_gate(gated("p"))
    assert wants_gate(gated("p", waiting="Hold"))
    assert not wants_gate(holding_gangs(gated("p", waiting="Hold")))
    assert not wants_gate(gated("p", selects={}))
    for waiting, (groups, gangs) in {"Auto": (False, True), "Gate": (True, True), "Hold": (False, False)}.items():
        (rule, _) = rules_of(gated("p", waiting="Hold", gangs={"waiting": waiting}), gated("last"))
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
    assert rules_of(gated("p", waiting="Hold", selects=selects)) == [
        {
            "policy": "p",
            "schedulerNames": ["x", "y"],
            "podLabels": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "done", "operator": "DoesNotExist", "values": []},
            ],
            "namespaceLabels": [{"key": "team", "operator": "In", "values": ["ml"]}],
            "podGroups": False,
            "gangs": True,
            "others": False,
            "marked": False,
        }
    ]


def test_policies_that_leave_pods_alone_are_told_where_a_later_one_would_gate_them() -> None:
    """Those behind all, those of other schedulers, and those that govern nothing are not."""
    asked = {"podSelector": {"matchLabels": {"asked": "yes"}}}
    order = [
        holding_gangs(gated("asked", waiting="Hold", selects=asked)),
        gated("gates-too", selects={"podSelector": {"matchLabels": {"asked": "no"}}}),
        holding_gangs(gated("elsewhere", waiting="Hold", selects={"schedulerNames": ["other"]})),
        gated("nothing", waiting="Hold", selects={}),
        BUILT_IN,
        gated("last"),
        holding_gangs(gated("behind", waiting="Hold", selects=asked)),
    ]
    assert [rule["policy"] for rule in rules_of(*order)] == ["asked", "gates-too", "last"]
    assert rules_of(order[0], order[-1]) == []


def test_pods_of_gangs_and_others_apart() -> None:
    """Each policy says of both kinds of pods whether they are gated."""
    order = [gated("both"), gated("gangs", waiting="Hold"), holding_gangs(gated("others")), gated("last")]
    told = [(rule["policy"], rule["gangs"], rule["others"]) for rule in rules_of(*order)]
    assert told == [("both", True, True), ("gangs", True, False), ("others", False, True), ("last", True, True)]


def test_governed_pods_are_marked_if_kube_scheduler_asks_about_no_others() -> None:
    """Those of delivery Extender, held ones too; pods of policies that come first and steer nobody are not."""
    watched = gated("watched", delivery="Observe", waiting="Hold", selects={"schedulerNames": ["thalweg-steered"]})
    held = holding_gangs(gated("held", waiting="Hold"))
    order = [gated("nothing", selects={}), watched, held, gated("gates"), BUILT_IN]
    rules, beyond = new_pod_rules(order, marks=True)
    told = [(rule["policy"], rule["marked"], rule["gangs"], rule["others"]) for rule in rules]
    assert told == [("watched", False, False, False), ("held", True, False, False), ("gates", True, True, True)]
    assert not beyond
    assert not any(rule["marked"] for rule in rules_of(*order))


def test_too_many_rules_leave_the_last_policies_out() -> None:
    """By number and by size: what the API server takes is bounded, and those without a rule are named."""
    many = [gated(f"p{number}") for number in range(MOST_RULES + 2)]
    told, beyond = new_pod_rules(many)
    assert (len(told), beyond) == (MOST_RULES, {f"p{MOST_RULES}", f"p{MOST_RULES + 1}"})
    values = {"podSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v" * 60] * 2_000}]}}
    large = [gated(f"p{number}", selects=values) for number in range(4)]
    told, beyond = new_pod_rules(large)
    assert len(msgspec.json.encode(told)) <= MOST_BYTES
    assert ([rule["policy"] for rule in told], beyond) == (["p0", "p1"], {"p2", "p3"})


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
    assert [new_pod_rules([auto], each)[0][0]["others"] for each in (frozenset(), {"auto"})] == [False, True]
    assert describe(auto, frozenset())[:2] == ("True", "FewWait")
    assert describe(auto, {"auto"})[:2] == ("False", "ManyWait")


async def test_auto_tells_the_api_server_and_the_policy(tmp_path: Path) -> None:
    """New pods are gated once many wait, and no more later; the condition Held says which and why."""
    server, store, waiting = RulesServer(), PolicyStore(), list[str]()
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
                lambda wanted=wanted: server.rules["p"]["others"] == wanted,
                20,
                lambda: str(server.said),
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
    assert rule["spec"]["paramKind"] == {"apiVersion": NEW_POD_RULES.api_version, "kind": NEW_POD_RULES.kind}
    assert binding["spec"]["paramRef"] == {"name": RULES_NAME, "parameterNotFoundAction": "Allow"}
    (crd,) = [each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == NEW_POD_RULES.kind]
    assert crd["metadata"]["name"] == f"{NEW_POD_RULES.plural}.{NEW_POD_RULES.group}"
    (version,) = crd["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"]["properties"]["order"]["maxItems"] == MOST_RULES
    (gang,) = [each["expression"] for each in rule["spec"]["variables"] if each["name"] == "inGang"]
    assert all(f'"{name}"' in gang for name in (*NAMING_ANNOTATIONS, *NAMING_LABELS))
    # Groups of Kueue that are no gangs: nobody would open the gate where there is no room.
    assert all(f'"{name}"' in gang for name in (KUEUE_TOTAL_COUNT, KUEUE_FAST_ADMISSION, KUEUE_SERVING))
    # One condition: the API server evaluates each of several, also where an earlier one is false.
    (condition,) = rule["spec"]["matchConditions"]
    early = condition["expression"]
    assert f"!has(object.spec.schedulingGroup) && ( {gang}) && params.order.exists(each, each.gangs" in early
    assert '!(request.namespace in ["kube-system", ' in early
    said = {each["name"]: each["expression"] for each in rule["spec"]["variables"]}
    assert all(f'gate.name == "{GATE}"' in text for text in (early, said["gated"]))
    assert all(f'"{MARK}" in c.resources.limits' in text for text in (early, said["marked"]))
    (mutation,) = rule["spec"]["mutations"]
    changed = mutation["applyConfiguration"]["expression"]
    assert f'{{name: "{GATE}"}}' in changed
    assert f'requests: {{"{MARK}": "0"}}, limits: {{"{MARK}": "0"}}' in changed
    assert open_patch("u")["spec"]["schedulingGates"] == [{"name": GATE, "$patch": "delete"}]


class RulesServer:
    """Takes what is written for the API server.

    Attributes:
        said: what was written last; None: nothing.
        writes: how many there were.
        faults: statuses that the next writes are answered with.
        admission: what questions for the admission policy are answered with.
        kind: the kind of its parameters.
    """

    def __init__(self) -> None:
        self.said: dict[str, Any] | None = None
        self.writes = 0
        self.faults: list[int] = []
        self.admission, self.kind = 200, NEW_POD_RULES.kind
        self.app = web.Application()
        self.app.router.add_patch(NEW_POD_RULES_PATH, self._patch)
        self.app.router.add_get(f"/apis/{ADMISSION}/{{rest:.*}}", self._get)

    @property
    def rules(self) -> dict[str, dict[str, Any]]:
        """By policy."""
        return {rule["policy"]: rule for rule in (self.said or {}).get("order", ())}

    async def _patch(self, request: web.Request) -> web.Response:
        if self.faults:
            return refusal(self.faults.pop(0), "too long")
        self.writes += 1
        self.said = await request.json()
        return web.json_response({})

    async def _get(self, _request: web.Request) -> web.Response:
        if self.admission != 200:
            return refusal(self.admission, "you may not get this")
        return web.json_response({"spec": {"paramKind": {"kind": self.kind}}})


@pytest.mark.parametrize(
    ("status", "words"), [(404, "kubectl apply -f rights/gates.yaml"), (403, "you may not get this")]
)
async def test_a_server_that_has_none_or_forbids_it(tmp_path: Path, status: int, words: str) -> None:
    """The policy's Ready condition says that its pods are held, and why; the upkeep lives on."""
    server, store = RulesServer(), PolicyStore()
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


async def test_an_older_admission_policy_is_named(tmp_path: Path) -> None:
    """It reads the policies' statuses, where nobody writes any more."""
    server, store = RulesServer(), PolicyStore()
    server.kind = "FlowSchedulingPolicy"
    store.offer("p", "u", 1, GATED)
    async with serving(server.app, tmp_path) as connection:
        gates = GateAdmission(connection, store)
        task = asyncio.create_task(gates.run())
        await until(lambda: gates.problems, 20, lambda: "a problem")
        task.cancel()
    assert "of an older version of Thalweg (kubectl apply -f rights/gates.yaml)" in gates.problems["p"]
    assert server.said is None


@pytest.mark.parametrize(
    ("status", "words"), [(404, "kubectl apply --server-side -f crds/"), (403, "too long"), (422, "too long")]
)
async def test_rules_that_are_refused(tmp_path: Path, status: int, words: str) -> None:
    """No kind, no right: all policies that gate say so. A server that is busy for a moment is asked again."""
    server, store = RulesServer(), PolicyStore()
    server.faults = [429, status]
    store.offer("p", "u", 1, GATED)
    store.offer("q", "v", 1, {**GATED, "waiting": "Hold"})
    store.offer("resting", "w", 1, {**GATED, "waiting": "Hold", "gangs": {"waiting": "Hold"}})
    async with serving(server.app, tmp_path) as connection:
        gates = GateAdmission(connection, store)
        task = asyncio.create_task(gates.run())
        await until(lambda: gates.problems, 20, lambda: "a problem")
        assert set(gates.problems) == {"p", "q"}
        assert all(words in problem for problem in gates.problems.values())
        gates.trigger()
        await until(lambda: not gates.problems, 20, lambda: str(gates.problems))
        task.cancel()
    assert list(server.rules) == ["p", "q"]


async def test_marks_need_no_heartbeat(tmp_path: Path) -> None:
    """Where nothing is gated there is none; the object is applied again and again, as somebody may delete it."""
    server, store = RulesServer(), PolicyStore()
    server.faults = [403]
    store.offer("p", "u", 1, {**GATED, "waiting": "Hold", "gangs": {"waiting": "Hold"}})
    async with serving(server.app, tmp_path) as connection:
        gates = GateAdmission(connection, store, marks=True)
        task = asyncio.create_task(gates.run())
        await until(lambda: gates.problems, 20, lambda: "a problem")
        rounds = type("Rounds", (), {"reports": {}, "contradictions": {}})()
        writer: Any = PolicyStatus(None, None, store, rounds, gates)  # type: ignore[arg-type]
        (record,) = store.records
        ready = writer._status(record, PolicyCoverage())["conditions"][1]
        assert (ready["status"], ready["reason"]) == ("False", "NotAskedAbout")
        assert "places them without a plan: too long" in ready["message"]
        gates.trigger()
        await until(lambda: server.writes >= 2, 40, lambda: str(server.said))
        assert server.said is not None
        assert "heartbeat" not in server.said
        assert server.rules["p"]["marked"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        written = server.writes
        await gates.stop()
    assert server.writes == written


async def test_policies_beyond_the_limit_say_so(tmp_path: Path) -> None:
    """And the others have their rules."""
    server, store = RulesServer(), PolicyStore()
    values = {"podSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v" * 60] * 2_000}]}}
    for name in "abc":
        store.offer(name, name, 1, {**GATED, "selects": values})
    async with serving(server.app, tmp_path) as connection:
        gates = GateAdmission(connection, store)
        task = asyncio.create_task(gates.run())
        await until(lambda: gates.problems, 20, lambda: "a problem")
        task.cancel()
    assert list(server.rules) == ["a", "b"]
    said = "the rules of the policies that come first fill NewPodRules thalweg (1,000 rules, 256 KiB)"
    assert gates.problems == {"c": said}


async def test_one_write_for_all_policies_and_none_where_nothing_is_gated(tmp_path: Path) -> None:
    """What is as it was is not written again before a heartbeat is due; at the end new pods are not gated."""
    server, store = RulesServer(), PolicyStore()
    store.offer("never", "v", 1, {"selects": {"podSelector": {}}})
    async with serving(server.app, tmp_path) as connection:
        gates = GateAdmission(connection, store)
        task = asyncio.create_task(gates.run())
        # An operator before this one may have gated pods.
        await until(lambda: server.said is not None, 20, lambda: "a write")
        assert (server.rules, "heartbeat" in (server.said or {})) == ({}, False)
        gates.trigger()
        store.offer("a", "u", 1, GATED)
        store.offer("b", "w", 1, {**GATED, "precedence": -1})
        gates.trigger()
        await until(lambda: list(server.rules) == ["a", "b"], 20, lambda: str(server.said))
        assert server.said is not None
        assert server.said["heartbeat"].endswith("Z")
        assert server.writes == 2
        store.offer("a", "u", 2, {**GATED, "delivery": "Observe", "waiting": "Hold"})
        gates.trigger()
        await until(lambda: list(server.rules) == ["b"], 20, lambda: str(server.said))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await gates.stop()
    assert (server.writes, list(server.rules), "heartbeat" in server.said) == (4, ["b"], False)
