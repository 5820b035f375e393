"""Running pods leave for waiting ones of a higher priority: only by a plan, only as a whole, and nobody in vain."""

from collections.abc import Callable
from typing import Any

import pytest
from support.fake_cluster.driven_ledger import DrivenLedger
from support.fake_cluster.eviction_scene import EvictionScene
from support.work import lines_run
from thalweg_operator.reservations.effects import Departure, Evict
from thalweg_operator.reservations.events import Answer, ObjectSet
from thalweg_operator.reservations.ledger.reservation import Owner, Reservation
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.ledger.victim_record import VictimRecord
from thalweg_operator.reservations.steering.advise import advise
from thalweg_operator.reservations.victims.victims import LONGEST_TERMINATION, TERMINATION_SLACK
from thalweg_operator.reservations.waiting_codes import WAITING_FOR_VICTIMS

from flowcore.cluster.kinds import DISRUPTION_BUDGETS, GROUPS_OF_PODS, QUEUES
from flowcore.model.advice import ExtenderPod
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME
from flowcore.model.queues import Queue
from flowcore.model.selectors import LabelSelector, Requirement

BOTH = pytest.mark.parametrize("scheduler", ["thalweg", STEERED_NAME])


def sized(cpu: int, priority: int) -> PodClass:
    """A class of pods that ask for so much, of a priority."""
    return PodClass(requests=(("cpu", cpu),), priority=priority)


def urgent(scene: EvictionScene, name: str, cpu: int, **fields: Any) -> Pod:
    """An urgent pod waits."""
    return scene.pod(name, cpu, pod_class=sized(cpu, 1000), **fields)


def full_nodes(count: int, pods: int = 2) -> EvictionScene:
    """Nodes that are full of pods of priority 0, such as ``n0-1``."""
    scene = EvictionScene()
    for node in range(count):
        scene.node(f"n{node}")
        for pod in range(pods):
            cpu = 1000 // pods
            scene.pod(f"n{node}-{pod}", cpu, node_name=f"n{node}", started=float(node))
    return scene


@BOTH
async def test_an_urgent_pod_gets_its_room(scheduler: str) -> None:
    """One victim is enough, so no dry run is sent; the pod is nominated while it waits, and bound when it has left."""
    scene = full_nodes(1)
    urgent(scene, "u", 400, scheduler_name=scheduler)
    await scene.turn(2)
    (victim,) = scene.evictions()
    assert not scene.dry_runs()
    assert scene.nominated == {"ns/u": "n0"}
    assert scene.told["u"] == f"Waiting for ns/{victim} to terminate on n0."
    assert scene.codes["u"] == WAITING_FOR_VICTIMS
    preemptor = scene.state.pods["ns/u"].uid
    assert scene.asked[0].write.message == f"Preempted by pod {preemptor} on node n0"
    scene.change(victim, deleting=True)
    await scene.turn()
    assert not scene.bound
    scene.gone(victim)
    await scene.turn()
    scene.now += 1  # kube-scheduler has a second to ask by itself
    scene.tick()
    assert scene.bound == {"ns/u": "n0"}


async def test_no_second_wave_while_victims_terminate() -> None:
    """However many rounds go by, nobody else is evicted for the pod, and nobody else gets the room."""
    scene = full_nodes(2)
    urgent(scene, "u", 400)
    await scene.turn(2)
    (victim,) = scene.evictions()
    scene.change(victim, deleting=True, grace_period=600.0)
    scene.pod("small", 100)
    for _ in range(5):
        scene.now += 20
        await scene.turn(1)
    assert [each.pod.name for each in scene.asked] == [victim]
    assert not scene.bound
    scene.gone(victim)
    await scene.turn()
    assert scene.bound["ns/u"] == "n0"


async def test_nobody_leaves_unless_all_victims_may() -> None:
    """Of three victims one may not be evicted, says its dry run: all stay, and the pod is planned elsewhere."""
    scene = full_nodes(2, pods=3)
    urgent(scene, "u", 900)
    await scene.turn(2)
    one, another = scene.dry_runs()
    node = one.pod.node_name
    assert another.pod.node_name == node
    assert not scene.evictions()
    one.done()
    another.refused("no", Answer.REFUSED)
    scene.tick()
    assert not scene.evictions()
    assert not scene.state.victims
    await scene.turn()
    (other,) = {"n0", "n1"} - {node}
    assert sorted(scene.answer_evictions()) == [f"{other}-{number}" for number in range(3)]


