"""bench/gang_levels.py: the rules that it sets Thalweg beside, and that no figure comes of a wrong placement."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from harness.errors import BenchError
from harness.gang_levels.arrivals import ArrivingGang, Need, draw
from harness.gang_levels.cluster import Hosts, Places, Shape
from harness.gang_levels.day import Hours, simulate
from harness.gang_levels.kube_scheduler import KubeSchedulerRule
from harness.gang_levels.kueue import kueue
from harness.gang_levels.placers import Decision, OneByOne, Placer, Rule, small_first
from harness.gang_levels.thalweg import PACKED, ThalwegRounds
from hypothesis import given
from hypothesis import strategies as st

RULES: tuple[Rule, ...] = (kueue, KubeSchedulerRule(1))
#: Two blocks of three racks of two hosts.
SHAPE = Shape(2, 3, 2, 8)
HOUR = Hours(0.0, 3600.0, 60.0)


def hosts_with(*free: int, racks: int = 3) -> Hosts:
    """One block whose racks have two hosts each with so many free GPUs."""
    made = Hosts(Shape(1, racks, 2, 8))
    made.free[:] = free
    return made


def gang(pods: int, need: Need, number: int = 0, arrives: float = 0.0) -> ArrivingGang:
    """One that runs for twenty minutes."""
    return ArrivingGang(number, pods, need, arrives, 1200.0)


def test_kueue_takes_the_rack_with_the_least_room() -> None:
    """Of those that hold the gang; the hosts with the most room first, and the tightest for the rest."""
    assert kueue(hosts_with(8, 8, 2, 8, 8, 3), gang(9, Need.RACK)) == {3: 8, 2: 1}
    assert kueue(hosts_with(8, 8, 2, 8, 8, 3), gang(16, Need.RACK)) == {0: 8, 1: 8}
    assert kueue(hosts_with(8, 7, 2, 8, 8, 3), gang(16, Need.RACK)) is None


def test_kueue_takes_few_racks_of_a_block() -> None:
    """The largest first; what is left goes where it fits most tightly."""
    assert kueue(hosts_with(8, 8, 8, 0, 4, 0), gang(20, Need.BLOCK)) == {0: 8, 1: 8, 4: 4}


def test_kueue_counts_slices_in_racks() -> None:
    """Racks with room for 12 hold one slice of 8 each; without slices one is filled before the other."""
    free = (8, 4, 8, 4, 0, 0)
    assert kueue(hosts_with(*free), gang(16, Need.SLICES)) == {0: 8, 2: 8}
    assert kueue(hosts_with(*free), gang(16, Need.BLOCK)) == {0: 8, 1: 4, 3: 4}
    assert kueue(hosts_with(*free), gang(24, Need.SLICES)) is None


def test_kueue_fills_what_is_nearly_full_with_gangs_that_may_be_anywhere() -> None:
    """One host that has room for all, the tightest; else from the least room on."""
    assert kueue(hosts_with(8, 7, 6, 8, 0, 2), gang(6, Need.NONE)) == {2: 6}
    assert kueue(hosts_with(8, 7, 6, 8, 0, 2), gang(10, Need.NONE)) == {5: 2, 2: 6, 1: 2}


def test_kube_scheduler_spreads_within_the_fullest_rack() -> None:
    """Among racks that hold all pods it prefers what is then most allocated; hosts take turns."""
    rule = KubeSchedulerRule(1)
    assert rule(hosts_with(8, 8, 6, 6, 1, 1), gang(8, Need.RACK)) == {2: 4, 3: 4}
    assert rule(hosts_with(8, 8, 8, 8, 8, 8), gang(12, Need.NONE)) == dict.fromkeys(range(6), 2)


@given(
    st.lists(st.integers(0, 8), min_size=12, max_size=12),
    st.sampled_from([8, 16, 24, 32]),
    st.sampled_from([need for need in Need if need is not Need.SLICES]),
    st.sampled_from(RULES),
)
def test_a_rule_places_what_fits_and_nothing_else(free: list[int], pods: int, need: Need, rule: Rule) -> None:
    """All pods, on free GPUs, in one domain; None only if no domain has room."""
    hosts = Hosts(SHAPE)
    hosts.free[:] = free
    racks = hosts.by_rack(hosts.free)
    most = {Need.RACK: racks.max(), Need.BLOCK: hosts.by_block(racks).max(), Need.NONE: racks.sum()}[need]
    places = rule(hosts, gang(pods, need))
    assert (places is not None) == (most >= pods)
    if places is not None:
        assert sum(places.values()) == pods
        assert all(0 < count <= free[host] for host, count in places.items())
        domains = {Need.RACK: hosts.rack_of, Need.BLOCK: hosts.block_of, Need.NONE: lambda _: 0}
        assert len({domains[need](host) for host in places}) == 1


@pytest.mark.parametrize(
    "placer",
    [OneByOne(kueue), OneByOne(KubeSchedulerRule(1)), ThalwegRounds(SHAPE, PACKED, 3)],
    ids=["kueue", "kube-scheduler", "thalweg"],
)
def test_figures_of_a_day_known_by_hand(placer: Placer) -> None:
    """Six racks: six gangs of a rack run for twenty of sixty minutes, and a seventh once the first are over."""
    racks = [gang(16, Need.RACK, number) for number in range(7)]
    row = simulate(SHAPE, racks, placer, HOUR)
    assert (row.gangs, row.started, row.rack_started, row.block_started) == (7, 7, 7, 0)
    assert row.median == 0.0
    assert row.rack_p95 == pytest.approx(20 * 0.7)  # of seven values between the sixth, 0, and the seventh
    assert row.utilisation == pytest.approx(7 / 6 * 20 / 60)
    assert row.whole_racks == pytest.approx((20 * 5 + 20 * 6) / 60)


def test_a_strict_queue_waits_for_its_first() -> None:
    """A gang that nothing holds stops all behind it, or none."""
    waiting = (gang(24, Need.RACK, 0), gang(8, Need.RACK, 1))
    assert not list(OneByOne(kueue, strict=True).decide(Hosts(SHAPE), waiting, 0.0))
    assert [started.number for started, _ in OneByOne(kueue).decide(Hosts(SHAPE), waiting, 0.0)] == [1]


def test_what_large_gangs_pay_for_small_ones() -> None:
    """Two gangs of all GPUs and a small one that comes last: the order decides who waits for twenty minutes more."""
    shape = Shape(1, 2, 8, 8)
    gangs = [gang(128, Need.BLOCK, 0), gang(128, Need.BLOCK, 1), gang(8, Need.NONE, 2)]
    oldest = simulate(shape, gangs, OneByOne(kueue), HOUR)
    small = simulate(shape, gangs, OneByOne(kueue, first=small_first), HOUR)
    assert (oldest.large, oldest.large_started, oldest.large_median, oldest.large_longest) == (2, 2, 10.0, 20.0)
    assert (small.large, small.large_started, small.large_median, small.large_longest) == (2, 2, 30.0, 40.0)


def test_thalweg_knows_slices() -> None:
    """Racks with room for 12 hold one slice of 8 each: of a block with room for 24 pods two are placed, not three."""
    hosts = Hosts(SHAPE)
    hosts.free[:] = (8, 4, 8, 4, 0, 0, *[0] * 6)
    decided = list(ThalwegRounds(SHAPE, PACKED, 3).decide(hosts, [gang(16, Need.SLICES)], 60.0))
    assert [hosts.by_rack(np.array([places.get(host, 0) for host in range(12)])).tolist() for _, places in decided] == [
        [8, 8, 0, 0, 0, 0]
    ]
    assert list(ThalwegRounds(SHAPE, PACKED, 3).decide(hosts, [gang(24, Need.BLOCK)], 60.0))
    assert not list(ThalwegRounds(SHAPE, PACKED, 3).decide(hosts, [gang(24, Need.SLICES)], 60.0))


@pytest.mark.parametrize(
    ("places", "problem"),
    [({0: 9, 1: 7}, "full host"), ({0: 8}, "too few"), ({0: 8, 2: 8}, "needs one rack")],
)
def test_a_wrong_placement_ends_the_run(places: Places, problem: str) -> None:
    """No figure comes of it."""

    class Wrong:
        def decide(self, hosts: Hosts, waiting: Sequence[ArrivingGang], now: float) -> Iterator[Decision]:
            return ((each, places) for each in waiting)

    with pytest.raises(BenchError, match=problem):
        simulate(SHAPE, [gang(16, Need.RACK)], Wrong(), HOUR)


def test_the_same_gangs_come_each_time() -> None:
    """As many GPU seconds as asked for; only with slices some have them, and all else stays as it is."""
    with_slices, without = (draw(3, 1.3, 1000, 7200.0, slices=slices) for slices in (True, False))
    wanted = sum(each.pods * each.runs_for for each in without)
    assert 1.3 <= wanted / (1000 * 7200.0) < 1.3 + max(each.pods * each.runs_for for each in without) / 7.2e6
    assert [(each.pods, each.arrives) for each in with_slices] == [(each.pods, each.arrives) for each in without]
    assert any(each.need is Need.SLICES for each in with_slices)
    assert not any(each.need is Need.SLICES for each in without)
