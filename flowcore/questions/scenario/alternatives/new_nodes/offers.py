"""Which new nodes to plan first: what a node of each shape would be worth to pods that wait, before any plan.

A pod that stays waiting has a price in the plan: what its policy says that a round of waiting costs. In the words of
linear programming it is the dual value of one more place for this pod. A new node is worth the prices of the pods that
it holds. That is an estimate; ``nodes_needed`` plans what it suggests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.nodes import Node
from flowcore.model.pod_index import EMPTY_SIGNATURE, PodSignature
from flowcore.model.pods import Pod
from flowcore.model.selectors import domain_value
from flowcore.questions.scenario.alternatives.new_nodes.shapes import WaitingKind, shapes_for
from flowcore.questions.scenario.alternatives.new_nodes.unused_devices import with_unused_devices
from flowcore.questions.scenario.hypothetical.change_nodes import as_new
from flowcore.rules.filters import node_resources_fit, run_filters
from flowcore.rules.reasons.kept_domains import nodes_in
from flowcore.rules.verdicts import VerdictCache

#: Most new nodes of one shape that are planned.
MAX_NODES = 100
#: Room of a node that is asked about rules alone.
_ENDLESS = 2**40


@dataclass(frozen=True, slots=True)
class Offer:
    """New nodes of a shape, as an estimate.

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


def offers(kinds: Sequence[WaitingKind], after: Snapshot, permanent: Iterable[Pod]) -> list[Offer]:
    """What new nodes are worth to pods that wait, the best first; shapes whose nodes take none are left out.

    First come shapes that take pods as the plan leaves the domains: rules about other pods let one of the pods onto a
    node there now.

    Args:
        kinds: pods that the plan leaves.
        after: the cluster after the plan.
        permanent: running pods of DaemonSets and static pods, which a new node has too.
    """
    permanent, shapes = list(permanent), shapes_for(kinds, after)
    if not shapes:
        return []
    fresh, asking = _fresh(kinds, after, shapes, permanent)
    ruled = _ruled(after, shapes, permanent)
    judge, cache = VerdictCache.of(ruled), VerdictCache.of(after)
    fits, passes = [], []
    for kind, asked in zip(kinds, asking, strict=True):
        room = run_filters(msgspec.structs.replace(asked.pod_class, volumes=()), fresh).fits
        if kind.pod_class.volumes:
            room &= _passes(kind, ruled, judge, len(shapes), EMPTY_SIGNATURE)
        fits.append(room)
        passes.append(room & _passes(kind, ruled, judge, len(shapes), kind.signature) if room.any() else room)
    # The dearest first; of these the smallest, so that as many as possible find room.
    order = sorted(
        range(len(kinds)),
        key=lambda place: (-kinds[place].price, sum(amount for _, amount in kinds[place].pod_class.requests)),
    )
    here = [_room_there_is(kind, after, cache, shapes) for kind in kinds]
    size = (fresh.allocatable / np.maximum(fresh.allocatable.max(axis=0, initial=1), 1)).sum(axis=1)
    ranked = []
    for position in range(len(shapes)):
        offer, now = (
            _offer(
                fresh, position, [(asking[place], int(here[place][position])) for place in order if of[place][position]]
            )
            for of in (fits, passes)
        )
        if offer.pods:
            ranked.append((-now.value, -offer.value, float(size[position]) * offer.count, position, offer))
    return [offer for *_, offer in sorted(ranked, key=lambda entry: entry[:-1])]


def _fresh(
    kinds: Sequence[WaitingKind], after: Snapshot, shapes: Sequence[Node], permanent: Iterable[Pod]
) -> tuple[Snapshot, list[WaitingKind]]:
    """One new node of each shape with what each such node has, and the pods as they ask for its devices."""
    here: dict[str, list[Pod]] = defaultdict(list)
    for pod in permanent:
        here[pod.node_name].append(pod)
    table = NodeTable.of(as_new(node, node.name) for node in shapes)
    running = [(node.name, pod.usage, pod.pod_class.host_ports) for node in shapes for pod in here[node.name]]
    fresh = build_snapshot(generation=0, now=after.now, table=table, running=running, pending=())
    names = {node.name: node.name for node in shapes}
    fresh, classes = with_unused_devices(fresh, after.devices, names, [kind.pod_class for kind in kinds])
    return fresh, [replace(kind, pod_class=pod_class) for kind, pod_class in zip(kinds, classes, strict=True)]


