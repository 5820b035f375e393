"""Any history of moves: replacements come to reserved room, no node is overcommitted, and everything comes to rest."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.ledger_world import LedgerWorld
from support.profiles import examples
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.victims.replacements import REPLACEMENT_TIMEOUT

from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import SCHEDULER_NAME, Policy, ReschedulingMode, ReschedulingPolicy

ROOM = 400
OWNERS = ("o1", "o2")
answers = st.sampled_from((Answer.DONE, Answer.DONE, Answer.DONE, Answer.REFUSED, Answer.RETRYING))
modes = st.sampled_from((ReschedulingMode.ACT, ReschedulingMode.ACT, ReschedulingMode.PROPOSE, ReschedulingMode.OFF))


def sized(cpu: int) -> PodClass:
    """A class of pods."""
    return PodClass(requests=(("cpu", cpu),))


class MoveMachine(RuleBasedStateMachine):
    """Nodes that are half full of pods with controllers, and large pods that fit only if some of them move."""

    @initialize(more=st.lists(st.sampled_from(("n0", "n1", "n2")), unique=True, max_size=2), keeps_names=st.booleans())
    def begin(self, more: list[str], keeps_names: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        nodes = [Node(f"n{at}", allocatable=(("cpu", ROOM), ("pods", 10))) for at in range(3)]
        self.world = LedgerWorld(nodes, [self.policy(ReschedulingMode.ACT)])
        self.keeps_names, self.made, self.large = keeps_names, 0, 0
        self.wanted: Counter[str] = Counter()
        for at, node in enumerate(("n0", "n1", "n2", "n0", "n1", "n2", *more)):
            owner = OWNERS[at % len(OWNERS)]
            self.wanted[owner] += 1
            self.make(owner, f"{owner}-{self.wanted[owner]}", node_name=node, usage=sized(100).requests)
        self.world.show()

    @staticmethod
    def policy(mode: ReschedulingMode) -> Policy:
        """The only policy."""
        return Policy("bound", rescheduling=ReschedulingPolicy(mode, min_age=0))

    def make(self, owner: str, name: str, **fields: object) -> None:
        """A controller makes a pod."""
        labels = (("name", name),)  # as with Jobs and StatefulSets
        self.world.create_pod(
            name, pod_class=sized(100), scheduler_name=SCHEDULER_NAME, owner=owner, labels=labels, **fields
        )

    @rule()
    def controllers_act(self) -> None:
        """A Deployment replaces a pod that is being deleted at once, a StatefulSet once it is gone, under its name."""
        for owner, wanted in self.wanted.items():
            pods = [pod for pod in self.world.api.values() if pod.owner == owner]
            if self.keeps_names:
                there = {pod.name for pod in pods}
                for at in range(1, wanted + 1):
                    if f"{owner}-{at}" not in there:
                        self.make(owner, f"{owner}-{at}")
            else:
                for _ in range(wanted - sum(not pod.deleting for pod in pods)):
                    self.made += 1
                    self.make(owner, f"{owner}-new-{self.made}")

    @precondition(lambda self: self.large < 3)
    @rule(cpu=st.sampled_from((200, 300, 300, 400)))
    def a_large_pod_comes(self, cpu: int) -> None:
        self.large += 1
        self.world.create_pod(f"large-{self.large}", pod_class=sized(cpu), scheduler_name=SCHEDULER_NAME)

    @precondition(lambda self: any(pod.name.startswith("large") for pod in self.world.api.values()))
    @rule(at=st.integers(0, 2))
    def a_large_pod_is_deleted(self, at: int) -> None:
        keys = sorted(key for key, pod in self.world.api.items() if pod.name.startswith("large"))
        self.world.remove_pod(keys[at % len(keys)])

    @precondition(lambda self: self.world.watch)
    @rule(count=st.sampled_from((1, 2, 100)))
    def watch_shows(self, count: int) -> None:
        self.world.show(count)

    @precondition(lambda self: self.world.writes)
    @rule(at=st.integers(0, 5), answer=answers, lost=st.sampled_from((False, False, True)))
    def write_is_sent(self, at: int, answer: Answer, lost: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        self.world.send(at % len(self.world.writes), answer, lost=lost)

    @rule(drawn=st.lists(answers, min_size=2, max_size=8), shown=st.booleans())
    def a_round_is_carried_out(self, drawn: list[Answer], shown: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        """As on most days, but for some answers."""
        self.world.show()
        self.world.make_plan()
        self.world.deliver(100)
        for answer in drawn:
            self.world.pass_time(0.2)
            if self.world.writes:
                self.world.send(0, answer)
        if shown:
            self.world.show()

    @precondition(lambda self: any(pod.deleting for pod in self.world.api.values()))
    @rule()
    def pods_terminate(self) -> None:
        self.world.remove_deleting_pods()

    @rule(seconds=st.sampled_from((0.2, 5.0, 100.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(name=st.sampled_from(("n0", "n1")), cordoned=st.booleans())
    def a_node_changes(self, name: str, cordoned: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        self.world.put_node(Node(name, allocatable=self.world.nodes[name].allocatable, unschedulable=cordoned))

    @rule(mode=modes)
    def the_policy_changes(self, mode: ReschedulingMode) -> None:
        self.world.set_policies([self.policy(mode)])

    @rule()
    def the_operator_starts_again(self) -> None:
        self.world.start()

    def teardown(self) -> None:
        """The faults end, and everything comes to rest: each pod has its replacement, and no room is kept in vain."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for name in ("n0", "n1"):
            world.put_node(Node(name, allocatable=world.nodes[name].allocatable))
        for _ in range(30):
            world.settle()
            self.controllers_act()
            world.settle()
            world.pass_time(REPLACEMENT_TIMEOUT)
            world.settle()
            world.make_plan()
            planned = world.plan is not None and bool(world.plan.placements)
            world.settle()
            world.wait(1, 0.2)
            if not (planned or world.ledger.reservations or world.ledger.unevictable):
                break
        assert not world.ledger.reservations
        assert not world.ledger.victims
        assert not world.state.moves.awaited
        self.controllers_act()
        counted = Counter(pod.owner for pod in world.api.values() if pod.owner)
        assert counted == self.wanted
        taken: Counter[str] = Counter()
        for pod in world.api.values():
            taken[pod.node_name] += dict(pod.usage).get("cpu", 0)
        assert all(taken[name] <= ROOM for name in world.nodes), taken


MoveMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=15)
TestMoveMachine = MoveMachine.TestCase