async def test_three_victims_need_five_requests() -> None:
    """All but one are asked about. That one is evicted first, and says as much as a dry run of it would."""
    scene = full_nodes(1, pods=3)
    urgent(scene, "u", 900)
    await scene.turn(2)
    assert len(scene.answer_evictions()) == 3
    assert [each.write.dry_run for each in scene.asked] == [True, True, False, False, False]
    first = scene.asked[2].pod
    assert first not in [each.pod for each in scene.asked[:2]]


async def test_the_first_eviction_is_refused() -> None:
    """Nobody has left by then, and the others stay."""
    scene = full_nodes(1, pods=3)
    urgent(scene, "u", 900)
    await scene.turn(2)
    for each in scene.dry_runs():
        each.done()
    assert len(scene.evictions()) == 1
    scene.asked[-1].refused("the budget", Answer.REFUSED)
    scene.tick()
    assert not scene.evictions()
    assert not scene.state.victims
    assert len(scene.asked) == 3


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda scene: scene.node("n0", unschedulable=True),
        lambda scene: scene.policies.offer(
            "own", "u", 2, {"selects": {"podSelector": {}}, "preemption": {"mode": "Never"}}
        ),
        lambda scene: setattr(scene.state.ledger, "ends", True),
    ],
    ids=["the node changed", "its policy preempts nobody", "the operator ends"],
)
async def test_once_the_first_one_leaves_the_others_do(meanwhile: Callable[[EvictionScene], object]) -> None:
    """It would leave in vain else: what changes after its eviction stops no other, also if it is gone at once."""
    scene = full_nodes(1, pods=3)
    urgent(scene, "u", 900)
    await scene.turn(2)
    for each in scene.dry_runs():
        each.done()
    first = scene.asked[-1]
    first.done()
    meanwhile(scene)
    scene.gone(first.pod.name)
    scene.tick()
    assert len(scene.evictions()) == 2


async def test_who_is_refused_most_likely_goes_first() -> None:
    """The pod whose budget allows least; and before it one that was refused not long ago."""
    scene = full_nodes(1, pods=3)
    for name, allowed in (("n0-0", 3), ("n0-1", 2), ("n0-2", 1)):
        scene.change(name, labels=(("app", name),))
        budget = DisruptionBudget("ns", name, LabelSelector((Requirement("app", "In", (name,)),)), allowed)
        scene.state.apply(ObjectSet(DISRUPTION_BUDGETS, budget.key, budget))
    urgent(scene, "u", 900)
    await scene.turn(2)
    assert sorted(each.pod.name for each in scene.dry_runs()) == ["n0-0", "n0-1"]
    answered, refused = scene.dry_runs()
    answered.done()
    refused.refused("no", Answer.REFUSED)
    scene.asked.clear()
    scene.now += 6.0
    await scene.turn(2)
    assert sorted(each.pod.name for each in scene.dry_runs()) == sorted({"n0-0", "n0-1", "n0-2"} - {refused.pod.name})


async def test_who_was_refused_may_be_asked_again() -> None:
    """After a pause, which grows: the budget may allow it then."""
    scene = full_nodes(1, pods=1)
    urgent(scene, "u", 400)
    await scene.turn(2)
    scene.asked.pop().refused("the budget", Answer.REFUSED)
    await scene.turn()
    assert not scene.asked
    assert scene.state.ledger.unevictable
    assert "u" in scene.told
    scene.now += 5.1
    await scene.turn()
    assert scene.evictions() == ["n0-0"]


async def test_a_budget_that_allows_nothing() -> None:
    """Nobody is asked to leave; the pod learns why it waits."""
    scene = full_nodes(1)
    budget = DisruptionBudget("ns", "b", LabelSelector(), allowed=0)
    scene.state.cluster.set_disruption_budget(budget.key, budget)
    urgent(scene, "u", 400)
    await scene.turn(3)
    assert not scene.asked
    assert "Insufficient cpu" in scene.told["u"]


