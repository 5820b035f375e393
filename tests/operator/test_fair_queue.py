"""The order of writes: none is lost or sent twice, namespaces take turns, and one that fails or hangs holds up none."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from support.profiles import examples
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.api.writes.fair_queue import MAX_CONSECUTIVE_FAILURES, Entry, FairQueue, slots_for

SLOTS = 6
NAMESPACES = ("a", "b", "c")
#: Without jitter.
PAUSES = Backoff(first=1.0, longest=8.0, jitter=0.0)


def queue(slots: int = SLOTS) -> FairQueue[str]:
    return FairQueue(slots, PAUSES)


def take_all(made: FairQueue[str], now: float = 0.0) -> list[Entry[str]]:
    """Takes until there is nothing to take."""
    taken = []
    while (entry := made.take(now)) is not None:
        taken.append(entry)
    return taken


def items(entries: list[Entry[str]]) -> list[str]:
    return [entry.item for entry in entries]


def test_namespaces_take_turns() -> None:
    """However many items one of them put first."""
    made = queue(100)
    for number in range(50):
        made.put(f"a{number}", "a")
    made.put("b0", "b")
    made.put("c0", "c")
    assert items(take_all(made))[:4] == ["a0", "b0", "c0", "a1"]


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 1), (4, 3), (8, 6), (16, 12), (32, 24)])
def test_one_namespace_holds_three_quarters_of_the_slots(slots: int, most: int) -> None:
    """The others start at once though none of its requests is ever answered."""
    made = queue(slots)
    for number in range(100):
        made.put(f"a{number}", "a")
    assert len(take_all(made)) == most
    made.put("b0", "b")
    assert items(take_all(made)) == (["b0"] if slots > 1 else [])


@pytest.mark.parametrize("concurrency", range(1, 100))
def test_slots_for_a_namespace_alone(concurrency: int) -> None:
    """It holds as many as it is meant to, and others start."""
    made = queue(slots_for(concurrency))
    for number in range(200):
        made.put(f"a{number}", "a")
    assert len(take_all(made)) == concurrency
    made.put("b0", "b")
    assert items(take_all(made)) == ["b0"]


def test_many_namespaces_that_hang_leave_slots() -> None:
    """Ten namespaces of which no request is answered: another one still gets a slot."""
    made = queue(32)
    for number in range(1000):
        made.put("x", f"ns{number % 10}")
    take_all(made)
    made.put("good", "good")
    assert items(take_all(made)) == ["good"]


def test_a_share_that_comes_free_is_used() -> None:
    """A namespace that held its share goes on when any slot comes free."""
    made = queue(4)
    for number in range(9):
        made.put(f"a{number}", "a")
    first, *_ = take_all(made)
    made.finish(first, 0.0, succeeded=True)
    assert items(take_all(made)) == ["a3"]


def fail_in_a_row(made: FairQueue[str], namespace: str) -> None:
    """As many items as it takes; each fails and rests for a second."""
    for number in range(MAX_CONSECUTIVE_FAILURES):
        made.put(f"{namespace}{number}", namespace)
        entry = made.take(0.0)
        assert entry is not None
        made.retry(entry, 0.0, 1.0, succeeded=False)


def test_a_namespace_that_fails_gets_one_request_at_a_time() -> None:
    """With pauses that double, until one succeeds: then all go at once."""
    made, now = queue(), 0.0
    fail_in_a_row(made, "a")
    pauses = []
    for _ in range(6):
        begun = now
        while not (probes := take_all(made, now)):
            assert made.next_timer is not None
            now = max(now, made.next_timer)
        pauses.append(now - begun)
        (probe,) = probes
        made.retry(probe, now, 0.0, succeeded=False)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    (probe,) = take_all(made, now + 8.0)
    made.finish(probe, now + 8.0, succeeded=True)
    assert len(take_all(made, now + 8.0)) == MAX_CONSECUTIVE_FAILURES - 1


def test_one_item_that_fails_again_and_again_says_nothing_of_the_others() -> None:
    """It rests by itself; its namespace keeps its rate."""
    made = queue()
    made.put("bad", "a")
    for now in range(20):
        (entry,) = take_all(made, float(now))
        made.retry(entry, float(now), 1.0, succeeded=False)
    for number in range(4):
        made.put(f"a{number}", "a")
    assert len(take_all(made, 20.0)) == 4


def test_a_refusal_is_an_answer() -> None:
    """Whatever an API server says of an item: the namespace is not held up for it."""
    made = queue()
    for number in range(3 * MAX_CONSECUTIVE_FAILURES):
        made.put(f"a{number}", "a")
        (entry,) = take_all(made)
        made.retry(entry, 0.0, 100.0, succeeded=True)
    made.put("new", "a")
    assert items(take_all(made)) == ["new"]


def test_a_new_item_is_the_next_probe_but_one() -> None:
    """Where items fail for ever, a new one does not wait for all of them."""
    made = queue()
    fail_in_a_row(made, "a")
    now = 100.0
    made.put("new", "a")
    tried: list[str] = []
    for _ in range(2):
        now += 10.0
        (probe,) = take_all(made, now)
        tried.append(probe.item)
        made.retry(probe, now, 1.0, succeeded=False)
    assert "new" in tried


def test_namespaces_that_fail_get_half_of_the_slots() -> None:
    """A hundred of them, and none of their requests is ever answered again: the others keep half."""
    made = queue(32)
    for number in range(100):
        fail_in_a_row(made, f"ns{number}")
    assert len(take_all(made, 10.0)) == 16
    for number in range(12):
        made.put(f"good{number}", f"good{number}")
    assert items(take_all(made, 10.0)) == [f"good{number}" for number in range(12)]


def test_a_namespace_without_items_is_forgotten() -> None:
    """Whatever became of them: nothing grows with the names that were ever seen."""
    made = queue()
    for number in range(1000):
        made.put("x", f"ns{number}")
        entry = made.take(0.0)
        assert entry is not None
        made.finish(entry, 0.0, succeeded=number % 2 == 0)
    assert (made.namespaces, made.length, made.next_timer) == (0, 0, None)


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8), tried=st.lists(st.booleans(), max_size=48))
def test_each_namespace_is_served_once_in_a_round_of_turns(lengths: list[int], tried: list[bool]) -> None:
    """Among as many takes in a row as there are namespaces with something due, each of these is served."""
    made = queue(1000)
    for namespace, length in enumerate(lengths):
        for number in range(length):
            made.put(f"{namespace} {number}", str(namespace))
    taken = take_all(made)
    for entry, again in zip(taken, tried, strict=False):
        if again:
            made.retry(entry, 0.0, 1.0, succeeded=True)
    left = {str(namespace): length for namespace, length in enumerate(lengths)}
    waited = dict.fromkeys(left, 0)
    for entry in taken:
        served = entry.queue.namespace
        for namespace, count in left.items():
            waited[namespace] = waited[namespace] + 1 if count and namespace != served else 0
            assert waited[namespace] < len(lengths)
        left[served] -= 1
    assert not any(left.values())
    assert len(take_all(made, 1.0)) == sum(again for _, again in zip(taken, tried, strict=False))


class Machine(RuleBasedStateMachine):
    """Items are put, taken, and given back in any order, by a clock that jumps ahead."""

    flying = Bundle("flying")

    def __init__(self) -> None:
        super().__init__()
        self.queue = queue()
        self.now = 0.0
        self.number = 0
        #: Items that were put and are not done with.
        self.there: set[str] = set()
        self.in_flight: dict[str, Entry[str]] = {}
        #: Of each namespace, items in the order in which they are to be taken first.
        self.order: dict[str, deque[str]] = {name: deque() for name in NAMESPACES}

    @rule(namespace=st.sampled_from(NAMESPACES), count=st.integers(1, 5))
    def put(self, namespace: str, count: int) -> None:
        for _ in range(count):
            self.number += 1
            item = f"{namespace}{self.number}"
            self.there.add(item)
            self.order[namespace].append(item)
            self.queue.put(item, namespace)

    @rule(target=flying, most=st.integers(1, SLOTS))
    def take(self, most: int) -> object:
        taken = []
        while len(taken) < most and (entry := self.queue.take(self.now)) is not None:
            assert entry.item in self.there, "lost, or sent after it was done"
            assert entry.item not in self.in_flight, "sent twice at a time"
            self.in_flight[entry.item] = entry
            if entry.tries == 1:
                assert self.order[entry.item[0]].popleft() == entry.item, "out of order"
            taken.append(entry)
        return multiple(*taken)

    @rule(entry=consumes(flying), succeeded=st.sampled_from([True, False, None]))
    def finish(self, entry: Entry[str], *, succeeded: bool | None) -> None:
        del self.in_flight[entry.item]
        self.there.remove(entry.item)
        self.queue.finish(entry, self.now, succeeded=succeeded)

    @rule(entry=consumes(flying), rest=st.floats(0.0, 20.0), succeeded=st.sampled_from([True, False, False, None]))
    def retry(self, entry: Entry[str], rest: float, *, succeeded: bool | None) -> None:
        del self.in_flight[entry.item]
        self.queue.retry(entry, self.now, rest, succeeded=succeeded)

    @rule(seconds=st.floats(0.0, 30.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def counts(self) -> None:
        assert self.queue.length == len(self.there)
        assert self.queue.in_flight == len(self.in_flight) <= SLOTS
        assert self.queue.namespaces == len({item[0] for item in self.there})

    @invariant()
    def nothing_is_stuck(self) -> None:
        """What is not in flight is due now or has a timer, unless what is in flight holds it up."""
        idle = len(self.there) - len(self.in_flight)
        assert not idle or self.queue.ready or self.queue.next_timer is not None or self.in_flight

    def teardown(self) -> None:
        """Once all requests succeed, all items are done within a bounded number of turns."""
        for entry in self.in_flight.values():
            self.queue.finish(entry, self.now, succeeded=True)
            self.there.remove(entry.item)
        turns = 0
        while self.there:
            turns += 1
            assert turns <= 3 * self.number + 10, f"not served: {self.there}"
            entry = self.queue.take(self.now)
            if entry is None:
                assert self.queue.next_timer is not None, f"forgotten: {self.there}"
                self.now = max(self.now, self.queue.next_timer)
                continue
            self.there.remove(entry.item)
            self.queue.finish(entry, self.now, succeeded=True)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
