"""In which order the pods of plans are nominated, and which of them wait for others."""

from collections.abc import Callable, Sequence

import pytest
from thalweg_operator.reservations.steering.records.waves import WavePosition, WaveQueue

from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.pods import Pod, PodClass
from flowcore.model.selectors import Labels, LabelSelector, Requirement

NAMESPACES: dict[str, Labels] = {"ns": ()}


def of_set(name: str) -> LabelSelector:
    """Selects the pods of a set."""
    return LabelSelector((Requirement("set", "In", (name,)),))


def beside(name: str, *topologies: str) -> InterPodConstraints:
    """Affinity to the pods of a set."""
    return InterPodConstraints(affinity=tuple(AffinityTerm(each, of_set(name), ("ns",)) for each in topologies))


def spread(name: str) -> InterPodConstraints:
    """Spread among the pods of a set."""
    return InterPodConstraints(spread=(SpreadConstraint("zone", 1, of_set(name)),))


def apart(name: str) -> InterPodConstraints:
    """Anti-affinity to the pods of a set."""
    return InterPodConstraints(anti_affinity=(AffinityTerm("rack", of_set(name), ("ns",)),))


def pod(name: str, its_set: str, constraints: InterPodConstraints | None) -> Pod:
    """A pod of a set."""
    return Pod("ns", name, name, PodClass(), labels=(("set", its_set),), constraints=constraints)


class Queue:
    """Waves, and a clock."""

    def __init__(self) -> None:
        self.waves, self.now = WaveQueue(), 0.0

    def plan(self, *pods: tuple[Pod, WavePosition]) -> list[str]:
        """A plan comes. Returns the names of the pods that begin."""
        self.waves.add(pods, NAMESPACES)
        return self.begin()

    def passed(self, *names: str) -> list[str]:
        """Pods pass. Returns the names of those that begin then."""
        for name in names:
            self.waves.passed(f"ns/{name}")
        return self.begin()

    def begin(self) -> list[str]:
        """The names of the pods that begin now."""
        self.now += 1.0
        return [begun.name for begun in self.waves.begin(self.now, lambda _pod: True)]


def test_one_that_was_planned_again_waits_for_the_pod_that_its_new_plan_puts_first() -> None:
    """Its old wave is still to come, and begins without it."""
    first, again, before_it = (pod(name, "s", spread("s")) for name in ("first", "again", "before_it"))
    queue = Queue()
    assert queue.plan((first, (1, 1)), (again, (1, 2))) == ["first"]
    assert queue.plan((before_it, (1, 1)), (again, (1, 2))) == []
    assert queue.passed("first") == ["before_it"]
    assert queue.passed("before_it") == ["again"]


@pytest.mark.parametrize(
    "rules", [spread, lambda name: beside(name, "zone", "rack"), lambda name: beside(name, "rack")]
)
def test_plans_of_other_sets_do_not_wait(rules: Callable[[str], InterPodConstraints]) -> None:
    """A burst of 15 sets in 10 plans: a wave is under way for each set, whatever the others do."""
    queue = Queue()
    sets = [str(number) for number in range(15)]
    begun = queue.plan(*((pod(f"{each}-0", each, rules(each)), (at + 1, 1)) for at, each in enumerate(sets)))
    assert len(begun) == len(sets)
    for plan in range(1, 10):
        # Each plan has another set alone.
        assert queue.plan((pod(f"{plan}-new", f"new {plan}", rules(f"new {plan}")), (1, 1))) == [f"{plan}-new"]


def test_plans_of_one_set_wait_where_its_spread_counts_them() -> None:
    """The later plan counts on the pods of the earlier one; another set's pods do not matter."""
    queue = Queue()
    assert queue.plan((pod("a1", "a", spread("a")), (1, 1)), (pod("b1", "b", spread("b")), (2, 1))) == ["a1", "b1"]
    assert queue.plan((pod("a2", "a", spread("a")), (1, 1)), (pod("b2", "b", spread("b")), (2, 1))) == []
    assert queue.plan((pod("a3", "a", spread("a")), (1, 1))) == []
    assert queue.passed("a1") == ["a2"]
    assert queue.passed("b1") == ["b2"]
    assert queue.passed("a2") == ["a3"]


@pytest.mark.parametrize(
    ("earlier", "later", "waits"),
    [
        (pod("e", "a", beside("a", "rack")), pod("l", "a", beside("a", "rack")), False),
        (pod("e", "a", beside("a", "rack", "zone")), pod("l", "a", beside("a", "rack", "zone")), True),
        (pod("e", "a", beside("a", "rack")), pod("l", "b", beside("a", "rack")), True),
        (pod("e", "b", beside("a", "rack")), pod("l", "a", beside("a", "rack")), True),
        (pod("e", "a", beside("a", "rack")), pod("l", "a", beside("a", "zone")), True),
        (pod("e", "a", beside("a", "rack")), pod("l", "a", spread("a")), True),
        (pod("e", "a", spread("a")), pod("l", "a", None), True),
        (pod("e", "a", None), pod("l", "b", beside("a", "rack")), True),
        (pod("e", "a", apart("b")), pod("l", "b", apart("a")), False),
        (pod("e", "a", None), pod("l", "a", None), False),
    ],
    ids=[
        "one set",
        "one set in two topologies",
        "followers of a set",
        "a set after its followers",
        "affinity in another topology",
        "affinity, then spread",
        "counted by the earlier spread",
        "counted by the later affinity",
        "kept apart",
        "no rule",
    ],
)
def test_who_waits_for_an_earlier_plan(earlier: Pod, later: Pod, *, waits: bool) -> None:
    """Where a rule of one counts the other, and their order matters; also if other pods of its chain wait."""
    queue = Queue()
    assert queue.plan((earlier, (1, 1))) == ["e"]
    assert queue.plan((later, (1, 1))) == ([] if waits else ["l"])
    assert queue.passed("e") == (["l"] if waits else [])


def chain_of(names: Sequence[str]) -> list[tuple[Pod, WavePosition]]:
    """A chain of pods with spread, each in a wave of its own."""
    return [(pod(name, "a", spread("a")), (1, at + 1)) for at, name in enumerate(names)]


def test_a_later_plan_waits_for_the_last_wave_and_not_for_pods_that_are_overdue() -> None:
    """All waves of the earlier chain come first. A pod that kube-scheduler does not come to stops nobody for good."""
    queue = Queue()
    assert queue.plan(*chain_of(["e1", "e2"])) == ["e1"]
    assert queue.plan(*chain_of(["l1", "l2"])) == []
    assert queue.passed("e1") == ["e2"]
    queue.waves.end_overdue(queue.now + 2.0, 0.0)
    assert queue.begin() == ["l1"]
    assert queue.waves.others_under_way("ns/e2") is False
    assert queue.passed("e2") == []
    assert queue.passed("l1") == ["l2"]
