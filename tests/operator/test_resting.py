"""Pods that a round had no node for are not planned again until something may help them, and nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from support.fake_cluster.driven_ledger import DrivenLedger
from support.fake_cluster.eviction_scene import EvictionScene, sized
from thalweg_operator.planning.inputs.what_helps import WhatHelps
from thalweg_operator.planning.quarantine import Quarantine
from thalweg_operator.planning.turns import UnhelpedPods
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest
from thalweg_operator.reservations.effects import WriteCondition
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.yielding import BURST

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME, GangPolicy, PodsToComeMode, Policy
from flowcore.model.resource_claims import ClaimingGroup, ClaimingPod, PodClaim
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.volumes import Claim, ClaimVolume, CsiNode, PersistentVolume
from flowcore.rules.reasons.codes import GANG_WITHOUT_ROOM

HOSTNAME = "kubernetes.io/hostname"
WAITING = 40
#: A policy that governs steered pods with a label alone.
LABELLED = {
    "selects": {"schedulerNames": [STEERED_NAME], "podSelector": {"matchLabels": {"a": "b"}}},
    "delivery": "Extender",
}


def in_gang(name: str, size: int = 2) -> GangRef:
    return GangRef(GangKey(GangSource.THALWEG, "ns", name), GangSpec(size))


# --- the choice by itself ---


def made(name: str, **fields: Any) -> Pod:
    return Pod("ns", name, f"u-{name}", **{"pod_class": sized(100), **fields})


@dataclass
class Choosing:
    """Rounds that find no node for any of their pods."""

    resting: UnhelpedPods = field(default_factory=lambda: UnhelpedPods(Quarantine().class_key))
    changes: int = 0
    helped: set[str] = field(default_factory=set)

    def round(self, pods: Sequence[Pod], always: frozenset[str] = frozenset()) -> set[str]:
        """Names of the pods that are planned."""
        awake, rest = self.resting.choose(pods, self.changes, 0.0, lambda pod, _: pod.name in self.helped, always)
        assert sorted([*awake, *rest], key=lambda pod: pod.name) == sorted(pods, key=lambda pod: pod.name)
        self.resting.planned_in_vain(awake)
        return {pod.name for pod in awake}


def test_each_change_has_all_planned_once() -> None:
    rounds, pods = Choosing(), [made("a"), made("b")]
    assert rounds.round(pods) == {"a", "b"}
    assert rounds.round(pods) == set()
    rounds.changes += 1
    assert rounds.round(pods) == {"a", "b"}
    assert rounds.round(pods) == set()


def test_an_equal_pod_that_comes_is_planned_alone() -> None:
    rounds, pods = Choosing(), [made("a"), made("b")]
    rounds.round(pods)
    assert rounds.round([*pods, made("c")]) == {"c"}
    assert rounds.round([*pods, made("c")]) == set()


def test_who_is_helped_is_planned_until_a_round_left_it() -> None:
    """A round may leave it out though it was helped: its turn comes later."""
    rounds, pods = Choosing(), [made("a"), made("b")]
    rounds.round(pods)
    rounds.helped = {"a"}
    assert {pod.name for pod in rounds.resting.choose(pods, 0, 0.0, lambda pod, _: pod.name == "a")[0]} == {"a"}
    rounds.helped = set()
    assert rounds.round(pods) == {"a"}, "no round has planned it"
    assert rounds.round(pods) == set()
    assert rounds.round(pods, frozenset({"u-b"})) == {"b"}


def test_a_gang_is_planned_as_a_whole() -> None:
    rounds = Choosing()
    pods = [made("a", gang=in_gang("g", 3)), made("b", gang=in_gang("g", 3)), made("c")]
    rounds.round(pods)
    assert rounds.round(pods) == set()
    late = made("d", gang=in_gang("g", 3))
    assert rounds.round([*pods, late]) == {"a", "b", "d"}


def test_a_pod_that_changed_or_was_away_is_new() -> None:
    """What is written on it about its waiting is no change."""
    rounds, pods = Choosing(), [made("a"), made("b")]
    rounds.round(pods)
    told = [msgspec.structs.replace(pod, unschedulable_message="0/1 nodes") for pod in pods]
    assert rounds.round(told) == set()
    smaller = msgspec.structs.replace(told[0], pod_class=sized(50))
    assert rounds.round([smaller, told[1]]) == {"a"}
    assert rounds.round([smaller]) == set()
    assert rounds.round([smaller, told[1]]) == {"b"}


# --- in rounds ---


class Counting(EvictionScene):
    """A scene that keeps whom each round planned, and what was told."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.planned: list[set[str]] = []
        self.tellings = 0

    async def ask(self, request: RoundRequest) -> RoundReply:
        if request.pending:
            self.planned.append({entry.key.removeprefix("ns/") for entry in request.pending})
        return await super().ask(request)

    def _tell(self, effect: WriteCondition) -> None:
        super()._tell(effect)
        self.tellings += 1

    async def round(self) -> set[str]:
        """Takes a round; names of the pods that were planned."""
        before = len(self.planned)
        await self.loop._round()
        self.loop._seconds_to_next_round()
        assert len(self.planned) <= before + 1
        return self.planned[-1] if len(self.planned) > before else set()


