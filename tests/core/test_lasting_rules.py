"""Topology spread, NoSchedule taints and policies' constraints that hold while pods run, where a policy asks for it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.eviction_clusters import selects
from support.governed_pods import ANYWHERE, BUDGET, NOW, cluster, in_zone, leaving, planned, policy, runs
from support.model import amounts
from support.profiles import examples

from flowcore.api.policies import parse_policy
from flowcore.cluster.arrays.node_matching import tolerates
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global, OneDomain
from flowcore.model.errors import PolicyError
from flowcore.model.inter_pod_constraints import HOSTNAME, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node, Taint
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass, Toleration
from flowcore.model.policies import BUILT_IN, Delivery, DuringExecution, LastingRule, Policy
from flowcore.model.running_pods import EvictionKind, RunningPod
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.evictions.moves.lasting_rules import LastingRules, NodeVerdict
from flowcore.planning.round import RoundResult
from flowcore.rules.filters import pod_topology_spread, policy_constraints

EVICT, REPLACE, IGNORE = DuringExecution.EVICT, DuringExecution.REPLACE, DuringExecution.IGNORE
SPREAD, TAINTS, CONSTRAINTS = LastingRule
GPU = Taint("dedicated", "gpu", "NoSchedule")


def asks(*also: LastingRule, mode: DuringExecution = REPLACE, constraints: Any = (), **limits: int) -> Policy:
    """A policy with these rules and limits; pods may leave at any age unless said otherwise."""
    return msgspec.structs.replace(
        policy(mode, **({"min_age": 0} | limits)), lasting_rules=also, constraints=tuple(constraints)
    )


def web(name: str, on: str, pod_class: PodClass = ANYWHERE, **fields: Any) -> Pod:
    """A running pod with the label app=web."""
    return runs(name, on, pod_class, **({"labels": (("app", "web"),), "started": 1.0} | fields))


def spread_over(key: str = "zone", max_skew: int = 1, **fields: Any) -> InterPodConstraints:
    """DoNotSchedule over a label, of pods with app=web."""
    return InterPodConstraints(spread=(SpreadConstraint(key, max_skew, selects("web"), **fields),))


def crowd(counts: list[int], max_skew: int = 1) -> tuple[list[Node], list[Pod]]:
    """One large node a zone, and so many spread pods on each."""
    nodes = [in_zone(f"n{zone}", f"z{zone}", 100_000) for zone in range(len(counts))]
    pods = [
        web(f"p{zone}-{number}", f"n{zone}", constraints=spread_over(max_skew=max_skew), started=1.0 + number)
        for zone, count in enumerate(counts)
        for number in range(count)
    ]
    return nodes, pods


# --- what a policy says ---


def test_a_policy_names_the_rules() -> None:
    """None holds by default, and an unknown one is refused."""
    spec = {"selects": {"podSelector": {}}, "duringExecution": {"rules": "Replace", "also": ["Taints"]}}
    assert parse_policy("own", spec, BUILT_IN_MODELS).lasting_rules == (TAINTS,)
    assert parse_policy("own", {}, BUILT_IN_MODELS).lasting_rules == ()
    with pytest.raises(PolicyError, match="Cordons") as raised:
        parse_policy("own", {"duringExecution": {"also": ["Cordons"]}}, BUILT_IN_MODELS)
    assert raised.value.field == "spec.duringExecution.also[0]"


@pytest.mark.parametrize(
    "governed_by",
    [
        asks(),
        asks(SPREAD, TAINTS, CONSTRAINTS, mode=IGNORE),
        msgspec.structs.replace(asks(SPREAD, TAINTS, CONSTRAINTS), delivery=Delivery.OBSERVE),
    ],
    ids=["none named", "ignored", "observed"],
)
def test_nobody_leaves_who_is_not_asked_to(governed_by: Policy) -> None:
    """Spread and taints are for new pods, as in Kubernetes, unless a policy that acts says otherwise."""
    nodes, pods = crowd([3, 0])
    tainted = in_zone("t", "z1", taints=(GPU,))
    assert leaving([*nodes, tainted], [*pods, web("on-t", "t")], governed_by) == {}


# --- taints ---


def test_a_pod_leaves_a_node_with_a_taint_that_it_does_not_tolerate() -> None:
    """One that tolerates it stays."""
    nodes = [in_zone("n3", "a", taints=(GPU,)), in_zone("n4", "a")]
    tolerant = PodClass(requests=amounts(1000), tolerations=(Toleration("dedicated", "Exists"),))
    governed_by = asks(TAINTS)
    result = planned(cluster(nodes, [web("p", "n3"), web("q", "n3", tolerant)], governed_by), governed_by)
    (eviction,) = result.evictions
    assert (eviction.pod.key, eviction.kind, eviction.to) == ("default/p", EvictionKind.RULE, "n4")
    assert eviction.reason == "node n3 has the taint dedicated=gpu:NoSchedule, which it does not tolerate"


@pytest.mark.parametrize(
    "taint",
    [
        Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
        Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule"),
        Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule"),
        Taint("dedicated", "gpu", "PreferNoSchedule"),
        Taint("dedicated", "gpu", "NoExecute"),
    ],
)
def test_a_cordon_a_condition_and_the_controllers_taints_move_nobody(taint: Taint) -> None:
    """A cordon is for new pods, conditions pass, and NoExecute is the taint-eviction controller's."""
    nodes = [in_zone("n3", "a", taints=(taint,)), in_zone("n4", "a")]
    assert leaving(nodes, [web("p", "n3")], asks(TAINTS)) == {}


