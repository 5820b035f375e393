"""Pods with which no round ends are found, rest, and delay nobody else for long."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import ceil, log2

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from thalweg_operator.planning.deadline import RoundDeadline
from thalweg_operator.planning.quarantine import Quarantine

from flowcore.model.gang_spec import GangKey, GangRef, GangSource
from flowcore.model.pods import Pod, PodClass


def made(name: str, shape: int = 0, namespace: str = "ns", gang: str = "") -> Pod:
    ref = GangRef(GangKey(GangSource.NATIVE, namespace, gang)) if gang else None
    pod_class = PodClass(requests=(("cpu", 100 + shape),))
    return Pod(namespace=namespace, name=name, uid=f"u-{name}", pod_class=pod_class, gang=ref)


class Cluster:
    """Rounds that fail when they have to plan a bad pod; what is planned is gone, unless it stays pending.

    Attributes:
        planned: pods, and when.
        failures: of rounds, and when.
    """

    def __init__(self, is_bad: Callable[[Pod], bool], lost: float = 5.0) -> None:
        self.quarantine, self.now, self.lost, self.is_bad = Quarantine(), 0.0, lost, is_bad
        self.most = 10**9
        self.waiting: dict[str, Pod] = {}
        self.planned: dict[str, float] = {}
        self.failures: list[float] = []
        self.reasons: dict[str, str] = {}
        self.more = False
        self.deferred: list[Pod] = []

    def add(self, pods: Iterable[Pod]) -> None:
        self.waiting.update((pod.uid, pod) for pod in pods)

    def round(self) -> None:
        choice = self.quarantine.choose(list(self.waiting.values()), self.now)
        self.more, self.deferred = choice.more, list(choice.deferred)
        self.reasons = {pod.uid: reason for pod, reason in choice.backing_off}
        assert not {pod.uid for pod in choice.pods} & self.reasons.keys()
        if any(map(self.is_bad, choice.pods)) or len(choice.pods) > self.most:
            self.now += self.lost
            self.failures.append(self.now)
            self.quarantine.failed(self.now, self.lost, f"no plan after {self.lost:.0f} s")
            self.more = True
            return
        self.now += 0.1
        self.quarantine.succeeded(self.now)
        for pod in choice.pods:
            self.planned[pod.uid] = self.now
            del self.waiting[pod.uid]

    def run(self, most: int = 10_000) -> None:
        """Rounds until nothing is left to do but what backs off; pauses of namespaces pass."""
        for _ in range(most):
            self.round()
            if not self.more:
                if not self.deferred:
                    return
                pause_ends = self.quarantine.next_retry(self.now)
                assert pause_ends is not None
                self.now = pause_ends
        raise AssertionError("no end")


@given(st.lists(st.integers(0, 40), max_size=120), st.sets(st.integers(0, 40)))
def test_all_healthy_pods_are_planned_within_a_bounded_number_of_failed_rounds(
    shapes: list[int], bad: set[int]
) -> None:
    """Whatever classes are bad among whatever pods: all that are healthy are planned, the bad ones rest."""
    pods = [made(f"p{at}", shape) for at, shape in enumerate(shapes)]
    poison = {made("", shape).pod_class for shape in bad}
    cluster = Cluster(lambda pod: pod.pod_class in poison, lost=0.5)
    cluster.add(pods)
    cluster.run()
    healthy = {pod.uid for pod in pods if pod.pod_class not in poison}
    assert set(cluster.planned) == healthy
    assert set(cluster.reasons) == {pod.uid for pod in pods} - healthy
    assert cluster.quarantine.next_retry(cluster.now) is not None or not set(cluster.reasons)
    found = len({pod.pod_class for pod in pods} & poison)
    # Down to one class, then at most three of its pods, the first of them twice.
    assert len(cluster.failures) <= found * (ceil(log2(max(2, len(pods)))) + 6)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.data())
def test_bad_pods_of_a_class_that_is_fine_are_found_one_by_one(shapes: list[int], data: st.DataObject) -> None:
    """No healthy pod stays in quarantine for having the class of a bad one, where another of that class was planned."""
    fine = [made(f"fine{shape}", shape) for shape in set(shapes)]
    pods = [made(f"p{at}", shape) for at, shape in enumerate(shapes)]
    bad = data.draw(st.sets(st.sampled_from([pod.uid for pod in pods]), max_size=2))
    cluster = Cluster(lambda pod: pod.uid in bad, lost=0.5)
    cluster.add([*fine, *pods])
    cluster.run()
    assert set(cluster.planned) == {pod.uid for pod in [*fine, *pods]} - bad
    assert set(cluster.reasons) == bad


def test_a_hundred_pods_of_a_bad_class_are_one_poison() -> None:
    """After three of them failed the others rest with them, and only one of them is tried again."""
    cluster = Cluster(lambda pod: pod.pod_class == made("", 1).pod_class)
    cluster.add(made(f"bad{at}", 1) for at in range(100))
    cluster.add(made(f"good{at}", 2) for at in range(100))
    cluster.run()
    assert len(cluster.planned) == 100
    assert len(cluster.failures) <= 6
    failures = len(cluster.failures)
    cluster.add([made("another", 1)])
    cluster.run()
    assert len(cluster.failures) == failures
    assert "u-another" in cluster.reasons


def test_what_rests_is_told_why_and_tried_again_after_growing_pauses() -> None:
    """The reason names the problem and the pause; what is no longer bad is planned with the next try."""
    bad = {"u-bad"}
    cluster = Cluster(lambda pod: pod.uid in bad)
    cluster.add([made("bad"), made("good", 1)])
    cluster.run()
    assert cluster.reasons == {"u-bad": "planning this pod failed: no plan after 5 s; next try in 8 min"}
    tries = []
    for _ in range(4):
        cluster.add([made(f"later{len(tries)}", 1)])
        cluster.run()
        due = cluster.quarantine.next_retry(cluster.now)
        assert due is not None
        cluster.now = due - 0.2
        before = len(cluster.failures)
        cluster.run()
        assert len(cluster.failures) == before
        cluster.now = due
        cluster.run()
        assert len(cluster.failures) == before + 1
        tries.append(cluster.failures[-1])
    pauses = [round(later - earlier) for earlier, later in pairwise(tries)]
    assert pauses == [1005, 2005, 3605]
    bad.clear()
    cluster.now += 4000
    cluster.run()
    assert "u-bad" in cluster.planned
    assert not len(cluster.quarantine)


def test_many_that_rest_are_tried_one_at_a_time() -> None:
    """All tries together cost at most a hundredth of the time, however many pods rest."""
    cluster = Cluster(lambda pod: "bad" in pod.name)
    for at in range(4):
        cluster.add([made(f"bad{at}", at, f"ns{at}")])
    cluster.run()
    start, failures = cluster.now, len(cluster.failures)
    while cluster.now < start + 10_000:
        cluster.now += 10
        cluster.add([made(f"good{cluster.now}", 9)])
        cluster.run()
    assert (len(cluster.failures) - failures) * cluster.lost <= 10_000 / 100 + cluster.lost


def test_once_the_bad_pods_are_known_nobody_waits_for_them() -> None:
    """Five bad pods among 300 arrivals: once they are named, 99 of 100 others are planned within 2 seconds."""
    cluster = Cluster(lambda pod: "bad" in pod.name)
    cluster.add(made(f"bad{at}", at) for at in range(5))
    cluster.run()
    assert {f"u-bad{at}" for at in range(5)} == set(cluster.reasons)
    born = {}
    for at in range(300):
        cluster.now += 0.3
        pod = made(f"good{at}", at % 7)
        born[pod.uid] = cluster.now
        cluster.add([pod])
        cluster.round()
    cluster.run()
    waits = sorted(cluster.planned[uid] - born[uid] for uid in born)
    assert waits[-4] < 2.0


def test_others_have_every_second_round_while_suspects_are_searched() -> None:
    """A pod that comes while halves are tried is planned after at most one of them."""
    cluster = Cluster(lambda pod: "bad" in pod.name)
    cluster.add([*(made(f"good{at}", at) for at in range(64)), made("bad", 99)])
    cluster.round()
    waits = []
    for at in range(10):
        cluster.add([made(f"late{at}", at)])
        born = cluster.now
        while f"u-late{at}" not in cluster.planned:
            cluster.round()
        waits.append(cluster.now - born)
    assert max(waits) < 2 * cluster.lost


def test_one_failure_is_no_proof() -> None:
    """A worker that ended once, for whatever reason: its pod is planned with the next round, and nothing rests."""
    failing = [True]
    cluster = Cluster(lambda _pod: bool(failing) and failing.pop())
    cluster.add([made("p")])
    cluster.run()
    assert "u-p" in cluster.planned
    assert not len(cluster.quarantine)


def test_where_nothing_can_be_planned_the_pods_are_not_at_fault() -> None:
    """No round ends for ten minutes, then all do: within a minute or so everything is planned, and nothing rests."""
    broken = [True]
    cluster = Cluster(lambda _pod: bool(broken), lost=2.0)
    cluster.add(made(f"p{at}", at) for at in range(50))
    while cluster.now < 600.0:
        cluster.round()
        cluster.now += 0.0 if cluster.more else 1.0
    broken.clear()
    end = cluster.now
    while cluster.waiting and cluster.now < end + 1000:
        cluster.round()
        cluster.now += 0.0 if cluster.more else 1.0
    assert cluster.now < end + 90.0
    assert not len(cluster.quarantine)
    assert len(cluster.planned) == 50


def test_too_much_at_once_is_planned_in_parts() -> None:
    """A thousand pods that no round can plan at once, none of them at fault: all planned, and later ones in parts."""
    cluster = Cluster(lambda _pod: False)
    cluster.most = 300
    cluster.add(made(f"p{at}", at % 10) for at in range(1000))
    cluster.run()
    assert len(cluster.planned) == 1000
    failures = len(cluster.failures)
    assert failures <= 8
    cluster.add(made(f"q{at}", at % 10) for at in range(1000))
    cluster.run()
    assert len(cluster.planned) == 2000
    assert len(cluster.failures) == failures
    assert not len(cluster.quarantine)


@given(st.lists(st.booleans(), min_size=31, max_size=120))
def test_parts_leave_nobody_out_while_pods_of_earlier_parts_are_bound(bound: list[bool]) -> None:
    """Whichever pods of a part are bound before the next part is chosen: each pod has its turn before rounds pause."""
    cluster = Cluster(lambda _pod: False)
    cluster.most = 30
    cluster.add(made(f"p{at}", at % 10) for at in range(100))
    cluster.run()
    waiting = [made(f"q{at}", at % 10) for at in range(len(bound))]
    is_bound = {pod.uid: answer for pod, answer in zip(waiting, bound, strict=True)}
    chosen: set[str] = set()
    for _ in range(2):
        left = {pod.uid for pod in waiting}
        chosen.clear()
        more = True
        while more:
            choice = cluster.quarantine.choose(waiting, cluster.now)
            cluster.quarantine.succeeded(cluster.now)
            more = choice.more
            part = {pod.uid for pod in choice.pods}
            assert not chosen & part, "planned twice before others were planned once"
            chosen |= part
            waiting = [pod for pod in waiting if not (pod.uid in part and is_bound[pod.uid])]
        assert chosen == left


@given(st.integers(0, 12), st.integers(1, 120))
def test_what_was_planned_before_a_change_is_planned_after_it_too(rounds: int, count: int) -> None:
    """Whenever something changes between two parts: each pod that waits is planned after it, before rounds pause."""
    cluster = Cluster(lambda _pod: False)
    cluster.most = 30
    cluster.add(made(f"p{at}", at % 10) for at in range(100))
    cluster.run()
    waiting = [made(f"q{at}", at % 10) for at in range(count)]
    for _ in range(rounds):
        cluster.quarantine.choose(waiting, cluster.now, helped=1)
        cluster.quarantine.succeeded(cluster.now)
    planned: set[str] = set()
    more, turns = True, 0
    while more:
        choice = cluster.quarantine.choose(waiting, cluster.now, helped=2)
        cluster.quarantine.succeeded(cluster.now)
        planned |= {pod.uid for pod in choice.pods}
        more, turns = choice.more, turns + 1
    assert planned == {pod.uid for pod in waiting}
    assert turns <= 2 * ceil(count / 8), "and not for ever"


@given(st.lists(st.tuples(st.integers(0, 60), st.lists(st.booleans(), max_size=60)), min_size=1, max_size=12))
def test_newcomers_take_no_turns_of_others(rounds: list[tuple[int, list[bool]]]) -> None:
    """A namespace that comes first creates pods each round and replaces others: the rest has its turns all the same."""
    cluster = Cluster(lambda _pod: False)
    cluster.most = 30
    cluster.add(made(f"p{at}", at % 10) for at in range(100))
    cluster.run()
    limit = cluster.quarantine._small_rounds
    assert limit is not None
    steady = [made(f"steady{at}", at % 10) for at in range(50)]
    starved, churning = {pod.uid for pod in steady}, list[Pod]()
    # First the newcomers as they are drawn, then as many of them in each round as it has room for, all new.
    turns = [*rounds, *[(limit.max_items, [])] * (ceil((60 * 2 + len(steady)) / limit.max_items) + 2)]
    for number, (created, stay) in enumerate(turns):
        kept = [pod for pod, stays in zip(churning, stay, strict=False) if stays]
        churning = [*(made(f"new{number}-{at}", at % 10, "evil") for at in range(created)), *kept][:60]
        present = {pod.uid for pod in [*churning, *steady]}
        choice = cluster.quarantine.choose([*churning, *steady], cluster.now)
        cluster.quarantine.succeeded(cluster.now)
        assert choice.pods
        assert len(choice.pods) <= limit.max_items
        starved -= {pod.uid for pod in choice.pods}
        assert limit.done | limit.remaining <= present, "pods that are gone are kept"
        never = present - limit.done
        assert choice.more or not never, "another round has to follow: some had no turn yet"
    assert not starved
    cluster.quarantine.choose([], cluster.now)
    assert not limit.done | limit.remaining


def test_namespaces_take_turns_while_rounds_are_small() -> None:
    """A namespace with many pods does not go before one with a single pod, whatever their names."""
    cluster = Cluster(lambda _pod: False)
    cluster.most = 30
    cluster.add(made(f"p{at}", at % 10) for at in range(100))
    cluster.run()
    many, single = [made(f"a{at}", at % 10, "a") for at in range(500)], made("z", 0, "z")
    assert single in cluster.quarantine.choose([*many, single], cluster.now).pods


def test_a_gang_is_tried_as_a_whole() -> None:
    """Halves never cut it: a part of it can never be placed."""
    cluster = Cluster(lambda pod: pod.name == "g3")
    gang = [made(f"g{at}", at, gang="train") for at in range(8)]
    whole = [made(f"h{at}", at, gang="other") for at in range(8)]
    cluster.add([*gang, *whole, *(made(f"p{at}", at) for at in range(20))])
    cluster.run()
    assert set(cluster.reasons) == {pod.uid for pod in gang}
    assert {pod.uid for pod in whole} <= set(cluster.planned)


def test_a_namespace_of_ever_new_bad_classes_costs_others_a_bounded_share() -> None:
    """Each minute a new bad class from one tenant, for six hours: the others lose two minutes and a hundredth."""
    cluster = Cluster(lambda pod: pod.namespace == "evil" and "bad" in pod.name)
    for minute in range(360):
        cluster.now = max(cluster.now, 60.0 * minute)
        cluster.add(
            [made(f"bad{minute}", minute, "evil"), made(f"good{minute}", minute), made(f"fine{minute}", 7, "evil")]
        )
        cluster.run()
    assert all(f"u-good{minute}" in cluster.planned for minute in range(360))
    assert all(f"u-fine{minute}" in cluster.planned for minute in range(360))
    assert len(cluster.failures) * cluster.lost < 120 + 0.02 * cluster.now + 60


@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([2, 5, 10, 15, 60]), st.sampled_from([1, 1, 50])), min_size=1, max_size=4),
    st.sampled_from([8.0, 40.0]),
    st.floats(5.0, 30.0),
)
def test_ever_new_bad_pods_delay_others_by_few_failures(
    tenants: list[tuple[int, int]], lost: float, first: float
) -> None:
    """Tenants make bad pods of ever new classes, at each rate, or 50 at once; several tenants at a time.

    A pod of others waits for two failed rounds at most, whether or not its like was planned before, and most wait for
    none. Tenants are charged for what they cost.
    """
    cluster = Cluster(lambda pod: pod.namespace.startswith("evil"), lost)
    born: dict[str, float] = {}
    bad, good = [0] * len(tenants), 0
    while cluster.now < first + 20.0 * lost:
        for number, (every, at_once) in enumerate(tenants):
            while first + bad[number] * every <= cluster.now and bad[number] < 60 / at_once:
                shapes = range(1000 * bad[number], 1000 * bad[number] + at_once)
                cluster.add(made(f"bad{number}-{shape}", shape, f"evil{number}") for shape in shapes)
                bad[number] += 1
        while good <= cluster.now:
            pods = [made(f"like{good}", 1, "good"), made(f"new{good}", good, f"other{good % 3}")]
            born |= {pod.uid: float(good) for pod in pods}
            cluster.add(pods)
            good += 1
        cluster.round()
        cluster.now += 0.0 if cluster.more else 0.5
    ends = {uid: cluster.planned.get(uid, cluster.now) for uid in born}
    failures = sorted(sum(born[uid] < failed <= ends[uid] for failed in cluster.failures) for uid in born)
    assert failures[-1] <= 2
    debts = [cluster.quarantine._debt(f"evil{number}", cluster.now) for number in range(len(tenants))]
    assert sum(debts) >= 0.5 * lost * (len(cluster.failures) - 1)
    assert min(debts) > 0.0


def test_pods_that_are_gone_are_forgotten() -> None:
    """Also in the middle of the search."""
    cluster = Cluster(lambda pod: "bad" in pod.name)
    cluster.add([made("bad", 1), made("bad too", 2), made("good", 3)])
    cluster.round()
    cluster.waiting.pop("u-bad")
    cluster.run()
    assert set(cluster.reasons) == {"u-bad too"}
    cluster.quarantine.retain([])
    assert not len(cluster.quarantine)
    assert cluster.quarantine.next_retry(cluster.now) is None


def test_a_round_may_take_several_times_what_rounds_took() -> None:
    """As long as any until one was finished; then at least five seconds, and more for many pods."""
    deadline = RoundDeadline(60.0, budget=0.0)
    assert deadline.seconds_for(1, 1, {"ns"}) == 60.0
    deadline.round_took(0.3, {"ns": 0.2})
    assert 5.0 <= deadline.seconds_for(1, 1, {"ns"}) < 6.0
    assert deadline.seconds_for(10_000, 100, {"ns"}) > 20.0
    deadline.round_took(2.0, {"ns": 1.0})
    assert deadline.seconds_for(1, 1, {"ns"}) == 20.0
    deadline.round_took(30.0, {"ns": 1.0})
    assert deadline.seconds_for(1, 1, {"ns"}) == 60.0
    for _ in range(100):
        deadline.round_took(0.3, {"ns": 0.2})
    assert deadline.seconds_for(1, 1, {"ns"}) < 6.0


@given(st.lists(st.tuples(st.floats(0.1, 60.0), st.sampled_from(["a", "b", "dear"])), max_size=50))
def test_what_is_long_of_one_namespace_is_no_measure_for_others(rounds: list[tuple[float, str]]) -> None:
    """Whatever rounds of one namespace took, alone and beside others: others have the deadline that they had before."""
    deadline, without = RoundDeadline(60.0, budget=1.0), RoundDeadline(60.0, budget=1.0)
    for each in (deadline, without):
        each.round_took(0.05, {"a": 0.01, "b": 0.02})
    for seconds, beside in rounds:
        deadline.round_took(seconds, {"dear": seconds * 0.9} | ({} if beside == "dear" else {beside: 0.001}))
        assert deadline.seconds_for(3, 2, {"a", "b"}) == pytest.approx(without.seconds_for(3, 2, {"a", "b"}), rel=0.2)
    longest = max((seconds for seconds, _ in rounds), default=0.0)
    assert deadline.seconds_for(3, 2, {"dear"}) <= 1.0 + max(5.1, 3.1 * longest), "a failure of it costs others less"


def test_gangs_of_a_group_are_never_planned_apart() -> None:
    """Whether parts of a failed round are planned or fewer pods at once: without the others none could be placed."""
    group = [GangKey(GangSource.THALWEG, "ns", f"g{at}") for at in range(4)]
    cluster = Cluster(lambda _: False)
    cluster.quarantine = Quarantine(lambda key: group[0] if key in group else key)
    members = [msgspec.structs.replace(made(f"m{at}", at), gang=GangRef(group[at % 4])) for at in range(8)]
    cluster.most = 20
    pods = [made(f"p{at:02}", at) for at in range(60)]
    everyone = [pod for at in range(0, 60, 8) for pod in (*pods[at : at + 8], *members[at // 8 : at // 8 + 1])]
    uids = {pod.uid for pod in members}
    for _ in range(60):
        choice = cluster.quarantine.choose(everyone, cluster.now)
        assert len(uids & {pod.uid for pod in choice.pods}) in (0, 8)
        cluster.now += 1.0
        if len(choice.pods) > cluster.most:
            cluster.quarantine.failed(cluster.now, 1.0, "no plan")
        else:
            cluster.quarantine.succeeded(cluster.now)


def test_the_budget_is_no_part_of_what_rounds_took() -> None:
    """Rounds where all fit use none of it. The first one where pods stay out may use all of it."""
    deadline = RoundDeadline(60.0, budget=20.0)
    deadline.round_took(0.01, {"ns": 0.01})
    assert 25.0 <= deadline.seconds_for(1, 1, {"ns"}) < 26.0
    deadline.round_took(20.0, {"ns": 20.0})
    assert deadline.seconds_for(1, 1, {"ns"}) == 60.0
