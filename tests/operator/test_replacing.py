"""The old pod leaves only when the new one can start in its place, and nobody else gets that place."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_cluster.eviction_scene import EvictionScene, sized
from support.fake_cluster.steered import SteeredCluster
from support.profiles import examples
from thalweg_extender.answers import FilterOutcome
from thalweg_operator.reservations.events import ObjectSet
from thalweg_operator.reservations.victims.victims import EVICTION_TIMEOUT

from flowcore.cluster.kinds import DISRUPTION_BUDGETS
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.pods import HostPort, PodClass
from flowcore.model.policies import STEERED_NAME
from flowcore.model.selectors import LabelSelector, Requirement

BOTH = pytest.mark.parametrize("scheduler", ["thalweg", STEERED_NAME])


def figure_4(scheduler: str = "thalweg", cpu: int = 1000) -> EvictionScene:
    """The old pod fills its node; another node is empty. Then the new one comes: figure 5."""
    scene = EvictionScene()
    scene.node("m0")
    scene.node("m1")
    scene.pod("t0", 1000, node_name="m0")
    scene.pod("t1", cpu, replaces="t0", scheduler_name=scheduler)
    return scene


@BOTH
async def test_figure_5(scheduler: str) -> None:
    """The old one is evicted first; when it is gone the new one is bound (or nominated) there, no earlier."""
    scene = figure_4(scheduler)
    await scene.turn()
    assert scene.evictions() == ["t0"]
    assert scene.told["t1"] == "Waiting for ns/t0 to terminate on m0."
    assert not scene.bound
    scene.change("t0", deleting=True)
    await scene.turn()
    assert not scene.bound
    scene.gone("t0")
    await scene.turn()
    assert scene.bound == {"ns/t1": "m0"}
    assert not scene.evictions()


async def test_one_that_ended_has_left() -> None:
    """Its room is free although it is still there to be read."""
    scene = figure_4()
    await scene.turn()
    scene.change("t0", terminal=True)
    await scene.turn()
    assert scene.bound == {"ns/t1": "m0"}


async def test_another_pod_of_the_same_name_is_not_the_one() -> None:
    """A StatefulSet makes a pod of that name anew: the old one has left all the same."""
    scene = figure_4()
    await scene.turn()
    scene.pod("t0", 1000, uid="u-again", scheduler_name="default-scheduler")
    await scene.turn()
    assert scene.bound == {"ns/t1": "m0"}


async def test_what_does_not_fit_evicts_nobody() -> None:
    """The new one is told why, the old one stays."""
    scene = figure_4(cpu=1500)
    await scene.turn()
    assert not scene.asked
    assert scene.told["t1"] == "cannot replace ns/t0 on node m0: Insufficient cpu"


async def test_nobody_else_gets_the_room() -> None:
    """Neither while the old one leaves nor once it has left: a dearer pod and one that fits the difference wait."""
    scene = figure_4(cpu=600)
    scene.node("m1", unschedulable=True)
    await scene.turn()
    scene.pod("dear", 500, created=1.0)
    scene.pod("small", 400)
    await scene.turn()
    assert not scene.bound
    scene.gone("t0")
    await scene.turn()
    assert scene.bound == {"ns/t1": "m0", "ns/small": "m0"}
    assert "Insufficient cpu" in scene.told["dear"]


async def test_what_it_needs_beyond_is_kept_from_the_first() -> None:
    """A larger pod takes the place of a smaller one: what is free beside that one is given to nobody meanwhile."""
    scene = EvictionScene()
    scene.node("m0")
    scene.pod("t0", 300, node_name="m0")
    scene.pod("t1", 800, replaces="t0")
    await scene.turn()
    assert scene.evictions() == ["t0"]
    scene.pod("large", 500)
    scene.pod("small", 200)
    await scene.turn()
    assert scene.bound == {"ns/small": "m0"}
    scene.gone("t0")
    await scene.turn()
    assert scene.bound == {"ns/small": "m0", "ns/t1": "m0"}


async def test_a_budget_that_forbids() -> None:
    """The new pod is told the API server's reason; past the patience its room is given back, and it is tried again."""
    scene = EvictionScene()
    scene.node("m0")
    scene.pod("t0", 300, node_name="m0")
    scene.pod("t1", 800, replaces="t0")
    await scene.turn()
    scene.asked[0].refused("it would violate the pod's disruption budget")
    assert "It cannot be evicted now: it would violate the pod's disruption budget" in scene.told["t1"]
    scene.now += EVICTION_TIMEOUT + 1
    scene.state.look_after()
    assert not scene.evictions()
    assert not scene.state.reservations
    assert "disruption budget" in scene.told["t1"]
    scene.pod("other", 500)
    await scene.turn()
    assert scene.bound == {"ns/other": "m0"}
    scene.end_evictions()
    scene.change("other", terminal=True)
    scene.now += 100
    await scene.turn()
    assert scene.evictions() == ["t0"]
    assert not scene.state.waits_for_victim("ns/t0")
    scene.gone("t0")
    await scene.turn()
    assert scene.bound["ns/t1"] == "m0"


