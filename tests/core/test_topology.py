"""Rules between pods within a round: they hold for the pods of the round as for those that run."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.model import node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan, plan_and_check, recount_pods

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import RoundResult, run_one_by_one
from flowcore.rules.filters import run_filters

GAVE_IT_AWAY = "There was room for some of these pods. It went to pods with the same or a higher cost of waiting."
WEB = LabelSelector((Requirement("app", "In", ("web",)),))


@settings(max_examples=examples(60), deadline=None)
@given(constrained_snapshots())
def test_rules_hold_as_pods_are_placed_one_after_the_other(cluster: Snapshot) -> None:
    """Each placement passes every filter beside those before it; what is left fits nowhere beside them all."""
    plan_and_check(cluster)


@settings(max_examples=examples(60), deadline=None)
@given(constrained_snapshots())
def test_one_by_one_keeps_the_same_rules(cluster: Snapshot) -> None:
    """kube-scheduler's way, with pods tried again when others have made a place good for them."""
    check_plan(cluster, run_one_by_one(cluster))


@settings(max_examples=examples(60), deadline=None)
@given(
    constrained_snapshots(), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 4)), max_size=8)
)
def test_room_allows_what_filters_allow(cluster: Snapshot, takes: list[tuple[int, int, int]]) -> None:
    """After any commits: a node takes a pod exactly where it fits, and as many in a row as are counted."""
    room = Plan(cluster)
    demands = demands_of(cluster, room.load(), {BUILT_IN.name: BUILT_IN})
    now = replace(cluster, pod_index=recount_pods(cluster))
    for which, at, count in takes:
        demand, place = demands[which % len(demands)], at % len(cluster.table.nodes)
        before = room.copy()
        taken = room.place(demand, place, count)
        assert taken == min(count, before.max_pods_at(demand, place))
        for _ in range(taken):
            verdicts = run_filters(
                demand.group.pod_class, replace(now, used=cluster.allocatable - before.free), demand.group.signature
            )
            assert verdicts.fits[place]
            assert before.place(demand, place, 1) == 1
            now.pod_index.change(demand.group.signature, cluster.table.nodes[place].name, 1)
        if taken < count:
            assert before.place(demand, place, 1) == 0
        for each in demands:
            fits = run_filters(
                each.group.pod_class, replace(now, used=cluster.allocatable - room.free), each.group.signature
            ).fits
            counts = room.max_pods(each)
            assert ((counts > 0) == fits).all()
            assert counts.tolist() == [room.max_pods_at(each, at) for at in range(len(fits))]


# -- scenes ------------------------------------------------------------------------------------------------------------


def zoned(*zones: str, cpu: int = 4000) -> list:
    """A node in each of these zones."""
    return [
        node(f"n{at}", cpu, labels=(("host", f"n{at}"), *((("zone", zone),) if zone else ())))
        for at, zone in enumerate(zones)
    ]


def web(rules: InterPodConstraints | None = None, app: str = "web") -> PodSignature:
    return PodSignature("default", (("app", app),), constraints=rules)


def term(key: str) -> AffinityTerm:
    return AffinityTerm(key, WEB, ("default",))


def pods(count: int, kind: PodSignature, cpu: int = 100, prefix: str = "p", **fields: int) -> list[PendingPod]:
    return [pod(f"{prefix}{at}", cpu, kind=kind, **fields) for at in range(count)]


def per_zone(cluster: Snapshot, result: RoundResult) -> Counter[str]:
    labels = {each.name: dict(each.labels) for each in cluster.table.nodes}
    return Counter(labels[placement.node].get("zone", "") for placement in result.placements)


def test_ten_pods_that_want_a_node_each_on_four() -> None:
    """Four are placed, one a node; the others are told why in kube-scheduler's words."""
    alone = web(InterPodConstraints(anti_affinity=(term("host"),)))
    result = plan_and_check(snapshot(zoned("a", "a", "b", ""), pods(10, alone)))
    assert sorted(placement.node for placement in result.placements) == ["n0", "n1", "n2", "n3"]
    assert {left.reason for left in result.unplaced} == {
        "0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules. " + GAVE_IT_AWAY
    }


