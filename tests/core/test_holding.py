"""Room is kept for gangs that can use it: for a while, up to a share of the cluster, and not from higher priorities."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FrameType

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import eviction_clusters
from support.eviction_safety import check_evictions
from support.model import amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.model.backfill_history import MAX_BACKOFF, BackfillHistory, BackfillRecord
from flowcore.model.gangs import Gang
from flowcore.model.persistent_usage import ALWAYS, PersistentUsage
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, GangPolicy, Policy
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES

NODES = [node(f"n{at}", 8000) for at in range(4)]
DAEMONS = tuple(PersistentUsage(f"n{at}", ALWAYS, amounts(100), 1) for at in range(4))
DAY = 86_400.0


def gang(name: str, count: int, created: float = 1.0, priority: int = 0, namespace: str = "team") -> list[PendingPod]:
    """Pods of a gang that needs all of them, a core each."""
    return [
        msgspec.structs.replace(
            pod(f"{name}{at}", 1000, created=created, priority=priority), key=f"{namespace}/{name}{at}", gangs=(name,)
        )
        for at in range(count)
    ]


def plan(
    pending: Sequence[PendingPod],
    *,
    now: float = 2000.0,
    taken: Sequence[tuple[str, int]] = (),
    lasting: tuple[PersistentUsage, ...] | None = DAEMONS,
    holds: BackfillHistory | None = None,
    terms: GangPolicy | None = None,
    enough: Mapping[str, int] | None = None,
) -> RoundResult:
    """A round on four nodes of eight cores with a daemon of a tenth of a core each.

    Args:
        enough: how many pods of a gang suffice; of others: all.
        taken: what runs there beside that, node and millicores.
    """
    running = [(f"n{at}", amounts(100), ()) for at in range(4)]
    running += [(name, amounts(cpu), ()) for name, cpu in taken]
    crowd = snapshot(NODES, pending, running, now=now)
    needs = Counter(name for each in pending for name in each.gangs)
    crowd = replace(
        crowd,
        gangs={name: Gang(name, (enough or {}).get(name, count)) for name, count in needs.items()},
        persistent_usage=lasting,
        backfill_history=holds or BackfillHistory(now),
    )
    policies: dict[str, Policy] = {BUILT_IN.name: msgspec.structs.replace(BUILT_IN, gangs=terms or GangPolicy())}
    result = run_round(crowd, policies)
    check_plan(crowd, result)
    return result


def placed(result: RoundResult, prefix: str) -> int:
    """How many pods whose names begin so were placed."""
    return sum(each.pod.uid.startswith(prefix) for each in result.placements)


@pytest.mark.parametrize(("age", "priority"), [(60, 0), (1200, 0), (1200, 1000), (DAY, 10_000)])
def test_a_gang_that_can_never_be_whole_keeps_nothing(age: float, priority: int) -> None:
    """32 cores are asked for and daemons hold some of the 32 that there are: whoever comes later is placed."""
    now = 100_000.0
    new = [pod(f"new{at}", 1000, created=now - 5, priority=priority) for at in range(20)]
    never = gang("never", 32, created=now - age)
    assert placed(plan([*never, *new], now=now), "new") == 20
    # What is not known to come free does not.
    assert placed(plan([*never, *new], now=now, lasting=None), "new") == 20


def test_room_counts_only_where_it_can_come_free() -> None:
    """Pods of a higher priority than the gang's stay, those of its own priority may leave."""
    large, new = gang("large", 28), [pod("new", 1000, created=1999.0)]
    taken, all_of_it = [("n0", 1000)], GangPolicy(hold_room_share=100)
    assert not placed(plan([*large, *new], taken=taken, terms=all_of_it), "new")
    higher = (*DAEMONS, PersistentUsage("n0", 1, amounts(1000), 1))
    assert placed(plan([*large, *new], taken=taken, terms=all_of_it, lasting=higher), "new") == 1
    same = gang("large", 28, priority=1)
    assert not placed(plan([*same, *new], taken=taken, terms=all_of_it, lasting=higher), "new")


def test_no_room_is_kept_from_a_pod_of_a_higher_priority() -> None:
    """However long the gang has waited: the pod goes first, and so does a gang of a higher priority."""
    now = 40 * DAY
    large, taken = gang("large", 28), [("n0", 7000)]
    new = [pod(f"new{at}", 1000, created=now, priority=1) for at in range(21)]
    assert placed(plan([*large, *new], now=now, taken=taken), "new") == 21
    higher = gang("higher", 21, created=now, priority=1)
    assert placed(plan([*large, *higher], now=now, taken=taken), "higher") == 21
    few = plan([*large, *higher], now=now, taken=taken, enough={"higher": 1})
    assert placed(few, "higher") == 21, "so do the pods of a gang that it could do without"
    lower = [pod(f"new{at}", 1000, created=now) for at in range(21)]
    assert placed(plan([*large, *lower], now=now, taken=taken), "new") == 0