@pytest.mark.parametrize("mode", [REPLACE, EVICT])
def test_without_a_place_nobody_leaves(mode: DuringExecution) -> None:
    """Not even with Evict: room first."""
    nodes = [in_zone("n3", "a", taints=(GPU,)), in_zone("n4", "a", 1000)]
    governed_by = asks(TAINTS, mode=mode)
    assert leaving(nodes, [web("p", "n3"), web("full", "n4")], governed_by) == {}
    assert leaving(nodes, [web("p", "n3")], governed_by) == {"p": "n4"}


def test_no_pod_goes_where_a_taint_would_evict_it_later() -> None:
    """The controller would: 60 s later it had to move again."""
    some_time = PodClass(requests=amounts(1000), tolerations=(Toleration("drain", "Exists", seconds=60),))
    nodes = [in_zone("n3", "a", taints=(GPU,)), in_zone("n4", "a", taints=(Taint("drain", "", "NoExecute"),))]
    assert leaving(nodes, [web("p", "n3", some_time)], asks(TAINTS)) == {}


# --- spread ---


def test_as_many_leave_as_the_skew_asks_for() -> None:
    """The ones that started last; the sentence has the counts."""
    nodes, pods = crowd([4, 0])
    governed_by = asks(SPREAD)
    evictions = planned(cluster(nodes, pods, governed_by), governed_by).evictions
    assert {each.pod.key: each.to for each in evictions} == {"default/p0-3": "n1", "default/p0-2": "n1"}
    assert (
        "zone=z0 has 4 pods that its topology spread constraint counts, and the emptiest domain has 0; maxSkew is 1"
    ) in {each.reason for each in evictions}


def test_lower_priorities_leave_first() -> None:
    """Even where they have run longer."""
    nodes, pods = crowd([3, 1])
    low = PodClass(requests=amounts(1000), priority=-1)
    pods[0] = web("p0-0", "n0", low, constraints=spread_over(), started=1.0)
    assert leaving(nodes, pods, asks(SPREAD)) == {"p0-0": "n1"}


def test_a_node_without_the_label_is_left() -> None:
    """The filter would not let the pod come to it."""
    nodes = [in_zone("n0", "a"), msgspec.structs.replace(in_zone("bare", "a"), labels=())]
    governed_by = asks(SPREAD)
    result = planned(cluster(nodes, [web("p", "bare", constraints=spread_over())], governed_by), governed_by)
    assert [each.reason for each in result.evictions] == [
        "node bare has no label zone, which its topology spread constraint names"
    ]


