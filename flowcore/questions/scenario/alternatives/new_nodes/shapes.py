"""Shapes of nodes: which nodes are alike for pods that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.nodes import Node
from flowcore.model.pod_index import EMPTY_SIGNATURE, AffinityMatch, PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.selectors import NodeSelectorTerm, domain_value
from flowcore.model.volumes import BETA_REGION, BETA_ZONE, REGION, ZONE, ClaimVolume, Volumes
from flowcore.planning.round import Unplaced
from flowcore.questions.scenario.alternatives.new_nodes.unused_devices import DeviceCounts, device_counts
from flowcore.questions.scenario.hypothetical.change_nodes import as_new
from flowcore.questions.scenario.plan import ScenarioPlan
from flowcore.rules.filters import run_filters
from flowcore.rules.reasons.more_nodes import more_nodes_help
from flowcore.rules.verdicts import VerdictCache

_NO_DEVICES: DeviceCounts = {}


@dataclass(frozen=True, slots=True)
class WaitingKind:
    """Waiting pods that are alike.

    Attributes:
        signature: with the limits of their policy.
        count: how many pods.
        price: what one of them costs while it waits.
        topologies: in one domain of which all pods of their gangs have to be.
        in_gang: whether they need others of a gang, so that a pod may wait although a node has room for it.
    """

    pod_class: PodClass
    signature: PodSignature = EMPTY_SIGNATURE
    count: int = 1
    price: int = 1
    topologies: tuple[str, ...] = ()
    in_gang: bool = False


def waiting_kinds(unplaced: Iterable[Unplaced], plan: ScenarioPlan) -> list[WaitingKind]:
    """The pods that a plan leaves, those that are alike together."""
    counts = Counter[WaitingKind]()
    for left in unplaced:
        kind = WaitingKind(left.pod.pod_class, _what_rules_read(left.pod, plan), price=left.price)
        counts[in_its_gangs(kind, left.pod, plan)] += 1
    return [replace(kind, count=count) for kind, count in counts.items()]


def _what_rules_read(pod: PendingPod, plan: ScenarioPlan) -> PodSignature:
    """The signature of a pod with the limits of its policy; the empty one if no rule has or reads it.

    Labels that no rule reads make no kind: each pod of a StatefulSet has its own.
    """
    index = plan.result.after.pod_index
    of_policy = with_policy_constraints(pod.signature, plan.policies[pod.policy], index.services)
    is_ruled = of_policy.constraints is not None or bool(index.anti_affinity_terms_for(of_policy))
    return of_policy if is_ruled else EMPTY_SIGNATURE


def new_nodes_may_take(unplaced: Iterable[Unplaced], permanent: Iterable[Pod], plan: ScenarioPlan) -> list[Unplaced]:
    """The pods that a plan leaves and another node may take that is in the domains of the nodes that are there.

    It is empty, but for pods of DaemonSets: others may have to run beside these.

    Args:
        permanent: running pods of DaemonSets and static pods, which a new node has too.
    """
    after, come = plan.result.after, {pod.signature for pod in permanent}
    cache, known = VerdictCache.of(after), dict[tuple[PodClass, PodSignature], bool]()

    def meets_partners(signature: PodSignature) -> bool:
        terms = () if signature.constraints is None else signature.constraints.affinity
        by_host = AffinityMatch(tuple(term for term in terms if term.topology_key == HOSTNAME))
        return bool(by_host.terms) and any(by_host.includes(each, after.pod_index.namespaces) for each in come)

    def may_take(pod: PendingPod) -> bool:
        signature = _what_rules_read(pod, plan)
        kind = pod.pod_class, signature
        if kind not in known:
            verdicts = run_filters(pod.pod_class, after, signature, cache.run_filter)
            known[kind] = meets_partners(signature) or more_nodes_help(
                pod.pod_class, signature, after, verdicts, in_new_domains=False
            )
        return known[kind]

    return [each for each in unplaced if each.more_nodes_help and may_take(each.pod)]


def in_its_gangs(kind: WaitingKind, pod: PendingPod, plan: ScenarioPlan) -> WaitingKind:
    """The kind with what the gangs of a pod of it need."""
    gangs = plan.before.gangs
    needed = [gangs[name] for name in pod.gangs if name in gangs and gangs[name].min_placed > 0]
    topologies = tuple(gang.topology_key for gang in needed if gang.topology_key)
    return replace(kind, topologies=topologies, in_gang=bool(needed))


def node_shapes(
    nodes: Iterable[Node],
    asked: Collection[str],
    devices: DeviceCounts = _NO_DEVICES,
    storage: Storage | None = None,
) -> list[Node]:
    """One node of each shape: alike in what it has, in taints, and in labels that matter.

    Args:
        asked: keys of these labels; the host's name never counts.
        devices: how many of them nodes have.
        storage: nodes differ in their storage drivers, too; None: nobody asks for volumes.
    """
    keys = sorted(set(asked) - {HOSTNAME})
    drivers = {} if storage is None else storage.csi_nodes
    shapes: dict[tuple[object, ...], Node] = {}
    for node in nodes:
        if not node.problem:
            csi = drivers.get(node.name)
            shape = (
                tuple(domain_value(node.labels, key) for key in keys),
                as_new(node, "").taints,
                node.allocatable,
                node.features,
                devices.get(node.name, ()),
                () if csi is None else (csi.limits, csi.migrated, csi.drivers),
            )
            shapes.setdefault(shape, node)
    return list(shapes.values())


def shapes_for(kinds: Sequence[WaitingKind], snapshot: Snapshot) -> list[Node]:
    """One node of each shape that labels, rules, volumes or devices tell apart for these pods."""
    asked = {key for kind in kinds for key in _keys(kind, snapshot)}
    volumes = [volume for kind in kinds for volume in kind.pod_class.volumes]
    storage = snapshot.storage if volumes else None
    if storage is not None:
        asked.update(_storage_keys(tuple(volumes), storage))
    return node_shapes(snapshot.table.nodes, asked, device_counts(snapshot.devices), storage)


def _keys(kind: WaitingKind, snapshot: Snapshot) -> Iterator[str]:
    """Keys of the labels by which nodes differ for these pods."""
    yield from (key for key, _ in kind.pod_class.node_selector)
    yield from _keys_of(kind.pod_class.required_affinity or ())
    yield from kind.topologies
    yield from (term.topology_key for term, _ in snapshot.pod_index.anti_affinity_terms_for(kind.signature))
    rules = kind.signature.constraints
    if rules is not None:
        for same in (rules.affinity, rules.anti_affinity, rules.spread, rules.limits):
            yield from (rule.topology_key for rule in same if rule.topology_key)
        yield from (rule.key for allowed in rules.allowed_nodes for term in allowed.nodes for rule in term.expressions)


def _storage_keys(volumes: Volumes, storage: Storage) -> Iterator[str]:
    """Keys of the labels by which nodes reach volumes, and get new ones."""
    yield from (ZONE, REGION, BETA_ZONE, BETA_REGION)
    used = [volume.key for volume in volumes if isinstance(volume, ClaimVolume)]
    claims = [storage.claims[key] for key in used if key in storage.claims]
    for volume in {claim.volume_name for claim in claims} & storage.volumes.keys():
        yield from _keys_of(storage.volumes[volume].affinity or ())
    for name in {claim.storage_class for claim in claims}:
        for free in storage.free(name):
            yield from _keys_of(free.affinity or ())
        if name in storage.classes:
            yield from _keys_of(storage.classes[name].topologies)
        for space in storage.spaces(name):
            yield from (rule.key for rule in (space.topology.requirements if space.topology else ()))
    for claim in claims:
        for kept in storage.kept_for(claim):
            yield from _keys_of(kept.affinity or ())


def _keys_of(terms: Iterable[NodeSelectorTerm]) -> Iterator[str]:
    return (rule.key for term in terms for rule in term.expressions)
