"""Declared networks that take long have rounds of their own, and others wait for no more than one of these."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from thalweg_operator.planning.deadline import RoundDeadline
from thalweg_operator.planning.turns import BOUND, NetworkTurns, TurnSelection

from flowcore.model.pods import Pod, PodClass

#: What a round takes whatever it plans.
FIXED = 0.01


def made(name: str, policy: str) -> Pod:
    pod_class = PodClass(requests=(("cpu", 100),))
    return Pod(namespace=policy, name=name, uid=f"{policy}/{name}", pod_class=pod_class)


class SimulatedRounds:
    """Rounds whose time follows from the networks in them. Pods of networks wait on, all others are placed.

    Attributes:
        waits: seconds from when a pod came to the end of the round that placed it, by uid.
        own_rounds: policy, start and seconds of each round of a network.
    """

    def __init__(self, costs: Mapping[str, float]) -> None:
        self.turns, self.costs = NetworkTurns(), costs
        self.now, self.generation = 100.0, 0
        self.waiting: dict[str, Pod] = {}
        self.came: dict[str, float] = {}
        self.waits: dict[str, float] = {}
        self.own_rounds: list[tuple[str, float, float]] = []
        self.last = TurnSelection(())

    def add(self, *pods: Pod) -> None:
        for pod in pods:
            self.waiting[pod.uid], self.came[pod.uid] = pod, self.now
        self.generation += 1

    def choose(self, *always: str) -> TurnSelection:
        waiting = list(self.waiting.values())
        return self.turns.choose(waiting, lambda pod: pod.namespace, self.generation, 0, self.now, always)

    def round(self) -> TurnSelection:
        chosen, began = self.choose(), self.now
        self.last = chosen
        policies = {pod.namespace for pod in chosen.pods}
        seconds = {name: self.costs[name] for name in policies if name in self.costs}
        self.now += FIXED + sum(seconds.values())
        if self.turns.own:
            self.own_rounds.append((self.turns.own, began, self.now - began))
        self.turns.took(seconds, self.now)
        for pod in chosen.pods:
            if pod.namespace not in self.costs:
                self.waits[pod.uid] = self.now - self.came[pod.uid]
                del self.waiting[pod.uid]
        self.turns.retain(self.waiting.values(), {*self.costs, "quiet"})
        return chosen

    def run(self, until: float) -> None:
        """Rounds while there is reason for one."""
        seen = -1
        while self.now < until:
            due = self.turns.next_at
            if self.generation != seen or self.last.more or (due is not None and due <= self.now):
                seen = self.generation
                self.round()
            else:
                self.now = min(until, until if due is None else max(due, self.now))


def names(selection: TurnSelection) -> set[str]:
    return {pod.namespace for pod in selection.pods}


def test_quick_networks_are_planned_with_all_others() -> None:
    """At most ``BOUND`` seconds."""
    world = SimulatedRounds({"quick": BOUND})
    for number in range(5):
        world.add(made(f"q{number}", "quick"), made(f"p{number}", "quiet"))
        assert names(world.round()) == {"quick", "quiet"}
    assert not world.own_rounds


def test_a_network_that_takes_long_is_planned_alone_after_all_others() -> None:
    """Its pods are in one round together, and those of others in the round before it."""
    world = SimulatedRounds({"long": 5.0})
    world.add(made("l0", "long"), made("p0", "quiet"))
    assert names(world.round()) == {"long", "quiet"}, "nothing is known of it yet"
    world.now += 60.0
    world.add(made("l1", "long"), made("p1", "quiet"))
    first = world.round()
    assert names(first) == {"quiet"}
    assert first.more
    second = world.round()
    assert {pod.name for pod in second.pods} == {"l0", "l1"}
    assert world.turns.own == "long"


def test_it_rests_for_three_times_as_long_as_it_took() -> None:
    """Others have the worker meanwhile; then it is due if anything changed."""
    world = SimulatedRounds({"long": 5.0})
    world.add(made("l0", "long"))
    world.round()
    ended = world.now
    world.add(made("l1", "long"))
    assert not world.round().pods
    assert world.turns.next_at is not None
    assert 15.0 <= world.turns.next_at - ended <= 15.1
    world.now = world.turns.next_at
    assert names(world.round()) == {"long"}
    world.now += 100.0
    assert not world.round().pods, "nothing has changed since"
    assert world.turns.next_at is None
    world.generation += 1
    assert names(world.round()) == {"long"}


def test_pods_that_have_to_be_planned_bring_their_network() -> None:
    """Others may be evicted for them, or their place is kept."""
    world = SimulatedRounds({"long": 5.0})
    world.add(made("l0", "long"), made("l1", "long"))
    world.round()
    world.add(made("p0", "quiet"))
    assert names(world.choose("long/l0")) == {"long", "quiet"}
    assert names(world.choose()) == {"quiet"}


def test_a_new_pod_is_told_that_it_waits_for_its_turn() -> None:
    """After two seconds, and no pod that had a turn before."""
    world = SimulatedRounds({"long": 5.0})
    world.add(made("l0", "long"))
    world.round()
    world.add(made("l1", "long"))
    assert not world.round().told
    world.now += 2.0
    assert {pod.name for pod in world.round().told} == {"l1"}


def test_a_network_that_has_become_quick_is_planned_with_others_again() -> None:
    """One quick round does not hide a long one before it."""
    costs = {"long": 0.6}
    world = SimulatedRounds(costs)
    world.add(made("l0", "long"))
    world.round()
    costs["long"] = 0.01
    for expected in ({"long"}, {"long"}, {"long", "quiet"}):
        world.now += 60.0
        world.generation += 1
        if expected == {"long", "quiet"}:
            world.add(made("p", "quiet"))
        assert names(world.round()) == expected


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from([0.1, 0.5, 3.0, 8.0]), min_size=1, max_size=4),
    st.lists(st.floats(0.01, 20.0), min_size=5, max_size=30),
)
def test_others_wait_for_one_network_at_most(costs: list[float], pauses: list[float]) -> None:
    """However many: a pod that comes waits for the one that runs, and long ones have a quarter of the time together."""
    world = SimulatedRounds({f"net{number}": cost for number, cost in enumerate(costs)})
    for policy in world.costs:
        world.add(made("l", policy))
    world.round()  # nothing is known of them yet: all at once
    began = world.now
    for number, pause in enumerate(pauses):
        world.run(world.now + pause)
        world.add(made(f"p{number}", "quiet"))
    world.run(world.now + 30.0)
    quick = sum(cost for cost in costs if cost <= BOUND)
    longest = max([0.0, *(cost for cost in costs if cost > BOUND)])
    assert len(world.waits) == len(pauses)
    assert max(world.waits.values()) <= longest + 2 * quick + 4 * FIXED
    in_own = sum(seconds for _, start, seconds in world.own_rounds if start >= began)
    assert in_own <= (world.now - began) / 4 + longest + FIXED
    if longest:
        turns = {policy for policy, _, _ in world.own_rounds}
        long_ones = {policy for policy, cost in world.costs.items() if cost > BOUND}
        if world.now - began > 5 * len(long_ones) * (longest + 1) + 40.0:
            assert turns == long_ones


def test_the_deadline_of_a_round_with_networks_has_time_for_them() -> None:
    """Their work is limited by count; what rounds took before says nothing of it."""
    deadline = RoundDeadline(60.0, budget=1.0)
    deadline.round_took(0.1, {})
    assert deadline.seconds_for(10, 2, [], networks=True) == deadline.seconds_for(10, 2, []) + 20.0
    deadline.round_took(5.0, {})
    assert deadline.seconds_for(10, 2, [], networks=True) == 60.0