async def test_one_that_is_being_deleted_is_waited_for() -> None:
    """As after a restart: it is evicted no more, however long it takes, and its place is taken when it is gone."""
    scene = figure_4()
    scene.change("t0", deleting=True)
    await scene.turn()
    scene.now += 10 * EVICTION_TIMEOUT
    await scene.turn()
    assert not scene.asked
    scene.gone("t0")
    await scene.turn()
    assert scene.bound == {"ns/t1": "m0"}


async def test_nobody_to_replace() -> None:
    """As after a restart when the old one is gone, or where it never was: the new pod is placed like any other."""
    scene = figure_4()
    scene.gone("t0")
    scene.node("m0", unschedulable=True)
    await scene.turn()
    assert scene.bound == {"ns/t1": "m1"}


_CHANGES: dict[str, Callable[[EvictionScene], object]] = {
    "the new one is deleted": lambda scene: scene.gone("t1"),
    "the new one is being deleted": lambda scene: scene.change(
        "t1", deleting=True, blocked_reason="it is being deleted"
    ),
    "the annotation is gone": lambda scene: scene.change("t1", replaces=None),
    "the policy only observes": lambda scene: scene.policies.offer(
        "o", "u", 1, {"selects": {"podSelector": {}, "schedulerNames": ["thalweg"]}, "delivery": "Observe"}
    ),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
async def test_an_eviction_that_is_not_wanted_any_more(change: Callable[[EvictionScene], object]) -> None:
    """It is not asked for again, and the room is everybody's."""
    scene = figure_4()
    await scene.turn()
    assert scene.evictions() == ["t0"]
    change(scene)
    scene.state.look_after()
    assert not scene.evictions()
    assert not scene.state.reservations
    assert not scene.state.victims


_NO_START: dict[str, tuple[Callable[[EvictionScene], object], str]] = {
    "the node is cordoned": (lambda scene: scene.node("m0", unschedulable=True), "node(s) were unschedulable"),
    "the node shrinks": (lambda scene: scene.node("m0", 900), "Insufficient cpu"),
    "another came there": (lambda scene: scene.pod("bully", 100, node_name="m0"), "Insufficient cpu"),
    "the new one grows": (
        lambda scene: scene.change("t1", pod_class=sized(1100)),
        "Insufficient cpu",
    ),
}


@pytest.mark.parametrize(("change", "why"), _NO_START.values(), ids=_NO_START)
async def test_the_old_one_stays_where_the_new_one_can_no_longer_start(
    change: Callable[[EvictionScene], object], why: str
) -> None:
    """A budget holds the eviction back meanwhile: it is not asked for again, and the new one is told why."""
    scene = figure_4()
    await scene.turn()
    assert scene.evictions() == ["t0"]
    change(scene)
    assert not scene.evictions()
    scene.state.look_after()
    assert not scene.state.reservations
    await scene.turn()
    assert not scene.evictions()
    assert scene.told["t1"] == f"cannot replace ns/t0 on node m0: {why}"


async def test_the_node_is_gone() -> None:
    """The old one is left to whoever clears up after nodes."""
    scene = figure_4()
    await scene.turn()
    scene.state.delete_node("m0")
    assert not scene.evictions()
    await scene.turn()
    assert not scene.state.reservations


async def test_a_node_that_changed_is_judged_again() -> None:
    """It will still do: the eviction that was asked for before the change serves the plan that was made after it."""
    scene = figure_4(cpu=600)
    await scene.turn()
    scene.node("m0", labels=(("zone", "a"),))
    assert not scene.evictions()
    await scene.turn()
    await scene.turn()
    assert scene.evictions() == ["t0"]
    scene.gone("t0")
    await scene.turn()
    assert scene.bound == {"ns/t1": "m0"}


async def test_one_that_leaves_is_waited_for_whatever_becomes_of_the_node() -> None:
    """Nobody gets the room that the new one needs beyond the old one's: a round says what becomes of it."""
    scene = EvictionScene()
    scene.node("m0")
    scene.pod("t0", 300, node_name="m0")
    scene.pod("t1", 800, replaces="t0")
    await scene.turn()
    scene.change("t0", deleting=True)
    scene.node("m0", labels=(("zone", "a"),))
    scene.state.look_after()
    assert scene.state.waits_for_victim("ns/t1")
    scene.gone("t0")
    await scene.turn()
    assert scene.bound == {"ns/t1": "m0"}


async def test_ports_of_both_are_no_clash() -> None:
    """The old one's port is the new one's to be: that is no reason to let the old one stay."""
    scene = EvictionScene()
    scene.node("m0")
    ports = PodClass(host_ports=(HostPort("10.0.0.1", "TCP", 80),))
    scene.pod("t0", 100, node_name="m0", pod_class=ports)
    scene.pod("t1", 100, replaces="t0", pod_class=ports)
    await scene.turn()
    await scene.turn()
    assert scene.evictions() == ["t0"]
    assert scene.state.waits_for_victim("ns/t1")


async def test_a_place_that_is_no_good_any_more() -> None:
    """The node is cordoned while the old one leaves: the new pod is told, and then placed like any other."""
    scene = figure_4()
    scene.node("m1", unschedulable=True)
    await scene.turn()
    scene.node("m0", unschedulable=True)
    scene.gone("t0")
    await scene.turn(1)
    assert scene.told["t1"] == "cannot replace ns/t0 on node m0: node(s) were unschedulable"
    assert not scene.state.reservations
    scene.node("m1")
    await scene.turn()
    assert scene.bound == {"ns/t1": "m1"}


async def test_two_name_one() -> None:
    """The second learns who was first, in the same round and in later ones."""
    scene = figure_4()
    await scene.turn()
    scene.pod("t2", 100, replaces="t0")
    await scene.turn()
    assert scene.told["t2"] == "ns/t1 already replaces ns/t0"
    assert scene.evictions() == ["t0"]


async def test_it_waits_for_the_old_one_to_run() -> None:
    """That one has no node yet; that it gets one is news."""
    scene = EvictionScene()
    scene.node("m0")
    scene.pod("t0", 1000, gates=("x",), blocked_reason="its scheduling gates are closed: x")
    scene.pod("t1", 1000, replaces="t0")
    await scene.turn()
    assert scene.told["t1"] == "the pod it replaces, ns/t0, does not run yet"
    requested = scene.state.rounds_requested
    scene.change("t0", node_name="m0", gates=(), blocked_reason="")
    assert scene.state.rounds_requested > requested
    await scene.turn()
    assert scene.evictions() == ["t0"]


async def test_the_old_one_leaves_while_the_plan_is_made() -> None:
    """Nobody is left to evict: the new one has the place at once."""
    scene = figure_4()
    scene.meanwhile = lambda: scene.gone("t0") if "ns/t0" in scene.state.pods else None
    await scene.turn(1)
    assert not scene.asked
    await scene.turn()
    assert scene.bound["ns/t1"] in ("m0", "m1")


_EVENTS = st.sampled_from(
    ["t0 leaves", "t0 gone", "t0 ended", "no", "time", "bully", "bully gone", "cordon", "uncordon", "t1 gone",
     "t1", "t2", "small", "round", "round", "round", "confirm", "policy"]
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(_EVENTS, max_size=25), st.sampled_from((300, 1000)), st.sampled_from((300, 800, 1000)))
async def test_whatever_happens(events: list[str], old: int, new: int) -> None:
    """What is bound fits beside all that is there, and no pod is evicted but for one that waits for its place.

    In the end each new pod is bound, or told why not, and no room is kept for nobody.
    """
    scene = EvictionScene()
    scene.node("m0")
    scene.pod("t0", old, node_name="m0")
    versions = count(1)

    def happens(event: str) -> None:
        there = scene.state.pods
        if event in ("t1", "t2", "small") and f"ns/{event}" not in there:
            scene.bound.pop(f"ns/{event}", None)
            scene.pod(event, 200 if event == "small" else new, replaces=None if event == "small" else "t0")
        elif event == "t0 leaves" and "ns/t0" in there:
            scene.change("t0", deleting=True)
        elif event == "t0 ended" and "ns/t0" in there:
            scene.change("t0", terminal=True)
        elif event in ("t0 gone", "bully gone", "t1 gone"):
            name = event.removesuffix(" gone")
            scene.gone(name)
            scene.bound.pop(f"ns/{name}", None)
        elif event == "bully" and "ns/bully" not in there:
            scene.pod("bully", 600, node_name="m0", scheduler_name="default-scheduler")
        elif event == "no":
            for each in scene.asked:
                each.refused("no")
            scene.end_evictions()
        elif event == "time":
            scene.now += EVICTION_TIMEOUT + 1
        elif event in ("cordon", "uncordon"):
            scene.node("m0", unschedulable=event == "cordon")
        elif event == "confirm":
            for key in list(scene.bound):
                if key in scene.state.waiting:
                    scene.change(key.removeprefix("ns/"), node_name="m0")
        elif event == "policy":
            delivery = "Observe" if scene.state.cluster.policies.ordered[0].delivery != "Observe" else "Binder"
            spec = {"selects": {"podSelector": {}, "schedulerNames": ["thalweg"]}, "delivery": delivery}
            spec["replaces"] = {"victims": "Governed"}
            scene.policies.offer("o", "u", next(versions), {**spec, "precedence": 1})

    async def one_round() -> None:
        before = set(scene.bound)
        await scene.loop._round()
        for key in set(scene.bound) - before:
            # Bound beside all that runs or was bound there before it.
            there = [p for p in scene.state.pods.values() if p.node_name == "m0" and not p.terminal]
            also = [scene.state.pods[k] for k in scene.bound if k in scene.state.waiting]
            taken = sum(dict(p.usage).get("cpu", 0) for p in (*there, *also))
            assert taken <= 1000, f"{key} overcommits the node"
        scene.state.look_after()
        for each in scene.asked:
            if each.wanted():
                (new_one,) = scene.state.victims[each.pod.key].for_pods
                assert scene.state.waiting[new_one].replaces == each.pod.name
                leaves = scene.state.pods[each.pod.key].deleting
                beside = [p for p in scene.state.pods.values() if p.node_name and not p.terminal and p.name != "t0"]
                taken = new + sum(dict(p.usage).get("cpu", 0) for p in beside)
                could = taken <= 1000 and not scene.state.nodes["m0"].unschedulable
                assert leaves or could, "evicted for one that cannot start"

    for event in events:
        if event == "round":
            await one_round()
        else:
            happens(event)
    for _ in range(2):
        scene.now += 1000
        await one_round()
        await one_round()
    observed = scene.state.cluster.policies.ordered[0].delivery == "Observe"
    for key, pod in scene.state.waiting.items():
        waits = key in scene.bound or pod.name in scene.told or observed
        assert waits, f"{key} was forgotten"
    for key, reservation in scene.state.reservations.items():
        assert key in scene.bound or reservation.victims


# --- gangs ---


def gang_scene(scheduler: str = "thalweg", *, names: dict[str, str] | None = None, cpu: int = 1000) -> EvictionScene:
    """Three nodes with an old pod each, and a gang of three new ones; by default two of them name an old one.

    Args:
        names: by name of the new pod the old one that it names.
        cpu: of the new pods.
    """
    scene, named = EvictionScene(), {"g0": "t0", "g1": "t1"} if names is None else names
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=3))
    for at in range(3):
        scene.node(f"m{at}")
    for name in {*named.values()}:
        scene.pod(name, 1000, node_name=name.replace("t", "m"))
    for at in range(3):
        replaces = named.get(f"g{at}")
        scene.pod(f"g{at}", cpu, scheduler_name=scheduler, gang=gang, replaces=replaces)
    return scene


