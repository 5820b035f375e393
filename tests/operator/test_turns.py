"""No namespace takes more than its share of a round's time, by what its pods were measured to cost."""

from collections.abc import Callable, Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from thalweg_operator.planning.quarantine import Quarantine
from thalweg_operator.planning.turns import BOUND, CALM_BOUND, NamespaceTurns, TurnSelection

from flowcore.model.gang_spec import GangKey, GangRef, GangSource
from flowcore.model.pods import Pod, PodClass

#: What a round costs whatever it plans.
FIXED = 0.005


def made(name: str, namespace: str, shape: int = 0, priority: int = 0, gang: str = "") -> Pod:
    ref = GangRef(GangKey(GangSource.NATIVE, namespace, gang)) if gang else None
    pod_class = PodClass(requests=(("cpu", 100 + shape),), priority=priority)
    return Pod(namespace=namespace, name=name, uid=f"{namespace}/{name}", pod_class=pod_class, gang=ref)


class SimulatedRounds:
    """Rounds whose time follows from their pods: what fits is planned and gone, the rest waits on.

    Attributes:
        planned: number of rounds that had each pod, by uid.
        waits: seconds from when a pod came to the end of the round that placed it, by uid.
        rounds: start and seconds of each round.
    """

    def __init__(self, cost: Callable[[Pod], float], fits: Callable[[Pod], bool]) -> None:
        self.turns = NamespaceTurns(Quarantine().class_key)
        self.cost, self.fits = cost, fits
        #: What does not help pods that were planned in vain is counted in ``harmless`` too.
        self.now, self.generation, self.harmless = 1000.0, 0, 0
        self.waiting: dict[str, Pod] = {}
        self.came: dict[str, float] = {}
        self.planned: dict[str, int] = {}
        self.waits: dict[str, float] = {}
        self.rounds: list[tuple[float, float]] = []
        self.last = TurnSelection(())
        #: Seconds that pass for each second of CPU time.
        self.slowness = 1.0

    def add(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self.waiting[pod.uid], self.came[pod.uid] = pod, self.now
        self.harmless += 1
        self.generation += 1

    def round(self) -> TurnSelection:
        chosen = self.last = self.choose()
        seconds: dict[str, float] = {}
        for namespace, *_, cost in {(pod.namespace, pod.pod_class, pod.gang, self.cost(pod)) for pod in chosen.pods}:
            seconds[namespace] = seconds.get(namespace, FIXED) + cost
        took = sum(seconds.values())
        self.rounds.append((self.now, took))
        self.now += took * self.slowness
        if chosen.pods:
            self.turns.took(seconds, self.now, {pod.uid for pod in chosen.pods if not self.fits(pod)})
        for pod in chosen.pods:
            self.planned[pod.uid] = self.planned.get(pod.uid, 0) + 1
            if self.fits(pod):
                self.waits[pod.uid] = self.now - self.came[pod.uid]
                del self.waiting[pod.uid]
                self.harmless += 1
                self.generation += 1
        self.turns.retain(self.waiting.values())
        return chosen

    def choose(self, *always: str) -> TurnSelection:
        helped = self.generation - self.harmless
        return self.turns.choose(list(self.waiting.values()), self.generation, helped, self.now, always)

    def run(self, until: float) -> None:
        """Rounds while there is reason for one; the loop rests in between."""
        last = -1
        while self.now < until:
            due = self.turns.next_at
            if self.generation != last or self.last.more or (due is not None and due <= self.now):
                last = self.generation
                self.round()
            else:
                self.now = min(until, until if due is None else max(due, self.now))
        self.now = max(self.now, until)


def poisoned(count: int, each: float) -> SimulatedRounds:
    """Mallory's pods fit nowhere and cost so much each; all others cost little and fit."""
    world = SimulatedRounds(
        lambda pod: each if pod.namespace == "mallory" else 0.001, lambda pod: pod.namespace != "mallory"
    )
    world.add(made(f"m{at}", "mallory", at) for at in range(count))
    return world


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(1, 400), st.sampled_from([0.001, 0.01, 0.1]), st.lists(st.floats(0.01, 2.0), min_size=5, max_size=20)
)
def test_others_wait_for_one_part_at_most(count: int, each: float, pauses: list[float]) -> None:
    """Whatever one namespace costs: a pod that comes waits for a part that runs, and for its own round.

    A lot that costs more than the bound by itself is planned alone, and is waited for.
    """
    world = poisoned(count, each)
    world.round()  # nothing is known of these pods: the first round plans them all
    for at, pause in enumerate(pauses):
        world.run(world.now + pause)
        world.add([made(f"p{at}", "quiet", at)])
    world.run(world.now + 5.0)
    # Seconds from the lots themselves; the fixed costs of at most three rounds are beside them.
    assert max(world.waits.values()) <= 2 * BOUND + 2 * (1.01 * each) + 6 * FIXED
    assert len(world.waits) == len(pauses)