def test_a_share_of_the_cluster_is_kept_at_most() -> None:
    """A gang may need more: what is beyond its policy's share goes to others as it comes free."""
    new = [pod(f"new{at}", 1000, created=1999.0) for at in range(21)]
    taken = [("n0", 7000)]
    half = plan([*gang("large", 28), *new], taken=taken, terms=GangPolicy(hold_room_share=50))
    assert placed(half, "new") == 5
    assert any("room for 16 pods is held for it" in each.reason for each in half.unplaced)
    assert placed(plan([*gang("large", 28), *new], taken=taken, terms=GangPolicy(hold_room_share=0)), "new") == 21


def held(pending: Callable[[float], Sequence[PendingPod]], seconds: int, every: int = 60) -> list[str]:
    """For each round of some time, whom room is kept for: one core never comes free."""
    holds, found = BackfillHistory(), []
    for now in range(2000, 2000 + seconds, every):
        result = plan(
            pending(float(now)), now=float(now), taken=[("n0", 7000)], holds=BackfillHistory(float(now), holds.records)
        )
        kept = [each.pod.gangs[0] for each in result.unplaced if "is held for it" in each.reason]
        found.append(kept[0] if kept else "")
        holds = result.holds
    return found


def test_a_hold_has_a_deadline_and_rests_grow() -> None:
    """Ten minutes at first; then others have the room for twice as long, and for twice as long again."""
    rounds = "".join("x" if each else "." for each in held(lambda _now: gang("large", 28), 5460))
    assert rounds.startswith("x" * 10 + "." * 20 + "x" * 10 + "." * 40 + "x" * 10)
    assert rounds.count("x") < len(rounds) / 3


def test_gangs_of_one_namespace_do_not_take_turns_for_ever() -> None:
    """Each of them has its deadline, and so has the namespace: the more of them miss it, the longer others have."""
    many = [each for name in "abcdefgh" for each in gang(name, 28)]
    rounds = held(lambda _now: many, 10_800, every=120)
    assert sum(map(bool, rounds)) < len(rounds) / 3
    assert len(set(rounds) - {""}) > 1


def test_another_gang_has_its_turn_when_one_rests() -> None:
    """The honest one beside it, of the same namespace or of another one, holds room before that one does again."""
    for namespace in ("team", "other"):
        both = [*gang("first", 28, created=1.0), *gang("second", 26, created=2.0, namespace=namespace)]
        order = [each for each in dict.fromkeys(held(lambda _now, both=both: both, 3600)) if each]
        assert order == ["first", "second"]


def test_a_gang_that_can_be_whole_is_placed_in_the_end() -> None:
    """Small pods come for ever; as others end, room is kept until all of it is there; then nothing is remembered."""
    holds, running = BackfillHistory(), [(f"n{at}", 1000) for at in range(4) for _ in range(7)]
    for number in range(30):
        now = 2000.0 + 20 * number
        running = running[2:]
        new = [pod(f"new{number}-{at}", 1000, created=now - 1) for at in range(2)]
        holds = BackfillHistory(now, holds.records)
        result = plan([*gang("large", 20), *new], now=now, taken=running, holds=holds)
        holds = result.holds
        if placed(result, "large"):
            assert number > 1
            assert holds.records == ()
            return
        running += [(each.node, 1000) for each in result.placements]
    raise AssertionError("the large gang never ran")


def holds_of(pending: Sequence[PendingPod], victims: Sequence[Pod]) -> tuple[set[str], set[str]]:
    """Who is placed beside running pods that may leave, and for whom room is still kept: so far for the gang g."""
    nodes = [eviction_clusters.node("n1"), eviction_clusters.node("n2", 2)]
    crowd = eviction_clusters.snapshot(nodes, victims, pending, gangs=[Gang("g", 2)], now=2000.0)
    kept = BackfillHistory(2000.0).with_reserved("g", ["namespace default"], 600.0)
    result = run_round(replace(crowd, persistent_usage=(), backfill_history=kept))
    return {each.pod.key for each in result.placements}, {each.name for each in result.holds.records}


