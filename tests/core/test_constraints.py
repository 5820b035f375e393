"""Policies' constraints: what governed pods never do, whoever owns them and whatever the plan gains by it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import APPS, TOPOLOGIES, constrained_snapshots
from support.model import amounts, node, pod, snapshot
from support.profiles import examples
from support.safety import check_plan, plan_and_check

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global, OneDomain
from flowcore.model.inter_pod_constraints import HOSTNAME, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import Policy, Selects
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.methods.capped_greedy import capped_greedy, cheapest_per_domain
from flowcore.planning.round import RoundResult, run_one_by_one
from flowcore.rules.topology.drift import Drift

ZONE = "zone"
TEAM = LabelSelector((Requirement("team", "Exists"),))
ZONED = LabelSelector((Requirement(ZONE, "Exists"),))


def app(*names: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", names),))


# -- any constraints, any rules ----------------------------------------------------------------------------------------

_selectors = st.sampled_from((*map(app, APPS), app("web", "db"), LabelSelector((Requirement("app", "Exists"),))))
_keys = st.sampled_from((*TOPOLOGIES, HOSTNAME, "nowhere"))
_caps = st.sampled_from((1, 1, 2, 3, 0))
_constraints = st.one_of(
    st.builds(Conflict, st.just("c"), _selectors, _keys, _caps),
    st.builds(
        Exclusive,
        st.just("x"),
        st.lists(_selectors, min_size=2, max_size=3, unique=True).map(tuple),
        _keys,
        st.none() | _caps,
        st.none() | _caps,
    ),
    st.builds(Global, st.just("g"), _selectors, st.sampled_from((LabelSelector(), ZONED))),
)


@st.composite
def governed(draw: st.DrawFn) -> tuple[Snapshot, dict[str, Policy]]:
    """Clusters in which rules between pods meet, the pods under one of two policies with constraints."""
    cluster = draw(constrained_snapshots())
    policies = [
        Policy(
            name,
            selects=Selects(namespaces=draw(st.sampled_from((None, None, TEAM)))),
            constraints=tuple(draw(st.lists(_constraints, max_size=3))),
        )
        for name in ("shop", "lab")
    ]
    pending = []
    for each in cluster.pending:
        fitting = [
            policy.name
            for policy in policies
            if policy.selects.namespaces is None or each.signature.namespace == "red"  # the namespace of a team
        ]
        pending.append(msgspec.structs.replace(each, policy=draw(st.sampled_from([*fitting, "none"]))))
    known = {policy.name: policy for policy in (*policies, Policy("none"))}
    return replace(cluster, pending=tuple(pending)), known


@settings(max_examples=examples(50), deadline=None)
@given(governed())
def test_no_cap_is_broken_beside_any_rules(drawn: tuple[Snapshot, dict[str, Policy]]) -> None:
    """Counted anew at each pod's turn; and whoever waits fits nowhere beside the plan."""
    plan_and_check(*drawn)


@settings(max_examples=examples(50), deadline=None)
@given(governed())
def test_one_by_one_breaks_none_either(drawn: tuple[Snapshot, dict[str, Policy]]) -> None:
    """The same constraints, one pod after the other."""
    cluster, policies = drawn
    check_plan(cluster, run_one_by_one(cluster, policies), policies)


# -- scenes ------------------------------------------------------------------------------------------------------------


def zoned(*zones: str, cpu: int = 4000) -> list[Node]:
    """A node in each of these zones."""
    return [
        node(f"n{at}", cpu, labels=tuple(sorted({HOSTNAME: f"n{at}", **({ZONE: zone} if zone else {})}.items())))
        for at, zone in enumerate(zones)
    ]


def pods(name: str, count: int, cpu: int = 100, **fields: int) -> list[PendingPod]:
    """So many pods of an app, each of a name of its own."""
    return [
        pod(
            f"{name}{at}",
            cpu,
            policy="shop",
            kind=PodSignature("default", (("app", name), ("pod", f"{name}{at}"))),
            **fields,
        )
        for at in range(count)
    ]


def plan(
    nodes: Sequence[Node],
    pending: Sequence[PendingPod],
    *constraints: Constraint,
    running: Sequence[tuple[str, PodSignature]] = (),
) -> RoundResult:
    """The plan under one policy."""
    policies = {"shop": Policy("shop", constraints=constraints)}
    return plan_and_check(snapshot(nodes, pending, pod_index=PodIndex.of(running)), policies)


