"""The next leader finds nominations, and pods that were evicted for them: nobody else is evicted for the same pods."""

from typing import Any

import pytest
from support.fake_cluster.eviction_scene import EvictionScene
from thalweg_operator.reservations.effects import ClearNomination
from thalweg_operator.reservations.events import ObjectSet
from thalweg_operator.reservations.ledger.transitions import Phase

from flowcore.cluster.kinds import QUEUES
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME
from flowcore.model.queues import Queue
from flowcore.model.selectors import LabelSelector

BOTH = pytest.mark.parametrize("scheduler", ["thalweg", STEERED_NAME])


def urgent(scene: EvictionScene, name: str, cpu: int, **fields: Any) -> Pod:
    """An urgent pod waits."""
    return scene.pod(name, cpu, pod_class=PodClass(requests=(("cpu", cpu),), priority=1000), **fields)


def full_nodes(count: int) -> EvictionScene:
    """Nodes that are full of two pods each, such as ``n0-1``."""
    scene = EvictionScene()
    for node in range(count):
        scene.node(f"n{node}")
        for pod in range(2):
            scene.pod(f"n{node}-{pod}", 500, node_name=f"n{node}", started=float(node))
    return scene


async def evicted(scene: EvictionScene, *waiting: str) -> list[str]:
    """Two of a node are evicted for each of these pods, which are nominated; their names."""
    await scene.turn(2)
    victims = scene.answer_evictions()
    assert len(victims) == 2 * len(waiting)
    for name in victims:
        scene.change(name, deleting=True, grace_period=30.0)
    for name in waiting:
        node = scene.nominated[f"ns/{name}"]
        scene.change(name, nominated_node=node, planned_node=node)
    return victims


def watching(scene: EvictionScene) -> EvictionScene:
    """A standby: it knows the same objects, and nothing else."""
    standby = EvictionScene(now=scene.now)
    for node in scene.state.nodes.values():
        standby.state.upsert_node(node)
    for pod in scene.state.pods.values():
        standby.state.upsert_pod(pod)
    return standby


def lead(standby: EvictionScene) -> EvictionScene:
    """It takes over."""
    standby.state.sync()
    return standby


async def let_plan(scene: EvictionScene, rounds: int = 3) -> None:
    """Rounds, and what is due between them; kube-scheduler has time to ask."""
    for _ in range(rounds):
        await scene.turn(1)
        scene.now += 1.0
    scene.tick()


@BOTH
@pytest.mark.parametrize("standby", [False, True], ids=["a new process", "a standby"])
async def test_victims_ended_while_nobody_led(scheduler: str, standby: bool) -> None:  # noqa: FBT001
    """Their replacements wait already: the pod gets its place, they do not, and nobody is evicted once more."""
    scene = full_nodes(2)
    urgent(scene, "u", 900, scheduler_name=scheduler)
    victims = await evicted(scene, "u")
    node = scene.nominated["ns/u"]
    following = watching(scene)
    for each in (scene, following):
        for name in victims:
            each.pod(f"new-{name}", 500, scheduler_name=scheduler)
            each.gone(name)
        if scheduler == STEERED_NAME:  # kube-scheduler's attempt failed, since nobody answered
            each.change("u", nominated_node="")
    leader = lead(following if standby else watching(scene))
    await let_plan(leader)
    assert not leader.asked
    assert leader.bound == {"ns/u": node}
    assert not leader.cleared


@BOTH
async def test_one_victim_has_ended_and_one_not(scheduler: str) -> None:
    """The pod waits for the second one; the first one's room is not given to its replacement."""
    scene = full_nodes(2)
    urgent(scene, "u", 900, scheduler_name=scheduler)
    gone, stays = await evicted(scene, "u")
    node = scene.nominated["ns/u"]
    scene.gone(gone)
    scene.pod("new", 500, scheduler_name=scheduler)
    if scheduler == STEERED_NAME:
        scene.change("u", nominated_node="")
    leader = lead(watching(scene))
    reservation = leader.state.reservations["ns/u"]
    assert (reservation.phase, reservation.victims) == (Phase.AWAITING_VICTIM, (f"ns/{stays}",))
    assert leader.nominated == ({"ns/u": node} if scheduler == STEERED_NAME else {}), "written again if it is lost"
    await let_plan(leader)
    assert not leader.bound
    assert not leader.asked
    leader.gone(stays)
    await let_plan(leader)
    assert leader.bound == {"ns/u": node}
    assert not leader.asked