def test_pods_that_were_planned_in_vain_have_a_part_of_the_time() -> None:
    """Others' pods come twice a second: a quarter of the time goes to those that fit nowhere, not all of it."""
    world = poisoned(300, 0.02)
    world.round()
    start = world.now
    for at in range(60):
        world.run(start + 0.5 * at)
        world.add([made(f"p{at}", "quiet", at)])
    busy = sum(seconds for began, seconds in world.rounds if began >= start)
    assert busy < 0.4 * (world.now - start)
    assert sorted(world.waits.values())[30] < 0.05, "most wait for no part"
    assert min(world.planned.values()) > 0


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 200), st.sampled_from([0.002, 0.02, 0.4]), st.integers(1, 4), st.integers(0, 2))
def test_every_lot_has_its_turn(count: int, each: float, namespaces: int, priorities: int) -> None:
    """After a change of the cluster each pod that fits nowhere is planned again, in time that follows from its cost."""
    world = SimulatedRounds(lambda _pod: each, lambda _pod: False)
    pods = [
        made(f"p{at}", f"ns{at % namespaces}", at, priority=at % (priorities + 1)) for at in range(count * namespaces)
    ]
    world.add(pods)
    world.round()
    before = dict(world.planned)
    world.generation += 1
    world.run(world.now + 10.0 + 20.0 * (each + FIXED) * len(pods))
    assert all(world.planned[pod.uid] > before[pod.uid] for pod in pods)


def test_without_a_change_each_is_planned_once_more_at_most() -> None:
    """Nothing became better for them: the worker rests."""
    world = poisoned(100, 0.02)
    world.round()
    world.generation += 1
    world.run(world.now + 600)
    assert world.turns.next_at is None
    assert set(world.planned.values()) <= {2, 3}


def test_new_pods_of_a_dear_namespace_follow_at_once() -> None:
    """Parts follow each other without a rest until each was planned: no time is left unused while new pods wait."""
    world = poisoned(100, 0.02)
    world.round()
    world.run(world.now + 60)
    world.waiting.clear()
    start = world.now
    world.add(made(f"n{at}", "mallory", 1000 + at) for at in range(60))
    world.run(start + 60 * 0.02 * 1.5 + 0.2)
    assert all(world.planned.get(f"mallory/n{at}") for at in range(60))


def test_a_quiet_cluster_and_a_burst_are_planned_whole() -> None:
    """As long as nothing costs much, and for a burst of equal pods also where it does."""
    world = SimulatedRounds(lambda _pod: 0.0005, lambda _pod: False)
    for at in range(5):
        world.add(made(f"p{at}-{each}", f"ns{each % 7}", each) for each in range(20))
        assert not world.round().deferred
    # 2,000 equal pods took a second, and more of them come while others wait.
    burst = SimulatedRounds(
        lambda pod: 1.0 if pod.namespace == "burst" else 0.001, lambda pod: pod.namespace == "burst"
    )
    burst.add(made(f"h{at}", "others", at) for at in range(5))
    for number in range(3):
        burst.add(made(f"b{number}-{at}", "burst") for at in range(2000))
        chosen = burst.round()
        assert sum(pod.namespace == "burst" for pod in chosen.pods) == 2000


def test_cheap_namespaces_are_planned_whole_beside_a_dear_one() -> None:
    """What costs less than its share is never cut: also pods that wait for room."""
    world = poisoned(200, 0.05)
    world.fits = lambda _pod: False
    world.add(made(f"p{at}", f"ns{at % 5}", at) for at in range(50))
    world.round()
    for _ in range(20):
        world.now += 1.0
        world.generation += 1
        chosen = world.round()
        assert sum(pod.namespace != "mallory" for pod in chosen.pods) == 50
        assert 0 < sum(pod.namespace == "mallory" for pod in chosen.pods) <= 6


def test_gangs_and_equal_pods_are_never_divided() -> None:
    """A part has all pods of a gang, or none."""
    world = SimulatedRounds(lambda _pod: 0.1, lambda _pod: False)
    world.add(made(f"g{gang}-{at}", "ns", at, gang=f"g{gang}") for gang in range(10) for at in range(5))
    world.round()
    for _ in range(20):
        world.now += 1.0
        world.generation += 1
        chosen = world.round()
        sizes = [sum(pod.name.startswith(f"g{gang}-") for pod in chosen.pods) for gang in range(10)]
        assert set(sizes) <= {0, 5}
    assert min(world.planned.values()) >= 2