async def waiting_scene(cpu: int = 4000, **fields: Any) -> Counting:
    """Two nodes of 1,000 with 700 free, and many equal pods that fit on neither; a round has told them so."""
    scene = Counting()
    for node in ("a", "b"):
        scene.node(node)
        scene.pod(f"on-{node}", 300, node_name=node)
    for number in range(WAITING):
        scene.pod(f"large-{number:02}", cpu, **fields)
    planned = await scene.round()
    assert len(planned) == WAITING
    assert scene.tellings == WAITING
    return scene


async def test_pods_that_wait_are_in_no_round_for_a_new_pod() -> None:
    """One pod is planned for each that comes, and nobody is told again what it was told."""
    scene = await waiting_scene()
    for number in range(5):
        scene.pod(f"small-{number}", 100)
        assert await scene.round() == {f"small-{number}"}
    assert len(scene.bound) == 5
    assert scene.tellings == WAITING


async def test_room_wakes_only_those_that_fit_where_it_came_free() -> None:
    scene = await waiting_scene(cpu=900)
    scene.gone("on-a")  # 1,000 are free there now
    assert len(await scene.round()) == WAITING
    assert list(scene.bound.values()) == ["a"]
    scene.pod("little", 50, node_name="b")
    scene.gone("little")
    assert await scene.round() == set(), "700 are free there as before"
    scene.gone("on-b")
    assert len(await scene.round()) == WAITING - 1
    assert sorted(scene.bound.values()) == ["a", "b"]


@pytest.mark.parametrize("change", ["node", "taint", "policy", "namespace", "time"])
async def test_any_other_change_that_may_help_wakes_all(change: str) -> None:
    scene = await waiting_scene()
    match change:
        case "node":
            scene.node("c", 10)
        case "taint":
            scene.node("a", taints=(Taint("k", "", "NoSchedule"),))
        case "policy":
            scene.policies.offer("more", "u", 1, {"selects": {"podSelector": {"matchLabels": {"a": "b"}}}})
        case "namespace":
            scene.state.set_namespace("ns", (("a", "b"),))
        case _:
            scene.now += 60.0
    assert len(await scene.round()) == WAITING
    assert await scene.round() == set()


@pytest.mark.parametrize("runs_there", [False, True])
async def test_a_namespace_that_comes_wakes_others_only_where_pods_run_in_it(*, runs_there: bool) -> None:
    """Labels are known after the pods where the watch of pods is ahead. Those that wait there are planned."""
    scene = await waiting_scene()
    for name, node in (("waits", ""), *((("runs", "a"),) if runs_there else ())):
        scene.state.upsert_pod(Pod("new", name, f"u-{name}", sized(100), scheduler_name="thalweg", node_name=node))
    assert len(await scene.round()) == 0
    scene.state.set_namespace("new", ())
    assert scene.state.rounds_requested
    planned = await scene.round()
    assert "new/waits" in planned
    assert len(planned) == 1 + WAITING * runs_there
    scene.state.set_namespace("empty", ())
    assert await scene.round() == set()


async def test_a_namespace_that_comes_while_a_round_begins_has_its_pods_planned_by_the_next_one() -> None:
    """The round knows no labels of it: its pods might be kept off by rules that are not about them, and rest."""
    scene = await waiting_scene()
    web, others = (LabelSelector((Requirement(*each),)) for each in (("app", "In", ("web",)), ("a", "NotIn", ("b",))))
    apart = InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, web, (), others),))
    for node in ("a", "b"):
        scene.node(node, labels=((HOSTNAME, node),))
        scene.pod(f"guards-{node}", 100, node_name=node, constraints=apart)
    for number in range(BURST):  # the round looks at them first, and lets events in
        scene.pod(f"late-{number:03}", 4000)
    waits = Pod("new", "waits", "u-waits", sized(100), scheduler_name="thalweg", labels=(("app", "web"),))
    scene.state.upsert_pod(waits)
    began = asyncio.create_task(scene.round())
    await asyncio.sleep(0)  # it has begun
    scene.state.set_namespace("new", (("a", "b"),))
    await began
    assert "new/waits" in await scene.round()
    assert set(scene.bound) == {"new/waits"}