@pytest.mark.parametrize("takes_over", [False, True], ids=["the same process", "a new process"])
async def test_who_leaves_for_the_limit_of_a_queue_is_gone_first(takes_over: bool) -> None:  # noqa: FBT001
    """Nodes have room and the limit leaves none: the urgent pod is bound once its victim, on another node, is gone."""
    scene = EvictionScene()
    limited = Queue("q", pods=LabelSelector(), namespaces=LabelSelector(), limit=(("cpu", 900),))
    scene.state.apply(ObjectSet(QUEUES, "q", limited))
    scene.node("n0", 850)
    scene.node("n1")
    scene.pod("low", 800, node_name="n0", started=1.0)
    urgent(scene, "u", 900)
    await scene.turn(2)
    assert scene.answer_evictions() == ["low"]
    scene.change("low", deleting=True, grace_period=30.0)
    scene.change("u", nominated_node="n1", planned_node="n1")
    if takes_over:
        scene = watching(scene)
        scene.state.apply(ObjectSet(QUEUES, "q", limited))
        scene.state.sync()
    await let_plan(scene)
    assert not scene.bound
    scene.gone("low")
    await let_plan(scene)
    assert scene.bound == {"ns/u": "n1"}


async def test_each_urgent_pod_of_a_full_queue_costs_it_one_pod() -> None:
    """The second one comes while the first one's victim terminates: both of these count for the limit once."""
    scene = EvictionScene()
    limited = Queue("q", pods=LabelSelector(), namespaces=LabelSelector(), limit=(("cpu", 800),))
    scene.state.apply(ObjectSet(QUEUES, "q", limited))
    scene.node("n0")
    scene.node("n1")
    for number in range(4):
        scene.pod(f"low-{number}", 200, node_name="n0", started=1.0)
    evicted = set[str]()
    for name in ("u", "w"):
        urgent(scene, name, 200)
        await scene.turn(2)
        for victim in set(scene.answer_evictions()) - evicted:
            scene.change(victim, deleting=True, grace_period=30.0)
            evicted.add(victim)
        scene.change(name, nominated_node=scene.nominated[f"ns/{name}"], planned_node=scene.nominated[f"ns/{name}"])
        await let_plan(scene)
    assert len(evicted) == 2
    assert not scene.bound
    for victim in evicted:
        scene.gone(victim)
    await let_plan(scene)
    assert set(scene.bound) == {"ns/u", "ns/w"}


async def replaced_victims(scene: EvictionScene, scheduler: str, *names: str) -> dict[str, str]:
    """Evicts for these pods. Then the victims are gone and their replacements wait; the places that were made.

    kube-scheduler has cleared the status of the nominations, where it does so.
    """
    victims = await evicted(scene, *names)
    places = dict(scene.nominated)
    for name in victims:
        scene.gone(name)
        scene.pod(f"new-{name}", 500, scheduler_name=scheduler)
    if scheduler == STEERED_NAME:
        for name in names:
            scene.change(name, nominated_node="")
    return places


@BOTH
async def test_a_gang_whose_victims_have_ended(scheduler: str) -> None:
    """Each of its pods gets the place that was made for it."""
    scene = full_nodes(3)
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    for name in ("g0", "g1"):
        urgent(scene, name, 900, gang=gang, scheduler_name=scheduler)
    places = await replaced_victims(scene, scheduler, "g0", "g1")
    leader = lead(watching(scene))
    await let_plan(leader)
    assert leader.bound == places
    assert not leader.asked


async def test_a_gang_that_was_not_nominated_as_a_whole() -> None:
    """Nobody was evicted for it: it is planned anew, as a whole."""
    scene = EvictionScene()
    scene.node("n0")
    scene.node("n1")
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    urgent(scene, "g0", 900, gang=gang, nominated_node="n0", planned_node="n0")
    urgent(scene, "g1", 900, gang=gang)
    leader = lead(watching(scene))
    assert not leader.state.held
    assert leader.cleared == ["g0"]