def test_a_waiting_pod_that_mends_the_skew_moves_nobody() -> None:
    """It goes to the empty zone anyhow."""
    nodes, pods = crowd([2, 0])
    waiting = PendingPod(
        "default/new",
        "uid-new",
        ANYWHERE,
        BUILT_IN.name,
        signature=msgspec.structs.replace(pods[0].signature),
    )
    assert leaving(nodes, pods, asks(SPREAD), pending=(waiting,)) == {}


def test_limits_age_and_budgets_are_kept() -> None:
    """As for moves."""
    nodes, pods = crowd([6, 0])
    assert len(leaving(nodes, pods, asks(SPREAD))) == 3
    assert len(leaving(nodes, pods, asks(SPREAD, per_round=2))) == 2
    assert len(leaving(nodes, pods, asks(SPREAD, per_owner=1))) == 1
    one = msgspec.structs.replace(BUDGET, allowed=1)
    assert len(leaving(nodes, pods, asks(SPREAD), budgets=(one,))) == 1
    young = [msgspec.structs.replace(pod, started=NOW - 5.0) for pod in pods]
    assert leaving(nodes, young, asks(SPREAD, min_age=10)) == {}
    assert len(leaving(nodes, young, asks(SPREAD, min_age=5))) == 3
    unstarted = [msgspec.structs.replace(pod, started=0.0) for pod in pods]
    assert leaving(nodes, unstarted, asks(SPREAD)) == {}
    bare = [msgspec.structs.replace(pod, immovable_reason="it is bare") for pod in pods]
    assert leaving(nodes, bare, asks(SPREAD)) == {}


@given(st.lists(st.integers(0, 9), min_size=2, max_size=5), st.integers(1, 3))
@settings(max_examples=examples(60))
def test_no_fewer_pods_could_mend_the_skew(counts: list[int], max_skew: int) -> None:
    """With room everywhere: every zone has at least some level afterwards, and at most maxSkew more."""
    nodes, pods = crowd(counts, max_skew)
    moved = leaving(nodes, pods, asks(SPREAD))
    after = Counter(pod.node_name for pod in pods if pod.name not in moved) + Counter(moved.values())
    kept = [after[node.name] for node in nodes]
    assert max(kept) - min(kept) <= max_skew
    fewest = min(
        max(sum(max(0, level - count) for count in counts), sum(max(0, count - level - max_skew) for count in counts))
        for level in range(10)
        if level * len(counts) <= sum(counts) <= (level + max_skew) * len(counts)
    )
    assert len(moved) == fewest


# --- tries in vain ---


