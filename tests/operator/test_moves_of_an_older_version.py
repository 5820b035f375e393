"""An operator begins where an older one moved pods one after the other, each to room that the one before it left.

No such plan is made any more. The older one has written down nothing but nominations, and pods that it evicted.
"""

from collections.abc import Callable

import pytest
from support.fake_cluster.eviction_scene import EvictionScene
from thalweg_operator.reservations.ledger.feasibility import holds
from thalweg_operator.reservations.ledger.transitions import Phase

from flowcore.model.policies import STEERED_NAME

BOTH = pytest.mark.parametrize("scheduler", ["thalweg", STEERED_NAME])


class Scene(EvictionScene):
    """``db-1`` was to go from b to c, then ``web-1`` from a to b, and then ``large`` was to come to a: it is nominated.

    Attributes:
        evicted: names of the pods that were evicted since this operator began.
    """

    def __init__(self, scheduler: str, left: Callable[["Scene"], object]) -> None:
        super().__init__()
        self.scheduler, self.evicted = scheduler, list[str]()
        act = {"mode": "Act", "minAge": "0s"}
        everybody = {"podSelector": {}}
        steered = {"schedulerNames": [STEERED_NAME]}
        self.policies.offer("own", "u", 2, {"selects": everybody, "rescheduling": act})
        self.policies.offer("steered", "u", 2, {"selects": steered, "delivery": "Extender", "rescheduling": act})
        for name, cpu in (("a", 1000), ("b", 600), ("c", 300)):
            self.node(name, cpu)
        self.owned("web-1", 500, node_name="a")
        self.owned("db-1", 300, node_name="b")
        self.owned("large", 800, nominated_node="a", planned_node="a")
        left(self)
        self.state.sync()

    def owned(self, name: str, cpu: int, **fields: object) -> None:
        """A pod of a controller, which makes another one when it leaves."""
        self.pod(name, cpu, owner=name.partition("-")[0], scheduler_name=self.scheduler, **fields)

    async def live(self, rounds: int = 6) -> None:
        """Rounds; whom the API server evicts is gone before the next one, and who is bound runs."""
        for _ in range(rounds):
            await self.turn(1)
            for call in self.dry_runs():
                call.done()
            self.tick()
            for name in self.evictions():
                self.evicted.append(name)
                cpu = dict(self.state.pods[f"ns/{name}"].pod_class.requests)["cpu"]
                self.change(name, deleting=True)
                self.owned(f"{name.partition('-')[0]}-2", cpu)
                self.gone(name)
            self.asked.clear()
            for name in self.cleared:
                self.change(name, nominated_node="", planned_node="")
            self.cleared.clear()
            for key, each in self.state.reservations.items():
                if each.phase is Phase.NOMINATED and holds(self.state.cluster, self.state.ledger, key):
                    self.bound.setdefault(key, each.node)  # kube-scheduler follows a nomination where there is room
            for key, node in self.bound.items():
                name = key.partition("/")[2]
                if not self.state.pods[key].node_name:
                    self.change(name, node_name=node, nominated_node="", planned_node="")
            self.now += 3.0

    @property
    def nodes(self) -> dict[str, str]:
        """Node of each pod; "": it waits."""
        return {pod.name: pod.node_name for pod in self.state.pods.values()}


def first_has_left(scene: Scene) -> None:
    scene.gone("db-1")
    scene.owned("db-2", 300)


def first_is_replaced(scene: Scene) -> None:
    first_has_left(scene)
    scene.change("db-2", node_name="c")


def second_leaves(scene: Scene) -> None:
    first_is_replaced(scene)
    scene.change("web-1", deleting=True)


def second_has_left(scene: Scene) -> None:
    first_is_replaced(scene)
    scene.gone("web-1")
    scene.owned("web-2", 500)


@BOTH
async def test_nobody_had_left(scheduler: str) -> None:
    """Nobody does: the nomination is given up, and the pod waits."""
    scene = Scene(scheduler, lambda _scene: None)
    await scene.live()
    assert not scene.evicted
    assert scene.nodes == {"web-1": "a", "db-1": "b", "large": ""}
    assert not scene.state.reservations


@BOTH
@pytest.mark.parametrize("deleting", [True, False], ids=["leaves", "has left"])
async def test_the_first_leaves(scheduler: str, *, deleting: bool) -> None:
    """While it does nobody else is evicted. Then its replacement gets a node, and nobody leaves in vain."""
    scene = Scene(scheduler, (lambda scene: scene.change("db-1", deleting=True)) if deleting else first_has_left)
    if deleting:
        await scene.live(3)
        assert not scene.evicted
        first_has_left(scene)
    await scene.live(12)
    assert scene.evicted == ([] if scene.nodes["large"] == "" else ["web-1"])
    assert "" not in {node for name, node in scene.nodes.items() if name != "large"}
    assert not scene.state.reservations


@BOTH
async def test_the_first_is_replaced(scheduler: str) -> None:
    """The second one moves as any pod does, and the large one comes."""
    scene = Scene(scheduler, first_is_replaced)
    await scene.live(12)
    assert scene.evicted == ["web-1"]
    assert scene.nodes == {"db-2": "c", "web-2": "b", "large": "a"}
    assert not scene.state.reservations


@BOTH
@pytest.mark.parametrize("deleting", [True, False], ids=["leaves", "has left"])
async def test_the_second_leaves(scheduler: str, *, deleting: bool) -> None:
    """The nomination says who comes once it has left: nobody else gets the room, and nobody else is evicted."""
    scene = Scene(scheduler, second_leaves if deleting else second_has_left)
    if deleting:
        await scene.live(3)
        assert not scene.evicted
        assert scene.nodes["large"] == ""
        scene.gone("web-1")
        scene.owned("web-2", 500)
    await scene.live()
    assert not scene.evicted
    assert scene.nodes == {"db-2": "c", "web-2": "b", "large": "a"}
    assert not scene.state.reservations