@BOTH
async def test_a_gang_comes_once_all_have_left(scheduler: str) -> None:
    """All are asked for first: then they leave one after the other, and nobody is bound before the last has gone."""
    scene = gang_scene(scheduler)
    await scene.turn()
    assert [each.pod.name for each in scene.asked] == ["t1"]
    assert all(each.write.dry_run for each in scene.asked)
    assert sorted(scene.answer_evictions()) == ["t0", "t1"]
    scene.gone("t0")
    await scene.turn()
    assert not scene.bound
    scene.gone("t1")
    await scene.turn()
    scene.now += 1.0  # kube-scheduler asks about none of them, so they are nominated
    scene.tick()
    assert scene.bound == {"ns/g0": "m0", "ns/g1": "m1", "ns/g2": "m2"}


async def test_a_gang_of_which_one_cannot_come_evicts_nobody() -> None:
    """All are told for whom they wait, and that lasts until the place will do."""
    scene = gang_scene(names={"g0": "t0", "g1": "t1"})
    scene.node("m1", 900)
    await scene.turn()
    assert not scene.asked
    why = "Gang ns/g waits as a whole: ns/g1: cannot replace ns/t1 on node m1: Insufficient cpu."
    assert {scene.told[f"g{at}"] for at in range(3)} == {why}
    scene.node("m1", 1000)
    await scene.turn()
    assert sorted(scene.answer_evictions()) == ["t0", "t1"]