def test_room_is_kept_on_for_a_gang_that_gives_its_room_to_an_urgent_pod() -> None:
    """What the plan says in the end decides whether a gang is placed."""
    runs = eviction_clusters.running("runs", "n1", 2)
    both = [eviction_clusters.waiting(f"g-{number}", 2, gangs=("g",)) for number in range(2)]
    assert holds_of(both, [runs]) == ({"default/g-0", "default/g-1"}, set())
    urgent = eviction_clusters.waiting("urgent", 4, priority=50)
    assert holds_of([*both, urgent], [runs]) == ({"default/urgent"}, {"g", "namespace default"})


@pytest.mark.parametrize("free", [0, 2])
def test_no_room_is_kept_on_for_a_gang_that_others_leave_for(free: int) -> None:
    """Also where it gets that room that was kept for it in this round."""
    victims = [eviction_clusters.running("runs", "n1", 4), eviction_clusters.running("also", "n2", 2)]
    both = [eviction_clusters.waiting(f"g-{number}", 2, priority=10, gangs=("g",)) for number in range(2)]
    assert holds_of(both, victims[: 2 - free // 2]) == ({"default/g-0", "default/g-1"}, set())


def test_held_room_goes_to_an_urgent_pod_beside_pods_that_leave() -> None:
    """What it does not need stays held, also from pods that have no room elsewhere."""
    nodes = [eviction_clusters.node("n1"), eviction_clusters.node("n2")]
    runs = [eviction_clusters.running("low", "n1", 2), eviction_clusters.running("high", "n2", 2, priority=60)]
    large = [eviction_clusters.waiting(f"g-{number}", 2, gangs=("g",)) for number in range(4)]
    more = [eviction_clusters.waiting("urgent", 4, priority=50), eviction_clusters.waiting("small", 1)]
    crowd = eviction_clusters.snapshot(nodes, runs, [*large, *more], gangs=[Gang("g", 4)], now=2000.0)
    crowd = replace(crowd, persistent_usage=())
    result = run_round(crowd)
    check_evictions(crowd, result, DEFAULT_POLICIES)
    assert [each.pod.key for each in result.placements] == ["default/urgent"]
    assert [each.pod.key for each in result.evictions] == ["default/low"]
    assert {each.name for each in result.holds.records} == {"g", "namespace default"}


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.floats(1, 2000), st.sampled_from(("a", "b", "c")), st.booleans()), max_size=60))
def test_holds_are_bounded(steps: list[tuple[float, str, bool]]) -> None:
    """Whatever is held and placed when: no hold outlives its deadline, rests end within a day, all is forgotten."""
    holds, since = BackfillHistory(), dict[str, float]()
    for seconds, unit, placed_now in steps:
        holds = BackfillHistory(holds.now + seconds, holds.records).expired()
        if placed_now:
            holds = holds.with_placed(unit, ["namespace x"])
        elif holds.backing_off.isdisjoint((unit, "namespace x")):
            holds = holds.with_reserved(unit, ["namespace x"], 600.0)
        for each in holds.records:
            since.setdefault(each.name, holds.now)
            assert each.next_backoff <= MAX_BACKOFF
            assert each.deadline is None or holds.now < each.deadline <= holds.now + 600
    for _ in range(4):
        holds = BackfillHistory(holds.now + MAX_BACKOFF, holds.records).expired()
    assert holds.records == ()


def test_few_are_remembered() -> None:
    """A thousand names at most, however many gangs have their turn."""
    holds = BackfillHistory()
    for number in range(1500):
        holds = BackfillHistory(float(number), holds.records).with_reserved(
            f"gang {number}", [f"namespace {number}"], 600.0
        )
    assert len(holds.records) == 1000
    assert BackfillRecord("gang 1499", 2099.0, 1499.0, 1200.0) in holds.records


def test_many_gangs_that_wait_long_are_not_each_looked_at_on_all_nodes() -> None:
    """Gangs that are alike share the answer whether all of one could ever fit."""

    def calls_of(count: int) -> int:
        """How often a round of so many overdue gangs looks something up."""
        pending = [each for at in range(count) for each in gang(f"g{at:03}-", 3)]
        lasting = tuple(PersistentUsage("n0", priority, amounts(1), 1) for priority in range(1, 2001))
        calls = 0

        def called(_frame: FrameType, event: str, arg: object) -> None:
            nonlocal calls
            calls += event == "c_call" and getattr(arg, "__name__", "") == "get"

        taken = [(f"n{at}", 7900) for at in range(4)]
        sys.setprofile(called)
        try:
            result = plan(pending, lasting=lasting, taken=taken)
        finally:
            sys.setprofile(None)
        assert not result.placements
        return calls

    assert calls_of(40) < 2 * calls_of(10)