def per(key: str, nodes: Sequence[Node], result: RoundResult) -> Counter[str]:
    labels = {each.name: dict(each.labels) for each in nodes}
    return Counter(labels[placement.node][key] for placement in result.placements)


def kind(name: str) -> PodSignature:
    return PodSignature("default", (("app", name),))


def test_conflict_counts_pods_of_all_owners() -> None:
    """Two Deployments, a pod that runs and one that another policy governs: together at most two a zone."""
    nodes = zoned("a", "a", "b", "b")
    both = Conflict("az", app("web", "api"), ZONE, 2)
    result = plan(nodes, [*pods("web", 4), *pods("api", 4)], both, running=[("n0", kind("web"))])
    assert per(ZONE, nodes, result) == {"a": 1, "b": 2}
    told = "node(s) are full by constraint az of policy shop (at most 2 per zone)"
    assert all(left.reason.startswith(f"0/4 nodes are available: 4 {told}.") for left in result.unplaced)


def test_a_cap_closes_domains_not_nodes() -> None:
    """At most one a zone leaves all but one node of it alone, however many zones; without the label no place."""
    nodes = zoned("a", "a", "b", "c", "c", "")
    result = plan(nodes, pods("web", 9), Conflict("az", app("web"), ZONE))
    assert per(ZONE, nodes, result) == {"a": 1, "b": 1, "c": 1}
    assert "1 node(s) have no label zone (constraint az of policy shop)" in result.unplaced[0].reason


def test_the_cheapest_slots_within_caps() -> None:
    """At most three a zone: each zone's three go to its free node, though the others would be taken next."""
    nodes = zoned(*"aabbcc", cpu=8000)
    half = [(each.name, amounts(4000), ()) for each in nodes[::2]]
    policies = {"shop": Policy("shop", constraints=(Conflict("az", app("web"), ZONE, 3),))}
    result = plan_and_check(snapshot(nodes, pods("web", 12, 500), half), policies)
    assert per(HOSTNAME, nodes, result) == {"n1": 3, "n3": 3, "n5": 3}


def test_exclusive_groups_share_no_node() -> None:
    """Each node has pods of one group; a pod that runs there decides for it; others go anywhere."""
    nodes = zoned("a", "a", "b", "b")
    noisy = Exclusive("noisy", (app("loud"), app("quiet")), HOSTNAME)
    pending = [*pods("loud", 6, 1000), *pods("quiet", 6, 1000), *pods("plain", 3, 1000)]
    result = plan(nodes, pending, noisy, running=[("n3", kind("quiet"))])
    assert len(result.placements) == 15
    apps: dict[str, set[str]] = {}
    for placement in result.placements:
        apps.setdefault(placement.node, set()).add(dict(placement.pod.signature.labels)["app"])
    assert not any({"loud", "quiet"} <= found for found in apps.values())
    assert "loud" not in apps["n3"]


@pytest.mark.parametrize(("most", "most_placed", "expected"), [(2, None, 8), (None, 3, 3), (2, 5, 5), (1, 9, 4)])
def test_so_many_a_domain_and_so_many_in_all(most: int | None, most_placed: int | None, expected: int) -> None:
    """The seed's r and p, over the pods of all groups."""
    nodes = zoned("a", "a", "b", "b")
    xor = Exclusive("xor", (app("loud"), app("quiet")), HOSTNAME, most, most_placed)
    result = plan(nodes, [*pods("loud", 6), *pods("quiet", 6)], xor)
    assert len(result.placements) == expected
    assert max(per(HOSTNAME, nodes, result).values()) <= (most or expected)


def test_pods_that_run_count_for_how_many_are_placed() -> None:
    """P is of those placed at a time, not of those placed at once."""
    xor = Exclusive("xor", (app("loud"), app("quiet")), HOSTNAME, None, 3)
    result = plan(zoned("a", "b"), pods("loud", 3), xor, running=[("n0", kind("quiet")), ("elsewhere", kind("loud"))])
    assert len(result.placements) == 2
    assert "(at most 3 in the cluster)" in result.unplaced[0].reason


def test_global_one_a_matching_node() -> None:
    """As many as fit, on no other nodes, beside those that run; the surplus waits."""
    nodes = [*zoned("a", "a", "b"), node("n9", 50, labels=((HOSTNAME, "n9"), (ZONE, "a")))]
    agent = Global("agent", app("agent"), LabelSelector((Requirement(ZONE, "In", ("a",)),)))
    result = plan(nodes, pods("agent", 5), agent, running=[("n0", kind("agent"))])
    assert [placement.node for placement in result.placements] == ["n1"]
    reason = result.unplaced[0].reason
    assert "1 node(s) are not among those of constraint agent of policy shop" in reason
    assert "2 node(s) are full by constraint agent of policy shop (at most 1 per kubernetes.io/hostname)" in reason
    assert "1 Insufficient cpu" in reason


