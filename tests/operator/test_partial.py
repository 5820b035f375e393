"""Gangs that are there in part are released when their policy says so, and never before."""

from typing import Any

import msgspec
import pytest
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.reservations.effects import Bind, Evict
from thalweg_operator.reservations.events import Answer, PoliciesChanged
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Delivery, GangPolicy, PartialBind, Policy, Selects

KEY = GangKey(GangSource.THALWEG, "ml", "train")


class Case:
    """A cluster with three of four pods bound, policies and a clock."""

    def __init__(self, **terms: Any) -> None:
        self.now = 1000.0
        self.state = DrivenLedger(lambda: self.now, handlers={Evict: self._evict})
        self.evicted: dict[str, tuple[str, Evict]] = {}
        self.state.set_namespace("ml", ())
        self.state.upsert_node(Node("n", allocatable=(("pods", 10),)))
        self.terms = GangSpec(min_member=4, **terms)
        for name in "abc":
            self.put(name, node_name="n")
        self.put("d")

    @property
    def in_line(self) -> set[str]:
        """Uids (pods' names, here) of those in the evictor's line, whyever they are."""
        return self.state.shell.state.evicting

    def put(self, name: str, **fields: Any) -> None:
        """A pod of the gang."""
        ours: dict[str, Any] = {"scheduler_name": "thalweg", "gang": GangRef(KEY, self.terms)}
        self.state.upsert_pod(Pod("ml", name, name, PodClass(), **{**ours, **fields}))

    def policy(self, on_partial_bind: PartialBind = PartialBind.EVICT, **fields: Any) -> None:
        """Governs all pods that name us."""
        gangs = GangPolicy(timeout=60, on_partial_bind=on_partial_bind)
        policy = Policy("p", selects=Selects(scheduler_names=("thalweg",)), gangs=gangs, **fields)
        self.state.apply(PoliciesChanged((policy,)))

    def _evict(self, write: Evict) -> None:
        """Stands in for the evictor: what a budget holds up stays in line."""
        self.evicted[write.pod.name] = (write.message, write)

    def is_wanted(self, name: str) -> bool:
        """Whether the evictor would try now; what is not wanted has left the line."""
        write = self.evicted[name][1]
        wanted = self.state.shell.is_wanted(write)
        if not wanted:
            del self.evicted[name]
            self.state.shell.answered(write, Answer.UNWANTED)
        return wanted

    def wanted(self) -> set[str]:
        """Who is in line, once the evictor has asked about each."""
        return {name for name in list(self.evicted) if self.is_wanted(name)}

    def after(self, seconds: float) -> set[str]:
        """Who was evicted by then."""
        self.now += seconds
        self.state.look_after()
        return set(self.evicted)


def test_what_has_a_node_is_evicted_after_the_policys_timeout() -> None:
    """Counted from when the gang was first seen there in part; not if it became whole before its turn."""
    case = Case()
    case.policy()
    assert not case.after(0)
    assert not case.after(59)
    assert case.after(1) == {"a", "b", "c"}
    why, _ = case.evicted["a"]
    assert why.startswith("gang ml/train has been partially placed for 60 s: 3 of its pods have a node")
    assert case.is_wanted("a")
    case.put("d", node_name="n")
    case.state.look_after()
    assert not case.is_wanted("a")


@pytest.mark.parametrize("parent", ["", "all"])
def test_a_part_of_a_compositepodgroup_stays(parent: str) -> None:
    """As after an upgrade from a version that placed them: the CompositePodGroup may say that all leave or none."""
    case, key = Case(), GangKey(GangSource.NATIVE, "ml", "part")
    case.policy()
    case.state.cluster.put_pod_group(PodGroup(key, GangSpec(min_member=2)))
    case.put("p", gang=GangRef(key), node_name="n")
    case.put("q", gang=GangRef(key))
    case.after(0)
    case.state.cluster.put_pod_group(PodGroup(key, GangSpec(min_member=2), parent=parent))
    assert case.after(60) == {"a", "b", "c", *([] if parent else ["p"])}


@pytest.mark.parametrize("parent", ["", "all"])
def test_a_part_of_a_group_that_gets_a_parent_leaves_the_line(parent: str) -> None:
    """Its PodGroup was made anew, while a budget held the eviction up."""
    case, key = Case(), GangKey(GangSource.NATIVE, "ml", "part")
    case.policy()
    case.state.cluster.put_pod_group(PodGroup(key, GangSpec(min_member=2)))
    case.put("p", gang=GangRef(key), node_name="n")
    case.put("q", gang=GangRef(key))
    case.after(0)
    assert "p" in case.after(60)
    case.state.cluster.put_pod_group(PodGroup(key, GangSpec(min_member=2), parent=parent))
    assert case.is_wanted("p") == (not parent)


def test_time_begins_anew_once_the_gang_was_whole() -> None:
    """What is missing was bound, and is gone."""
    case = Case()
    case.policy()
    assert not case.after(0)
    assert not case.after(59)
    case.put("d", node_name="n")
    assert not case.after(2)
    case.state.delete_pod("ml/d")
    case.put("d")
    assert not case.after(0)
    assert not case.after(59)
    assert case.after(1)


def test_a_pod_on_its_way_is_waited_for() -> None:
    """The gang is evicted soon after the pod is not bound after all: the time runs on, however often it is planned."""
    case = Case()
    case.policy()
    assert not case.after(0)
    assert case.state.reserve(case.state.waiting["ml/d"], "n", Owner.BINDER)
    assert not case.after(61)
    case.state.release("ml/d", "d")
    assert not case.after(0)
    assert not case.after(9)
    assert case.after(1)