def _ruled(after: Snapshot, shapes: Sequence[Node], permanent: Iterable[Pod]) -> Snapshot:
    """The cluster after the plan with one new node of each shape at its end, to be asked about rules alone.

    A new node has pods of DaemonSets: others may have to run beside them, or keep away from them.
    """
    names = {node.name: f"{node.name} (new)" for node in shapes}
    come = [(names[pod.node_name], pod.signature) for pod in permanent if pod.node_name in names]
    table = NodeTable.of([*after.table.nodes, *(as_new(node, names[node.name]) for node in shapes)])
    drivers = after.storage.csi_nodes
    new_drivers = {name: drivers[node] for node, name in names.items() if node in drivers}
    more, resources = len(shapes), after.plain_resources
    return Snapshot(
        generation=after.generation,
        now=after.now,
        table=table,
        resources=resources,
        allocatable=np.full((len(table.nodes), len(resources)), _ENDLESS, dtype=np.int64),
        used=np.zeros((len(table.nodes), len(resources)), dtype=np.int64),
        non_zero_requested=np.vstack([after.non_zero_requested, np.zeros((more, 2), dtype=np.int64)]),
        ports={},
        storage=after.storage.with_nodes(new_drivers),
        pod_index=after.pod_index.with_changes(come),
        devices=DeviceObjects(),
    )


def _passes(kind: WaitingKind, ruled: Snapshot, judge: VerdictCache, shapes: int, signature: PodSignature) -> Bools:
    """bool[S]: whether volumes, and the rules of a signature, let one of the pods onto a node of each shape."""
    asks = msgspec.structs.replace(kind.pod_class, requests=(), host_ports=(), devices=None, numa=None)
    return run_filters(asks, ruled, signature, judge.run_filter).fits[-shapes:]


def _room_there_is(kind: WaitingKind, after: Snapshot, cache: VerdictCache, shapes: Sequence[Node]) -> Int64s:
    """int64[S]: how many of the pods have room beside the plan already, in the domain of a node of each shape.

    A pod by itself has none, or it would be placed. The pods of a gang may lack room together.
    """
    if not kind.in_gang:
        return np.zeros(len(shapes), dtype=np.int64)
    fits = run_filters(kind.pod_class, after, kind.signature, cache.run_filter).fits
    room = np.where(fits, np.minimum(_per_node(kind, after), kind.count), 0)
    counts = []
    for shape in shapes:
        in_domain = np.ones(len(room), dtype=np.bool_)
        for key in kind.topologies:
            in_domain &= nodes_in(key, domain_value(shape.labels, key), after.table)
        counts.append(min(kind.count, int(room[in_domain].sum())))
    return np.array(counts, dtype=np.int64)


def _per_node(kind: WaitingKind, snapshot: Snapshot) -> Int64s:
    """int64[N]: how many of the pods each node takes at most, by what they request and the rules that count by host."""
    per_node = node_resources_fit.counts(kind.pod_class, snapshot)
    most = 1 if kind.pod_class.host_ports else kind.count
    rules = kind.signature.constraints
    if rules is not None:
        if any(term.topology_key == HOSTNAME for term in rules.anti_affinity):
            most = 1
        most = min([most, *(limit.max_pods for limit in rules.limits if limit.topology_key == HOSTNAME)])
        most = min([most, *(spread.max_skew for spread in rules.spread if spread.topology_key == HOSTNAME)])
    return np.minimum(per_node, most)


def _offer(fresh: Snapshot, position: int, waiting: Sequence[tuple[WaitingKind, int]]) -> Offer:
    """Fills new nodes, like the one at this position, with waiting pods; so many of each kind have room elsewhere."""
    single = fresh.of_nodes(np.array([position]))
    free = np.repeat(single.free, MAX_NODES, axis=0)
    used, pods, value = 0, 0, 0
    for kind, elsewhere in waiting:
        wanted = fresh.vector(kind.pod_class.requests)
        most = int(_per_node(kind, single)[0])
        per_node = np.minimum(node_resources_fit.count_fitting(wanted, free), most)
        before = np.cumsum(per_node) - per_node
        taken = np.clip(kind.count - elsewhere - before, 0, per_node)
        free = free - taken[:, None] * wanted
        placed = int(taken.sum()) + elsewhere
        pods, value = pods + placed, value + placed * kind.price
        used = max(used, int(np.max(np.nonzero(taken)[0], initial=-1)) + 1)
    return Offer(fresh.table.nodes[position].name, max(1, used), pods, value)
