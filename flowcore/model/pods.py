"""Pods, and the pod class: everything that scheduling reads of a pod.

Two pods of one class are interchangeable for every filter and every cost, whatever their owner; two pods of
one owner with different requests are not. The class value is its own key: equal classes are one class.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flowcore.model.data import DataSource
from flowcore.model.gang_spec import GangRef, GangSource
from flowcore.model.gang_topology import GangTopology
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.numa import NumaNeeds
from flowcore.model.pod_index import CONTROLLER, PodSignature
from flowcore.model.policies import DuringExecution
from flowcore.model.resource_claims import ClaimingPod, ExtendedRequests
from flowcore.model.resources import Amounts, Unrequested, non_zero_requests
from flowcore.model.selectors import Labels, NodeSelectorTerm, Requirement
from flowcore.model.usage import UsageClass
from flowcore.model.volumes import ClaimVolume, Volumes


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Toleration.

    Attributes:
        seconds: how long the pod stays on a node with a matching NoExecute taint; None: for ever. kube-scheduler's
            filter does not read it, ``filters.taint_eviction`` does.
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class PreferredTerm(msgspec.Struct, frozen=True, gc=False):
    """A soft node affinity: ``weight`` 1..100 for nodes that match ``term``."""

    weight: int
    term: NodeSelectorTerm


#: A host port at this address is held at every address of its node.
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared, not bound


class HostPort(msgspec.Struct, frozen=True, gc=False, order=True):
    """A port of the node that a container wants. ``ip`` 0.0.0.0 means every address."""

    ip: str
    protocol: str
    port: int


class PodClass(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What filters and costs read of a pod; hashable, and the key of its class."""

    requests: Amounts = ()
    node_selector: Labels = ()
    #: Required node affinity: terms are alternatives. None: no such rule. (): a rule no node meets.
    required_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_affinity: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    #: The node that it must go to, for a question about a pod that names its node; "" for all pods of a cluster.
    node_name: str = ""
    priority: int = 0
    #: Those that a filter reads; most pods have none.
    volumes: Volumes = ()
    #: What the node must declare that its kubelet can do.
    features: tuple[str, ...] = ()
    #: Names of the images that it brings to a node, as nodes report them, one for each container and image volume.
    images: tuple[str, ...] = ()
    #: Containers, init containers among them, and image volumes: what ImageLocality's thresholds count.
    containers: int = 0
    image_volumes: int = 0
    #: What it reads and where that is, from its annotation; () once it is bound.
    data: tuple[DataSource, ...] = ()
    #: What it needs of the NUMA zones of its node; None: nothing of a certain zone.
    numa: NumaNeeds | None = None
    #: Its claims to devices (DRA); None: it has none, or its round has them as amounts. Each pod with claims is a class
    #: of its own.
    devices: ClaimingPod | None = None
    #: Whether other pods of a round may take what its volumes need (``flowcore.rules.volumes``); a round says it.
    contends_for_volumes: bool = False
    #: The node that others nominated it for, in a round; "": none. It is better than any other (costs/wishes.py).
    wish: str = ""
    #: What costs count for its containers that request no cpu or memory; filters do not read it.
    unrequested: Unrequested = ()

    @property
    def non_zero_requests(self) -> tuple[int, int]:
        """Cpu (milli-cores) and memory (bytes) that costs count for it."""
        return non_zero_requests(self.requests, self.unrequested)

    @property
    def fits_by_amounts(self) -> bool:
        """Whether amounts alone say if a node has room for the pod.

        It needs no host port, NUMA zone, device or free volume.
        """
        needs_more = self.host_ports or self.numa is not None or self.devices is not None
        return not (needs_more or self.contends_for_volumes)