def test_the_highest_priority_has_every_second_turn() -> None:
    """An urgent pod among many is not planned as seldom as they are: room that comes free is offered to it."""
    world = SimulatedRounds(lambda _pod: 0.1, lambda _pod: False)
    world.add([made("urgent", "ns", 999, priority=100), *(made(f"p{at}", "ns", at) for at in range(40))])
    world.round()
    for _ in range(20):
        world.now += 1.0
        world.generation += 1
        world.round()
    assert world.planned["ns/urgent"] >= 10


def test_of_lots_of_one_round_the_highest_priority_is_first() -> None:
    """Nodes come for lots that one round planned in vain, and a round has time for a part: low ones do not get them."""
    world = SimulatedRounds(lambda _pod: 0.02, lambda _pod: False)
    pods = [made(f"p{at:02}", "mallory", at, priority=int(at % 3 == 0)) for at in range(30)]
    world.add(pods)
    world.round()
    world.generation += 1
    chosen = {pod.uid for pod in world.choose().pods}
    assert chosen >= {pod.uid for pod in pods if pod.pod_class.priority}
    assert len(chosen) < len(pods)


def test_one_long_round_does_not_bind_a_namespace_for_long() -> None:
    """A round may be long once, for caches that are cold: what is measured then counts until it is measured again."""
    slow = [True]
    world = SimulatedRounds(lambda _pod: 1.0 if slow else 0.001, lambda _pod: False)
    world.add(made(f"p{at}", "ns", at) for at in range(5))
    world.round()
    slow.clear()
    start = world.now
    while world.last.deferred or world.now == start:
        world.now += 1.0
        world.generation += 1
        world.round()
    assert world.now - start < 60


def test_pods_that_must_be_planned_are() -> None:
    """Others are about to be evicted for them, or they hold a place."""
    world = poisoned(100, 0.1)
    world.round()
    for at in range(5):
        world.generation += 1
        chosen = world.choose(f"mallory/m{at}")
        assert f"mallory/m{at}" in {pod.uid for pod in chosen.pods}


def test_who_waits_for_its_first_turn_is_told() -> None:
    """After two seconds, and only pods that no round has planned: the others have a reason."""
    world = poisoned(100, 1.0)
    world.round()
    world.run(world.now + 1.0)
    world.add(made(f"n{at}", "mallory", 1000 + at) for at in range(10))
    told = set[str]()
    for _ in range(6):
        told |= {pod.name for pod in world.round().told}
    assert told
    assert told <= {f"n{at}" for at in range(10)}


def retried_after(world: SimulatedRounds, namespace: str, rounds: int) -> int:
    """How many rounds of a cluster that changes all the time pass until each pod of a namespace is planned again."""
    before = dict(world.planned)
    for number in range(1, rounds + 1):
        world.now += 0.1
        world.generation += 1
        world.round()
        if all(count > before[uid] for uid, count in world.planned.items() if uid.startswith(f"{namespace}/")):
            return number
    raise AssertionError(f"not within {rounds} rounds")


def test_a_new_dear_lot_does_not_wait_for_the_end_of_a_stream() -> None:
    """New pods of others come for each round, and cost little: the dear lot of a namespace that used less is due."""
    world = SimulatedRounds(lambda pod: 0.5 if pod.namespace == "dear" else 0.01, lambda pod: pod.namespace == "stream")
    world.add([*(made(f"d{at}", "dear", at) for at in range(3)), *(made(f"s{at}", "stream", at) for at in range(10))])
    world.round()
    world.add([made("new", "dear", 99)])
    for at in range(100):
        world.add([made(f"t{at}", "stream", 100 + at)])
        world.round()
    assert world.planned["dear/new"] >= 1


def test_a_namespace_with_few_lots_does_not_take_all_time_for_pods_planned_in_vain() -> None:
    """It would be first in each round, and spend what comes free between two rounds."""
    costs = {"many": 0.05, "some": 0.02, "few": 0.01}
    world = SimulatedRounds(lambda pod: costs[pod.namespace], lambda _pod: False)
    for namespace, count in (("many", 60), ("some", 8), ("few", 5)):
        world.add(made(f"p{at}", namespace, at) for at in range(count))
    world.round()
    assert retried_after(world, "some", 60) <= 60


def test_a_large_lot_is_not_passed_over_by_small_ones_for_ever() -> None:
    """5,000 equal pods of a Job cost more than a part; single pods of the same namespace fill each part."""
    world = SimulatedRounds(lambda _pod: 0.01, lambda _pod: False)
    world.add([*(made(f"p{at}", "ns", at) for at in range(100)), *(made(f"j{at}", "ns", 999) for at in range(5000))])
    world.round()
    before = world.planned["ns/j0"]
    for _ in range(60):
        world.now += 0.1
        world.generation += 1
        world.round()
    assert world.planned["ns/j0"] > before


