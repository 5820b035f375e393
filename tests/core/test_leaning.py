"""Preferences among the pods of a round: they draw, repel and spread each other as pods that run do."""

from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import node, pod, snapshot
from support.safety import copied, plan_checked
from support.tied import tied

from flowcore.costs import preferences
from flowcore.model.neighbours import Kind
from flowcore.model.policies import BUILT_IN
from flowcore.model.rules import AffinityTerm, Rules, SpreadConstraint, WeightedTerm
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.snapshot import PendingPod, Snapshot
from flowcore.rounds.demands import demands_of
from flowcore.rounds.leaning import Leanings
from flowcore.rounds.room import Room

ZONES = ("a", "b", "c")


@settings(max_examples=300, deadline=None)
@given(tied(), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8))
def test_prices_are_those_of_pods_that_run(cluster: Snapshot, takes: list[tuple[int, int]]) -> None:
    """After any placements a preference costs what it would as a round begins in which they run already.

    But for their required affinity, which draws others a little: a round leaves that out.
    """
    room = Room(cluster)
    demands = demands_of(cluster, room.load(), {BUILT_IN.name: BUILT_IN})
    now = replace(cluster, neighbours=copied(cluster))
    for which, at in takes:
        demand, place = demands[which % len(demands)], at % len(cluster.table.nodes)
        if room.take(demand, place, 1):
            kind, rules = demand.group.kind, demand.group.kind.rules
            kind = msgspec.structs.replace(kind, rules=rules and msgspec.structs.replace(rules, affinity=()))
            now.neighbours.change(kind, cluster.table.nodes[place].name, 1)
    for demand in demands:

        def price(when: Snapshot) -> np.ndarray:
            group = demand.group  # noqa: B023 - called at once
            return preferences(group.pod_class, group.kind, when, demand.allowed, BUILT_IN.weights)  # noqa: B023

        wanted = (price(now) - price(cluster))[demand.allowed]
        leaning = demand.ties.leaning
        if leaning is None:
            assert not wanted.any()
        else:
            found = Leanings(demand, leaning, cluster).more(room.together)[demand.allowed]
            assert found.tolist() == wanted.tolist()


def selects(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def kind(app: str, **rules: tuple) -> Kind:
    return Kind("default", (("app", app),), rules=Rules(**rules) if rules else None)


def wish(weight: int, key: str, app: str = "web") -> tuple[WeightedTerm]:
    return (WeightedTerm(weight, AffinityTerm(key, selects(app), ("default",))),)


def cluster(pending: list[PendingPod], per_zone: tuple[int, ...] = (1, 2, 6), cpu: int = 4000) -> Snapshot:
    zones = [zone for zone, count in zip(ZONES, per_zone, strict=True) for _ in range(count)]
    nodes = [node(f"n{at}", cpu, labels=(("host", f"n{at}"), ("zone", zone))) for at, zone in enumerate(zones)]
    return snapshot(nodes, pending)


def pods(count: int, of: Kind) -> list[PendingPod]:
    return [pod(f"p{at}", 100, kind=of) for at in range(count)]


def per(key: str, found: Snapshot) -> Counter[str]:
    labels = {each.name: dict(each.labels) for each in found.table.nodes}
    return Counter(labels[each.node][key] for each in plan_checked(found).placements)


def test_schedule_anyway_spreads_a_batch() -> None:
    """Nine pods over zones of one, two and six nodes: three each, where room for them is cheapest in the largest."""
    even = kind("web", soft_spread=(SpreadConstraint("zone", 1, selects("web")),))
    assert per("zone", cluster(pods(9, even))) == {"a": 3, "b": 3, "c": 3}
    assert per("zone", cluster(pods(9, kind("web"))))["c"] > 3


def test_a_full_zone_does_not_hold_back_the_others() -> None:
    """What it prefers gives way: all are placed."""
    even = kind("web", soft_spread=(SpreadConstraint("zone", 1, selects("web")),))
    assert per("zone", cluster(pods(9, even), cpu=200)) == {"a": 2, "b": 3, "c": 4}


def test_preferred_anti_affinity_within_a_batch() -> None:
    """One a node while there are nodes; more pods than nodes still find a place."""
    alone = kind("web", preferred=wish(-100, "host"))
    assert set(per("host", cluster(pods(9, alone))).values()) == {1}
    assert sum(per("host", cluster(pods(12, alone))).values()) == 12


def test_preferred_affinity_within_a_batch() -> None:
    """All in one zone while it has room, the others next to it: no pod waits for a wish."""
    near = kind("web", preferred=wish(100, "zone"))
    assert list(per("zone", cluster(pods(9, near), per_zone=(3, 3, 3))).values()) == [9]
    assert sorted(per("zone", cluster(pods(9, near), per_zone=(3, 3, 3), cpu=200)).values()) == [3, 6]


@pytest.mark.parametrize("first", ["shy", "other"])
def test_a_wish_speaks_for_both(first: str) -> None:
    """One class would rather not be near the other: whichever is placed first, the other keeps away."""
    shy = pod("shy", 100, kind=kind("db", preferred=wish(-100, "zone")), priority=100 * (first == "shy"))
    other = pod("other", 100, kind=kind("web"), priority=100 * (first == "other"))
    assert len(per("zone", cluster([shy, other], per_zone=(2, 1, 0)))) == 2
    assert len(per("zone", cluster([shy, other], per_zone=(1, 0, 2)))) == 2


def test_nothing_to_lean_on() -> None:
    """Preferences that no pod of the round meets bind nothing to filling."""
    found = cluster(pods(3, kind("web", preferred=wish(100, "zone", "elsewhere"))))
    demands = demands_of(found, Room(found).load(), {BUILT_IN.name: BUILT_IN})
    assert [demand.ties.in_turn for demand in demands] == [False]