def test_an_empty_selection_of_nodes_is_all_of_them() -> None:
    """As with every label selector."""
    result = plan(zoned("a", "b", ""), pods("agent", 5), Global("agent", app("agent"), LabelSelector()))
    assert len(result.placements) == 3


def test_constraints_do_not_change_what_spread_counts() -> None:
    """The nodes of ``global`` are not the pod's node affinity: kube-scheduler counts the zones that it leaves out."""
    nodes = zoned("a", "a", "b")
    even = InterPodConstraints(spread=(SpreadConstraint(ZONE, 1, app("agent")),))
    agents = [
        msgspec.structs.replace(each, signature=PodSignature("default", each.signature.labels, constraints=even))
        for each in pods("agent", 2)
    ]
    result = plan(nodes, agents, Global("agent", app("agent"), LabelSelector((Requirement(ZONE, "In", ("a",)),))))
    assert per(ZONE, nodes, result) == {"a": 1}


def test_only_governed_pods_and_selected_namespaces() -> None:
    """Pods of another policy are not held back; pods of namespaces that the policy does not select do not count."""
    nodes = zoned("a")
    policies = {
        "shop": Policy("shop", selects=Selects(namespaces=TEAM), constraints=(Conflict("az", app("web"), ZONE, 2),)),
        "free": Policy("free"),
    }
    pod_index = PodIndex.of([("n0", kind("web"))] * 5, {"default": (), "red": (("team", "one"),)})
    red = [
        msgspec.structs.replace(each, key=f"red/{each.pod_class}", signature=PodSignature("red", each.signature.labels))
        for each in pods("web", 1)
    ]
    red += [msgspec.structs.replace(red[0], key=f"red/{at}") for at in range(3)]
    free = [msgspec.structs.replace(each, policy="free") for each in pods("web", 4)]
    result = plan_and_check(snapshot(nodes, [*red, *free], pod_index=pod_index), policies)
    assert Counter(placement.pod.policy for placement in result.placements) == {"shop": 2, "free": 4}


def test_waves_are_for_kube_schedulers_rules() -> None:
    """What only policies demand needs no order: where all may be together, so may any part of them."""
    result = plan(zoned("a", "b"), pods("web", 4), Conflict("az", app("web"), ZONE, 1))
    assert {placement.wave for placement in result.placements} == {0}


def test_a_policy_without_a_say_leaves_kinds_alone() -> None:
    """And one that had a say and has none any more takes it back."""
    policy = Policy("shop", constraints=(Conflict("az", app("web"), ZONE),))
    web, other = kind("web"), kind("db")
    assert with_policy_constraints(other, policy) is other
    held = with_policy_constraints(web, policy)
    assert held != web
    assert with_policy_constraints(held, policy) is held
    assert with_policy_constraints(held, Policy("shop")) == web


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 9), max_size=3), st.integers(0, 2)), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_slots_within_caps_are_the_cheapest_that_there_are(
    nodes: list[tuple[list[int], int]], zones: list[int], host: int, count: int
) -> None:
    """Against all ways to choose them, under a cap on zones and under one on nodes beside it."""
    steps = np.full((len(nodes), 3), np.inf)
    for at, (rises, _) in enumerate(nodes):
        steps[at, : len(rises)] = np.cumsum(rises)
    zone = np.array([each for _, each in nodes], dtype=np.int64)
    of_zones = (zone, np.array(zones, dtype=np.int64))
    of_hosts = (np.arange(len(nodes), dtype=np.int64), np.full(len(nodes), host, dtype=np.int64))

    def fine(given: tuple[int, ...], caps: list[tuple[Any, Any]]) -> bool:
        held = all((np.bincount(at, given, len(room)) <= room).all() for at, room in caps)
        return sum(given) <= count and held

    for caps in ([of_zones], [of_zones, of_hosts]):
        found = capped_greedy(steps, caps, count)
        ways = product(*(range(len(rises) + 1) for rises, _ in nodes))
        costs = {way: sum(steps[at, :n].sum() for at, n in enumerate(way)) for way in ways if fine(way, caps)}
        most = max(map(sum, costs))
        best = min(cost for way, cost in costs.items() if sum(way) == most)
        assert (found.sum(), costs[tuple(found.tolist())]) == (most, best)
        kept = cheapest_per_domain(steps[:, 0], *of_zones)
        rest = capped_greedy(np.where(kept[:, np.newaxis], steps, np.inf), [of_zones], count)
        assert rest.sum() == capped_greedy(steps, [of_zones], count).sum()


