"""Whether more nodes help a pod: what cluster autoscalers are told, and what new nodes are planned for."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.constrained_snapshots import constrained_snapshots
from support.model import amounts, node, pod, snapshot

from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.inter_pod_constraints import HOSTNAME, InterPodConstraints, MaxPerDomain, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.rules.filters import run_filters
from flowcore.rules.reasons.codes import (
    CHEAPER_TO_WAIT,
    CODES,
    GANG_INCOMPLETE,
    GANG_WITHOUT_ROOM,
    NETWORK_REFUSED,
    NETWORK_UNSCHEDULED,
    NO_NODES,
    QUEUE_LIMIT,
    REPLACEMENT,
    ROOM_HELD,
    ROOM_TAKEN,
    UNEXPLAINED,
)
from flowcore.rules.reasons.more_nodes import CURES, more_nodes_help

#: Millicores that no drawn node has.
TOO_LARGE = 5000


def test_every_filter_is_classified() -> None:
    """A filter that is added needs a line in the table, and a code that is none of a filter's a look at its reasons."""
    assert set(CURES) == CODES - {
        NO_NODES,
        GANG_INCOMPLETE,
        GANG_WITHOUT_ROOM,
        ROOM_HELD,
        REPLACEMENT,
        ROOM_TAKEN,
        QUEUE_LIMIT,
        NETWORK_REFUSED,
        NETWORK_UNSCHEDULED,
        CHEAPER_TO_WAIT,
        UNEXPLAINED,
    }


def by_hostname(constraints: InterPodConstraints | None) -> InterPodConstraints | None:
    """The drawn rules with the hostname where they have the label `host`."""
    if constraints is None:
        return None
    changes: dict[str, Any] = {
        name: tuple(
            replace(each, topology_key=HOSTNAME) if each.topology_key == "host" else each
            for each in getattr(constraints, name)
        )
        for name in ("affinity", "anti_affinity", "spread", "limits")
    }
    return replace(constraints, **changes)


def with_nodes(cluster: Snapshot, more: list[Node]) -> Snapshot:
    """The same pods on the same nodes, and more nodes."""
    return build_snapshot(
        generation=1,
        now=0.0,
        table=NodeTable.of([*cluster.table.nodes, *more]),
        running=[],
        pending=cluster.pending,
        pod_index=cluster.pod_index,
    )


def clones(cluster: Snapshot, *, taints: bool = True) -> list[Node]:
    """For each node an empty one like it, with more of everything."""
    return [
        node(
            f"clone-of-{each.name}",
            10**6,
            labels=tuple(sorted({**dict(each.labels), HOSTNAME: f"clone-of-{each.name}"}.items())),
            taints=each.taints if taints else (),
        )
        for each in cluster.table.nodes
    ]


def waiting(cluster: Snapshot, cpu: int) -> Iterator[tuple[PodClass, PodSignature]]:
    """The pending pods that no node takes, with so much cpu."""
    for pending in cluster.pending:
        pod_class = replace(pending.pod_class, requests=amounts(cpu))
        signature = replace(pending.signature, constraints=by_hostname(pending.signature.constraints))
        if not fits(cluster, pod_class, signature):
            yield pod_class, signature


def fits(cluster: Snapshot, pod_class: PodClass, signature: PodSignature) -> bool:
    return bool(run_filters(pod_class, cluster, signature).fits.any())


def helped(cluster: Snapshot, pod_class: PodClass, signature: PodSignature, *, in_new_domains: bool = True) -> bool:
    verdicts = run_filters(pod_class, cluster, signature)
    return more_nodes_help(pod_class, signature, cluster, verdicts, in_new_domains=in_new_domains)


def in_domains_of_their_own(nodes: list[Node]) -> list[Node]:
    domains = {"zone", "rack", "host"}
    return [replace(each, labels=tuple((k, "far" if k in domains else v) for k, v in each.labels)) for each in nodes]


@given(constrained_snapshots(), st.sampled_from((100, TOO_LARGE)))
def test_a_node_like_one_that_is_there_helps_no_pod_with_another_reason(drawn: Snapshot, cpu: int) -> None:
    """An autoscaler that added such nodes for these pods would add them for ever, and no plan need try them."""
    cluster = with_nodes(drawn, [])
    larger = with_nodes(cluster, clones(cluster, taints=False))
    for pod_class, signature in waiting(cluster, cpu):
        if not helped(cluster, pod_class, signature, in_new_domains=False):
            assert not fits(larger, pod_class, signature), signature
        else:
            assert helped(cluster, pod_class, signature), signature


