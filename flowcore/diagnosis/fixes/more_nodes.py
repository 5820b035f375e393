"""How many new nodes, of which shape, would take waiting pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flowcore.cluster.assembly import build_snapshot
from flowcore.cluster.snapshot import NodeTable, Snapshot
from flowcore.diagnosis.fixes.waiting_pods import Wanted
from flowcore.filters import node_resources_fit, run_filters
from flowcore.model.constraint_limits import HOSTNAME
from flowcore.model.nodes import Node
from flowcore.scenario.change_nodes import as_new
from flowcore.scenario.changes import AddNodes

#: Most shapes of nodes that are judged, and most nodes that a fix adds.
_MAX_SHAPES, MAX_NODES = 64, 64


def node_additions(wanted: Sequence[Wanted], snapshot: Snapshot) -> Iterator[AddNodes]:
    """New nodes that would take these pods, empty as they are; the smallest shapes first.

    Rules about pods elsewhere are not judged here, and what DaemonSets take on each node is not counted.
    """
    shapes = _shapes(snapshot.table.nodes)
    if not shapes:
        return
    table = NodeTable.of(as_new(node, f"{node.name}-new") for node in shapes)
    empty = build_snapshot(generation=0, now=snapshot.now, table=table, running=(), pending=())
    needed = np.zeros(len(shapes), dtype=np.float64)
    for pods in wanted:
        fits = run_filters(pods.pod.pod_class, empty).fits
        each = node_resources_fit.counts(pods.pod.pod_class, empty)
        if _keeps_alone(pods):
            each = np.minimum(each, 1)
        needed += np.where(fits & (each > 0), len(pods.keys) / np.maximum(each, 1), np.inf)
    allocatable = np.maximum(empty.allocatable, 0)
    size = (allocatable / np.maximum(allocatable.max(axis=0), 1)).sum(axis=1)
    possible = np.nonzero(np.ceil(needed) <= MAX_NODES)[0]
    nodes, size = np.ceil(needed[possible]).astype(np.int64), size[possible]
    for at in np.lexsort((size, size * nodes)).tolist():
        yield AddNodes(int(nodes[at]), shapes[possible[at]].name)


def _shapes(nodes: Sequence[Node]) -> list[Node]:
    """A node of each shape: labels but for the host's name, taints and what it has."""
    found: dict[tuple[object, ...], Node] = {}
    for node in nodes:
        if node.problem:
            continue
        labels = tuple(each for each in node.labels if each[0] != HOSTNAME)
        found.setdefault((labels, node.taints, node.allocatable, node.features), node)
        if len(found) >= _MAX_SHAPES:
            break
    return list(found.values())


def _keeps_alone(pods: Wanted) -> bool:
    """Whether rules of theirs may keep each of them on a node of its own."""
    rules = pods.signature.constraints
    return rules is not None and (
        any(term.topology_key == HOSTNAME for term in rules.anti_affinity)
        or any(limit.topology_key == HOSTNAME and limit.max_pods == 1 for limit in rules.limits)
    )