def test_low_priorities_have_their_turn_whatever_the_pauses() -> None:
    """After a dear lot there are rounds without one; an even number of them must not skip every turn by age."""
    left = []
    for pause in (0.1, 0.15, 0.2, 0.25, 0.3):
        world = SimulatedRounds(lambda _pod: 0.1, lambda _pod: False)
        for namespace in ("a", "b"):
            world.add(made(f"p{at}", namespace, at, priority=9 * (at % 2)) for at in range(20))
        world.round()
        before, end = dict(world.planned), world.now + 60
        while world.now < end:
            world.now += pause
            world.generation += 1
            world.round()
        left += [(pause, uid) for uid in before if world.planned[uid] == before[uid]]
    assert not left


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(60, 400), st.sampled_from([0.0003, 0.0005, 0.002]), st.sampled_from([0.02, 0.1, 0.3]))
def test_new_pods_do_not_wait_for_pods_that_nothing_helped(count: int, each: float, pause: float) -> None:
    """Also where all that waits costs less than the bound: a new pod waits for a small part, and for its own round.

    Those that were planned in vain have their turn again and again all the same: a rule may ask for a new pod.
    """
    world = poisoned(count, each)
    world.round()
    world.round()  # what they cost is known
    start, before = world.now, dict(world.planned)
    for at in range(40):
        world.run(start + pause * at)
        world.add([made(f"p{at}", "quiet", at)])
    cycle = count * each + count // 20 * FIXED
    world.run(world.now + 4.0 + 6 * cycle)
    assert max(world.waits.values()) <= CALM_BOUND + 0.01 + 4 * FIXED
    assert all(world.planned[uid] > number for uid, number in before.items())


def test_on_a_busy_machine_the_pauses_are_as_much_longer() -> None:
    """CPU time says who pays; what others wait for is the time that passes."""
    world = poisoned(300, 0.001)
    world.slowness = 8.0
    world.round()
    world.round()
    start, before = world.now, dict(world.planned)
    for at in range(200):
        world.run(start + 0.5 * at)
        world.add([made(f"p{at}", "quiet", at)])
    busy = sum(8.0 * seconds for began, seconds in world.rounds if began >= start)
    assert busy < 0.45 * (world.now - start)
    assert all(world.planned[uid] > number for uid, number in before.items())
    assert sorted(world.waits.values())[100] < 0.2, "most wait for no part"


def test_room_that_came_free_is_offered_to_all_at_once() -> None:
    """Below the bound the oldest and the most urgent go first, beside pods that come just then."""
    world = poisoned(300, 0.0005)
    world.round()
    world.add([made("p", "quiet")])
    assert {pod.namespace for pod in world.round().pods} == {"quiet"}
    world.add([made("q", "quiet")])
    world.generation += 1
    assert len(world.round().pods) == 301


def test_a_stream_without_a_pause_leaves_time_for_those_that_wait() -> None:
    """A new pod in every round: parts are planned beside them."""
    world = poisoned(300, 0.0005)
    world.round()
    before, end = dict(world.planned), world.now + 20.0
    at = 0
    while world.now < end:
        at += 1
        world.add([made(f"p{at}", "quiet", at)])
        world.round()
    assert all(world.planned[uid] > number for uid, number in before.items())
    assert max(world.waits.values()) <= CALM_BOUND + 4 * FIXED


def test_what_helped_helps_pods_of_later_parts_too() -> None:
    """After rounds that were too large each round has a part of the pods: what comes free is for those of all parts."""
    world = poisoned(40, 0.01)
    world.round()
    world.generation += 1
    everybody = dict(world.waiting)
    for part in (list(everybody)[:20], list(everybody)[20:]):
        world.waiting = {uid: everybody[uid] for uid in part}
        chosen = world.choose()
        assert chosen.pods
        world.turns.took({"mallory": 0.01 * len(chosen.pods)}, world.now, {pod.uid for pod in chosen.pods})
        world.turns.retain(everybody.values())


def test_what_helped_helps_after_a_round_that_failed() -> None:
    """The pods of a round without a plan had no turn."""
    world = poisoned(20, 0.01)
    world.round()
    world.generation += 1
    assert len(world.choose().pods) == 20  # and the worker was lost
    world.now += 1.0
    assert world.choose().pods


def test_what_got_a_node_was_not_planned_in_vain() -> None:
    """Room comes for all of several parts: the next part follows at once, also where rounds take long by the clock."""
    world = poisoned(200, 0.01)
    world.slowness = 4.0
    world.round()
    world.fits = lambda _pod: True
    world.generation += 1  # it helps
    began, most = world.now, 0.01 * 200
    world.run(began + 60.0)
    assert not world.waiting
    assert max(world.waits.values()) - (began - 1000.0) < 2 * world.slowness * most
