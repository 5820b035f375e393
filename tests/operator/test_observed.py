"""Pods that are only observed learn what would become of them, once for each plan, and rarely."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from thalweg_operator.delivery.observed import EVENT_INTERVAL, ObserveEvents
from thalweg_operator.planning.worker.messages import PendingEntry, RoundReply, RoundRequest

from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Delivery, Policy
from flowcore.planning.plan_document import PlanPlacement

OBSERVE, BIND = Policy(name="watch", delivery=Delivery.OBSERVE), Policy(name="bind", delivery=Delivery.BINDER)


class RecordingEvents:
    """What is written, if there is room."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.room = True

    def write(self, pod: Pod, reason: str, message: str, *, action: str, warning: bool = False) -> bool:
        assert (reason, action, warning) == ("Observed", "Planning", False)
        if self.room:
            self.said.append((pod.key, message))
        return self.room


class Case:
    def __init__(self) -> None:
        self.now, self.ear = 0.0, RecordingEvents()
        self.observed = ObserveEvents(self.ear, lambda: self.now)  # type: ignore[arg-type]

    def round(self, plans: dict[str, str | None], policy: Policy = OBSERVE, uid: str = "u") -> list[tuple[str, str]]:
        """A round that places pods, or leaves them: what was said after it."""
        pods = [Pod("ns", name, uid, PodClass()) for name in plans]
        request = make_request([PendingEntry(pod.key, 0, 0, 0.0, 0) for pod in pods], [policy])
        reply = make_reply(
            [PlanPlacement(at, node, 0) for at, node in enumerate(plans.values()) if node is not None],
            [(at, 0) for at, node in enumerate(plans.values()) if node is None],
        )
        before = len(self.ear.said)
        self.observed.round_planned(request, pods, reply)
        return self.ear.said[before:]


def make_request(waiting: list[PendingEntry], policies: list[Policy]) -> RoundRequest:
    values: dict[str, Any] = {name: [] for name in RoundRequest.__struct_fields__}
    return RoundRequest(**{**values, "pending": waiting, "policies": policies})


def make_reply(placements: list[Any], left: list[Any]) -> RoundReply:
    values: dict[str, Any] = {name: [] for name in RoundReply.__struct_fields__}
    return RoundReply(**{**values, "placements": placements, "unplaced": left, "reasons": ["no room"]})


def test_what_is_said() -> None:
    """The node, or why there is none."""
    assert Case().round({"p": "n", "q": None}) == [
        ("ns/p", "Thalweg would place this pod on n"),
        ("ns/q", "Thalweg would leave this pod pending: no room"),
    ]


def test_pods_of_other_policies_are_told_nothing() -> None:
    """They are placed, or get their condition."""
    assert Case().round({"p": "n", "q": None}, BIND) == []


def test_a_plan_is_told_once() -> None:
    """However many rounds repeat it; another plan is told a minute later at the earliest."""
    case = Case()
    assert len(case.round({"p": "n"})) == 1
    case.now = 2 * EVENT_INTERVAL
    assert case.round({"p": "n"}) == []
    case.now = EVENT_INTERVAL - 1.0
    assert case.round({"p": "m"}) == []
    case.now = EVENT_INTERVAL
    assert case.round({"p": "m"}) == [("ns/p", "Thalweg would place this pod on m")]


def test_another_pod_of_the_same_name() -> None:
    """It is told for itself."""
    case = Case()
    case.round({"p": "n"})
    assert len(case.round({"p": "n"}, uid="u2")) == 1


def test_what_was_dropped_is_told_later() -> None:
    """An Event that had no room was not told."""
    case = Case()
    case.ear.room = False
    case.round({"p": "n"})
    case.ear.room = True
    assert len(case.round({"p": "n"})) == 1


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=5))
def test_pods_that_are_gone_are_forgotten(crowds: list[int]) -> None:
    """What is remembered is bounded by the pods of the last round."""
    case = Case()
    for number, count in enumerate(crowds):
        case.round({f"{number}-{pod}": "n" for pod in range(count)})
        assert len(case.observed._written) <= 2 * max(crowds) + 1000
    case.round({}, BIND)
    assert not case.observed._written