# -- contradictions ----------------------------------------------------------------------------------------------------

BETWEEN = "constraint t of policy shop and constraint c of policy shop contradict each other: "
ACROSS = Exclusive("x", (app("left"), app("right")), HOSTNAME)


@pytest.mark.parametrize(
    ("constraints", "sentence"),
    [
        ([Conflict("az", app("odd"), ZONE, 0)], "constraint az of policy shop lets no pod in: its maxPerDomain is 0"),
        ([Conflict("az", app("odd"), "rack")], "constraint az of policy shop names rack, a label that no node has"),
        (
            [Exclusive("x", (app("odd"), app("other")), ZONE, max_placed=0)],
            "constraint x of policy shop lets no pod in: its maxPlaced is 0",
        ),
        (
            [Exclusive("x", (app("odd"), app("odd", "other")), ZONE)],
            "constraint x of policy shop has pods in two groups at once, which may share no zone",
        ),
        (
            [OneDomain("t", app("odd"), HOSTNAME), Conflict("c", app("odd"), ZONE, 2)],
            BETWEEN + "3 pods are to share a kubernetes.io/hostname, and a zone takes 2 of them",
        ),
        (
            [OneDomain("t", app("odd"), ZONE), Exclusive("c", (app("odd"), app("other")), ZONE, max_placed=2)],
            BETWEEN + "3 pods are to share a zone, and the cluster takes 2 of them",
        ),
    ],
)
def test_contradictions_are_named_and_hold_nobody_else_up(constraints: list[Constraint], sentence: str) -> None:
    """The pods concerned wait, each with the sentence; all others are placed."""
    result = plan(zoned("a", "b", "b"), [*pods("odd", 3), *pods("web", 3)], *constraints)
    assert {placement.pod.key[:-1] for placement in result.placements} == {"default/web"}
    assert [(each.policy, each.sentence) for each in result.contradictions] == [("shop", sentence)]
    whole = f"0/3 nodes are available: 3 node(s) are ruled out by a contradiction: {sentence}."
    assert {left.reason for left in result.unplaced} == {whole}


@pytest.mark.parametrize(
    ("inner", "outer", "contradicts"), [(HOSTNAME, ZONE, True), (ZONE, ZONE, True), (ZONE, HOSTNAME, False)]
)
def test_together_and_exclusive(inner: str, outer: str, *, contradicts: bool) -> None:
    """In the same or in a wider domain they contradict each other; in a narrower one they do not."""
    both = OneDomain("t", app("left", "right"), inner), Exclusive("x", (app("left"), app("right")), outer)
    result = plan(zoned("a", "a", "b"), [*pods("left", 1), *pods("right", 1), *pods("web", 1)], *both)
    assert bool(result.contradictions) == contradicts
    assert {left.pod.key for left in result.unplaced} == ({"default/left0", "default/right0"} if contradicts else set())


def test_what_no_pod_meets_is_no_contradiction_of_pods() -> None:
    """Two groups may overlap, and pods of both be wanted together, as long as no such pods wait."""
    result = plan(zoned("a"), pods("web", 1), OneDomain("t", app("odd"), ZONE), ACROSS)
    assert result.contradictions == ()


# -- what is newer than a plan -----------------------------------------------------------------------------------------


def test_a_placement_stands_while_there_is_room_under_the_cap() -> None:
    """One that came does not void it where the cap leaves room for both; the next one does."""
    nodes = {each.name: each for each in zoned("a", "a", "b")}
    held = with_policy_constraints(kind("web"), Policy("shop", constraints=(Conflict("az", app("web"), ZONE, 2),)))

    def breaks(*came: str, counted: bool = False) -> bool:
        newer, running = Drift(), PodIndex()
        for name in came:
            newer.pods.change(kind("web"), name, 1)
            running.change(kind("web"), name, 1)
        if counted:
            running.change(kind("web"), "n0", 1)
        return newer.conflicts(held, nodes["n0"], nodes, running, already_counted=counted)

    assert [breaks(*came) for came in ((), ("n1",), ("n1", "n2"), ("n1", "n0"))] == [False, False, False, True]
    assert [breaks(*came, counted=True) for came in (("n1",), ("n1", "n1"))] == [False, True]