def claim(name: str, volume: str = "") -> Claim:
    return Claim("ns", name, volume_name=volume, bound=bool(volume))


async def test_a_storage_object_wakes_those_that_read_it() -> None:
    """One whose claims are bound reads these and their volumes; others with claims may get any volume that comes."""
    scene = await waiting_scene()
    for name, volume in (("bound", "v"), ("open", "")):
        scene.state.upsert_storage(claim(name, volume))
        scene.pod(name, 900, pod_class=PodClass((("cpu", 900),), volumes=(ClaimVolume("ns", name),)))
    await scene.round()
    assert await scene.round() == set()
    for changed, woken in (
        (claim("others", "w"), set()),
        (PersistentVolume("w"), {"open"}),
        (PersistentVolume("v"), {"bound", "open"}),
        (claim("bound", "v2"), {"bound", "open"}),
        (CsiNode("a"), {"bound", "open"}),
    ):
        scene.state.upsert_storage(changed)
        assert await scene.round() == woken, changed
        assert await scene.round() == set()


async def test_new_pods_do_not_put_the_regular_round_off() -> None:
    """No event tells of what helps by time alone: a budget that is known again, a search that has other luck."""
    scene = await waiting_scene()
    planned = []
    for number in range(7):
        scene.now += 10.0
        scene.pod(f"small-{number}", 1)
        planned.append(len(await scene.round()))
    assert planned == [1, 1, 1, 1, 1, WAITING + 1, 1]


async def test_other_labels_of_a_running_pod_wake_those_that_kept_away_from_it() -> None:
    scene = Counting()
    scene.node("a", labels=((HOSTNAME, "a"),))
    scene.pod("web", 100, node_name="a", labels=(("app", "web"),))
    web = LabelSelector((Requirement("app", "In", ("web",)),))
    apart = InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, web, ("ns",)),))
    scene.pod("apart", 100, constraints=apart)
    assert await scene.round() == {"apart"}
    scene.change("web", started=5.0)
    assert await scene.round() == set()
    scene.change("web", labels=(("app", "old"),))
    assert await scene.round() == {"apart"}
    assert set(scene.bound) == {"ns/apart"}


async def test_no_pod_rests_while_a_policy_moves_running_pods() -> None:
    """Of whichever policy: its pods are moved for all, as soon as they have run for long enough."""
    scene = Counting()
    moving = {"selects": {"schedulerNames": ["else"], "podSelector": {}}, "rescheduling": {"mode": "Act"}}
    scene.policies.offer("moving", "u", 1, moving)
    scene.node("a")
    scene.pod("large", 4000)
    assert await scene.round() == {"large"}
    scene.pod("small", 100)
    assert await scene.round() == {"large", "small"}


async def test_a_pod_for_which_others_may_leave_is_planned_with_any_room_that_comes_free() -> None:
    """The room may be a part of what it needs. While nothing came free, no later round has it."""
    scene = Counting()
    scene.policies.offer(
        "own", "u", 2, {"selects": {"podSelector": {}}, "preemption": {"mode": "LowerPriority", "victims": "Governed"}}
    )
    urgent = PodClass(requests=(("cpu", 900),), priority=5)
    scene.node("a")
    scene.pod("stays", 300, node_name="a", pod_class=PodClass(requests=(("cpu", 300),), priority=9))
    scene.pod("low", 100, node_name="a", scheduler_name="else")
    scene.pod("urgent", 900, pod_class=urgent, preempts=True)
    while await scene.round():
        pass
    scene.pod("new", 10)
    assert await scene.round() == {"new"}
    scene.pod("lower", 50, node_name="a", scheduler_name="else")
    scene.gone("low")
    assert await scene.round() == {"urgent"}


