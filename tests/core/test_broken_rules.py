"""Rules that hold while pods run: who breaks one, who leaves, and how long a NoExecute taint lets a pod stay."""

import itertools
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.governed_pods import ANYWHERE, IN_A, cluster, in_zone, planned, policy, runs
from support.model import node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.node_matching import seconds_before_eviction
from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node, Taint
from flowcore.model.pod_index import PodIndex
from flowcore.model.pods import Pod, PodClass, Toleration
from flowcore.model.policies import DuringExecution
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.evictions.moves.lasting_rules import LastingRules
from flowcore.planning.round import run_round
from flowcore.rules.filters import inter_pod_affinity, node_affinity, taint_eviction

EVICT, REPLACE, IGNORE = DuringExecution.EVICT, DuringExecution.REPLACE, DuringExecution.IGNORE
WEB = LabelSelector((Requirement("app", "In", ("web",)),))
NEAR_WEB = AffinityTerm("zone", WEB, ("default",))
APART = InterPodConstraints(anti_affinity=(NEAR_WEB,))
TOGETHER = InterPodConstraints(affinity=(NEAR_WEB,))
WEB_LABELS = (("app", "web"),)
DRAIN = Taint("drain", "", "NoExecute")


def web(name: str, on: str, pod_class: PodClass = ANYWHERE, constraints: Any = None, **fields: Any) -> Pod:
    """A running pod with the label app=web."""
    return runs(name, on, pod_class, **({"labels": WEB_LABELS, "constraints": constraints} | fields))


def found(nodes: list[Node], pods: list[Pod], mode: DuringExecution = EVICT) -> dict[str, str]:
    """Who leaves, and why."""
    evictions = planned(cluster(nodes, pods, policy(mode)), policy(mode)).evictions
    return {each.pod.key.partition("/")[2]: each.reason for each in evictions}


def test_node_labels() -> None:
    """A pod whose node lost the label that its selector names leaves; its equal on another node stays."""
    pods = [web("p", "n1", IN_A), web("q", "n2", IN_A), web("r", "n1")]
    reason = "node n1 does not match its node affinity or selector"
    assert found([in_zone("n1", "b"), in_zone("n2", "a")], pods) == {"p": reason}


@pytest.mark.parametrize("constraints", [None, APART, TOGETHER])
def test_who_ignores_rules_stays(constraints: InterPodConstraints | None) -> None:
    """Ignore, the default, is Kubernetes' own behaviour."""
    pods = [web(name, "n1", IN_A, constraints) for name in "pq"]
    assert found([in_zone("n1", "b")], pods, IGNORE) == {}


def test_of_two_that_exclude_each_other_one_leaves() -> None:
    """The later one of equal priority; a third in another zone stays."""
    pods = [web(name, f"n{name}", ANYWHERE, APART, started=1.0 + at) for at, name in enumerate("123")]
    reason = "node n2 is near a pod that its required pod anti-affinity excludes"
    assert found([in_zone("n1", "a"), in_zone("n2", "a"), in_zone("n3", "b")], pods) == {"2": reason}


def test_the_lower_priority_leaves_first() -> None:
    """Even where it has run longer."""
    low = msgspec.structs.replace(ANYWHERE, priority=-1)
    pods = [web("old", "n1", low, APART, started=1.0), web("new", "n1", ANYWHERE, APART, started=2.0)]
    assert list(found([in_zone("n1", "a")], pods)) == ["old"]


def test_who_may_not_leave_keeps_the_other_from_nothing() -> None:
    """One of two that exclude each other stays whatever happens: the other one leaves, though it is more important."""
    low = msgspec.structs.replace(ANYWHERE, priority=-1)
    kept = web("kept", "n1", low, APART, labels=(*WEB_LABELS, ("kept", "yes")))
    budget = DisruptionBudget("default", "kept", LabelSelector((Requirement("kept", "In", ("yes",)),)))
    shown = cluster([in_zone("n1", "a")], [kept, web("other", "n1", ANYWHERE, APART)], policy(EVICT), (), (budget,))
    assert [each.pod.key for each in planned(shown, policy(EVICT)).evictions] == ["default/other"]


def test_nobody_leaves_for_a_pod_that_is_being_deleted() -> None:
    """A pod that its neighbour's eviction relieves is not evicted too while that one terminates."""
    pods = [web("old", "n1", ANYWHERE, APART, deleting=True), web("p", "n1", ANYWHERE, APART)]
    assert found([in_zone("n1", "a")], pods) == {}


def test_affinity_between_equals() -> None:
    """Two that want each other and have drifted apart: one follows the other. The last of its kind may be alone."""
    nodes = [in_zone("n1", "a"), in_zone("n2", "b")]
    pods = [web("p", "n1", ANYWHERE, TOGETHER, started=1.0), web("q", "n2", ANYWHERE, TOGETHER, started=2.0)]
    assert found(nodes, pods) == {"q": "node n2 is not near a pod that its required pod affinity names"}
    assert found(nodes, pods[:1]) == {}


