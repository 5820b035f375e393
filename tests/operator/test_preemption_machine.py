"""Any history of preemption: nobody leaves in vain, a gang comes whole or not at all, and everything comes to rest.

``support.ledger_checks`` looks at each eviction that the API server carries out: it is for pods with reservations, of a
higher priority, and all other victims of their group leave too.
"""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.cluster import FakeCluster
from support.profiles import examples
from thalweg_operator.reservations.events import Answer

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import SCHEDULER_NAME, Delivery, Policy

SIZES = (100, 200, 300)
URGENT = 1000
MOST_URGENT = 5
LONGEST_PAUSE = 60.0
answers = st.sampled_from((Answer.DONE, Answer.DONE, Answer.DONE, Answer.REFUSED, Answer.RETRYING))
sizes = st.sampled_from(SIZES)


def sized(cpu: int, priority: int) -> PodClass:
    """A class of pods."""
    return PodClass(requests=(("cpu", cpu),), priority=priority)


class PreemptionMachine(RuleBasedStateMachine):
    """Nodes full of pods of low priority, urgent pods and gangs; evictions are refused, lost, or take long."""

    @initialize(rooms=st.lists(st.integers(2, 4), min_size=1, max_size=3), first=st.lists(sizes, min_size=2))
    def begin(self, rooms: list[int], first: list[int]) -> None:
        nodes = [Node(f"n{at}", allocatable=(("cpu", 100 * room), ("pods", 10))) for at, room in enumerate(rooms)]
        self.world = FakeCluster(nodes, [Policy("bound", delivery=Delivery.BINDER)])
        self.free = {node.name: dict(node.allocatable)["cpu"] for node in nodes}
        self.rooms = dict(self.free)
        for at, cpu in enumerate(first):
            self.low_pod_runs(f"n{at % len(nodes)}", cpu)
        self.gangs: dict[str, int] = {}
        self.urgent = 0
        self.world.show()

    def low_pod_runs(self, node: str, cpu: int) -> None:
        """A pod of another scheduler, of priority 0 to 2."""
        if self.free[node] >= cpu:
            self.free[node] -= cpu
            pod_class = sized(cpu, cpu // 100 - 1)
            name = f"low-{node}-{self.free[node]}"
            self.world.create_pod(
                name, pod_class=pod_class, scheduler_name="x", node_name=node, usage=pod_class.requests
            )

    @precondition(lambda self: self.urgent < MOST_URGENT)
    @rule(cpu=sizes, members=st.sampled_from((0, 0, 2, 3)), never=st.sampled_from((False, False, False, True)))
    def urgent_pods_come(self, cpu: int, members: int, never: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        self.urgent += 1
        name = f"u{self.urgent}"
        gang = None
        if members:
            gang = GangRef(GangKey(GangSource.THALWEG, NAMESPACE, name), GangSpec(min_member=members))
            self.gangs[name] = members
        for at in range(max(1, members)):
            self.world.create_pod(
                f"{name}-{at}",
                pod_class=sized(cpu, URGENT),
                scheduler_name=SCHEDULER_NAME,
                gang=gang,
                preempts=not never,
            )

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

    @rule(seconds=st.sampled_from((0.2, 1.0, 5.0, 40.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: self.world.writes)
    @rule(at=st.integers(0, 8), answer=answers, lost=st.sampled_from((False, False, True)))
    def write_is_sent(self, at: int, answer: Answer, lost: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        self.world.send(at % len(self.world.writes), answer, lost=lost)

    @rule(drawn=st.lists(answers, min_size=2, max_size=8), shown=st.booleans())
    def a_round_is_carried_out(self, drawn: list[Answer], shown: bool) -> None:  # noqa: FBT001
        """As on most days, but for some answers."""
        self.world.show()
        self.world.make_plan()
        self.world.deliver(100)
        for answer in drawn:
            self.world.pass_time(0.1)
            if self.world.writes:
                self.world.send(0, answer)
        if shown:
            self.world.show()

    @precondition(lambda self: any(pod.deleting for pod in self.world.api.values()))
    @rule()
    def victims_terminate(self) -> None:
        self.world.remove_deleting_pods()

    @precondition(lambda self: any(pod.name.startswith("u") for pod in self.world.api.values()))
    @rule(at=st.integers(0, 8))
    def an_urgent_pod_is_deleted(self, at: int) -> None:
        keys = sorted(key for key, pod in self.world.api.items() if pod.name.startswith("u"))
        self.world.remove_pod(keys[at % len(keys)])

    @rule(name=st.sampled_from(("n0", "n1")), cordoned=st.booleans())
    def a_node_changes(self, name: str, cordoned: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        node = self.world.nodes.get(name)
        if node is not None:
            self.world.put_node(Node(name, allocatable=node.allocatable, unschedulable=cordoned))

    @rule()
    def the_operator_starts_again(self) -> None:
        self.world.start()

    def teardown(self) -> None:
        """The faults end, and everything comes to rest."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for name in self.rooms:
            world.put_node(Node(name, allocatable=world.nodes[name].allocatable))
        for _ in range(30):
            world.settle()
            world.pass_time(LONGEST_PAUSE)
            world.settle()
            world.wait(1, 0.2)
            world.make_plan()
            planned = world.plan is not None and bool(world.plan.placements)
            world.settle()
            world.wait(1, 0.2)
            if not (planned or world.ledger.reservations or world.ledger.unevictable):
                break
        assert not world.ledger.reservations
        assert not world.ledger.victims
        taken: dict[str, int] = defaultdict(int)
        bound: dict[str, int] = defaultdict(int)
        for pod in world.api.values():
            if pod.node_name:
                taken[pod.node_name] += dict(pod.usage)["cpu"]
                bound[pod.name.partition("-")[0]] += 1
        assert all(amount <= self.rooms[node] for node, amount in taken.items()), taken
        for name, members in self.gangs.items():
            left = sum(pod.name.startswith(f"{name}-") for pod in world.api.values())
            assert bound[name] in (0, members) or left < members, f"{name} has {bound[name]} of {members} pods"
        for pod in world.api.values():
            if not pod.node_name and pod.preempts and pod.gang is None:
                cpu = dict(pod.pod_class.requests)["cpu"]
                rooms = {node: room - self._urgent_usage(node) for node, room in self.rooms.items()}
                assert all(room < cpu for room in rooms.values()), f"{pod.name} waits, and could have room: {rooms}"

    def _urgent_usage(self, node: str) -> int:
        """What urgent pods use on a node: nobody leaves for them."""
        there = [pod for pod in self.world.api.values() if pod.node_name == node]
        return sum(dict(pod.usage)["cpu"] for pod in there if pod.pod_class.priority == URGENT)


PreemptionMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=15)
TestPreemptionMachine = PreemptionMachine.TestCase