async def test_a_gang_of_which_one_finds_no_node_evicts_nobody() -> None:
    """The pod that names nobody has no room: nobody leaves for the others, and small pods get what is free."""
    scene = gang_scene()
    scene.node("m2", unschedulable=True)
    await scene.turn()
    assert not scene.asked
    assert not scene.state.reservations
    assert "2 pods of" in scene.told["g0"]
    assert "would take the places of running pods" in scene.told["g2"]


async def test_a_refused_eviction_keeps_the_others_where_they_are() -> None:
    """The first that is asked for really is one that may be refused: the dry runs of the others came before."""
    scene = gang_scene()
    await scene.turn()
    (dry_run,) = scene.asked
    dry_run.refused("it would violate the pod's disruption budget")
    await scene.turn()
    assert not scene.evictions()
    assert "disruption budget" in scene.told["g1"]
    scene.end_evictions()
    scene.now += EVICTION_TIMEOUT + 1
    scene.tick()
    assert not scene.evictions()
    assert not scene.state.reservations


async def test_a_budget_for_fewer_than_a_gang_replaces() -> None:
    """It lets one leave, and two are to: nobody does, and the pods are told. Once it lets two leave, both do."""
    scene = gang_scene()
    for name in ("t0", "t1"):
        scene.change(name, labels=(("app", "old"),))
    budget = DisruptionBudget("ns", "old", LabelSelector((Requirement("app", "In", ("old",)),)), allowed=1)
    scene.state.apply(ObjectSet(DISRUPTION_BUDGETS, budget.key, budget))
    await scene.turn()
    assert not scene.asked
    assert "PodDisruptionBudget ns/old lets 1 of 2 pods leave" in scene.told["g0"]
    scene.state.apply(ObjectSet(DISRUPTION_BUDGETS, budget.key, msgspec.structs.replace(budget, allowed=2)))
    await scene.turn()
    assert sorted(scene.answer_evictions()) == ["t0", "t1"]


