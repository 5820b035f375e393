"""Shapes of nodes: which nodes are alike for the pods that wait, and what a new one of each would be worth to them.

A pod that stays waiting has a price in the plan: what its policy says that a round of waiting costs. In the words of
linear programming it is the dual value of one more place for this pod. A new node is worth the prices of the pods that
it holds. That is an estimate, made without the rules between pods; ``headroom`` plans what it suggests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.constraint_limits import HOSTNAME
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.planning.round import Unplaced
from flowcore.questions.scenario.alternatives.unused_devices import DeviceCounts, device_counts, with_unused_devices
from flowcore.questions.scenario.hypothetical.change_nodes import as_new
from flowcore.rules.filters import run_filters

_NO_DEVICES: DeviceCounts = {}
#: Most nodes of one shape that are suggested.
MAX_NODES = 100


@dataclass(frozen=True, slots=True)
class Offer:
    """A number of new nodes of a shape.

    Attributes:
        like: a node of the shape.
        count: how many nodes.
        pods: how many waiting pods they have room for.
        value: the sum of what these pods cost while they wait.
    """

    like: str
    count: int
    pods: int
    value: int


def offers(
    unplaced: Sequence[Unplaced], nodes: Iterable[Node], permanent: Iterable[Pod], devices: DeviceObjects, now: float
) -> list[Offer]:
    """What new nodes are worth to pods that wait, the best first; shapes that take none are left out.

    Args:
        unplaced: pods that another node may take.
        nodes: existing ones.
        permanent: running pods of DaemonSets and static pods, which a new node has too.
        devices: of the existing nodes; new ones are like them.
        now: seconds since the epoch.
    """
    asked = {key for each in {each.pod.pod_class for each in unplaced} for key in label_keys(each)}
    shapes = node_shapes(nodes, asked, device_counts(devices))
    here: dict[str, list[Pod]] = defaultdict(list)
    for pod in permanent:
        here[pod.node_name].append(pod)
    table = NodeTable.of(as_new(node, node.name) for node in shapes)
    running = [(node.name, pod.usage, pod.pod_class.host_ports) for node in shapes for pod in here[node.name]]
    fresh = build_snapshot(generation=0, now=now, table=table, running=running, pending=())
    names = {node.name: node.name for node in shapes}
    fresh, asking = with_unused_devices(fresh, devices, names, [each.pod.pod_class for each in unplaced])
    classes: dict[tuple[PodClass, int], int] = defaultdict(int)
    for pod_class, pod_left in zip(asking, unplaced, strict=True):
        classes[pod_class, pod_left.price] += 1
    # The dearest first; of these the smallest, so that as many as possible find room.
    order = sorted(classes.items(), key=lambda item: (-item[0][1], sum(amount for _, amount in item[0][0].requests)))
    fits = {pod_class: run_filters(pod_class, fresh).fits for pod_class, _ in classes}
    per_shape = [
        _offer(fresh, position, [(of, price, count) for (of, price), count in order if fits[of][position]])
        for position in range(len(shapes))
    ]
    size = (fresh.allocatable / np.maximum(fresh.allocatable.max(axis=0, initial=1), 1)).sum(axis=1)
    ranked = sorted(
        range(len(per_shape)),
        key=lambda position: (-per_shape[position].value, size[position] * per_shape[position].count),
    )
    return [per_shape[position] for position in ranked if per_shape[position].pods]


def node_shapes(nodes: Iterable[Node], asked: Collection[str], devices: DeviceCounts = _NO_DEVICES) -> list[Node]:
    """One node of each shape: alike in what it has, in taints, and in labels that matter.

    Args:
        asked: keys of these labels; the host's name never counts.
        devices: how many of them nodes have.
    """
    asked = set(asked) - {HOSTNAME}
    shapes: dict[tuple[object, ...], Node] = {}
    for node in nodes:
        if not node.problem:
            fresh = as_new(node, node.name)
            labels = tuple(each for each in node.labels if each[0] in asked)
            shape = labels, fresh.taints, node.allocatable, node.features, devices.get(node.name, ())
            shapes.setdefault(shape, node)
    return list(shapes.values())


def label_keys(pod_class: PodClass) -> Iterable[str]:
    """Keys of the labels that pods ask of their nodes."""
    yield from (key for key, _ in pod_class.node_selector)
    for term in pod_class.required_affinity or ():
        yield from (each.key for each in term.expressions)


def _offer(fresh: Snapshot, position: int, waiting: Sequence[tuple[PodClass, int, int]]) -> Offer:
    """Fills new nodes, like the one at this position, with waiting pods: class, price and number of pods."""
    free = np.repeat(fresh.free[position : position + 1], MAX_NODES, axis=0)
    used, pods, value = 0, 0, 0
    for pod_class, price, count in waiting:
        wanted = fresh.vector(pod_class.requests)
        asks = wanted > 0
        per_node = np.maximum((free[:, asks] // wanted[asks]).min(axis=1), 0)
        if pod_class.host_ports:
            per_node = np.minimum(per_node, 1)
        before = np.cumsum(per_node) - per_node
        taken = np.clip(count - before, 0, per_node)
        free -= taken[:, None] * wanted
        placed = int(taken.sum())
        pods, value = pods + placed, value + placed * price
        used = max(used, int(np.max(np.nonzero(taken)[0], initial=-1)) + 1)
    return Offer(fresh.table.nodes[position].name, used, pods, value)