def test_affinity_to_others() -> None:
    """A pod whose neighbour has gone breaks its rule; one that is beside its neighbour does not."""
    nodes = [in_zone("n1", "a"), in_zone("n2", "b")]
    client = web("client", "n1", ANYWHERE, TOGETHER, labels=())
    assert list(found(nodes, [client, web("web", "n2")])) == ["client"]
    assert found(nodes, [client, web("web", "n1")]) == {}


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ((), 0),
        ((Toleration("drain", "Exists"),), None),
        ((Toleration("drain", "Exists", seconds=300),), 300),
        ((Toleration("drain", "Exists", seconds=0),), 0),
        ((Toleration("drain", "Exists", seconds=-5),), 0),
        ((Toleration("drain", "Exists"), Toleration("", "Exists", seconds=5)), None),
        ((Toleration("", "Exists", seconds=5), Toleration("drain", "Exists")), 5),
        ((Toleration("drain", "Exists", effect="NoSchedule"),), 0),
    ],
)
def test_seconds_before_a_taint_evicts(tolerations: tuple[Toleration, ...], seconds: int | None) -> None:
    """As the taint-eviction controller reckons: the first toleration that covers the taint counts."""
    assert seconds_before_eviction(tolerations, [Taint("x", "", "NoSchedule"), DRAIN]) == seconds


def test_the_shortest_time_of_all_taints_counts() -> None:
    """A pod leaves when the first of its tolerations runs out."""
    tolerations = (Toleration("drain", "Exists", seconds=300), Toleration("broken", "Exists", seconds=20))
    assert seconds_before_eviction(tolerations, [DRAIN, Taint("broken", "", "NoExecute")]) == 20


def test_replacements_are_planned_before_a_taint_evicts() -> None:
    """With Replace, and while there is time; Evict leaves the pod to the controller."""
    some_time, for_ever = (Toleration("drain", "Exists", seconds=300),), (Toleration("drain", "Exists"),)
    tolerating = [msgspec.structs.replace(ANYWHERE, tolerations=each) for each in (some_time, for_ever)]
    pods = [
        web("replaced", "n1", tolerating[0]),
        web("evicted", "n1", tolerating[0], during_execution=EVICT),
        web("at-once", "n1"),
        web("for-ever", "n1", tolerating[1]),
    ]
    nodes = [in_zone("n1", "a", taints=(DRAIN,)), in_zone("n2", "a")]
    (eviction,) = planned(cluster(nodes, pods, policy(REPLACE)), policy(REPLACE)).evictions
    assert (eviction.pod.key, eviction.to, eviction.by_controller) == ("default/replaced", "n2", True)
    assert eviction.reason == "node n1 has a taint that evicts it after 300 s"


def test_no_pod_goes_where_it_would_be_evicted_at_once() -> None:
    """kube-scheduler's filter accepts the node; the pod waits rather than come and go for ever."""
    fleeting = (Toleration("drain", "Exists", seconds=0),)
    waiting = [pod("p", 1000, tolerations=fleeting)]
    planned = run_round(snapshot([node("n1", taints=(DRAIN,))], waiting))
    assert planned.placements == ()
    assert taint_eviction.REASON in planned.unplaced[0].reason
    assert planned.unplaced[0].code == taint_eviction.NAME
    (placement,) = run_round(snapshot([node("n1", taints=(DRAIN,)), node("n2")], waiting)).placements
    assert placement.node == "n2"
    some_time = (Toleration("drain", "Exists", seconds=1),)
    (stays,) = run_round(snapshot([node("n1", taints=(DRAIN,))], [pod("p", 1000, tolerations=some_time)])).placements
    assert stays.node == "n1"


@st.composite
def drawn_pods(draw: st.DrawFn) -> tuple[Snapshot, RunningPods]:
    """A cluster whose running pods have rules that nobody kept when they came."""
    drawn = draw(constrained_snapshots())
    names = [each.name for each in drawn.table.nodes]
    pods = tuple(
        RunningPod(
            each.key,
            each.uid,
            draw(st.sampled_from(names)),
            each.pod_class,
            signature=msgspec.structs.replace(each.signature),
            started=draw(st.sampled_from((0.0, 1.0, 2.0))),
            during_execution=draw(st.sampled_from((EVICT, REPLACE, IGNORE))),
        )
        for each in drawn.pending
    )
    index = drawn.pod_index.with_changes([(each.node, each.signature) for each in pods])
    return replace(drawn, pending=(), pod_index=index), RunningPods(pods)


def breaks(each: RunningPod, drawn: Snapshot, table: NodeTable) -> bool:
    """Whether the filters would not let a pod come back to its node once it has left."""
    index = drawn.pod_index.with_changes((), [(each.node, each.signature)])
    at = table.index[each.node]
    own = inter_pod_affinity.own_rejections(each.signature, index, table) if each.signature.constraints else ()
    return any(rejection.nodes[at] for rejection in (*own, *node_affinity.rejections(each.pod_class, table)))


@given(drawn_pods())
@settings(max_examples=examples(100))
def test_who_breaks_a_rule(drawn: tuple[Snapshot, RunningPods]) -> None:
    """Those whose node the filters reject without the pod itself, but for those that ignore it."""
    shown, running = drawn
    # Pods that are being deleted exclude newcomers, and nobody leaves for them.
    staying = PodIndex(dict(shown.pod_index.namespaces))
    for each in running.pods:
        staying.change(each.signature, each.node, 1)
    shown = replace(shown, pod_index=staying)
    rules = LastingRules(shown, running, {})
    broken = {pod.key for pod in itertools.compress(rules.pods, rules.broken.tolist())}
    kept = [each for each in running.pods if each.during_execution is not IGNORE]
    assert broken == {each.key for each in kept if breaks(each, shown, shown.table)}