async def test_a_gang_loses_a_pod_before_anybody_leaves() -> None:
    """It is not whole any more: nobody leaves for the others."""
    scene = gang_scene()
    await scene.turn()
    scene.gone("g2")
    assert not scene.answer_evictions()
    await scene.turn()
    assert not scene.evictions()
    assert not scene.state.reservations


async def test_a_running_gang_is_replaced_pod_by_pod() -> None:
    """A new pod of a gang that runs names one of its pods: that needs no other pod."""
    scene = EvictionScene()
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    for at in range(2):
        scene.node(f"m{at}")
        scene.pod(f"t{at}", 1000, node_name=f"m{at}", gang=gang)
    scene.pod("g0", 1000, gang=gang, replaces="t0")
    await scene.turn()
    assert scene.evictions() == ["t0"]
    scene.gone("t0")
    await scene.turn()
    assert scene.bound == {"ns/g0": "m0"}


async def test_a_gang_that_lacks_a_pod_is_not_whole_with_one_in_the_place_of_another() -> None:
    """One of two runs, and the new pod takes its place: two are needed then, and one waits."""
    scene = EvictionScene()
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    scene.node("m0")
    scene.node("m1")
    scene.pod("t0", 1000, node_name="m0", gang=gang)
    scene.pod("g0", 1000, gang=gang, replaces="t0")
    await scene.turn()
    assert not scene.asked
    assert "needs 2 pods at once, 1 waits" in scene.told["g0"]
    scene.pod("g1", 1000, gang=gang)
    await scene.turn()
    assert scene.evictions() == ["t0"]
    scene.gone("t0")
    await scene.turn()
    assert scene.bound == {"ns/g0": "m0", "ns/g1": "m1"}


