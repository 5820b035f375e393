"""How many new nodes, of which shape, would take waiting pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.constraint_limits import HOSTNAME
from flowcore.model.volumes import REGION, ZONE
from flowcore.questions.diagnosis.fixes.proposals.waiting_pods import Wanted
from flowcore.questions.scenario.alternatives.node_shapes import label_keys, node_shapes
from flowcore.questions.scenario.alternatives.unused_devices import device_counts, with_unused_devices
from flowcore.questions.scenario.hypothetical.change_nodes import as_new
from flowcore.questions.scenario.hypothetical.changes import AddNodes
from flowcore.rules.filters import node_resources_fit, run_filters

#: Most nodes that a fix adds.
MAX_NODES = 64
#: Rules about volumes and domains read these labels, whatever the pods ask for.
_DOMAINS = (ZONE, REGION)


def node_additions(wanted: Sequence[Wanted], snapshot: Snapshot) -> Iterator[AddNodes]:
    """New nodes that would take these pods, empty as they are; the smallest shapes first.

    Rules about pods elsewhere are not judged here, and what DaemonSets take on each node is not counted.
    """
    asked = {*_DOMAINS, *(key for pods in wanted for key in _label_keys(pods))}
    shapes = node_shapes(snapshot.table.nodes, asked, device_counts(snapshot.devices))
    if not shapes:
        return
    table = NodeTable.of(as_new(node, f"{node.name}-new") for node in shapes)
    empty = build_snapshot(generation=0, now=snapshot.now, table=table, running=(), pending=())
    likes = {node.name: f"{node.name}-new" for node in shapes}
    empty, asking = with_unused_devices(empty, snapshot.devices, likes, [pods.pod.pod_class for pods in wanted])
    needed = np.zeros(len(shapes), dtype=np.float64)
    for pods, pod_class in zip(wanted, asking, strict=True):
        fits = run_filters(pod_class, empty).fits
        per_node = node_resources_fit.counts(pod_class, empty)
        if _keeps_alone(pods):
            per_node = np.minimum(per_node, 1)
        needed += np.where(fits & (per_node > 0), len(pods.keys) / np.maximum(per_node, 1), np.inf)
    allocatable = np.maximum(empty.allocatable, 0)
    size = (allocatable / np.maximum(allocatable.max(axis=0), 1)).sum(axis=1)
    possible = np.nonzero(np.ceil(needed) <= MAX_NODES)[0]
    nodes, size = np.ceil(needed[possible]).astype(np.int64), size[possible]
    for shape in np.lexsort((size, size * nodes)).tolist():
        yield AddNodes(int(nodes[shape]), shapes[possible[shape]].name)


def _label_keys(pods: Wanted) -> Iterator[str]:
    """Keys of the labels that the pods and their rules ask of nodes."""
    yield from label_keys(pods.pod.pod_class)
    rules = pods.signature.constraints
    if rules is not None:
        yield from (rule.topology_key for rule in (*rules.affinity, *rules.anti_affinity))
        yield from (rule.topology_key for rule in rules.spread)
        yield from (rule.topology_key for rule in rules.limits)
        yield from (rule.key for allowed in rules.allowed_nodes for rule in allowed.nodes.requirements)


def _keeps_alone(pods: Wanted) -> bool:
    """Whether rules of theirs may keep each of them on a node of its own."""
    rules = pods.signature.constraints
    return rules is not None and (
        any(term.topology_key == HOSTNAME for term in rules.anti_affinity)
        or any(limit.topology_key == HOSTNAME and limit.max_pods == 1 for limit in rules.limits)
    )
