"""Pods whose controller begins to make a gang of them while they are on their way as single pods."""

from __future__ import annotations

from support.fake_cluster.api_server import NAMESPACE
from support.fake_cluster.cluster import FakeCluster
from support.fake_cluster.machine import gang, room, sized
from thalweg_operator.reservations.effects import Bind
from thalweg_operator.reservations.events import Answer

from flowcore.model.policies import SCHEDULER_NAME, Policy

KEYS = (f"{NAMESPACE}/p", f"{NAMESPACE}/q")


class Case(FakeCluster):
    """A node, and two pods that are in no gang yet."""

    def __init__(self) -> None:
        super().__init__([room("a", 1000)], [Policy("bound")])
        self.start()
        for key in KEYS:
            name = key.rpartition("/")[2]
            self.create_pod(name, name, pod_class=sized(100), scheduler_name=SCHEDULER_NAME)
        self.show()

    def become_a_gang(self) -> None:
        """Of three: one is still to come."""
        for key in KEYS:
            self.change_pod(key, gang=gang("late", 3))
        self.show()


def test_pods_that_are_a_gang_once_their_plan_is_there() -> None:
    """They were planned as single pods: none of them is bound before the third one comes."""
    case = Case()
    case.make_plan()
    case.become_a_gang()
    case.deliver(100)
    assert not case.writes
    assert not case.ledger.reservations


def test_pods_that_are_a_gang_while_their_bindings_stand_in_line() -> None:
    """Their bindings are not sent, and they wait for the third one."""
    case = Case()
    case.make_plan()
    case.deliver(100)
    assert [type(write) for write in case.writes] == [Bind, Bind]
    case.become_a_gang()
    assert not any(case.is_wanted(write) for write in case.writes)
    for _ in KEYS:
        case.send(0, Answer.DONE)
    assert not any(case.api[key].node_name for key in KEYS)
    assert not case.ledger.reservations
