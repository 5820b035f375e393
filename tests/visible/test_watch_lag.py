"""The lag of the watch: from the answer to a binding until the watch shows the pod bound."""

import msgspec
import pytest
from thalweg_operator.metrics import Metrics
from thalweg_operator.observability.watch_lag import WatchLag
from thalweg_operator.reservations.effects import Bind
from thalweg_operator.reservations.events import Answer, Event, PodPut, PodRemoved, WriteAnswered

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod, PodClass

POD = Pod("ns", "p", "uid", PodClass())
BOUND = msgspec.structs.replace(POD, node_name="n")


class Case:
    """Events as the shell passes them on: first to the observer, then to the cluster."""

    def __init__(self) -> None:
        self.now, self.cluster, self.metrics = 0.0, Cluster(), Metrics()
        self.lag = WatchLag(self.cluster, self.metrics, lambda: self.now)

    def apply(self, event: Event) -> None:
        self.lag.observe(event)
        if isinstance(event, PodPut):
            self.cluster.put_pod(event.pod)
        elif isinstance(event, PodRemoved):
            self.cluster.remove_pod(event.key)

    def answered(self, answer: Answer = Answer.DONE) -> None:
        self.apply(WriteAnswered(Bind(POD, "n", 1), answer))

    def observed(self) -> tuple[float, float]:
        """How many lags, and their sum."""
        value = self.metrics.registry.get_sample_value
        return value("thalweg_watch_lag_seconds_count") or 0.0, value("thalweg_watch_lag_seconds_sum") or 0.0


@pytest.fixture
def case() -> Case:
    case = Case()
    case.apply(PodPut(POD))
    return case


def test_the_watch_comes_after_the_answer(case: Case) -> None:
    """The time between them, once, whatever the watch shows later."""
    case.answered()
    case.now = 2.5
    case.apply(PodPut(POD))
    assert case.observed() == (0, 0)
    case.apply(PodPut(BOUND))
    case.now = 9.0
    case.apply(PodPut(BOUND))
    assert case.observed() == (1, 2.5)


def test_the_watch_comes_first(case: Case) -> None:
    """No lag."""
    case.apply(PodPut(BOUND))
    case.now = 3.0
    case.answered()
    assert case.observed() == (1, 0)


def test_nothing_is_kept(case: Case) -> None:
    """A refused binding, a pod that is gone, and another pod of the name leave no memory."""
    case.answered(Answer.REFUSED)
    case.answered()
    case.apply(PodRemoved(POD.key))
    case.apply(PodPut(msgspec.structs.replace(POD, uid="other")))
    case.answered()
    assert case.lag._answered == {}
    assert case.observed() == (0, 0)