async def test_a_gang_whose_old_pods_are_gone_is_placed_like_any_other() -> None:
    """As after a restart: some have left, one terminates still. Nothing that has left is waited for."""
    scene = gang_scene()
    scene.gone("t0")
    scene.change("t1", deleting=True)
    await scene.turn()
    assert not scene.asked
    assert not scene.bound
    scene.gone("t1")
    await scene.turn()
    assert set(scene.bound) == {"ns/g0", "ns/g1", "ns/g2"}


@dataclass(frozen=True)
class Victim:
    """A pod whose place another wants, and why that is refused; "" when it is not."""

    why: str
    fields: dict[str, Any]
    replaces: dict[str, str] | None = None


_VICTIMS = {
    "of the same controller": Victim("", {"owner": "set"}),
    "of another controller": Victim("not of the same controller", {"owner": "other"}),
    "of no controller": Victim("not of the same controller", {}),
    "of another controller, allowed": Victim("", {"owner": "other"}, {"victims": "Governed"}),
    "that nobody governs": Victim("no policy governs that pod", {"owner": "set", "scheduler_name": "x"}),
    "that is observed": Victim("no policy governs that pod", {"owner": "set", "scheduler_name": "observed"}),
    "that nobody governs, allowed": Victim("no policy governs", {"scheduler_name": "x"}, {"victims": "Governed"}),
    "of a higher priority": Victim(
        "a higher priority", {"pod_class": PodClass((("cpu", 1000),), priority=11)}, {"victims": "Governed"}
    ),
    "of the same priority": Victim("", {"owner": "set", "pod_class": PodClass((("cpu", 1000),), priority=10)}),
}


@pytest.mark.parametrize("victim", _VICTIMS.values(), ids=_VICTIMS)
async def test_whose_place_may_be_taken(victim: Victim) -> None:
    """Of a governed pod of no higher priority and of the same controller, unless the policy allows others."""
    scene = EvictionScene()
    scene.policies.offer("own", "u", 2, {"selects": {"podSelector": {}}, "replaces": victim.replaces or {}})
    observed = {"selects": {"schedulerNames": ["observed"]}, "delivery": "Observe"}
    scene.policies.offer("observed", "u", 1, observed)
    scene.node("m0")
    scene.node("m1")
    scene.pod("t0", 1000, node_name="m0", **victim.fields)
    scene.pod("t1", 1000, replaces="t0", owner="set", pod_class=PodClass((("cpu", 1000),), priority=10))
    await scene.turn()
    assert not scene.bound
    if victim.why:
        assert not scene.asked
        assert scene.told["t1"].startswith("it may not replace ns/t0: ")
        assert victim.why in scene.told["t1"]
    else:
        assert scene.evictions() == ["t0"]


async def test_a_policy_that_allows_it_no_more() -> None:
    """What is not evicted yet stays: the policy is asked again before each eviction."""
    scene = figure_4()
    await scene.turn()
    assert scene.evictions() == ["t0"]
    scene.policies.offer("own", "u", 2, {"selects": {"podSelector": {}}})
    assert scene.evictions() == []
    await scene.turn()
    assert "is not of the same controller, and policy own allows no others" in scene.told["t1"]


def test_prefer_lets_kube_scheduler_choose_no_other_node() -> None:
    """While there is somebody to replace the pod is held; without, it is like any other that the plan leaves."""
    world = SteeredCluster(steering="Prefer")
    old = world.pod("old", "u1", node_name="a", scheduler_name="x")
    new = world.pod(replaces="old")
    world.show()
    world.schedule(new.key)
    world.set_free(new)
    assert not world.write_kinds
    assert world.schedule(new.key)[0] is FilterOutcome.HELD
    world.remove_pod(old.key)
    world.show()
    world.set_free(new)
    assert world.write_kinds == ["wake"]