def test_one_a_zone_is_a_cap_on_the_zone() -> None:
    """A node without the label is no zone: there the rule says nothing."""
    alone = web(InterPodConstraints(anti_affinity=(term("zone"),)))
    cluster = snapshot(zoned("a", "a", "b"), pods(10, alone))
    assert per_zone(cluster, plan_and_check(cluster)) == {"a": 1, "b": 1}
    beside = snapshot(zoned("a", "a", "b", ""), pods(10, alone))
    assert per_zone(beside, plan_and_check(beside)) == {"a": 1, "b": 1, "": 8}


def test_spread_over_uneven_zones() -> None:
    """Nine pods, three zones of one, two and six nodes: three each, whatever is cheapest."""
    even = web(InterPodConstraints(spread=(SpreadConstraint("zone", 1, WEB),)))
    cluster = snapshot(zoned("a", "b", "b", *"cccccc"), pods(9, even))
    assert per_zone(cluster, plan_and_check(cluster)) == {"a": 3, "b": 3, "c": 3}


def test_a_full_zone_holds_the_others_back() -> None:
    """Where one zone has room for one pod only, the others get one more than that and no further."""
    even = web(InterPodConstraints(spread=(SpreadConstraint("zone", 1, WEB),)))
    nodes = [*zoned("a", "b"), node("small", 100, labels=(("host", "small"), ("zone", "c")))]
    cluster = snapshot(nodes, pods(9, even))
    result = plan_and_check(cluster)
    assert per_zone(cluster, result) == {"a": 2, "b": 2, "c": 1}
    assert "1 Insufficient cpu, 2 node(s) didn't match pod topology spread constraints." in result.unplaced[0].reason


def test_the_first_of_a_group_and_then_all_together() -> None:
    """In the zone that has room for all of them, though a pod alone would be cheaper elsewhere."""
    together = web(InterPodConstraints(affinity=(term("zone"),)))
    nodes = [node("empty", 1000, labels=(("zone", "a"),)), *zoned("b", "b", cpu=600)]
    running = [("n0", (("cpu", 50),), ()), ("n1", (("cpu", 50),), ())]
    result = plan_and_check(snapshot(nodes, pods(10, together), running))
    assert len(result.placements) == 10
    assert len(per_zone(snapshot(nodes, []), result)) == 1


def test_pods_that_want_to_be_near_a_pod_of_the_same_round() -> None:
    """Whichever is planned first: what a pod waits for may be placed after its turn."""
    near = web(InterPodConstraints(affinity=(term("zone"),)), app="cache")
    for price in (0, 100):
        waiting = [*pods(3, near, priority=price), pod("w", 3900, kind=web())]
        cluster = snapshot(zoned("a", "a", "b", "b"), waiting)
        result = plan_and_check(cluster)
        assert len(result.placements) == 4
        assert len(per_zone(cluster, result)) == 1


def test_a_waiting_pods_anti_affinity_keeps_another_waiting_pod_away() -> None:
    """The symmetric rule, for a pod that has no rules itself."""
    alone = web(InterPodConstraints(anti_affinity=(term("zone"),)), app="hermit")
    result = plan_and_check(
        snapshot(zoned("a", "a"), [pod("h", 100, kind=alone, priority=10), pod("w", 100, kind=web())])
    )
    assert [placement.pod.key for placement in result.placements] == ["default/h"]
    assert "2 node(s) didn't satisfy existing pods anti-affinity rules." in result.unplaced[0].reason


def test_running_pods_count_for_spread_and_those_that_leave_do_not() -> None:
    """kube-scheduler passes over pods that are being deleted."""
    even = web(InterPodConstraints(spread=(SpreadConstraint("zone", 1, WEB),)))
    leaving = PodSignature("default", (("app", "web"),), deleting=True)
    pod_index = PodIndex.of([("n0", web()), ("n0", web()), ("n1", leaving), ("n1", leaving)])
    cluster = snapshot(zoned("a", "b"), pods(2, even), pod_index=pod_index)
    assert per_zone(cluster, plan_and_check(cluster)) == {"b": 2}


def test_rules_of_other_pods_leave_a_plain_plan_alone() -> None:
    """Pods that no rule speaks of are placed as ever, and nothing is left to solve."""
    alone = web(InterPodConstraints(anti_affinity=(term("host"),)))
    plain = [pod(f"q{at}", 1000) for at in range(6)]
    result = plan_and_check(snapshot(zoned("a", "b"), [*pods(2, alone), *plain]))
    assert len(result.placements) == 8
    assert Counter(each.node for each in result.placements) == {"n0": 4, "n1": 4}
    assert result.solves == 0
