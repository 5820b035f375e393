"""Our binder beside a kube-scheduler that knows of others' bindings only when its watch shows them.

Nodes are never given more than they have, as seen in the API server, in whatever order things happen. Drawn by seed and
not by hypothesis: it takes a dozen steps that fit together to find such a hole, and thousands of histories.
"""

import random
from collections import Counter, deque

import pytest
from support.fake_cluster.cluster import asked
from support.fake_cluster.steered import SteeredCluster
from thalweg_operator.reservations.events import Event, PodPut, PodRemoved

from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

NODES, ROOM = ("a", "b"), 300
NAMES = (SCHEDULER_NAME, STEERED_NAME, "default-scheduler")
#: Seconds that a watch is behind at most, and that a binding takes.
LAG = 4.0


def size(pod: Pod) -> int:
    return pod.pod_class.requests[0][1]


class Both:
    """The world, and a kube-scheduler: its cache of pods, and those that it assumes on a node."""

    def __init__(self, seed: int) -> None:
        self.draw, self.world = random.Random(seed), SteeredCluster()
        #: What kube-scheduler's watch has yet to show, and when it happened.
        self.coming: deque[tuple[float, Event]] = deque()
        self.cache: dict[str, Pod] = {}
        self.assumed: dict[str, tuple[str, float]] = {}
        #: Bindings of ours on their way.
        self.binding: dict[str, tuple[str, str]] = {}
        self.world.shell.checked = False
        publish = self.world.publish

        def publish_to_both(event: Event) -> None:
            publish(event)
            self.coming.append((self.world.now, event))

        self.world.publish = publish_to_both  # type: ignore[method-assign]
        for number in range(8):
            self.comes(number)
        self.world.show()
        self.it_sees(8)
        self.actions = [
            lambda: self.world.show(self.draw.randint(1, 5)),
            lambda: self.it_sees(self.draw.randint(1, 5)),
            *[self.we_plan, self.it_tries] * 2,
            *(self.our_binding_ends, self.we_write, self.its_binding_ends),
            lambda: self.draw.random() < 0.2 and self.time_passes(),
            lambda: self.draw.random() < 0.2 and self.others_nominate(),
            lambda: self.draw.random() < 0.2 and self.goes(),
        ]

    def comes(self, number: int) -> None:
        pod_class = PodClass(
            requests=(("cpu", self.draw.choice((100, 100, 200))),), priority=self.draw.choice((0, 0, 9))
        )
        self.world.pod(f"p{number}", f"u{number}", pod_class=pod_class, scheduler_name=self.draw.choice(NAMES))

    def goes(self) -> None:
        if self.world.api:
            self.world.remove_pod(self.draw.choice(sorted(self.world.api)))

    def it_sees(self, most: int) -> None:
        while self.coming and most:
            most -= 1
            _, event = self.coming.popleft()
            match event:
                case PodRemoved(key=key):
                    self.cache.pop(key, None)
                    self.assumed.pop(key, None)
                case PodPut(pod=pod):
                    self.cache[pod.key] = pod
                    if pod.node_name:
                        self.assumed.pop(pod.key, None)

    def we_plan(self) -> None:
        if not self.world.state.waiting:
            return
        pod = self.world.state.waiting[self.draw.choice(sorted(self.world.state.waiting))]
        node = self.draw.choice(NODES)
        if pod.scheduler_name == STEERED_NAME:
            self.world.plan_pod(pod.key, node)
        elif pod.scheduler_name == SCHEDULER_NAME and self.world.bind(pod.key, node):
            self.binding[pod.key] = pod.uid, node

    def our_binding_ends(self) -> None:
        if not self.binding:
            return
        key = self.draw.choice(sorted(self.binding))
        uid, node = self.binding.pop(key)
        pod = self.world.api.get(key)
        if pod is None or self.draw.random() < 0.2:
            self.world.state.release(key, uid)
        else:
            self.world.change_pod(key, node_name=node, usage=pod.pod_class.requests)

    def we_write(self) -> None:
        if self.world.writes:
            self.world.send(self.draw.randrange(len(self.world.writes)))

    def others_nominate(self) -> None:
        waiting = sorted(key for key, pod in self.world.api.items() if not pod.node_name)
        if waiting:
            self.world.change_pod(self.draw.choice(waiting), nominated_node=self.draw.choice(("", *NODES)))

    def fits(self, pod: Pod, node: str) -> bool:
        """kube-scheduler's own filter, by what it knows."""
        taken = size(pod)
        for key, other in self.cache.items():
            here = other.node_name or self.assumed.get(key, ("",))[0]
            promised = (
                not here
                and key != pod.key
                and other.scheduler_name != SCHEDULER_NAME
                and other.nominated_node == node
                and other.pod_class.priority >= pod.pod_class.priority
            )
            if here == node or promised:
                taken += size(other)
        return taken <= ROOM

    def it_tries(self) -> None:
        keys = [
            key
            for key, pod in sorted(self.cache.items())
            if not pod.node_name and key not in self.assumed and pod.scheduler_name != SCHEDULER_NAME
        ]
        if not keys:
            return
        pod = self.cache[self.draw.choice(keys)]
        fits = [node for node in NODES if self.fits(pod, node)]
        passed: list[str] = []
        if pod.nominated_node in fits:
            passed = self.world.filter(asked(pod), [pod.nominated_node])[1]
        if not passed and fits:
            passed = self.world.filter(asked(pod), fits)[1]
        if passed:
            self.assumed[pod.key] = self.draw.choice(passed), self.world.now
        else:
            self.it_erases(pod.key)

    def it_erases(self, key: str) -> None:
        if key in self.world.api and not self.world.api[key].node_name:
            self.world.change_pod(key, nominated_node="", unschedulable_message="held")

    def its_binding_ends(self) -> None:
        if self.assumed:
            self.bind(self.draw.choice(sorted(self.assumed)), fails=self.draw.random() < 0.2)

    def bind(self, key: str, *, fails: bool = False) -> None:
        pod = self.world.api.get(key)
        if pod is not None and pod.node_name:
            return  # bound, and assumed until its watch shows that
        if pod is None or fails:
            del self.assumed[key]
            self.it_erases(key)
        else:
            self.world.change_pod(key, node_name=self.assumed[key][0], usage=pod.pod_class.requests)

    def time_passes(self) -> None:
        for _ in range(self.draw.choice((1, 3, 15))):
            self.world.now += 1
            for key, (_, since) in list(self.assumed.items()):
                if self.world.now - since > LAG:
                    self.bind(key)
            if self.coming and self.world.now - self.coming[0][0] > LAG:
                self.it_sees(1000)
            self.world.show()
            self.world.look_after()

    def check(self) -> None:
        taken: Counter[str] = Counter()
        for pod in self.world.api.values():
            if pod.node_name:
                taken[pod.node_name] += size(pod)
        assert all(amount <= ROOM for amount in taken.values()), taken


@pytest.mark.parametrize("seeds", [300, pytest.param(1_500, marks=pytest.mark.slow)])
def test_nothing_is_overcommitted(seeds: int) -> None:
    """Bound by us, steered and unmanaged pods, nominations by others, deletions and failed bindings in any order."""
    for seed in range(seeds):
        both = Both(seed)
        for _ in range(40):
            both.draw.choice(both.actions)()
            both.check()