@pytest.mark.parametrize("in_a_gang", [True, False])
async def test_a_pod_does_not_rest_beside_lower_ones_that_a_round_did_not_take_back(*, in_a_gang: bool) -> None:
    """A gang is not. Once it runs it may leave for the urgent pod, so the next round looks at that one."""
    scene = Counting()
    scene.policies.offer("own", "u", 2, {"selects": {"podSelector": {}}})
    scene.node("a")
    scene.pod("stays", 300, node_name="a", pod_class=PodClass(requests=(("cpu", 300),), priority=9))
    for number in range(2):
        scene.pod(f"low-{number}", 100, gang=in_gang("g") if in_a_gang else None)
    scene.pod("urgent", 900, pod_class=PodClass(requests=(("cpu", 900),), priority=5), preempts=True)
    assert await scene.round() == {"low-0", "low-1", "urgent"}
    scene.pod("new", 10)
    assert await scene.round() == ({"new", "urgent"} if in_a_gang else {"new"})
    assert "ns/urgent" not in scene.bound


@pytest.mark.parametrize("rule", ["affinity", "spread"])
async def test_pods_that_others_may_come_to_suit_do_not_rest(rule: str) -> None:
    """They are planned beside a new pod, and follow it in the same round."""
    scene = Counting()
    scene.node("a", labels=((HOSTNAME, "a"),))
    web = LabelSelector((Requirement("app", "In", ("web",)),))
    rules = InterPodConstraints(
        affinity=(AffinityTerm(HOSTNAME, web, ("ns",)),) if rule == "affinity" else (),
        spread=(SpreadConstraint(HOSTNAME, 1, web),) if rule == "spread" else (),
    )
    fits = rule == "affinity"
    scene.pod("follows", 100 if fits else 4000, constraints=rules)
    assert await scene.round() == {"follows"}
    scene.pod("web", 100, labels=(("app", "web"),))
    assert await scene.round() == {"follows", "web"}
    assert set(scene.bound) == ({"ns/follows", "ns/web"} if fits else {"ns/web"})


async def test_a_gang_that_waits_for_its_last_pod_is_planned_with_it() -> None:
    scene = Counting()
    scene.node("a")
    created = scene.loop._wall_clock()
    scene.pod("first", 100, gang=in_gang("g"), created=created)
    assert await scene.round() == {"first"}
    scene.pod("single", 100)
    assert await scene.round() == {"single"}
    scene.pod("last", 100, gang=in_gang("g"), created=created)
    assert await scene.round() == {"first", "last"}
    assert set(scene.bound) == {"ns/first", "ns/last", "ns/single"}


async def test_a_gang_that_room_may_be_kept_for_does_not_rest() -> None:
    """New pods would take the room bit by bit."""
    scene = Counting()
    scene.node("a")
    created = scene.loop._wall_clock() - 3600.0
    for name in ("first", "second"):
        scene.pod(name, 900, gang=in_gang("g"), created=created)
    assert await scene.round() == {"first", "second"}
    scene.pod("single", 10)
    assert await scene.round() == {"first", "second", "single"}


async def test_a_gang_with_a_topology_does_not_rest() -> None:
    """The tries of a round may have been used by others."""
    scene = Counting()
    scene.node("a")
    racked = GangSpec(2, "rack")
    for name in ("first", "second"):
        scene.pod(name, 900, gang=GangRef(in_gang("g").key, racked))
    assert await scene.round() == {"first", "second"}
    scene.pod("single", 10)
    assert await scene.round() == {"first", "second", "single"}


@pytest.mark.parametrize("why", ["none", "a claim of all", "pods to come"])
def test_gangs_that_wait_for_more_than_room_for_themselves_do_not_rest(why: str) -> None:
    """The tries for a node that has the devices of a shared claim are limited, and other gangs' pods to come count."""
    state, claim = DrivenLedger(), PodClaim("gpu", template="gpus")
    devices = ClaimingPod("ns", "p", "u", (claim,), group=ClaimingGroup("g", "u-g", (claim,)))
    pod = made("p", gang=in_gang("g"), pod_class=PodClass(devices=devices if why == "a claim of all" else None))
    mode = PodsToComeMode.MUST_FIT if why == "pods to come" else PodsToComeMode.IGNORE
    policy = Policy("own", gangs=GangPolicy(pods_to_come=mode))
    what_helps = WhatHelps(state.cluster, state.ledger)
    assert what_helps.may_rest(pod, policy, GANG_WITHOUT_ROOM) == (why == "none")
    assert what_helps.may_rest(msgspec.structs.replace(pod, gang=None), policy, GANG_WITHOUT_ROOM)


