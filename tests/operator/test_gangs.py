"""The state tells of gangs as they are now, and what changes about one starts a round, if anyone waits for it."""

from typing import Any

import msgspec
import pytest
from support.fake_cluster.driven_ledger import DrivenLedger
from support.work import lines_run
from thalweg_operator.api.watches.sinks import ObjectSink, pod_group_decoder
from thalweg_operator.reservations.effects import RequestRound
from thalweg_operator.reservations.ledger.reservation import Owner

from flowcore.api import Interner
from flowcore.api.kinds import POD_GROUPS
from flowcore.cluster.kinds import GROUPS_OF_PODS
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Delivery

NATIVE, OURS = GangKey(GangSource.NATIVE, "ml", "train"), GangKey(GangSource.THALWEG, "ml", "train")


class Case:
    """A state, and how often it said that a round may place more."""

    def __init__(self, gang: GangRef) -> None:
        self.state, self.gang, self.changes = DrivenLedger(), gang, 0
        for name, rack in (("n", "r1"), ("m", "r2")):
            self.state.upsert_node(Node(name, labels=(("rack", rack),), allocatable=(("pods", 10),)))

        def changed(_: RequestRound) -> None:
            self.changes += 1

        self.state.request_round = changed

    def put(self, name: str, **fields: Any) -> Pod:
        """A pod of the gang."""
        pod = Pod("ml", name, name, PodClass(), **{"gang": self.gang, **fields})
        self.state.upsert_pod(pod)
        return pod

    def gangs(self) -> list[Gang]:
        """What a round would be told."""
        return self.state.gangs_of(
            [(pod, Delivery.BINDER) for pod in self.state.plannable() if not pod.blocked_reason]
        )[1]

    def changed(self) -> bool:
        """Since this was last asked."""
        found, self.changes = self.changes > 0, 0
        return found


def group(name: str, count: int, **metadata: Any) -> bytes:
    """A native PodGroup."""
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
    return msgspec.json.encode({"metadata": {"name": name, "namespace": "ml", **metadata}, "spec": spec})


def test_pod_groups_that_come_change_and_go_start_rounds() -> None:
    """Those that pods wait for; one of another name, or that is as it was, does not."""
    case = Case(GangRef(NATIVE))
    case.put("a")
    assert case.gangs() == [Gang("PodGroup ml/train", 1, unschedulable_reason="PodGroup ml/train does not exist")]
    kind = POD_GROUPS[GangSource.NATIVE]
    sink, decode = ObjectSink(case.state, kind, GROUPS_OF_PODS), pod_group_decoder(GangSource.NATIVE, Interner())
    assert case.changed()
    sink.upsert(decode(group("other", 1)))
    assert not case.changed()
    sink.upsert(decode(group("train", 1)))
    assert case.changed()
    assert case.gangs() == [Gang("PodGroup ml/train", 1)]
    sink.upsert(decode(group("train", 1, labels={"new": "label"})))
    assert not case.changed()
    assert sorted(sink.keys()) == ["ml/other", "ml/train"]
    sink.delete("ml/train")
    assert case.changed()
    sink.upsert(decode(b'{"metadata": {"name": "train", "namespace": "ml"}, "spec": {"schedulingPolicy": "gang"}}'))
    assert case.changed()
    assert "PodGroup ml/train: it cannot be read: " in case.gangs()[0].unschedulable_reason


def test_reservations_are_on_their_way() -> None:
    """They count like bound pods, for the domain too; given back, they do not."""
    case = Case(GangRef(OURS, GangSpec(min_member=3, topology_key="rack")))
    pods = [case.put(name) for name in "abc"]
    assert case.gangs() == [Gang("gang ml/train", 3, topology_key="rack")]
    assert case.state.reserve(pods[0], "m", Owner.BINDER)
    assert case.gangs() == [Gang("gang ml/train", 2, topology_key="rack", domain="r2", partially_placed=True, placed=1)]
    case.state.release("ml/a", "a")
    assert case.gangs() == [Gang("gang ml/train", 3, topology_key="rack")]


