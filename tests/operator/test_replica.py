"""The worker's columns of resources: one for each that a node offers, and no other."""

from hypothesis import given
from hypothesis import strategies as st
from thalweg_operator.planning.worker.messages import PendingEntry, RoundRequest
from thalweg_operator.planning.worker.planner import run_request
from thalweg_operator.planning.worker.replica import Replica

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.cluster.assembly import build_snapshot
from flowcore.cluster.changes import ClusterChanges
from flowcore.model.node_usage import NodeUsage
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.resources import BASE_RESOURCES
from flowcore.rules.filters import run_filters
from flowcore.rules.filters.node_resources_fit import counts

RESOURCES = ("a.io/x", "b.io/x", "c.io/x")
NODES = ("n0", "n1", "n2")


def request(nodes: list[Node], gone: list[str], uses: list[NodeUsage], classes: list[PodClass]) -> RoundRequest:
    """A round in which a pod of each class waits."""
    return RoundRequest(
        number=1,
        generation=1,
        now=0.0,
        reset=False,
        changes=ClusterChanges(nodes=nodes, removed_nodes=gone, usage=uses),
        policies=[BUILT_IN],
        classes=classes,
        signatures=[PodSignature("ns")],
        pending=[PendingEntry(f"ns/{at}", at, 0, 0.0, 0) for at in range(len(classes))],
        budget=0.01,
    )


def asking(**amounts: int) -> PodClass:
    """A class of pods that ask for these amounts."""
    return PodClass(requests=tuple(sorted(amounts.items())))


def test_a_pod_that_asks_for_what_no_node_offers_makes_no_column() -> None:
    """30 pods with 50 resource names of their own each: no column, and each is told kube-scheduler's words."""
    replica = Replica()
    nodes = [Node(f"n{at}", allocatable=(("cpu", 8000), ("pods", 110))) for at in range(20)]
    for turn in range(30):
        names = [f"x.io/r{turn}-{at:02}" for at in range(50)]
        reply = run_request(replica, request(nodes if not turn else [], [], [], [asking(**dict.fromkeys(names, 1))]))
        assert not reply.placements
        assert reply.reasons[0].startswith("0/20 nodes are available: ")
        assert all(f"20 Insufficient {name}" in reply.reasons[0] for name in names)
    assert replica.tables.resources == BASE_RESOURCES


def test_no_column_stays_that_no_node_offers_any_more() -> None:
    """Nodes that come and go with resources of their own leave columns and rows as they were."""
    replica = Replica()
    run_request(replica, request([Node("n", allocatable=(("cpu", 8000), ("pods", 110)))], [], [], []))
    for turn in range(20):
        name = f"x.io/r{turn}"
        node = Node("other", allocatable=(("cpu", 8000), ("pods", 110), (name, 3)))
        reply = run_request(replica, request([node], [], [], [asking(**{name: 2})]))
        assert [each.node for each in reply.placements] == ["other"]
    assert replica.tables.resources == (*BASE_RESOURCES, "x.io/r19")
    run_request(replica, request([], ["other"], [], []))
    assert replica.tables.resources == BASE_RESOURCES
    assert replica.tables._used.shape == replica.tables._allocatable.shape == (1, len(BASE_RESOURCES))


amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 3), max_size=3)
steps = st.lists(
    st.tuples(st.sampled_from(NODES), st.sampled_from(["node", "gone", "use"]), amounts), min_size=1, max_size=12
)


@given(steps, st.lists(amounts, min_size=1, max_size=4))
def test_verdicts_do_not_depend_on_how_columns_came_about(
    history: list[tuple[str, str, dict[str, int]]], asked: list[dict[str, int]]
) -> None:
    """After any history filters say of each class what they say of a snapshot made of the same nodes and pods."""
    replica = Replica()
    nodes: dict[str, Node] = {}
    uses: dict[str, dict[str, int]] = {}
    classes = [asking(**each) for each in asked]
    for name, what, each in history:
        taken = tuple(sorted(each.items()))
        if what == "node":
            nodes[name] = Node(name, allocatable=(("cpu", 100), ("pods", 10), *taken))
            there = uses.setdefault(name, {})
            told = [NodeUsage(name, tuple(sorted(there.items())), 1 if there else 0, 100, 100, (), ())]
            replica.apply(request([nodes[name]], [], told, classes))
        elif what == "gone":
            nodes.pop(name, None)
            uses.pop(name, None)
            replica.apply(request([], [name], [], classes))
        elif name in nodes:
            uses[name] = each
            replica.apply(request([], [], [NodeUsage(name, taken, 1 if each else 0, 100, 100, (), ())], classes))
        seen = replica.to_snapshot(request([], [], [], []), ())
        for pod_class in classes:  # so that there is something that may be stale in the end
            run_filters(pod_class, seen, runner=replica.cache.run_filter)
            replica.cache.counts(pod_class, seen)
    table = NodeTable.of(nodes[name] for name in sorted(nodes))
    running = [(name, tuple(sorted(each.items())), ()) for name, each in uses.items() if each and name in nodes]
    fresh = build_snapshot(generation=1, now=0.0, table=table, running=running, pending=())
    seen = replica.to_snapshot(request([], [], [], []), ())
    assert set(seen.resources) == set(BASE_RESOURCES) | {
        name for node in nodes.values() for name, _ in node.allocatable
    }
    for pod_class in classes:
        ours, theirs = run_filters(pod_class, seen, runner=replica.cache.run_filter), run_filters(pod_class, fresh)
        assert [ours.of_node(at) for at in range(len(nodes))] == [theirs.of_node(at) for at in range(len(nodes))]
        assert replica.cache.counts(pod_class, seen).tolist() == counts(pod_class, fresh).tolist()