async def test_pods_that_are_only_observed_do_not_rest() -> None:
    """Room of the plan is not reserved for them: nothing tells that one of them has left it to the next."""
    scene = Counting()
    spec = {"selects": {"podSelector": {}}, "delivery": "Observe", "precedence": 1}
    scene.policies.offer("watch", "u", 1, spec)
    scene.node("a")
    scene.pod("first", 900)
    scene.pod("second", 900)
    assert await scene.round() == {"first", "second"}
    scene.gone("first")
    scene.pod("little", 50)
    assert await scene.round() == {"second", "little"}


async def test_what_was_found_about_pods_that_rest_stays_in_the_metrics() -> None:
    scene = await waiting_scene()
    scene.pod("small", 100)
    await scene.round()
    metrics = scene.loop._metrics.registry
    assert metrics.get_sample_value("thalweg_waiting_pods", {"reason": "NodeResourcesFit"}) == WAITING


# --- pods of other schedulers ---


def test_pods_that_no_policy_governs_ask_for_no_round() -> None:
    """They come, are bound and run, while a pod of ours waits; when one ends, there is room."""
    state = DrivenLedger()
    state.set_namespace("ns", ())
    state.upsert_node(Node("n", allocatable=(("cpu", 8000), ("pods", 110))))
    state.upsert_pod(made("ours", pod_class=sized(9000), scheduler_name="thalweg"))
    before = state.rounds_requested
    for number in range(10):
        pod = made(f"else-{number}", scheduler_name="default-scheduler", usage=sized(100).requests)
        state.upsert_pod(pod)
        state.upsert_pod(msgspec.structs.replace(pod, unschedulable_message="0/1 nodes"))
        state.upsert_pod(msgspec.structs.replace(pod, node_name="n"))
    assert state.rounds_requested == before
    state.delete_pod("ns/else-0")
    assert state.rounds_requested == before + 1


def test_a_place_comes_free_if_kube_scheduler_nominates_another_node() -> None:
    state = DrivenLedger()
    state.set_namespace("ns", ())
    for name in ("a", "b"):
        state.upsert_node(Node(name, allocatable=(("cpu", 1000), ("pods", 110))))
    pod = made("p", scheduler_name=STEERED_NAME)
    state.upsert_pod(pod)
    assert state.reserve(pod, "a", Owner.STEERING)
    state.ledger.helped.take_freed()
    before = state.rounds_requested
    state.upsert_pod(msgspec.structs.replace(pod, nominated_node="b"))
    assert state.reservations["ns/p"].node == "b"
    assert state.ledger.helped.take_freed() == {"a"}
    assert state.rounds_requested == before + 1


def test_a_pod_that_comes_under_a_policy_or_leaves_it_asks_for_a_round() -> None:
    state = DrivenLedger()
    state.set_namespace("ns", ())
    state.policies.offer("own", "u", 1, LABELLED)
    pod = made("p", scheduler_name=STEERED_NAME)
    before = state.rounds_requested
    state.upsert_pod(pod)
    assert state.rounds_requested == before
    state.upsert_pod(msgspec.structs.replace(pod, labels=(("a", "b"),)))
    assert state.rounds_requested == before + 1
    state.upsert_pod(pod)
    assert state.rounds_requested == before + 2


def test_rules_of_pods_that_no_policy_governs_ask_for_no_round() -> None:
    """A pod of another scheduler waits for others by a rule. Once a policy governs it, the next binding is news."""
    state = DrivenLedger()
    state.set_namespace("ns", ())
    state.upsert_node(Node("n", allocatable=(("cpu", 8000), ("pods", 110))))
    web = LabelSelector((Requirement("app", "In", ("web",)),))
    rules = InterPodConstraints(affinity=(AffinityTerm(HOSTNAME, web, ("ns",)),))
    state.upsert_pod(made("follows", constraints=rules, scheduler_name=STEERED_NAME, labels=(("a", "b"),)))

    def bind(name: str) -> bool:
        before = state.rounds_requested
        state.upsert_pod(made(name, node_name="n", scheduler_name="default-scheduler", labels=(("app", "web"),)))
        return state.rounds_requested > before

    assert not bind("first")
    state.policies.offer("own", "u", 1, LABELLED)
    assert bind("second")
    state.policies.forget("own", "u")
    assert not bind("third")
    state.policies.offer("own", "u2", 1, LABELLED)
    state.delete_pod("ns/follows")
    assert not bind("fourth")