def test_what_comes_as_it_was_planned_starts_no_round() -> None:
    """A pod that is bound where we bound it changes nothing; one that others bound may have been what was missing."""
    case = Case(GangRef(OURS, GangSpec(min_member=2)))
    pods = [case.put(name) for name in "abc"]
    assert case.state.reserve(pods[0], "m", Owner.BINDER)
    case.changed()
    case.put("a", node_name="m")
    assert not case.changed()
    case.put("b", node_name="n")
    assert case.changed()
    assert case.gangs() == []


@pytest.mark.parametrize("end", ["failed", "deleting", "gone"])
def test_a_member_that_ends_starts_a_round(end: str) -> None:
    """Its replacement is needed from now on."""
    case = Case(GangRef(OURS, GangSpec(min_member=2)))
    case.put("a", node_name="n")
    case.put("b", node_name="n")
    case.put("c")
    assert case.gangs() == []
    case.changed()
    if end == "gone":
        case.state.delete_pod("ml/a")
    else:
        case.put("a", node_name="n", terminal=end == "failed", deleting=end == "deleting")
    assert case.changed()
    assert case.gangs() == [Gang("gang ml/train", 1, partially_placed=True)]


def test_status_reports_of_kubelets_start_no_round() -> None:
    """Most updates of running pods are those."""
    case = Case(GangRef(OURS, GangSpec(min_member=2)))
    pod = case.put("a", node_name="n")
    case.put("b")
    case.changed()
    case.state.upsert_pod(msgspec.structs.replace(pod, unschedulable_message="x"))
    assert not case.changed()


def deletion(count: int, *, node_name: str = "", place: bool = False) -> int:
    """Lines run for the dearest of some events, as gangs of one pod that name each other lose their pods."""
    state = DrivenLedger()
    state.upsert_node(Node("n", allocatable=(("pods", 1000),)))
    keys = tuple(GangKey(GangSource.THALWEG, "ml", f"g{at}") for at in range(count))
    pods = [
        Pod("ml", key.name, key.name, PodClass(), node_name=node_name, gang=GangRef(key, GangSpec(1, group=keys)))
        for key in keys
    ]
    for pod in pods:
        state.upsert_pod(pod)
        if place:
            state.reserve(pod, "n", owner=Owner.BINDER)
    dearest = 0
    for at, pod in enumerate(pods):
        if at % 16:
            state.delete_pod(pod.key)
        else:
            dearest = max(dearest, lines_run(lambda key=pod.key: state.delete_pod(key)))
    return dearest


@pytest.mark.parametrize("case", [{"node_name": "n"}, {}, {"place": True}], ids=["running", "waiting", "on their way"])
def test_the_work_for_a_pod_that_goes_grows_with_the_gangs_of_its_group(case: dict[str, Any]) -> None:
    """Twice as many gangs that name each other take about twice the work for an event: each is looked at once."""
    assert deletion(64, **case) < 2.5 * deletion(32, **case)


@pytest.mark.parametrize("on_its_way", [False, True])
def test_the_work_for_a_pod_that_goes_does_not_grow_with_its_gang(*, on_its_way: bool) -> None:
    """Pods that say the same of their gang are not looked at again, each time that one of them goes."""

    def work(count: int) -> int:
        state, gang = DrivenLedger(), GangRef(OURS, GangSpec(2))
        state.upsert_node(Node("n", allocatable=(("pods", 1000),)))
        pods = [Pod("ml", f"p{at}", f"p{at}", PodClass(), node_name="n", gang=gang) for at in range(count)]
        for pod in pods:
            state.upsert_pod(pod)
        if on_its_way:
            last = Pod("ml", "last", "last", PodClass(), gang=gang)
            state.upsert_pod(last)
            state.reserve(last, "n")
        return lines_run(lambda: state.delete_pod("ml/p0"))

    assert work(200) < 1.5 * work(50)
