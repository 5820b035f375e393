"""Rules that hold while pods run: who breaks one, who leaves, and how long a NoExecute taint lets a pod stay."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.model import node, pod, snapshot
from support.profiles import examples

from flowcore.cluster.arrays.node_matching import seconds_before_eviction
from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Taint
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass, Toleration
from flowcore.model.policies import DuringExecution
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.evictions.rules.broken_rules import BrokenRule, broken_rules
from flowcore.planning.round import run_round
from flowcore.rules.filters import inter_pod_affinity, node_affinity, taint_eviction

EVICT, REPLACE, IGNORE = DuringExecution.EVICT, DuringExecution.REPLACE, DuringExecution.IGNORE
WEB = LabelSelector((Requirement("app", "In", ("web",)),))
NEAR_WEB = AffinityTerm("zone", WEB, ("default",))
APART = InterPodConstraints(anti_affinity=(NEAR_WEB,))
TOGETHER = InterPodConstraints(affinity=(NEAR_WEB,))
WEB_LABELS = (("app", "web"),)
DRAIN = Taint("drain", "", "NoExecute")


ANY = PodClass()


def runs(
    name: str,
    on: str,
    pod_class: PodClass = ANY,
    *,
    mode: DuringExecution = EVICT,
    constraints: InterPodConstraints | None = None,
    labels=WEB_LABELS,
    started: float = 0.0,
) -> RunningPod:
    """A running pod with the label app=web."""
    signature = PodSignature("default", labels, constraints=constraints)
    return RunningPod(name, name, on, pod_class, signature=signature, started=started, during_execution=mode)


def zoned(name: str, zone: str, **fields):
    return node(name, labels=(("zone", zone),), **fields)


def found(nodes, pods: list[RunningPod], leaving: list[tuple[str, PodSignature]] | None = None) -> list[BrokenRule]:
    """The rules that these pods break on these nodes, beside pods that are being deleted."""
    index = PodIndex.of([*((each.node, each.signature) for each in pods), *(leaving or [])])
    return list(broken_rules(snapshot(nodes, (), pod_index=index), RunningPods(tuple(pods))))


def test_node_labels() -> None:
    """A pod whose node lost the label that its selector names leaves; its equal on another node stays."""
    in_a = PodClass(node_selector=(("zone", "a"),))
    pods = [runs("p", "n1", in_a), runs("q", "n2", in_a), runs("r", "n1")]
    (broken,) = found([zoned("n1", "b"), zoned("n2", "a")], pods)
    assert (broken.pod.key, broken.filter, broken.evicted_in) == ("p", node_affinity.NAME, None)


@pytest.mark.parametrize("constraints", [None, APART, TOGETHER])
def test_who_ignores_rules_stays(constraints: InterPodConstraints | None) -> None:
    """Ignore, the default, is Kubernetes' own behaviour."""
    in_a = PodClass(node_selector=(("zone", "a"),))
    pods = [runs(name, "n1", in_a, mode=IGNORE, constraints=constraints) for name in "pq"]
    assert found([zoned("n1", "b")], pods) == []


def test_of_two_that_exclude_each_other_one_leaves() -> None:
    """The later one of equal priority; a third in another zone stays."""
    pods = [runs(name, f"n{name}", constraints=APART, started=at) for at, name in enumerate("123")]
    (broken,) = found([zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b")], pods)
    assert (broken.pod.key, broken.filter) == ("2", inter_pod_affinity.NAME)


def test_the_lower_priority_leaves_first() -> None:
    """Even where it has run longer."""
    pods = [
        runs("old", "n1", PodClass(priority=-1), constraints=APART, started=1.0),
        runs("new", "n1", constraints=APART, started=2.0),
    ]
    assert [each.pod.key for each in found([zoned("n1", "a")], pods)] == ["old"]


def test_nobody_leaves_for_a_pod_that_is_being_deleted() -> None:
    """A pod that its neighbour's eviction relieves is not evicted too while that one terminates."""
    leaving = PodSignature("default", WEB_LABELS, deleting=True, constraints=APART)
    assert found([zoned("n1", "a")], [runs("p", "n1", constraints=APART)], [("n1", leaving)]) == []


def test_affinity_between_equals() -> None:
    """Two that want each other and have drifted apart: one follows the other. The last of its kind may be alone."""
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    pods = [runs("p", "n1", constraints=TOGETHER, started=1.0), runs("q", "n2", constraints=TOGETHER, started=2.0)]
    assert [each.pod.key for each in found(nodes, pods)] == ["q"]
    assert found(nodes, pods[:1]) == []


def test_affinity_to_others() -> None:
    """A pod whose neighbour has gone breaks its rule; one that is beside its neighbour does not."""
    nodes = [zoned("n1", "a"), zoned("n2", "b")]
    client = runs("client", "n1", constraints=TOGETHER, labels=())
    assert [each.pod.key for each in found(nodes, [client, runs("web", "n2", mode=IGNORE)])] == ["client"]
    assert found(nodes, [client, runs("web", "n1", mode=IGNORE)]) == []


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
    some_time = PodClass(tolerations=(Toleration("drain", "Exists", seconds=300),))
    pods = [
        runs("replaced", "n1", some_time, mode=REPLACE),
        runs("evicted", "n1", some_time, mode=EVICT),
        runs("at-once", "n1", mode=REPLACE),
        runs("for-ever", "n1", PodClass(tolerations=(Toleration("drain", "Exists"),)), mode=REPLACE),
    ]
    (broken,) = found([node("n1", taints=(DRAIN,))], pods)
    assert (broken.pod.key, broken.evicted_in) == ("replaced", 300)


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
def test_who_leaves_breaks_a_rule_and_nobody_else_does_afterwards(drawn: tuple[Snapshot, RunningPods]) -> None:
    """The filters reject the node of each pod that leaves, without the pod itself; once all have left, of none."""
    cluster, running = drawn
    # Pods that are being deleted exclude newcomers, and nobody leaves for them.
    staying = PodIndex(dict(cluster.pod_index.namespaces))
    for each in running.pods:
        staying.change(each.signature, each.node, 1)
    cluster = replace(cluster, pod_index=staying)
    leave = [broken.pod for broken in broken_rules(cluster, running)]
    assert len({each.key for each in leave}) == len(leave)
    assert all(each.during_execution is not IGNORE for each in leave)
    assert all(breaks(each, cluster, cluster.table) for each in leave)
    after = replace(
        cluster, pod_index=cluster.pod_index.with_changes((), [(each.node, each.signature) for each in leave])
    )
    stay = [each for each in running.pods if each not in leave and each.during_execution is not IGNORE]
    lonely = [each for each in stay if breaks(each, after, after.table) and not breaks(each, cluster, cluster.table)]
    # Pods that lose a neighbour by this are for the next round.
    assert all(each.signature.constraints is not None and each.signature.constraints.affinity for each in lonely)
    assert [each.key for each in stay if breaks(each, after, after.table) and each not in lonely] == []
