"""Moves for gain over the real ledger, with pods that take their time to end: nobody leaves in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.fake_cluster.eviction_scene import EvictionScene
from support.profiles import examples

#: Node and cpu of each pod of a cluster.
Pods = Sequence[tuple[int, int]]


@dataclass
class Cluster:
    """A cluster whose only policy moves for gain; pods that leave end after a grace period, and are replaced at once.

    Attributes:
        grace: seconds.
        ends: when each pod that leaves is gone, by name.
        evicted: names of the pods that were evicted.
    """

    grace: float
    scene: EvictionScene = field(default_factory=lambda: EvictionScene(now=1e6))
    ends: dict[str, float] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)

    def offer(self, model: str, min_gain: int) -> None:
        """The policy that moves all pods."""
        price = {"startup": "5s", "lostWork": "Ignore"}
        moves = {"mode": "Act", "minAge": "0s", "reasons": ["Gain"], "minGain": min_gain, "price": price}
        spec = {"selects": {"podSelector": {}}, "cost": {"model": model}, "rescheduling": moves}
        self.scene.policies.offer("own", "u", 2, spec)

    def run(self, cpu: int, **fields: object) -> str:
        """A new pod of a Deployment, which has one for each size."""
        name = f"p{next(self.numbers)}"
        self.scene.pod(name, cpu, **{"owner": f"deployment-{cpu}", "started": 1.0, "created": 1.0, **fields})
        return name

    def delete(self, name: str) -> None:
        """The pod ends once its grace period is over."""
        if self.grace:
            self.scene.change(name, deleting=True)
        self.ends[name] = self.scene.now + self.grace

    async def settle(self) -> None:
        """Rounds each five seconds, until nothing happens any more."""
        scene, quiet = self.scene, 0
        while quiet < 2:
            quiet = quiet + 1 if not (self._end_some() or self._start_some() or self.ends) else 0
            await scene.loop._round()
            scene.tick()
            leaving = [name for name in scene.evictions() if name not in self.ends]
            scene.end_evictions()
            for name in leaving:
                self.delete(name)
            self.evicted += leaving
            quiet = 0 if leaving or scene.bound else quiet
            scene.now += 5

    def _end_some(self) -> bool:
        due = [name for name, time in self.ends.items() if time <= self.scene.now]
        for name in due:
            pod = self.scene.state.pods[f"ns/{name}"]
            self.scene.gone(name)
            del self.ends[name]
            if name in self.evicted:
                asked = {"pod_class": pod.pod_class, "usage": pod.usage}
                self.run(dict(pod.usage)["cpu"], started=0.0, created=self.scene.now, **asked)
        return bool(due)

    def _start_some(self) -> bool:
        bound, self.scene.bound = self.scene.bound, {}
        for key, node in bound.items():
            self.scene.change(key.partition("/")[2], node_name=node, started=self.scene.now)
        return bool(bound)


def evictions(model: str, min_gain: int, nodes: Sequence[int], pods: Pods, scaled_down: Pods, grace: float) -> int:
    """How many pods leave until nothing moves any more.

    Args:
        nodes: cpu of each.
        scaled_down: pods that are deleted as it begins.
        grace: seconds that each pod takes to end.
    """

    async def count_them() -> int:
        cluster = Cluster(grace)
        cluster.offer(model, min_gain)
        for place, cpu in enumerate(nodes):
            cluster.scene.node(f"n{place}", cpu)
        for place, cpu in pods:
            cluster.run(cpu, node_name=f"n{place}")
        for place, cpu in scaled_down:
            cluster.delete(cluster.run(cpu, node_name=f"n{place}", immovable_reason="stays"))
        await cluster.settle()
        return len(cluster.evicted)

    return asyncio.run(count_them())


@pytest.mark.parametrize("grace", [0, 30])
def test_as_many_leave_as_it_takes(grace: float) -> None:
    """Two of four pods leave a crowded node, and the others stay while these end."""
    assert evictions("CPUMemory", 100, [1000] * 3, [(0, 200)] * 4, [], grace) == 2


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[int], Pods, Pods]:
    """Nodes, pods that run, and pods that are deleted."""
    nodes = draw(st.lists(st.sampled_from([600, 1000, 1400]), min_size=2, max_size=4))
    sizes, left = draw(st.sampled_from([[100], [200], [100, 200], [100, 250]])), list(nodes)

    def some(most: int) -> Pods:
        pods = []
        for place, cpu in draw(
            st.lists(st.tuples(st.integers(0, len(nodes) - 1), st.sampled_from(sizes)), max_size=most)
        ):
            if cpu <= left[place]:
                left[place] -= cpu
                pods.append((place, cpu))
        return pods

    return nodes, some(9), some(3)


#: A pod that ends hides the best node, or weighs on the home of those that had to go first.
HIDDEN = ([1400, 1400, 1000], [(2, 200)] * 5 + [(1, 200)] * 4, [(0, 200)])
WEIGHED = ([600, 1400, 1000, 1400], [(place, 100) for place in (1, 3, 2, 1, 2, 3, 1, 0, 3)], [(2, 100)])


@given(st.sampled_from(["CPUMemory", "LoadSpreading", "BinPacking"]), st.sampled_from([1, 20, 100]), clusters())
@example("CPUMemory", 100, HIDDEN)
@example("BinPacking", 20, WEIGHED)
@settings(max_examples=examples(20))
def test_nobody_leaves_in_vain(model: str, min_gain: int, drawn: tuple[list[int], Pods, Pods]) -> None:
    """However long pods take to end, as few leave as if they were gone at once."""
    nodes, pods, scaled_down = drawn
    slow, quick = (evictions(model, min_gain, nodes, pods, scaled_down, grace) for grace in (30, 0))
    assert slow <= quick