def together(scene: EvictionScene) -> EvictionScene:
    """A constraint of each policy places pods of app=web in one zone, all or none."""
    near = {"name": "near", "together": {"pods": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}}
    steered = {"selects": {"schedulerNames": [STEERED_NAME]}, "delivery": "Extender", "constraints": [near]}
    scene.policies.offer("steered", "u", 2, steered)
    scene.policies.offer("own", "u", 2, {"selects": {"podSelector": {}}, "constraints": [near]})
    return scene


@BOTH
async def test_one_of_pods_that_a_constraint_places_together_or_not_at_all(scheduler: str) -> None:
    """The other one has no nomination, and no room in that zone: neither gets a node."""
    scene = EvictionScene()
    scene.node("n0", labels=(("zone", "a"),))
    scene.node("n1", labels=(("zone", "b"),))
    scene.pod("low", 100, node_name="n1")
    written = "n0" if scheduler == "thalweg" else ""
    web = {"labels": (("app", "web"),), "scheduler_name": scheduler}
    urgent(scene, "u0", 900, nominated_node=written, planned_node="n0", **web)
    urgent(scene, "u1", 900, **web)
    leader = lead(together(watching(scene)))
    await let_plan(leader)
    assert not leader.state.held
    assert not leader.bound


@BOTH
async def test_pods_that_a_constraint_places_together_and_whose_victims_have_ended(scheduler: str) -> None:
    """Both get the places that were made for them, and nobody else is evicted."""
    scene = EvictionScene()
    for node in ("n0", "n1", "n2", "n3"):
        scene.node(node, labels=(("zone", "a" if node < "n2" else "b"),))
        for low in range(2):
            scene.pod(f"{node}-{low}", 500, node_name=node)
    web = {"labels": (("app", "web"),), "scheduler_name": scheduler}
    for name in ("u0", "u1"):
        urgent(scene, name, 900, **web)
    places = await replaced_victims(together(scene), scheduler, "u0", "u1")
    leader = lead(together(watching(scene)))
    await let_plan(leader)
    assert leader.bound == places
    assert not leader.asked


@pytest.mark.parametrize("why", ["nobody has a lower priority", "no room", "in a queue", "preempts nobody", "Binder"])
async def test_an_annotation_alone(why: str) -> None:
    """Whoever creates a pod may write it: it counts only for a pod that may have preempted, and where there is room."""
    scene = EvictionScene()
    scene.node("n0")
    scene.node("n1")
    scene.pod("low", 100, node_name="n1")
    fields: dict[str, Any] = {"scheduler_name": STEERED_NAME, "planned_node": "n0"}
    if why == "nobody has a lower priority":
        scene.pod("u", 900, **fields)
    elif why == "no room":
        scene.pod("full", 500, node_name="n0")
        urgent(scene, "u", 900, **fields)
    elif why == "in a queue":
        urgent(scene, "u", 900, **fields)
    elif why == "preempts nobody":
        urgent(scene, "u", 900, preempts=False, **fields)
    else:
        urgent(scene, "u", 900, planned_node="n0")
    standby = watching(scene)
    if why == "in a queue":
        standby.state.apply(ObjectSet(QUEUES, "q", Queue("q", pods=LabelSelector(), namespaces=LabelSelector())))
    leader = lead(standby)
    assert not leader.state.reservations
    assert [pod.name for pod in leader.state.plannable()] == ["u"]


async def test_an_annotation_where_there_is_room() -> None:
    """Its place is kept until a round confirms it."""
    scene = EvictionScene()
    scene.node("n0")
    scene.node("n1")
    scene.pod("low", 100, node_name="n1")
    urgent(scene, "u", 900, scheduler_name=STEERED_NAME, planned_node="n0")
    leader = lead(watching(scene))
    assert leader.state.held == {"ns/u"}
    assert not leader.state.taken(ClearNomination)


async def test_a_nomination_that_a_standby_saw_come_and_go() -> None:
    """The leader wrote it and cleared it: the place is nobody's."""
    scene = EvictionScene()
    scene.node("n0")
    urgent(scene, "u", 900, nominated_node="n0", planned_node="n0")
    scene.change("u", nominated_node="", planned_node="")
    assert not lead(scene).state.reservations
