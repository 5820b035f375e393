"""Any history of refused bindings: a gang whose bindings are refused, lost or late is whole or absent at rest."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.cluster import FakeCluster
from support.profiles import examples
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.step.bindings import KEPT_TRIES

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import SCHEDULER_NAME, Delivery, Policy

SMALL = PodClass(requests=(("cpu", 100),))
ANSWERS = {
    "201": (Answer.DONE, ""),
    "409": (Answer.REFUSED, "made up"),
    "404": (Answer.REFUSED, ""),
    "429": (Answer.RETRYING, "made up"),
}
statuses = st.sampled_from(list(ANSWERS))
MOST_SINGLES = 4
LONGEST_PAUSE = 60.0


class GangMachine(RuleBasedStateMachine):
    """Gangs and pods by themselves want the same room; the API server refuses bindings, and watches lag."""

    @initialize(
        rooms=st.lists(st.integers(1, 3), min_size=1, max_size=3), sizes=st.lists(st.integers(2, 3), max_size=3)
    )
    def begin(self, rooms: list[int], sizes: list[int]) -> None:
        nodes = [Node(f"n{at}", allocatable=(("cpu", 100 * room), ("pods", 10))) for at, room in enumerate(rooms)]
        self.world = FakeCluster(nodes, [Policy("bound", delivery=Delivery.BINDER)])
        self.sizes: dict[str, int] = {}
        self.singles = 0
        #: How often a binding of each pod was refused after its gang had begun.
        self.refused: Counter[str] = Counter()
        for size in (2, *sizes):
            self.gang_comes(size)
        self.world.show()

    @precondition(lambda self: len(self.sizes) < 5)
    @rule(size=st.integers(2, 3))
    def gang_comes(self, size: int) -> None:
        name = f"g{len(self.sizes)}"
        self.sizes[name] = size
        gang = GangRef(GangKey(GangSource.THALWEG, NAMESPACE, name), GangSpec(min_member=size))
        for at in range(size):
            self.world.create_pod(f"{name}-{at}", pod_class=SMALL, scheduler_name=SCHEDULER_NAME, gang=gang)

    @precondition(lambda self: self.singles < MOST_SINGLES)
    @rule()
    def pod_comes(self) -> None:
        self.singles += 1
        self.world.create_pod(f"single-{self.singles}", pod_class=SMALL, scheduler_name=SCHEDULER_NAME)

    @precondition(lambda self: self.world.watch)
    @rule(count=st.sampled_from((1, 2, 100)))
    def watch_shows(self, count: int) -> None:
        self.world.show(count)

    @precondition(lambda self: self.world.plan is None)
    @rule(count=st.sampled_from((1, 100)))
    def round_plans(self, count: int) -> None:
        self.world.make_plan()
        self.world.deliver(count)

    @precondition(lambda self: self.world.plan is not None)
    @rule()
    def plan_goes_on(self) -> None:
        self.world.deliver(1)

    @precondition(lambda self: self.world.writes)
    @rule(at=st.integers(0, 8), status=statuses, lost=st.sampled_from((False, False, True)))
    def binding_is_sent(self, at: int, status: str, lost: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        self._send(at % len(self.world.writes), status, lost=lost)

    @rule(drawn=st.lists(statuses, min_size=1, max_size=6), comes=st.booleans())
    def bindings_of_a_round_are_sent(self, drawn: list[str], comes: bool) -> None:  # noqa: FBT001
        """Each is answered once; then another pod may come, and want the room that was given back."""
        self.world.show()
        self.round_plans(100)
        for status in drawn[: len(self.world.writes)]:
            self._send(0, status)
        if comes and self.singles < MOST_SINGLES:
            self.pod_comes()

    def _send(self, at: int, status: str, *, lost: bool = False) -> None:
        world, (answer, reason) = self.world, ANSWERS[status]
        write = world.writes[at]
        siblings = [pod for pod in world.api.values() if pod.gang == write.pod.gang]
        if answer is Answer.REFUSED and not lost and not world.api[write.pod.key].node_name:
            self.refused[write.pod.key] += any(pod.node_name for pod in siblings)
        world.send(at, answer, reason=reason, lost=lost)

    @rule(seconds=st.sampled_from((0.2, 1.0, 5.0, 20.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    def teardown(self) -> None:
        """The faults end, and everything comes to rest."""
        if not hasattr(self, "world"):
            return
        world = self.world
        placed = True
        while placed or world.ledger.reservations:
            world.settle()
            world.pass_time(LONGEST_PAUSE)
            world.settle()
            world.make_plan()
            placed = world.plan is not None and bool(world.plan.placements)
            world.settle()
        bound: dict[str, int] = defaultdict(int)
        for pod in world.api.values():
            bound[pod.name.partition("-")[0]] += bool(pod.node_name)
        for name, size in self.sizes.items():
            refused = max(self.refused[f"{NAMESPACE}/{name}-{at}"] for at in range(size))
            assert bound[name] in (0, size) or refused > KEPT_TRIES, f"{name} has {bound[name]} of {size} pods"


GangMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=12)
TestGangMachine = GangMachine.TestCase
