"""Our binder beside a kube-scheduler that knows of others' bindings only when its watch shows them.

Nodes are never given more than they have, as seen in the API server, in whatever order things happen.
"""

from collections import Counter, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.world import World

from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

NODES, ROOM = ("a", "b"), 300
NAMES = (SCHEDULER_NAME, STEERED_NAME, "default-scheduler")
SIZES, PRIORITIES = st.sampled_from((100, 100, 200)), st.sampled_from((0, 0, 9))
#: Seconds that a watch is behind at most, and that a binding takes.
LAG = 4.0


def size(pod: Pod) -> int:
    return pod.pod_class.requests[0][1]


class TwoSchedulers(RuleBasedStateMachine):
    """kube-scheduler: its cache of pods, those that it assumes on a node, and the extender's answers."""

    @initialize(pods=st.lists(st.tuples(st.sampled_from(NAMES), SIZES, PRIORITIES), min_size=4, max_size=8))
    def begin(self, pods: list[tuple[str, int, int]]) -> None:
        self.world = World()
        self.number = 0
        #: What kube-scheduler's watch has yet to show: when it happened, a key, and the pod or that it is gone.
        self.coming: deque[tuple[float, str, Pod | None]] = deque()
        self.cache: dict[str, Pod] = {}
        self.assumed: dict[str, tuple[str, float]] = {}
        #: Bindings of ours on their way.
        self.binding: dict[str, tuple[str, str]] = {}
        store = self.world.store

        def store_for_both(key: str, pod: Pod | None) -> None:
            store(key, pod)
            self.coming.append((self.world.now, key, pod))

        self.world.store = store_for_both  # type: ignore[method-assign]
        for pod in pods:
            self.comes(*pod)
        self.world.see()
        self.it_sees(len(pods))

    def _keys(self) -> list[str]:
        return sorted(self.world.api)

    @rule(name=st.sampled_from(NAMES), cpu=SIZES, priority=PRIORITIES)
    def comes(self, name: str, cpu: int, priority: int) -> None:
        self.number += 1
        pod_class = PodClass(requests=(("cpu", cpu),), priority=priority)
        self.world.pod(f"p{self.number}", f"u{self.number}", pod_class=pod_class, scheduler_name=name)

    @precondition(lambda self: self.world.api)
    @rule(at=st.integers(0, 9))
    def goes(self, at: int) -> None:
        keys = self._keys()
        self.world.store(keys[at % len(keys)], None)

    @rule(most=st.integers(1, 5))
    def we_see(self, most: int) -> None:
        self.world.see(most)

    @rule(most=st.integers(1, 5))
    def it_sees(self, most: int) -> None:
        while self.coming and most:
            most -= 1
            _, key, pod = self.coming.popleft()
            if pod is None:
                self.cache.pop(key, None)
                self.assumed.pop(key, None)
            else:
                self.cache[key] = pod
                if pod.node_name:
                    self.assumed.pop(key, None)

    @precondition(lambda self: self.world.state.waiting)
    @rule(at=st.integers(0, 9), node=st.sampled_from(NODES))
    def we_plan(self, at: int, node: str) -> None:
        keys = sorted(self.world.state.waiting)
        pod = self.world.state.waiting[keys[at % len(keys)]]
        if pod.scheduler_name == STEERED_NAME:
            self.world.plan(pod.key, node)
        elif pod.scheduler_name == SCHEDULER_NAME and self.world.state.reserve(pod, node):
            self.binding[pod.key] = pod.uid, node

    @precondition(lambda self: self.binding)
    @rule(at=st.integers(0, 9), fails=st.booleans())
    def our_binding_ends(self, at: int, fails: bool) -> None:  # noqa: FBT001
        keys = sorted(self.binding)
        key = keys[at % len(keys)]
        uid, node = self.binding.pop(key)
        pod = self.world.api.get(key)
        if fails or pod is None or pod.uid != uid:
            self.world.state.release(key, uid)
        else:
            self.world.change(key, node_name=node, usage=pod.pod_class.requests)

    @precondition(lambda self: self.world.writes)
    @rule(at=st.integers(0, 5))
    def we_write(self, at: int) -> None:
        self.world.carry_out(at % len(self.world.writes))

    @precondition(lambda self: self.world.api)
    @rule(at=st.integers(0, 9), node=st.sampled_from(("", *NODES)))
    def others_nominate(self, at: int, node: str) -> None:
        keys = self._keys()
        pod = self.world.api[keys[at % len(keys)]]
        if not pod.node_name:
            self.world.change(pod.key, nominated=node)

    def _fits(self, pod: Pod, node: str) -> bool:
        """kube-scheduler's own filter, by what it knows."""
        taken = size(pod)
        for key, other in self.cache.items():
            here = other.node_name or self.assumed.get(key, ("",))[0]
            promised = (
                not here
                and key != pod.key
                and other.scheduler_name != SCHEDULER_NAME
                and other.nominated == node
                and other.pod_class.priority >= pod.pod_class.priority
            )
            if here == node or promised:
                taken += size(other)
        return taken <= ROOM

    @precondition(lambda self: self.cache)
    @rule(at=st.integers(0, 9), choice=st.integers(0, 2))
    def it_tries(self, at: int, choice: int) -> None:
        keys = sorted(
            key for key, pod in self.cache.items()
            if not pod.node_name and key not in self.assumed and pod.scheduler_name != SCHEDULER_NAME
        )  # fmt: skip
        if not keys:
            return
        pod = self.cache[keys[at % len(keys)]]
        fits = [node for node in NODES if self._fits(pod, node)]
        asked = self.world.asked(pod.key, pod)
        passed: list[str] = []
        if pod.nominated in fits:
            passed = self.world.ask(asked, [pod.nominated])[1]
        if not passed and fits:
            passed = self.world.ask(asked, fits)[1]
        if passed:
            self.assumed[pod.key] = passed[choice % len(passed)], self.world.now
        else:
            self._it_erases(pod.key)

    def _it_erases(self, key: str) -> None:
        if key in self.world.api and not self.world.api[key].node_name:
            self.world.change(key, nominated="", told="held")

    @precondition(lambda self: self.assumed)
    @rule(at=st.integers(0, 9), fails=st.booleans())
    def its_binding_ends(self, at: int, fails: bool) -> None:  # noqa: FBT001
        keys = sorted(self.assumed)
        self._bind(keys[at % len(keys)], fails=fails)

    def _bind(self, key: str, *, fails: bool = False) -> None:
        node, _ = self.assumed[key]
        pod, known = self.world.api.get(key), self.cache.get(key)
        if pod is None or known is None or pod.uid != known.uid or pod.node_name or fails:
            del self.assumed[key]
            self._it_erases(key)
        else:
            # Assumed until its watch shows it.
            self.world.change(key, node_name=node, usage=pod.pod_class.requests)

    @rule(seconds=st.sampled_from((0.2, 1.0, 3.0, 15.0)))
    def time_passes(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds))):
            self.world.now += min(seconds, 1.0)
            for key, (_, since) in list(self.assumed.items()):
                if self.world.now - since > LAG:
                    self._bind(key) if not self.world.api.get(key, Pod("", "", "", PodClass())).node_name else None
            if self.coming and self.world.now - self.coming[0][0] > LAG:
                self.it_sees(1000)
            if self.world.watch:
                self.world.see()
            self.world.steering.look_after()

    @invariant()
    def nothing_is_overcommitted(self) -> None:
        taken: Counter[str] = Counter()
        for pod in self.world.api.values() if hasattr(self, "world") else ():
            if pod.node_name:
                taken[pod.node_name] += size(pod)
        assert all(amount <= ROOM for amount in taken.values()), taken


TwoSchedulers.TestCase.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
TestTwoSchedulers = TwoSchedulers.TestCase