@pytest.mark.parametrize("now", [GangSpec(0, priority=2000), None])
async def test_the_group_of_a_victim_is_another_one_now(now: GangSpec | None) -> None:
    """Its pods are of a higher priority by now, so the one that was to leave stays."""
    scene, key = EvictionScene(), GangKey(GangSource.NATIVE, "ns", "g")
    scene.node("n")
    scene.state.apply(ObjectSet(GROUPS_OF_PODS, key, PodGroup(key, GangSpec(0, priority=0))))
    scene.pod("runs", 1000, pod_class=sized(1000, 5000), node_name="n", gang=GangRef(key))
    urgent(scene, "u", 400)
    await scene.turn(2)
    assert scene.evictions() == ["runs"]
    scene.state.apply(ObjectSet(GROUPS_OF_PODS, key, None if now is None else PodGroup(key, now)))
    assert not scene.evictions()
    scene.tick()
    assert not scene.state.victims


@pytest.mark.parametrize(
    "fields",
    [{"preempts": False}, {"pod_class": sized(400, 0)}],
    ids=["preemptionPolicy Never", "of the same priority"],
)
async def test_who_may_not_preempt(fields: dict[str, Any]) -> None:
    """Nobody leaves, and running pods are not even sent to the worker."""
    scene = full_nodes(1)
    scene.pod("u", 400, **{"pod_class": sized(400, 1000), **fields})
    await scene.turn(3)
    assert not scene.asked
    assert not scene.replica._running


async def test_a_victim_that_does_not_terminate() -> None:
    """Past its grace period and some more its room is not counted on: the pod is planned on the other node."""
    scene = full_nodes(2, pods=1)
    urgent(scene, "u", 900)
    await scene.turn(2)
    (victim,) = scene.evictions()
    scene.change(victim, deleting=True, grace_period=10.0)
    scene.tick()
    scene.now += 10.0 + TERMINATION_SLACK + 1.0
    scene.tick()
    assert f"it did not terminate within {10.0 + TERMINATION_SLACK:.0f} s" in scene.told["u"]
    await scene.turn(2)
    assert [each.pod.name for each in scene.asked] == [victim, *({"n0-0", "n1-0"} - {victim})]


async def test_no_eviction_begins_while_the_operator_ends() -> None:
    """Dry runs were answered, and nobody was asked to leave yet: both victims stay."""
    scene = full_nodes(1)
    urgent(scene, "u", 900)
    await scene.turn(2)
    scene.state.ledger.ends = True
    scene.answer_evictions()
    scene.tick()
    assert not scene.evictions()
    scene.state.ledger.ends = False
    scene.tick()
    assert sorted(scene.answer_evictions()) == ["n0-0", "n0-1"]


async def test_a_long_grace_period() -> None:
    """A pod does not wait for hours for its victim's room."""
    scene = full_nodes(1, pods=1)
    urgent(scene, "u", 900)
    await scene.turn(2)
    scene.change("n0-0", deleting=True, grace_period=2 * LONGEST_TERMINATION)
    scene.tick()
    scene.node("new")
    scene.now += LONGEST_TERMINATION + 1.0
    scene.tick()
    await scene.turn(2)
    assert scene.bound == {"ns/u": "new"}


async def test_the_node_of_a_terminating_victim_is_gone() -> None:
    """The pod is planned anew at once."""
    scene = full_nodes(1, pods=1)
    urgent(scene, "u", 900)
    await scene.turn(2)
    scene.change("n0-0", deleting=True, grace_period=300.0)
    scene.node("new")
    await scene.turn(2)
    assert not scene.bound
    scene.state.delete_node("n0")
    scene.tick()
    await scene.turn(2)
    assert scene.bound == {"ns/u": "new"}


def of_gang(count: int) -> GangRef:
    """Membership of a gang that needs so many pods."""
    return GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=count))