def excluding_nodes(pod_class: PodClass, nodes: Iterable[str]) -> PodClass:
    """The class of pods that are like these but for some nodes that they may not go to."""
    fields = tuple(Requirement("metadata.name", "NotIn", (node,)) for node in nodes)
    if not fields:
        return pod_class
    if pod_class.required_affinity is None:
        return msgspec.structs.replace(pod_class, required_affinity=(NodeSelectorTerm(fields=fields),))
    # A term that selects nothing must not begin to select something.
    terms = tuple(
        term if term.selects_nothing else msgspec.structs.replace(term, fields=term.fields + fields)
        for term in pod_class.required_affinity
    )
    return msgspec.structs.replace(pod_class, required_affinity=terms)


def with_wish(pod_class: PodClass, node: str) -> PodClass:
    """The class of pods that are like these and nominated for a node; "": for none."""
    return msgspec.structs.replace(pod_class, wish=node) if node else pod_class


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod as a snapshot knows it."""

    namespace: str
    name: str
    uid: str
    pod_class: PodClass
    labels: Labels = ()
    scheduler_name: str = "default-scheduler"
    #: The node it is bound to, "" while it waits.
    node_name: str = ""
    #: Seconds since the epoch, from metadata.creationTimestamp; 0 when unknown.
    created: float = 0.0
    #: Of its spec, from metadata.generation; 0 when unknown. Conditions name it.
    generation: int = 0
    #: Succeeded or Failed: holds no room any more.
    terminal: bool = False
    #: Has a deletionTimestamp: keeps its room until it is gone, is never placed anew.
    deleting: bool = False
    #: Seconds that it has to terminate, once it is being deleted.
    grace_period: float = 0.0
    #: What it takes on its node: like the class's requests but for in-place resizes.
    usage: Amounts = ()
    #: Why it may not be placed now, whatever room there is; "" when it may be.
    blocked_reason: str = ""
    #: Why it cannot be planned here: only kube-scheduler's own judgement will do; "" when it can.
    unsupported_reason: str = ""
    #: The field with more entries than are planned (flowcore/api/pod_limits.py), "" when there is none.
    over_limit: str = ""
    #: Names of the scheduling gates of others that keep it from being placed.
    gates: tuple[str, ...] = ()
    #: Whether it cannot be planned here since it asks for a share of a GPU, which another scheduler gives.
    asks_gpu_share: bool = False
    #: Whether our own scheduling gate, and no other, holds it back.
    gated: bool = False
    #: Its status.nominatedNodeName, also one that others wrote.
    nominated_node: str = ""
    #: The node that our own nomination named last, from the annotation written with it.
    planned_node: str = ""
    #: The message of its PodScheduled=False condition, "" when it has none.
    unschedulable_message: str = ""
    #: The reason of that condition.
    unschedulable_reason: str = ""
    #: Whether that condition is about an older spec, as its observedGeneration says.
    unschedulable_is_old: bool = False
    #: Seconds since the epoch since when it waits to be placed, by that condition; 0 before the first try to place it.
    unschedulable_since: float = 0.0
    #: The version of it that was read, for writes that no other version is to get; "" for a pod with a node.
    resource_version: str = ""
    #: What it demands of others; None, as for most pods: nothing.
    constraints: InterPodConstraints | None = None
    #: The gang that it belongs to, None: to none.
    gang: GangRef | None = None
    #: What it says itself of the topology of its gang; None: nothing.
    gang_topology: GangTopology | None = None
    #: Terminal, and done what it was to do.
    succeeded: bool = False
    #: Uid of its controller, "" for a pod without one.
    owner: str = ""
    #: Kind and name of its controller, such as ``ReplicaSet/web-5d6f``; "" for a pod without one.
    controller: str = ""
    #: API group of its controller, "" for the core group.
    controller_group: str = ""
    #: How many pods are in its group of a LeaderWorkerSet, as its annotation says; 0: nothing readable is said.
    group_size: int = 0
    #: Whether its annotation asks that it be in the gang of its controller, of whatever kind that is.
    asks_gang: bool = False
    #: Of a DaemonSet, or static: it stays on its node as long as the node exists.
    permanent: bool = False
    #: The first annotation of it that cannot be read, "" when all can.
    bad_annotation: str = ""
    #: What its annotation says of the pod whose place it is to take, readable or not; None: nothing.
    replaces: str | None = None
    #: Whether pods may be evicted for it: its preemptionPolicy is not Never.
    preempts: bool = True
    #: Seconds since the epoch, from status.startTime; 0 when unknown.
    started: float = 0.0
    #: Whether the kubelet of its node runs it from a file: it cannot be evicted.
    static: bool = False
    #: Why it is never moved to another node, "" when it may be.
    immovable_reason: str = ""
    #: Whether its volume claims are all that keeps it: people may move it to a node that reaches its volumes.
    kept_by_claims: bool = False
    #: From its annotation; None: its policy decides.
    during_execution: DuringExecution | None = None
    #: Pods of which use like its own is expected.
    usage_class: UsageClass = UsageClass()
    #: What is wrong with ``bad_annotation``, which then counts as absent; "": it has no known value, or none is bad.
    annotation_problem: str = ""
    #: It runs to an end: what it has done by then is what it is for.
    finite: bool = False
    #: Seconds since the epoch when its work was last saved, from its annotation; 0: nothing readable is said.
    checkpointed: float = 0.0
    #: It holds a GPU for pods of KAI-Scheduler that share it: while they run the GPU is not free, whoever evicts it.
    holds_shared_gpu: bool = False
    #: What it asks for of extended resources, as requests of a claim, should a DeviceClass back them.
    extended: ExtendedRequests = ()
    #: ``usage`` as kube-scheduler before 1.37 counts it, for a pod that is resized; None: the same amounts.
    usage_by_container: Amounts | None = None
    #: What it asks for beyond what it has, while its node defers that resize: a part of ``usage``. (): no resize is.
    grows: Amounts = ()
    #: Uid of its controller, if that is one whose pods kube-scheduler spreads by default; "": it is not.
    spread_owner: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def names_gang(self) -> bool:
        """Whether a mark of its own says its gang, by which the API server gates it; gangs by controllers have none."""
        return self.gang is not None and self.gang.key.source is not GangSource.CONTROLLER

    @property
    def held_by_gates(self) -> bool:
        """Whether scheduling gates of others keep it from being placed."""
        return bool(self.gates)

    @property
    def waiting_resize(self) -> Pod:
        """A deferred resize as a waiting pod, which has its node as its only place; any other pod as it is.

        All that it asks for counts on the node already, so it asks for nothing; a round says what its node lacks.
        Source: kube-scheduler plugins/deferredpodscheduling; no filter counts but room.
        """
        if not self.grows:
            return self
        pod_class = PodClass(
            tolerations=(Toleration(operator="Exists"),),
            node_name=self.node_name,
            priority=self.pod_class.priority,
            unrequested=(0, 0),
        )
        return Pod(
            self.namespace,
            self.name,
            self.uid,
            pod_class,
            labels=self.labels,
            scheduler_name=self.scheduler_name,
            created=self.created,
            preempts=self.preempts,
            grows=self.grows,
        )

    @property
    def skip_reason(self) -> str:
        """Why a round must not place it; "" when it may."""
        return self.blocked_reason or self.unsupported_reason

    @property
    def claims_volumes(self) -> bool:
        """Whether it has volumes through claims."""
        return any(isinstance(each, ClaimVolume) for each in self.pod_class.volumes)

    @property
    def awaits_claim(self) -> bool:
        """Whether a claim of it is still to be made from its template."""
        return self.pod_class.devices is not None and self.pod_class.devices.awaits_claim

    @property
    def signature(self) -> PodSignature:
        """What rules between pods read of it: nothing of a resize that waits, since its pod counts already."""
        if self.grows and not self.node_name:
            return PodSignature(self.namespace)
        labels = ((CONTROLLER, self.spread_owner), *self.labels) if self.spread_owner else self.labels
        return PodSignature(self.namespace, labels, self.deleting, self.constraints)
