"""Preferences among the pods of a round count as those toward pods that run do."""

from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.model import node, pod, snapshot
from support.profiles import examples
from support.safety import plan_and_check, recount_pods

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS, preferences
from flowcore.costs.soft_constraints import SoftConstraintCosts
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint, WeightedTerm
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round.portfolio import Portfolio

ZONES = ("a", "b", "c")


@settings(max_examples=examples(150), deadline=None)
@given(constrained_snapshots(), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8))
def test_prices_are_those_of_pods_that_run(cluster: Snapshot, takes: list[tuple[int, int]]) -> None:
    """After any placements a preference costs what it would as a round begins in which they run already.

    But for their required affinity, which draws others a little: a round leaves that out.
    """
    room = Plan(cluster)
    demands = demands_of(cluster, room.load(), {BUILT_IN.name: BUILT_IN})
    now = replace(cluster, pod_index=recount_pods(cluster))
    for which, at in takes:
        demand, place = demands[which % len(demands)], at % len(cluster.table.nodes)
        if room.place(demand, place, 1):
            kind, rules = demand.group.signature, demand.group.signature.constraints
            kind = msgspec.structs.replace(kind, constraints=rules and msgspec.structs.replace(rules, affinity=()))
            now.pod_index.change(kind, cluster.table.nodes[place].name, 1)
    for demand in demands:

        def price(when: Snapshot) -> np.ndarray:
            group = demand.group  # noqa: B023 - called at once
            return preferences(group.pod_class, group.signature, when, demand.passing, BUILT_IN.cost)  # noqa: B023

        wanted = (price(now) - price(cluster))[demand.allowed]
        soft_constraints = demand.constraints.soft_constraints
        if soft_constraints is None:
            assert not wanted.any()
        else:
            group = demand.group
            costs = SoftConstraintCosts(
                group.pod_class,
                group.signature,
                soft_constraints,
                demand.passing,
                BUILT_IN.cost,
                cluster,
            )
            found = costs.added_cost(room.domain_counts)[demand.allowed]
            assert found.tolist() == wanted.tolist()


def selects(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def kind(app: str, **rules: tuple) -> PodSignature:
    return PodSignature("default", (("app", app),), constraints=InterPodConstraints(**rules) if rules else None)


def wish(weight: int, key: str, app: str = "web") -> tuple[WeightedTerm]:
    return (WeightedTerm(weight, AffinityTerm(key, selects(app), ("default",))),)


def cluster(pending: list[PendingPod], per_zone: tuple[int, ...] = (1, 2, 6), cpu: int = 4000) -> Snapshot:
    zones = [zone for zone, count in zip(ZONES, per_zone, strict=True) for _ in range(count)]
    nodes = [node(f"n{at}", cpu, labels=(("host", f"n{at}"), ("zone", zone))) for at, zone in enumerate(zones)]
    return snapshot(nodes, pending)


def pods(count: int, of: PodSignature) -> list[PendingPod]:
    return [pod(f"p{at}", 100, kind=of) for at in range(count)]


def per(key: str, found: Snapshot) -> Counter[str]:
    labels = {each.name: dict(each.labels) for each in found.table.nodes}
    return Counter(labels[each.node][key] for each in plan_and_check(found).placements)


def test_schedule_anyway_spreads_a_batch() -> None:
    """Nine pods over zones of one, two and six nodes: three each, where room for them is cheapest in the largest."""
    even = kind("web", soft_spread=(SpreadConstraint("zone", 1, selects("web")),))
    assert per("zone", cluster(pods(9, even))) == {"a": 3, "b": 3, "c": 3}
    assert per("zone", cluster(pods(9, kind("web"))))["c"] > 3


def test_a_full_zone_does_not_hold_back_the_others() -> None:
    """What it prefers gives way: all are placed."""
    even = kind("web", soft_spread=(SpreadConstraint("zone", 1, selects("web")),))
    assert per("zone", cluster(pods(9, even), cpu=200)) == {"a": 2, "b": 3, "c": 4}


def test_a_bound_holds_where_room_is_short() -> None:
    """Five pods make a crowded node more crowded: beside it the others cost less than as the round begins."""
    even = kind("web", soft_spread=(SpreadConstraint("host", 1, selects("web")),))
    running, room = [1] * 10 + [5, 0], [1] * 10 + [5, 0]
    nodes = [node(f"n{at}", 100 * most, labels=(("host", f"n{at}"),)) for at, most in enumerate(room)]
    index = PodIndex.of((f"n{at}", even) for at, count in enumerate(running) for _ in range(count))
    short = snapshot(nodes, pods(20, even), pod_index=index)
    portfolio = Portfolio(Problem(short, {BUILT_IN.name: BUILT_IN}, MODELS))
    for _ in portfolio.run():
        pass
    assert 0 < portfolio.bound < portfolio.best.cost


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
    demands = demands_of(found, Plan(found).load(), {BUILT_IN.name: BUILT_IN})
    assert [demand.constraints.sequential for demand in demands] == [False]