@BOTH
async def test_a_gang_waits_as_a_whole(scheduler: str) -> None:
    """Its pods need victims on two nodes, one has free room: nobody is bound before all can be."""
    scene = full_nodes(2, pods=1)
    scene.node("n2")
    for name in ("g0", "g1", "g2"):
        tried = "0/3 nodes are available: 3 Insufficient cpu."
        urgent(scene, name, 900, gang=of_gang(3), scheduler_name=scheduler, unschedulable_message=tried)
    await scene.turn(2)
    assert [each.pod.name for each in scene.dry_runs()] == ["n1-0"]
    assert {each.phase for each in scene.state.reservations.values()} == {Phase.AWAITING_VICTIM}
    assert scene.answer_evictions() == ["n0-0", "n1-0"]
    scene.gone("n0-0")
    await scene.turn()
    assert not scene.bound
    scene.gone("n1-0")
    await scene.turn()
    scene.now += 1.0  # kube-scheduler asks about none of them, so they are nominated
    scene.tick()
    assert sorted(scene.bound) == ["ns/g0", "ns/g1", "ns/g2"]
    assert sorted(scene.bound.values()) == ["n0", "n1", "n2"]


def test_a_gang_that_waits_is_looked_at_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of its pods once for each of them: a look would take seconds with a gang of a thousand."""
    count, scene, listed = 20, full_nodes(20, pods=1), 0
    ledger = scene.state.ledger
    for at in range(count):
        scene.change(f"n{at}-0", deleting=True, grace_period=300.0)
        pod = urgent(scene, f"g{at}", 900, gang=of_gang(count))
        record = VictimRecord(scene.state.pods[f"ns/n{at}-0"], Departure.PREEMPTION)
        ledger.add(pod, f"n{at}", Owner.BINDER, Phase.AWAITING_VICTIM, [record], "g")
    scene.tick()
    members_of = ledger.members_of

    def list_members(reservation: Reservation) -> list[Reservation]:
        nonlocal listed
        members = members_of(reservation)
        listed += len(members)
        return members

    monkeypatch.setattr(ledger, "members_of", list_members)
    scene.state.look_after()
    assert len(ledger.awaiting) == count
    assert 0 < listed <= 3 * count


async def test_a_gang_that_loses_a_pod_evicts_nobody() -> None:
    """A pod of it is deleted between dry run and eviction: the others do not come, so nobody leaves for them."""
    scene = full_nodes(2, pods=1)
    for name in ("g0", "g1"):
        urgent(scene, name, 900, gang=of_gang(2))
    await scene.turn(2)
    (call,) = scene.dry_runs()
    scene.gone("g1")
    call.done()
    scene.tick()
    assert not scene.evictions()
    assert not scene.state.reservations


async def test_one_victim_for_two_pods() -> None:
    """A large victim makes room for two pods: it is evicted once, and both come."""
    scene = full_nodes(1, pods=1)
    urgent(scene, "u0", 400)
    urgent(scene, "u1", 500)
    await scene.turn(2)
    assert scene.evictions() == ["n0-0"]
    assert scene.state.victims["ns/n0-0"].for_pods == {"ns/u0", "ns/u1"}
    scene.gone("n0-0")
    await scene.turn()
    assert scene.bound == {"ns/u0": "n0", "ns/u1": "n0"}


async def test_a_preemptor_that_goes() -> None:
    """Its victims stay, if they have not left yet."""
    scene = full_nodes(1)
    urgent(scene, "u", 400)
    await scene.turn(2)
    assert len(scene.evictions()) == 1
    scene.gone("u")
    assert not scene.evictions()
    assert not scene.state.victims


async def test_a_nomination_that_is_given_up_is_cleared() -> None:
    """The eviction is refused after the pod was nominated: nobody is to count on that node."""
    scene = full_nodes(1, pods=1)
    urgent(scene, "u", 400)
    await scene.turn(2)
    assert scene.nominated == {"ns/u": "n0"}
    scene.change("u", nominated_node="n0", planned_node="n0")
    scene.asked.pop().refused("no", Answer.REFUSED)
    assert scene.cleared == ["u"]
    scene.change("u", nominated_node="", planned_node="")
    for _ in range(3):
        scene.now += 5.0
        scene.tick()
    await scene.turn()
    assert scene.evictions() == ["n0-0"]


@pytest.mark.parametrize("priority", [0, 1000], ids=["preempted", "moved"])
def test_a_restart_while_victims_terminate(priority: int) -> None:
    """A nominated pod that fits once they have left waits for them; it takes its place then."""
    ledger = DrivenLedger()
    ledger.set_namespace("ns", ())
    ledger.policies.offer("own", "u", 1, {"selects": {"podSelector": {}}})
    ledger.upsert_node(Node("n", allocatable=(("cpu", 1000), ("pods", 10))))
    ledger.upsert_pod(Pod("ns", "v", "uv", sized(800, priority), node_name="n", usage=(("cpu", 800),), deleting=True))
    ledger.upsert_pod(
        Pod("ns", "u", "uu", sized(900, 1000), scheduler_name="thalweg", nominated_node="n", planned_node="n")
    )
    ledger.sync()
    reservation = ledger.reservations["ns/u"]
    assert (reservation.phase, reservation.victims) == (Phase.AWAITING_VICTIM, ("ns/v",))
    assert not ledger.plannable()
    ledger.look_after()
    assert not ledger.taken(Evict)
    ledger.delete_pod("ns/v")
    assert ledger.reservations["ns/u"].phase is Phase.HELD
    assert [pod.name for pod in ledger.plannable()] == ["u"]


async def test_a_quiet_round_tells_the_worker_what_changed() -> None:
    """A budget comes, and no pod waits: the round after it knows the budget, and evicts nobody."""
    scene = full_nodes(1)
    urgent(scene, "first", 400)
    await scene.turn(2)
    scene.gone("first")
    scene.end_evictions()
    await scene.turn(2)
    budget = DisruptionBudget("ns", "keep", LabelSelector(), allowed=0)
    scene.state.apply(ObjectSet(DISRUPTION_BUDGETS, budget.key, budget))
    await scene.turn(1)
    urgent(scene, "second", 400)
    await scene.turn(2)
    assert not scene.evictions()


async def test_a_budget_is_not_given_twice() -> None:
    """Two of four may leave, and two are planned to: the next round does not count on the same two."""
    scene = full_nodes(2)
    budget = DisruptionBudget("ns", "keep", LabelSelector(), allowed=2)
    scene.state.apply(ObjectSet(DISRUPTION_BUDGETS, budget.key, budget))
    urgent(scene, "u1", 900)
    await scene.turn(2)
    assert len(scene.state.victims) == 2
    urgent(scene, "u2", 900)
    await scene.turn(2)
    assert len(scene.state.victims) == 2


async def test_a_gang_keeps_its_minimum_while_a_victim_is_still_there() -> None:
    """Of three pods two are needed: the second urgent pod gets no place of theirs, though none is deleted yet."""
    scene = EvictionScene()
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    for at in range(3):
        scene.node(f"n{at}")
        scene.pod(f"g{at}", 1000, node_name=f"n{at}", started=1.0, gang=gang)
    urgent(scene, "u1", 900)
    await scene.turn(2)
    (victim,) = scene.evictions()
    urgent(scene, "u2", 900)
    await scene.turn(2)
    assert scene.evictions() == [victim]


async def test_a_nomination_that_is_lost_is_written_again() -> None:
    """kube-scheduler clears it where it finds nobody to evict itself; a restart must still see who waits."""
    scene = full_nodes(1, pods=1)
    urgent(scene, "u", 400, scheduler_name=STEERED_NAME)
    await scene.turn(2)
    scene.change("u", nominated_node="n0", planned_node="n0")
    scene.change("n0-0", deleting=True)
    scene.nominated.clear()
    scene.change("u", nominated_node="")
    assert scene.nominated == {"ns/u": "n0"}
    scene.nominated.clear()
    scene.change("u", labels=(("seen", "yes"),))
    assert not scene.nominated, "once for each loss"


async def test_kube_scheduler_evicts_nobody_while_a_round_may() -> None:
    """A pod of ``Prefer`` without a node may choose whom it preempts only if no round is about to choose for it."""
    scene = full_nodes(2, pods=1)
    selects = {"schedulerNames": [STEERED_NAME]}
    scene.policies.offer("steered", "u", 2, {"selects": selects, "delivery": "Extender", "steering": "Prefer"})
    pod = urgent(scene, "u", 600, scheduler_name=STEERED_NAME)
    asked = ExtenderPod(pod.namespace, pod.name, pod.uid, {}, STEERED_NAME, "")
    for _ in range(2):
        await scene.turn(1)
        assert not advise(scene.state.shell.state, asked, ["n1"]).may_preempt
    assert scene.evictions() == ["n0-0"]


async def test_a_node_without_a_feature_hides_no_full_one() -> None:
    """One node is full, and one lacks what the pod needs of a kubelet: somebody leaves the full one."""
    scene = EvictionScene()
    room = (("cpu", 1000), ("pods", 10))
    scene.state.upsert_node(Node("full", allocatable=room, features=("F",)))
    scene.state.upsert_node(Node("old", allocatable=room))
    scene.pod("lazy", 1000, node_name="full", started=0.0)
    scene.pod("u", 400, pod_class=PodClass(requests=(("cpu", 400),), priority=1000, features=("F",)))
    await scene.turn(3)
    assert scene.evictions() == ["lazy"]


async def test_it_is_bound_with_the_event_that_its_victim_is_gone() -> None:
    """No round is needed for it, and none is asked for at once."""
    scene = full_nodes(1)
    urgent(scene, "u", 400)
    await scene.turn(2)
    (victim,) = scene.evictions()
    scene.asked[-1].done()
    scene.gone(victim)
    assert scene.bound == {"ns/u": "n0"}
    assert scene.state.ledger.reservations["ns/u"].phase is Phase.BINDING


@pytest.mark.parametrize("priority", [0, 2000], ids=["less urgent", "more urgent"])
async def test_it_does_not_look_at_all_that_wait_when_a_victim_is_gone(priority: int) -> None:
    """Many pods wait, and many victims leave one after the other: an event costs the same, whoever waits."""

    async def work_with(waiting: int) -> int:
        scene = full_nodes(1)
        urgent(scene, "u", 400)
        await scene.turn(2)
        (victim,) = scene.evictions()
        scene.asked[-1].done()
        for number in range(waiting):
            scene.pod(f"waits-{number}", 5000, pod_class=sized(5000, priority))
        return lines_run(lambda: scene.gone(victim))

    assert await work_with(500) <= await work_with(2) + 20


HOSTNAME = "kubernetes.io/hostname"
RULE = {"name": "az", "conflict": {"pods": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}}
KEEPS_ALL_AWAY = InterPodConstraints(anti_affinity=(AffinityTerm(HOSTNAME, LabelSelector(), ("ns",)),))
NEEDS_A_ROUND: dict[str, Callable[[EvictionScene], object]] = {
    "a more urgent pod waits": lambda scene: scene.pod("first", 900, pod_class=sized(900, 2000)),
    "its node changed": lambda scene: scene.node("n0", unschedulable=True),
    "a pod came that keeps others away": lambda scene: scene.pod(
        "alone", 0, pod_class=PodClass(), node_name="n0", constraints=KEEPS_ALL_AWAY
    ),
    "its policy has a rule": lambda scene: scene.policies.offer(
        "own", "u", 2, {"selects": {"podSelector": {}}, "constraints": [RULE]}
    ),
    "a queue counts it": lambda scene: scene.state.apply(
        ObjectSet(QUEUES, "q", Queue("q", pods=LabelSelector(), namespaces=LabelSelector()))
    ),
    "it is another pod than it was": lambda scene: urgent(scene, "u", 300),
}


@pytest.mark.parametrize("change", NEEDS_A_ROUND.values(), ids=NEEDS_A_ROUND)
async def test_where_more_than_room_counts_a_round_says_who_gets_the_place(
    change: Callable[[EvictionScene], object],
) -> None:
    """Its place is kept until then, and the round starts at once."""
    scene = full_nodes(1)
    urgent(scene, "u", 400)
    await scene.turn(2)
    (victim,) = scene.evictions()
    scene.asked[-1].done()
    scene.pod(victim, 500, node_name="n0", deleting=True)
    change(scene)
    scene.gone(victim)
    assert not scene.bound
    assert scene.state.ledger.reservations["ns/u"].phase is Phase.HELD