@pytest.mark.parametrize("in_new_domains", [False, True])
@given(drawn=constrained_snapshots())
def test_a_node_helps_a_pod_that_is_unschedulable(drawn: Snapshot, *, in_new_domains: bool) -> None:
    """One like a node that is there, but with room and without taints, if the pod may be on nodes with such labels.

    Or one in domains of its own, unless the pod must run beside others: who comes with a node is not known here.
    """
    cluster = with_nodes(drawn, [])
    like = clones(cluster, taints=False)
    for pod_class, signature in waiting(cluster, TOO_LARGE):
        rules = signature.constraints or InterPodConstraints()
        if rules.allowed_nodes or pod_class.node_selector or (in_new_domains and rules.affinity):
            continue
        keys = {each.topology_key for each in (*rules.affinity, *rules.spread, *rules.limits)}
        if not keys <= {"", HOSTNAME, "zone"} or any("zone" not in dict(each.labels) for each in cluster.table.nodes):
            continue
        if helped(cluster, pod_class, signature, in_new_domains=in_new_domains):
            tried = [*like, *in_domains_of_their_own(like)] if in_new_domains else like
            each_alone = (with_nodes(cluster, [each]) for each in tried)
            assert any(fits(larger, pod_class, signature) for larger in each_alone), signature


FULL = [node("a", 1000), node("b", 1000)]


def limit(count: int, key: str) -> PodSignature:
    """A pod of which a policy allows so many in a domain."""
    everybody = MaxPerDomain("constraint c of policy p", key, (LabelSelector(),), None, count)
    return PodSignature(labels=(("app", "x"),), constraints=InterPodConstraints(limits=(everybody,)))


@pytest.mark.parametrize(("key", "most", "expected"), [("zone", 1, True), ("", 1, True), ("", 0, False)])
def test_a_limit_of_a_policy_lets_the_first_node_come(key: str, most: int, *, expected: bool) -> None:
    """Where there is no node no domain is full; a limit for the cluster holds all the same."""
    kind = limit(most, key)
    cluster = snapshot([], [pod("p", kind=kind)])
    (pending,) = cluster.pending
    assert helped(cluster, pending.pod_class, kind) is expected


@pytest.mark.parametrize("by_policy", [False, True])
@pytest.mark.parametrize(("zones", "expected"), [("yz", False), ("y", True)], ids=["all closed", "one closed"])
def test_autoscalers_do_not_know_the_spread_of_a_policy(zones: str, *, by_policy: bool, expected: bool) -> None:
    """They would add nodes where the policy lets nobody in. A pod's own constraints they judge themselves."""
    own = LabelSelector((Requirement("app", "In", ("x",)),))
    spread = SpreadConstraint("zone", 1, own, min_domains=3, is_default=by_policy)
    kind = PodSignature(labels=(("app", "x"),), constraints=InterPodConstraints(spread=(spread,)))
    nodes = [replace(each, labels=(("zone", zone),)) for each, zone in zip(FULL, "yz", strict=True)]
    drawn = snapshot(nodes, [pod("p", 2000, kind=kind)])
    index = PodIndex.of([(each.name, kind) for each, zone in zip(nodes, "yz", strict=True) if zone in zones])
    cluster = build_snapshot(
        generation=1, now=0.0, table=drawn.table, running=[], pending=drawn.pending, pod_index=index
    )
    (pending,) = cluster.pending
    assert helped(cluster, pending.pod_class, kind) is (expected or not by_policy)


@pytest.mark.parametrize(
    ("key", "running", "expected"),
    [("", 0, True), ("", 2, False), (HOSTNAME, 2, True), ("zone", 2, False)],
    ids=["room in the limit", "full by the cluster", "full by node", "full by zone"],
)
def test_a_limit_of_a_policy(key: str, running: int, *, expected: bool) -> None:
    """A pod too large for the nodes is told that more would help, unless its policy's limit is reached there too."""
    kind = limit(1 if key else 2, key)
    nodes = [
        replace(each, labels=((HOSTNAME, each.name), ("zone", zone)))
        for each, zone in zip(FULL, ("y", "z"), strict=True)
    ]
    cluster = snapshot(nodes, [pod("p", 2000, kind=kind)])
    index = PodIndex.of([(each.name, kind) for each in nodes[:running]])
    cluster = build_snapshot(
        generation=1, now=0.0, table=cluster.table, running=[], pending=cluster.pending, pod_index=index
    )
    (pending,) = cluster.pending
    assert helped(cluster, pending.pod_class, kind) is expected
