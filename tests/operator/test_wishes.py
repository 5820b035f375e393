"""status.nominatedNodeName that others wrote: a wish of a pod that we bind, a reservation of one that others bind."""

import msgspec
import pytest
from support.fake_cluster.eviction_scene import EvictionScene
from thalweg_operator.planning.quarantine import Quarantine
from thalweg_operator.reservations.effects import RequestRound
from thalweg_operator.reservations.events import PodPut
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.step.advance import advance

from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import STEERED_NAME


def scene_of(*names: str) -> EvictionScene:
    scene = EvictionScene()
    for name in names:
        scene.node(name)
    scene.state.sync()
    return scene


async def test_a_pod_of_ours_is_planned_on_that_node() -> None:
    """Nothing is reserved for it before."""
    scene = scene_of("a", "b", "c")
    scene.pod("old", 500, node_name="c")
    scene.pod("p", 100, nominated_node="c")
    assert not scene.state.reservations
    await scene.turn()
    assert scene.bound == {"ns/p": "c"}


@pytest.mark.parametrize("node", ["gone", "full"])
async def test_or_on_any_other(node: str) -> None:
    """The node is not there, or has no room."""
    scene = scene_of("a", "full")
    scene.pod("old", 1000, node_name="full")
    scene.pod("p", 100, nominated_node=node)
    await scene.turn()
    assert scene.bound == {"ns/p": "a"}


async def test_one_that_waits_for_room_gets_it_whatever_is_written() -> None:
    """A node comes with the room that it needs, which is not the one of its nomination."""
    scene = scene_of("a")
    scene.pod("big", 2000)
    await scene.turn()
    assert "Insufficient cpu" in scene.told["big"]
    scene.change("big", nominated_node="elsewhere")
    scene.node("b", 4000)
    await scene.turn()
    assert scene.bound == {"ns/big": "b"}


async def test_a_nomination_that_flaps_asks_for_no_round() -> None:
    """Each write is one event, and nobody is planned for it; pods that others bind move their room."""
    scene = scene_of("a", "b")
    for name, scheduler in (("big", "thalweg"), ("theirs", "default-scheduler")):
        scene.pod(name, 2000, scheduler_name=scheduler)
    scene.policies.offer("own", "u", 2, {"selects": {"schedulerNames": ["thalweg"]}})
    await scene.turn()
    for number in range(20):
        for name in ("big", "theirs"):
            pod = scene.state.pods[f"ns/{name}"]
            assert asked(scene, msgspec.structs.replace(pod, nominated_node=("a", "b", "gone")[number % 3])) == []
    assert list(scene.state.reservations) == ["ns/theirs"]


def asked(scene: EvictionScene, pod: Pod) -> list[RequestRound]:
    """The rounds that a change of a pod asks for, room on no node aside."""
    effects = advance(scene.state.shell.state, PodPut(pod), scene.now)
    rounds = [each for each in effects if isinstance(each, RequestRound)]
    assert not any(each.at_once for each in rounds)
    return [each for each in rounds if not each.freed]


@pytest.mark.parametrize("scheduler", [STEERED_NAME, "default-scheduler"])
async def test_pods_that_others_bind_keep_the_room(scheduler: str) -> None:
    """As before: nobody else gets it, and it moves with the nomination."""
    scene = scene_of("a", "b")
    scene.policies.offer("own", "u", 2, {"selects": {"schedulerNames": ["thalweg"]}})
    scene.pod("theirs", 1000, scheduler_name=scheduler, nominated_node="a")
    scene.pod("p", 600)
    assert scene.state.reservations["ns/theirs"].owner is Owner.OTHERS
    await scene.turn()
    assert scene.bound == {"ns/p": "b"}
    scene.change("theirs", nominated_node="b")
    assert scene.state.reservations["ns/theirs"].node == "b"
    scene.change("theirs", nominated_node="")
    assert "ns/theirs" not in scene.state.reservations


async def test_a_policy_that_changes_who_binds() -> None:
    """The nomination that stands becomes a wish, or a reservation."""
    scene = scene_of("a")
    selects = {"schedulerNames": ["mine"]}
    scene.pod("p", 100, scheduler_name="mine", nominated_node="a")
    for number, delivery in enumerate(("Observe", "Binder", "Observe", "Binder")):
        scene.policies.offer("some", "u", number, {"selects": selects, "delivery": delivery})
        assert [each.phase for each in scene.state.reservations.values()] == [Phase.FOREIGN] * (delivery == "Observe")
    await scene.turn()
    assert scene.bound == {"ns/p": "a"}


async def test_a_namespace_that_says_late_who_binds() -> None:
    """Until then no policy governs the pod."""
    scene = scene_of("a")
    selects = {"schedulerNames": ["mine"], "namespaceSelector": {"matchLabels": {"team": "x"}}}
    scene.policies.offer("some", "u", 1, {"selects": selects})
    scene.pod("p", 100, nominated_node="a", scheduler_name="mine")
    assert scene.state.reservations["ns/p"].phase is Phase.FOREIGN
    scene.state.set_namespace("ns", (("team", "x"),))
    assert not scene.state.reservations
    await scene.turn()
    assert scene.bound == {"ns/p": "a"}


async def test_nobody_else_leaves_while_pods_leave_that_node_already() -> None:
    """As kube-scheduler has it (PodEligibleToPreemptOthers)."""
    scene = scene_of("a", "b")
    for name in ("a", "b"):
        scene.pod(f"on-{name}", 1000, node_name=name, deleting=name == "b", grace_period=30.0)
    urgent = PodClass(requests=(("cpu", 800),), priority=1000)
    scene.pod("u", 800, pod_class=urgent, nominated_node="b")
    await scene.turn(3)
    assert scene.evictions() == []
    assert scene.bound == {}
    scene.gone("on-b")
    await scene.turn()
    assert scene.bound == {"ns/u": "b"}


def test_pods_with_other_wishes_are_lots_of_their_own() -> None:
    """A round plans them apart: where that takes long, the namespaces take turns."""
    scene = scene_of("a")
    pods = [scene.pod(f"p{number}", 100, nominated_node=node) for number, node in enumerate(("a", "a", "b", ""))]
    quarantine = Quarantine(scene.state.cluster.gangs.first_in_group)
    assert len({quarantine.class_key(pod) for pod in pods}) == 3
