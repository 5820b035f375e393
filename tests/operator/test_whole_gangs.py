"""Refused bindings: a gang of which nothing is bound ends as a whole, and a gang that has begun keeps its room."""

from typing import Any

import msgspec
import pytest
from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.cluster import FakeCluster
from thalweg_operator.planning.inputs.round_facts import operator_round_input
from thalweg_operator.reservations.effects import Bind, WriteCondition
from thalweg_operator.reservations.events import Answer, WriteAnswered
from thalweg_operator.reservations.ledger import backoff
from thalweg_operator.reservations.ledger.transitions import Phase
from thalweg_operator.reservations.step.bindings import KEPT_TRIES

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN, SCHEDULER_NAME, Delivery, Policy
from flowcore.planning.round_input import GovernedPod

SMALL = PodClass(requests=(("cpu", 100),))
BINDER = Policy("bound", delivery=Delivery.BINDER)


def node(name: str = "a", count: int = 3) -> Node:
    """A node with room for so many pods."""
    return Node(name, allocatable=(("cpu", 100 * count), ("pods", 10)))


class Case(FakeCluster):
    """A gang whose pods are all to be bound: "g0", "g1", ... in this order."""

    def __init__(self, count: int = 3, *, least: int | None = None, group: tuple[str, ...] = ()) -> None:
        super().__init__([node(count=count)], [BINDER])
        names = group or ("g",)
        keys = tuple(GangKey(GangSource.THALWEG, NAMESPACE, name) for name in names)
        for at in range(count):
            key = keys[at % len(keys)]
            terms = GangSpec(min_member=least or count // len(keys), group=keys if group else ())
            self.create_pod(f"g{at}", pod_class=SMALL, scheduler_name=SCHEDULER_NAME, gang=GangRef(key, terms))
        self.show()
        self.round()
        self.writes.sort(key=lambda write: write.pod.name)
        assert len(self.writes) == count

    def round(self) -> None:
        """All that waits is planned, and the plan is carried out."""
        self.make_plan()
        self.deliver(100)

    def answer(self, name: str, answer: Answer, reason: str = "no", **options: Any) -> None:
        """The write for a pod is sent, and answered so."""
        (at,) = (at for at, write in enumerate(self.writes) if write.pod.name == name)
        self.send(at, answer, reason=reason, **options)

    def phase(self, name: str) -> Phase | None:
        """Of the pod's reservation; None: it has none."""
        found = self.ledger.reservations.get(f"{NAMESPACE}/{name}")
        return None if found is None else found.phase

    @property
    def bound(self) -> set[str]:
        """Names of the pods with a node."""
        return {pod.name for pod in self.api.values() if pod.node_name}

    def single(self, name: str = "single") -> Pod:
        """A pod by itself comes, and is seen."""
        pod = self.create_pod(name, pod_class=SMALL, scheduler_name=SCHEDULER_NAME)
        self.show()
        return pod

    def waits(self, seconds: float) -> None:
        """Time passes in small steps, and nothing else happens."""
        for _ in range(round(seconds / 0.25)):
            self.pass_time(0.25)


@pytest.mark.parametrize("first", ["rests after 429", "was not sent yet"])
def test_a_member_is_not_bound_once_its_gang_cannot_come(first: str) -> None:
    """It rests, or stands in line, while its siblings are refused; none of them is bound."""
    case = Case()
    if first == "rests after 429":
        case.answer("g2", Answer.RETRYING)
    case.answer("g0", Answer.REFUSED)
    case.answer("g1", Answer.REFUSED)
    case.answer("g2", Answer.DONE)
    assert case.bound == set()
    assert not case.ledger.reservations


def test_two_members_that_rest() -> None:
    """Neither takes the other, which was not bound for certain, for a begun gang."""
    case = Case()
    case.answer("g1", Answer.RETRYING)
    case.answer("g2", Answer.RETRYING)
    case.answer("g0", Answer.REFUSED)
    case.answer("g1", Answer.DONE)
    case.answer("g2", Answer.DONE)
    assert case.bound == set()


def test_a_member_that_rests_after_another_was_refused() -> None:
    """While both are sent, the gang may have begun by either; then the API server puts the second one off."""
    case = Case()
    first, second = case.writes[0], case.writes[1]
    for write in (first, second):
        case.apply(WriteAnswered(write, Answer.UNCERTAIN))
    case.writes.remove(first)
    case.apply(WriteAnswered(first, Answer.REFUSED, "no"))
    assert case.phase("g0") is Phase.PAUSED
    case.apply(WriteAnswered(second, Answer.RETRYING))
    case.answer("g1", Answer.DONE)
    case.answer("g2", Answer.DONE)
    case.waits(0.25)
    assert case.bound == set()
    assert not case.ledger.reservations


def test_a_gang_of_a_group_that_cannot_come() -> None:
    """Gangs that are placed all or none: where one lacks pods, no pod of the others is bound."""
    case = Case(4, group=("g", "h"))
    for name in ("g0", "g2"):
        case.answer(name, Answer.REFUSED)
    for name in ("g1", "g3"):
        case.answer(name, Answer.DONE)
    assert case.bound == set()


def test_a_pod_more_than_the_gang_needs() -> None:
    """The gang comes without it, and its room is given back."""
    case = Case(3, least=2)
    case.answer("g0", Answer.DONE)
    case.answer("g1", Answer.REFUSED)
    case.answer("g2", Answer.DONE)
    assert case.bound == {"g0", "g2"}
    assert case.phase("g1") is None


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("reason", ["the API server's", ""])
def test_the_room_of_a_gang_that_has_begun_is_kept(reason: str, *, seen: bool) -> None:
    """A pod by itself does not get it while the member pauses; then the same binding is sent again."""
    case = Case()
    case.answer("g0", Answer.DONE)
    if seen:
        case.show()
    case.answer("g1", Answer.REFUSED, reason)
    assert case.phase("g1") is Phase.PAUSED
    case.single()
    case.round()
    assert case.phase("single") is None
    case.answer("g2", Answer.DONE)
    case.waits(2)
    assert case.phase("g1") is Phase.BINDING
    case.answer("g1", Answer.DONE)
    assert case.bound == {"g0", "g1", "g2"}


def test_an_answer_that_is_not_known_yet() -> None:
    """A gang may have begun by it: the others keep their room; once it is known to be refused, all of it ends."""
    case = Case()
    write = case.writes[0]
    case.apply(WriteAnswered(write, Answer.UNCERTAIN))
    case.answer("g1", Answer.REFUSED)
    case.answer("g2", Answer.REFUSED)
    assert [case.phase(name) for name in ("g1", "g2")] == [Phase.PAUSED] * 2
    case.answer("g0", Answer.REFUSED)
    case.waits(0.25)
    assert not case.ledger.reservations


def test_the_room_is_kept_for_some_tries() -> None:
    """A pod that the API server never binds does not hold its room for ever."""
    case = Case(2)
    case.answer("g0", Answer.DONE)
    case.answer("g1", Answer.REFUSED)
    for _ in range(KEPT_TRIES):
        assert case.phase("g1") is Phase.PAUSED
        case.waits(20)
        case.answer("g1", Answer.REFUSED)
    assert case.phase("g1") is None
    case.single()
    case.round()
    assert case.phase("single") is Phase.BINDING


@pytest.mark.parametrize("what", ["node changes", "node goes", "pod goes", "policy observes", "pod is gated"])
def test_what_ends_the_pause(what: str) -> None:
    """The place is not as planned, or the pod is not to be bound any more: nothing is sent."""
    case = Case(2)
    case.answer("g0", Answer.DONE)
    case.show()
    case.answer("g1", Answer.REFUSED)
    assert case.phase("g1") is Phase.PAUSED
    match what:
        case "node changes":
            case.put_node(msgspec.structs.replace(node(count=2), unschedulable=True))
        case "node goes":
            case.remove_node("a")
        case "pod goes":
            case.remove_pod(f"{NAMESPACE}/g1")
        case "policy observes":
            case.set_policies([Policy("bound", delivery=Delivery.OBSERVE)])
        case _:
            case.change_pod(f"{NAMESPACE}/g1", gates=("x",), blocked_reason="its scheduling gates are closed: x")
    case.show()
    case.waits(5)
    assert case.phase("g1") is None
    assert not case.writes


@pytest.mark.parametrize("reason", ["no", ""])
def test_a_refused_pod_pauses(reason: str) -> None:
    """Also with 404, of which the pod is told nothing: it is gone, or the API server does not know it yet."""
    case = FakeCluster([node()], [BINDER])
    pod = case.create_pod("p", pod_class=SMALL, scheduler_name=SCHEDULER_NAME)
    case.show()
    case.make_plan()
    case.deliver(1)
    (write,) = case.writes
    assert isinstance(write, Bind)
    effects = case.apply(WriteAnswered(write, Answer.REFUSED, reason))
    assert backoff.is_backing_off(case.cluster, case.ledger, pod, case.now)
    assert any(isinstance(effect, WriteCondition) for effect in effects) == bool(reason)
    assert not case.ledger.reservations


def test_what_was_not_sent_does_not_pause() -> None:
    """The node changed before the binding was sent: the next round has another place for the pod at once."""
    case = FakeCluster([node()], [BINDER])
    pod = case.create_pod("p", pod_class=SMALL, scheduler_name=SCHEDULER_NAME)
    case.show()
    case.make_plan()
    case.deliver(1)
    case.put_node(msgspec.structs.replace(node(), labels=(("new", "label"),)))
    case.show()
    case.send(0)
    assert not backoff.is_backing_off(case.cluster, case.ledger, pod, case.now)
    assert not case.ledger.reservations


def test_the_others_of_a_gang_that_has_begun_are_told_who_pauses() -> None:
    """The API server refused a pod too often, so its place was given up, and another pod came anew meanwhile."""
    case = Case(3)
    case.answer("g0", Answer.DONE)
    case.answer("g1", Answer.DONE)
    case.show()
    for _ in range(KEPT_TRIES):
        case.answer("g2", Answer.REFUSED)
        case.waits(10)
    case.answer("g2", Answer.REFUSED)
    gang = case.api[f"{NAMESPACE}/g1"].gang
    case.remove_pod(f"{NAMESPACE}/g1")
    again = case.create_pod("g3", pod_class=SMALL, scheduler_name=SCHEDULER_NAME, gang=gang)
    case.show()
    state, asked = case.shell.state, [GovernedPod(again, BUILT_IN, Delivery.BINDER)]
    planned = operator_round_input(state, asked, case.now, case.now, lambda _pod: None, None).complete()
    assert planned.gangs[0].unschedulable_reason == (
        "gang ns/g: it needs 2 pods at once, 1 can be planned now; ns/g2: it pauses, since a write for it was refused"
    )