def test_a_pod_that_pauses_is_waited_for() -> None:
    """The API server has refused to bind it; its place is kept for some tries. Then nothing begins anew."""
    case = Case()
    case.policy()
    assert not case.after(0)
    pod = case.state.waiting["ml/d"]
    assert case.state.reserve(pod, "n", Owner.BINDER)
    case.state.shell.answered(Bind(pod, "n", case.state.generation), Answer.REFUSED, "no")
    assert case.state.reservations["ml/d"].phase is Phase.PAUSED
    case.state.ledger.pending["ml/d"].backoff_until = case.now + 1000
    assert not case.after(61)
    case.state.release("ml/d", "d")
    assert not case.after(0)
    assert case.after(10) == {"a", "b", "c"}
    assert case.is_wanted("a")


def test_a_gang_may_say_its_own_time() -> None:
    """scheduleTimeoutSeconds, waiting-time."""
    case = Case(timeout=5)
    case.policy()
    assert not case.after(0)
    assert case.after(5)


@pytest.mark.parametrize("how", ["replan", "observe", "not ours", "no policy"])
def test_others_are_left_alone(how: str) -> None:
    """With Replan, the default; where one pod is not ours to place; where the policy only observes; with no policy."""
    case = Case()
    if how == "replan":
        case.policy(PartialBind.REPLAN)
    elif how == "not ours":
        case.policy()
        case.put("a", node_name="n", scheduler_name="default-scheduler")
    elif how == "observe":
        case.policy(delivery=Delivery.OBSERVE)
    assert not case.after(0)
    assert not case.after(10_000)


def test_one_pod_after_the_other() -> None:
    """A pod that is being deleted, or was replaced under its name, is not asked for again; the others still are."""
    case = Case()
    case.policy()
    case.after(0)
    case.after(60)
    case.put("a", node_name="n", deleting=True)
    current = case.state.pods["ml/b"]
    case.state.upsert_pod(msgspec.structs.replace(current, uid="another"))
    case.state.look_after()
    assert [case.is_wanted(name) for name in "abc"] == [False, True, True]


def test_whole_gangs_of_a_group_go_too() -> None:
    """All or none of a group: one that has its pods is released with the one that has not."""
    other = GangKey(GangSource.THALWEG, "ml", "eval")
    case = Case(group=tuple(sorted((KEY, other))))
    case.policy()
    terms = GangSpec(min_member=1, group=case.terms.group)
    case.put("e", node_name="n", gang=GangRef(other, terms))
    case.after(0)
    assert case.after(60) == {"a", "b", "c", "e"}


def test_a_gang_that_became_whole_keeps_its_pods() -> None:
    """At once: the next look may be a second off."""
    case = Case()
    case.policy()
    case.after(0)
    assert case.after(60) == {"a", "b", "c"}
    case.put("d", node_name="n")
    assert not case.wanted()


def test_what_waits_for_a_budget_is_not_evicted_for_a_later_time_in_part() -> None:
    """The gang was whole in between; that a pod of it fails now gives it its whole time anew, and then they go."""
    case = Case()
    case.policy()
    case.after(0)
    case.after(60)
    case.put("d", node_name="n")
    case.state.look_after()
    case.put("d", node_name="n", deleting=True)
    case.state.look_after()
    assert case.evicted
    assert not case.wanted()
    assert not case.after(59)
    assert case.after(1) == {"a", "b", "c"} == case.wanted()


def test_what_is_in_line_for_an_earlier_time_is_asked_for_once_it_has_left_it() -> None:
    """It rests so long that the later time is over before it is asked about."""
    case = Case()
    case.policy()
    case.after(0)
    case.after(60)
    case.put("d", node_name="n")
    case.state.look_after()
    case.put("d", node_name="n", deleting=True)
    case.state.look_after()
    case.after(60)
    assert not case.wanted()
    assert case.after(1) == {"a", "b", "c"} == case.wanted()


def test_a_policy_that_says_replan_now() -> None:
    """What waits for a budget stays; should the policy change its mind again, it is asked for once more."""
    case = Case()
    case.policy()
    case.after(0)
    case.after(60)
    case.policy(PartialBind.REPLAN)
    assert not case.wanted()
    assert not case.after(1)
    case.policy()
    assert case.after(1) == {"a", "b", "c"} == case.wanted()


def test_a_gang_that_was_whole_for_a_moment() -> None:
    """Between two looks, just as the evictor asked: its pods are asked for again."""
    case = Case()
    case.policy()
    case.after(0)
    case.after(60)
    case.put("d", node_name="n")
    assert not case.wanted()
    case.put("d", node_name="n", deleting=True)
    assert case.after(1) == {"a", "b", "c"}


def test_a_pod_in_line_for_another_reason_is_asked_for_when_it_has_left_it() -> None:
    """Another is to take its place, and then is not."""
    case = Case()
    case.policy()
    case.in_line.add("a")
    case.after(0)
    assert case.after(60) == {"b", "c"}
    case.in_line.remove("a")
    assert case.after(1) == {"a", "b", "c"}


def test_one_that_was_evicted_is_asked_for_once() -> None:
    """Until it is seen to leave, or where the API server says no for good."""
    case = Case()
    case.policy()
    case.after(0)
    assert case.after(60)
    for name, (_, write) in list(case.evicted.items()):
        case.state.shell.answered(write, Answer.DONE if name != "c" else Answer.REFUSED)
    case.evicted.clear()
    assert not case.after(10)
