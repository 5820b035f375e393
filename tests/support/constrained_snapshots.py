"""Drawn snapshots in which rules between pods meet: few nodes in few zones, pods of few workloads with rules."""

from hypothesis import strategies as st
from support.model import amounts, node

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.inter_pod_constraints import (
    HOSTNAME,
    AffinityTerm,
    AllowedNodes,
    InterPodConstraints,
    MaxPerDomain,
    SpreadConstraint,
    WeightedTerm,
)
from flowcore.model.nodes import Taint
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.selectors import Labels, LabelSelector, NodeSelectorTerm, Requirement

TOPOLOGIES = ("zone", "zone", "host", "rack")
APPS = ("web", "db", "job")
NAMESPACES = ("default", "red")

_apps = st.sampled_from(APPS)
_selectors = st.one_of(
    _apps.map(lambda app: LabelSelector((Requirement("app", "In", (app,)),))),
    _apps.map(lambda app: LabelSelector((Requirement("app", "In", (app,)),))),
    st.just(LabelSelector((Requirement("app", "Exists"),))),
    _apps.map(lambda app: LabelSelector((Requirement("app", "NotIn", (app,)),))),
    st.just(LabelSelector()),
    st.none(),
)
_terms = st.builds(
    AffinityTerm,
    st.sampled_from(TOPOLOGIES),
    _selectors,
    st.sampled_from((("default",), ("default",), NAMESPACES, ())),
    st.sampled_from((None, None, None, LabelSelector(), LabelSelector((Requirement("team", "Exists"),)))),
)
_spreads = st.builds(
    SpreadConstraint,
    st.sampled_from(TOPOLOGIES),
    st.sampled_from((1, 1, 1, 2, 3, 0)),
    _selectors,
    st.sampled_from((1, 1, 1, 2, 3)),
    st.booleans(),
    st.booleans(),
)


def short_lists(strategy: st.SearchStrategy, most: int = 2) -> st.SearchStrategy:
    return st.just(()) | st.just(()) | st.lists(strategy, max_size=most).map(tuple)


_preferred_terms = st.builds(WeightedTerm, st.sampled_from((-100, -10, 1, 50, 100)), _terms)
#: What policies' constraints come to.
limits = st.builds(
    MaxPerDomain,
    st.just("constraint c of policy p"),
    st.sampled_from((*TOPOLOGIES, "")),
    st.lists(_selectors.filter(lambda selector: selector is not None), min_size=1, max_size=2).map(tuple),
    st.sampled_from((None, None, LabelSelector((Requirement("team", "Exists"),)))),
    st.sampled_from((0, 1, 1, 2, 3)),
)
_only_on = st.just(
    AllowedNodes("constraint g of policy p", (NodeSelectorTerm((Requirement("zone", "In", ("a", "b")),)),))
)
_inter_pod_constraints = st.builds(
    InterPodConstraints,
    affinity=short_lists(_terms),
    anti_affinity=short_lists(_terms),
    spread=short_lists(_spreads),
    preferred=short_lists(_preferred_terms),
    soft_spread=short_lists(_spreads),
    limits=short_lists(limits),
    allowed_nodes=short_lists(_only_on, 1),
).map(lambda rules: None if rules == InterPodConstraints() else rules)
_namespace = st.sampled_from((*NAMESPACES[:1], *NAMESPACES))
_labels: st.SearchStrategy[Labels] = st.one_of(_apps, _apps, st.none()).map(lambda app: (("app", app),) if app else ())
_signatures = st.builds(PodSignature, _namespace, _labels, st.just(False), _inter_pod_constraints)


@st.composite
def constrained_snapshots(draw: st.DrawFn) -> Snapshot:
    """Pods that other pods keep away, draw near and hold apart; some nodes lack labels, are tainted or full."""
    nodes = []
    for at in range(draw(st.integers(1, 7))):
        labels = {"host": f"n{at}", HOSTNAME: f"n{at}"}
        zone, rack = draw(st.sampled_from(("a", "a", "b", "c", ""))), draw(st.sampled_from(("", "x", "y")))
        labels.update({key: value for key, value in (("zone", zone), ("rack", rack)) if value})
        taints = draw(st.sampled_from(((), (), (), (Taint("t", "", "NoSchedule"),))))
        found = tuple(sorted(labels.items()))
        nodes.append(node(f"n{at}", draw(st.sampled_from((500, 1000, 4000))), labels=found, taints=taints))
    running = draw(st.lists(st.tuples(_signatures, st.sampled_from([each.name for each in nodes])), max_size=5))
    leaving = [PodSignature(kind.namespace, kind.labels, draw(st.booleans()), kind.constraints) for kind, _ in running]
    pending: list[PendingPod] = []
    for workload in range(draw(st.integers(1, 4))):
        kind, cpu = draw(_signatures), draw(st.sampled_from((0, 100, 500)))
        zone = draw(st.sampled_from(("", "", "", "a")))
        pod_class = PodClass(
            requests=amounts(cpu),
            node_selector=(("zone", zone),) if zone else (),
            priority=draw(st.sampled_from((0, 0, 100))),
        )
        own_names = draw(st.booleans())
        for at in range(draw(st.integers(1, 6))):
            name = f"w{workload}-{at}"
            labels = (*kind.labels, ("pod", name)) if own_names else kind.labels
            each = PodSignature(kind.namespace, labels, constraints=kind.constraints)
            pending.append(PendingPod(f"{kind.namespace}/{name}", name, pod_class, BUILT_IN.name, 0.0, each))
    labels_of = {"red": (("team", "one"),), "default": ()}
    return build_snapshot(
        generation=1,
        now=0.0,
        table=NodeTable.of(nodes),
        running=[(name, (), ()) for _, name in running],
        pending=tuple(pending),
        pod_index=PodIndex.of(((name, kind) for kind, (_, name) in zip(leaving, running, strict=True)), labels_of),
    )
