"""Gangs that are there in part are released when their policy says so, and never before."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from thalweg_operator.partial import PartialGangs
from thalweg_operator.state import By, ClusterState

from flowcore.model.gang_terms import GangKey, GangRef, Source, Terms
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Delivery, GangTerms, PartialBind, Policy

KEY = GangKey(Source.THALWEG, "ml", "train")


class Case:
    """A state with three of four pods bound, policies and a clock."""

    def __init__(self, **terms: Any) -> None:
        self.now = 1000.0
        self.state = ClusterState()
        self.governs: Policy | None = None
        self.evicted: dict[str, tuple[str, Callable[[], bool]]] = {}
        self.state.set_namespace("ml", ())
        self.state.upsert_node(Node("n", allocatable=(("pods", 10),)))
        self.terms = Terms(least=4, **terms)
        for name in "abc":
            self.put(name, node_name="n")
        self.put("d")
        stand_in: Any = self
        self.partial = PartialGangs(self.state, stand_in, stand_in, lambda: self.now)

    def put(self, name: str, **fields: Any) -> None:
        """A pod of the gang."""
        ours: dict[str, Any] = {"scheduler_name": "thalweg", "gang": GangRef(KEY, self.terms)}
        self.state.upsert_pod(Pod("ml", name, name, PodClass(), **{**ours, **fields}))

    def policy(self, on_partial_bind: PartialBind = PartialBind.EVICT, **fields: Any) -> None:
        """Governs all pods that name us."""
        self.governs = Policy("p", gangs=GangTerms(timeout=60, on_partial_bind=on_partial_bind), **fields)

    def of(self, pod: Pod, _namespaces: object) -> Policy | None:
        """Stands in for the policies."""
        return self.governs if pod.scheduler_name == "thalweg" else None

    def evict(self, pod: Pod, why: str, wanted: Callable[[], bool]) -> None:
        """Stands in for the evictor."""
        self.evicted[pod.name] = (why, wanted)

    def after(self, seconds: float) -> set[str]:
        """Who was evicted by then."""
        self.now += seconds
        self.partial.look()
        return set(self.evicted)


def test_what_has_a_node_is_evicted_after_the_policys_timeout() -> None:
    """Counted from when the gang was first seen there in part; not if it became whole before its turn."""
    case = Case()
    case.policy()
    assert not case.after(0)
    assert not case.after(59)
    assert case.after(1) == {"a", "b", "c"}
    why, wanted = case.evicted["a"]
    assert why.startswith("gang ml/train has been there in part for 60 s: 3 of its pods have a node")
    assert wanted()
    case.put("d", node_name="n")
    case.partial.look()
    assert not wanted()


def test_time_in_which_the_gang_is_whole_begins_anew() -> None:
    """Also while what is missing is on its way."""
    case = Case()
    case.policy()
    assert not case.after(0)
    assert case.state.reserve(case.state.waiting["ml/d"], "n", By.BINDER)
    assert not case.after(61)
    case.state.release("ml/d", "d")
    assert not case.after(0)
    assert not case.after(59)
    assert case.after(1)


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
    case.partial.look()
    assert [case.evicted[name][1]() for name in "abc"] == [False, True, True]


def test_whole_gangs_of_a_group_go_too() -> None:
    """All or none of a group: one that has its pods is released with the one that has not."""
    other = GangKey(Source.THALWEG, "ml", "eval")
    case = Case(group=tuple(sorted((KEY, other))))
    case.policy()
    terms = Terms(least=1, group=case.terms.group)
    case.put("e", node_name="n", gang=GangRef(other, terms))
    case.after(0)
    assert case.after(60) == {"a", "b", "c", "e"}