def in_vain(count: int, *, own_labels: bool = False) -> tuple[list[Node], list[Pod]]:
    """Zone a has too many web pods. Wherever these may go in zone b, two db pods would break a rule by each of them.

    A third node of zone b is for no web pod, so that the hosts of the others have one too many already.
    """
    web_node = PodClass(requests=amounts(1000), node_selector=(("web", "yes"),))
    nodes = [
        msgspec.structs.replace(
            in_zone(name, zone, 1_000_000), labels=((HOSTNAME, name), ("web", for_web), ("zone", zone))
        )
        for name, zone, for_web in (("big", "a", "yes"), ("n1", "b", "yes"), ("n2", "b", "yes"), ("n3", "b", "no"))
    ]
    pods = [
        web(f"p{number}", "big", web_node, started=2.0 + number, constraints=spread_over(),
            labels=(("app", "web"), ("number", str(number) if own_labels else "")))
        for number in range(count)
    ]  # fmt: skip
    for name in ("n1", "n2"):
        pods.append(web(f"web-{name}", name, web_node, constraints=spread_over()))
        pods += [
            web(f"db-{name}-{number}", name, labels=(("app", "db"),), constraints=spread_over(HOSTNAME))
            for number in range(2)
        ]
    return nodes, pods


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The kinds of pods whose rules are judged, one after the other."""
    kinds: list[int] = []
    judge = LastingRules.verdicts

    def counted(self: LastingRules, kind: int, snapshot: Snapshot) -> tuple[NodeVerdict, ...]:
        kinds.append(kind)
        return judge(self, kind, snapshot)

    monkeypatch.setattr(LastingRules, "verdicts", counted)
    return kinds


def test_of_equal_pods_one_is_tried_in_vain(judged: list[int]) -> None:
    """Each try judges rules anew; so a hundred equal pods take no longer than ten."""
    counts = []
    for count in (10, 100):
        judged.clear()
        assert leaving(*in_vain(count), asks(SPREAD)) == {}
        counts.append(len(judged))
    nobody_tried = len(set(judged)) * 2  # whether any is broken, and before the first is tried
    assert nobody_tried < counts[0] == counts[1]


def test_tries_in_vain_have_a_limit(judged: list[int]) -> None:
    """Pods with a label of their own are not equal."""
    counts = []
    for count in (20, 200, 300):
        judged.clear()
        assert leaving(*in_vain(count, own_labels=True), asks(SPREAD)) == {}
        counts.append(len(judged))
    assert counts[0] < counts[1] == counts[2]


def test_who_is_tried_in_vain_keeps_nobody_from_leaving() -> None:
    """A pod that comes after 200 others leaves after some rounds."""
    nodes, pods = in_vain(200, own_labels=True)
    nodes.append(in_zone("tainted", "c", taints=(GPU,)))
    pods.append(web("last", "tainted", PodClass(requests=amounts(1000), priority=5), labels=(("app", "other"),)))
    governed_by = asks(SPREAD, TAINTS)
    shown = cluster(nodes, pods, governed_by)
    rounds = (planned(replace(shown, now=NOW + 10.0 * number), governed_by) for number in range(6))
    left = [[eviction.pod.key for eviction in result.evictions] for result in rounds]
    assert [] in left
    assert ["default/last"] in left


# --- constraints ---


def test_the_smaller_group_leaves() -> None:
    """One pod rather than three, though it has run longest."""
    groups = Exclusive("apart", (selects("web"), selects("db")), "zone")
    nodes = [in_zone("n1", "a", 8000), in_zone("n2", "b", 8000)]
    pods = [web(f"w{number}", "n1", started=5.0) for number in range(3)]
    pods.append(web("d", "n1", labels=(("app", "db"),), started=1.0))
    governed_by = asks(CONSTRAINTS, constraints=[groups])
    result = planned(cluster(nodes, pods, governed_by), governed_by)
    assert [(each.pod.key, each.to, each.reason) for each in result.evictions] == [
        ("default/d", "n2", "zone=a has pods of another group of constraint apart of policy (built-in)")
    ]


@pytest.mark.parametrize(
    ("constraint", "left", "reason"),
    [
        (
            Conflict("two", selects("web"), "zone", 2),
            {"w2": "n2"},
            "zone=a has 3 pods of constraint two of policy (built-in), which allows 2",
        ),
        (
            Global("each", selects("web"), LabelSelector((Requirement("zone", "In", ("b",)),))),
            {"w2": "n2"},
            "node n1 is not among those of constraint each of policy (built-in)",
        ),
        (OneDomain("one", selects("web"), "zone"), {}, ""),
        (Global("all", selects("web"), LabelSelector(), all_or_none=True), {}, ""),
        (Exclusive("few", (selects("web"), selects("db")), "zone", max_placed=1), {}, ""),
    ],
    ids=lambda value: value.name if isinstance(value, Constraint) else "",
)
def test_constraints(constraint: Constraint, left: dict[str, str], reason: str) -> None:
    """Who is placed with others or not at all stays, and so does who would break the rule on any node."""
    nodes = [
        msgspec.structs.replace(in_zone(name, zone, 8000), labels=((HOSTNAME, name), ("zone", zone)))
        for name, zone in (("n1", "a"), ("n2", "b"))
    ]
    pods = [web(f"w{number}", "n1", started=1.0 + number) for number in range(3)]
    governed_by = asks(CONSTRAINTS, constraints=[constraint])
    result = planned(cluster(nodes, pods, governed_by), governed_by)
    assert {each.pod.key.partition("/")[2]: each.to for each in result.evictions} == left
    assert {each.reason for each in result.evictions} == ({reason} if left else set())


def test_nobody_leaves_for_a_pod_that_is_being_deleted() -> None:
    """It makes way by itself."""
    nodes = [in_zone("n1", "a", 8000), in_zone("n2", "b", 8000)]
    pods = [web("old", "n1", deleting=True), web("new", "n1")]
    assert leaving(nodes, pods, asks(CONSTRAINTS, constraints=[Conflict("one", selects("web"), "zone")])) == {}


# --- round after round ---


@st.composite
def drifted(draw: st.DrawFn) -> tuple[list[Node], list[Pod], Policy]:
    """A cluster whose rules nobody kept: zones, hosts, taints, constraints, little room."""
    zones = draw(st.integers(2, 3))
    nodes = [
        msgspec.structs.replace(
            in_zone(f"n{number}", "", draw(st.sampled_from((2000, 3000, 5000)))),
            labels=((HOSTNAME, f"n{number}"), ("zone", f"z{number % zones}")),
            taints=draw(st.sampled_from(((), (), (), (GPU,)))),
        )
        for number in range(draw(st.integers(2, 6)))
    ]
    room = {each.name: dict(each.allocatable)["cpu"] for each in nodes}
    rules = st.lists(
        st.builds(
            SpreadConstraint,
            st.sampled_from(("zone", HOSTNAME)),
            st.integers(1, 2),
            st.sampled_from((selects("web"), selects("db"))),
            st.integers(1, 2),
            st.booleans(),
            st.booleans(),
        ),
        max_size=2,
        unique_by=lambda rule: rule.topology_key,
    )
    pods = []
    for number in range(draw(st.integers(1, 9))):
        on = draw(st.sampled_from(nodes)).name
        if room[on] < 1000:
            continue
        room[on] -= 1000
        spread = tuple(draw(rules))
        pods.append(
            web(
                f"p{number}",
                on,
                PodClass(
                    requests=amounts(1000),
                    priority=draw(st.sampled_from((0, 0, 5))),
                    tolerations=draw(st.sampled_from(((), (Toleration("dedicated", "Exists"),)))),
                ),
                labels=(("app", draw(st.sampled_from(("web", "db")))),),
                constraints=InterPodConstraints(spread=spread) if spread else None,
                started=draw(st.sampled_from((0.0, 1.0, 2.0, 3.0))),
                during_execution=draw(st.sampled_from((None, None, None, EVICT, IGNORE))),
            )
        )
    constraint = draw(
        st.sampled_from(
            (
                None,
                Conflict("few", selects("web"), "zone", 2),
                Conflict("one", selects("db"), HOSTNAME, 1),
                Exclusive("apart", (selects("web"), selects("db")), "zone"),
                Exclusive("hosts", (selects("web"), selects("db")), HOSTNAME, max_per_domain=2),
            )
        )
    )
    also = draw(st.sampled_from([*itertools.combinations(LastingRule, 2), tuple(LastingRule)]))
    limits = draw(st.sampled_from(({}, {}, {"per_round": 1}, {"per_node": 1})))
    return nodes, pods, asks(*also, constraints=[constraint] if constraint else [], **limits)


def breaks(pod: RunningPod, drawn: Snapshot, governed_by: Policy) -> bool:
    """Whether the filters of the rules that the policy names would not let a pod come back to its node."""
    table, node = drawn.table, drawn.table.index[pod.node]
    signature = with_policy_constraints(pod.signature, governed_by)
    index = drawn.pod_index.with_changes((), [(pod.node, pod.signature)])
    rejections = []
    if SPREAD in governed_by.lasting_rules and signature.constraints:
        rejections += pod_topology_spread.rejections(pod.pod_class, signature, index, table)
    if CONSTRAINTS in governed_by.lasting_rules and signature.constraints:
        rejections += policy_constraints.nodes_rejections(signature, table)
        rejections += policy_constraints.rejections(signature, index, table)
    untolerated = TAINTS in governed_by.lasting_rules and any(
        not tolerates(pod.pod_class.tolerations, taint) for taint in table.nodes[node].taints
    )
    return untolerated or any(rejection.nodes[node] for rejection in rejections)


def broken(drawn: Snapshot, governed_by: Policy) -> set[str]:
    """Keys of the pods that break a rule which holds for them."""
    assert drawn.running is not None
    return {
        pod.key for pod in drawn.running.pods if pod.during_execution is not IGNORE and breaks(pod, drawn, governed_by)
    }


def with_moves(pods: list[Pod], result: RoundResult) -> list[Pod]:
    """The pods once the replacements are where they were to go, and have run for as long as the others."""
    to = {each.pod.key: each.to for each in result.evictions}
    return [msgspec.structs.replace(pod, node_name=to[pod.key]) if pod.key in to else pod for pod in pods]


@given(drifted())
@settings(max_examples=examples(150))
def test_rounds_mend_rules_and_come_to_an_end(drawn: tuple[list[Node], list[Pod], Policy]) -> None:
    """Every pod that leaves breaks a rule, has a place, and fewer pods break one afterwards; so nothing circles."""
    nodes, pods, governed_by = drawn
    before = cluster(nodes, pods, governed_by)
    count = len(broken(before, governed_by))
    for _ in range(count + 1):
        result = planned(before, governed_by)
        if not result.evictions:
            break
        assert all(each.to and each.kind is EvictionKind.RULE for each in result.evictions)
        pods = with_moves(pods, result)
        after = cluster(nodes, pods, governed_by)
        left = broken(after, governed_by)
        assert len(left) + len(result.evictions) <= count
        before, count = after, len(left)
    else:
        pytest.fail("there were more rounds than broken rules")


@given(drifted())
@settings(max_examples=examples(100))
def test_nobody_leaves_who_breaks_no_rule(drawn: tuple[list[Node], list[Pod], Policy]) -> None:
    """Where all rules hold, or those who break one are too young, the plan is empty."""
    nodes, pods, governed_by = drawn
    shown = cluster(nodes, pods, governed_by)
    leave = {each.pod.key for each in planned(shown, governed_by).evictions}
    assert leave <= {pod.key for pod in pods if pod.started}
    young = msgspec.structs.replace(
        governed_by, rescheduling=msgspec.structs.replace(governed_by.rescheduling, min_age=int(NOW))
    )
    assert leaving(nodes, pods, young) == {}
    if not broken(shown, governed_by):
        assert not leave


@given(drifted(), st.integers(1, 3), st.sampled_from((0, 10)), st.booleans())
@settings(max_examples=examples(100))
def test_waiting_pods_and_lasting_rules_make_one_plan(
    drawn: tuple[list[Node], list[Pod], Policy],
    count: int,
    priority: int,
    spread: bool,  # noqa: FBT001
) -> None:
    """It can be carried out step by step, and costs no less than its bound."""
    nodes, pods, governed_by = drawn
    signature = PodSignature("default", (("app", "web"),), constraints=spread_over() if spread else None)
    waiting = tuple(
        PendingPod(
            f"default/w{number}",
            f"uid-w{number}",
            PodClass(requests=amounts(1000), priority=priority),
            BUILT_IN.name,
            signature=signature,
        )
        for number in range(count)
    )
    result = planned(cluster(nodes, pods, governed_by, waiting), governed_by)
    assert result.lower_bound <= result.cost
    assert len(result.placements) + len(result.unplaced) == count
