"""What is read of a pod's spec: the same for all pods of a controller."""

from __future__ import annotations

import msgspec

from flowcore.api.base import Interner, Quantities, to_labels
from flowcore.api.data import parse_data
from flowcore.api.gangs import WireSchedulingGroup
from flowcore.api.inter_pod_constraints import anti_affinity_only, to_inter_pod_constraints
from flowcore.api.node_features import needed_features
from flowcore.api.pod_limits import over_limit
from flowcore.api.pod_numa import numa_needs
from flowcore.api.pod_objects import WireNodeAffinity, WireOwner, WirePod, WirePodMeta, WirePodSpec, WirePodStatus
from flowcore.api.pod_requests import (
    extended_requests_of,
    host_ports_of,
    images_of,
    repositories_of,
    requests_of,
    unrequested_of,
)
from flowcore.api.resource_claims import to_claiming_pod
from flowcore.api.selectors import to_node_term
from flowcore.api.volumes import to_volumes
from flowcore.model.data import DataSource
from flowcore.model.errors import ModelError
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.numa import NumaNeeds
from flowcore.model.pods import PodClass, PreferredTerm, Toleration
from flowcore.model.resource_claims import ExtendedRequests
from flowcore.model.resources import Amounts, Unrequested, to_amounts
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.model.shared_gpus import asks_hami
from flowcore.model.usage import UsageClass
from flowcore.model.volumes import Volumes

#: The controller that pins each of its pods to a node by affinity.
DAEMON_SET = "DaemonSet"
_NO_OWNER = WireOwner()
_NO_STATUS = WirePodStatus()


class SpecReading(msgspec.Struct, frozen=True, gc=False):
    """What was read of one pod spec. Fields without a word here are those of ``Pod``.

    Attributes:
        unreadable: why the requests cannot be read; "" where they can.
        rules_problem: why the rules between pods cannot be read; "" where they can.
        numa_problem: of the annotation about NUMA zones; None: there is none.
        data_problem: of the annotation about data; "" where there is none.
        gates: names of the scheduling gates.
        asks_gpu_share: whether ``unsupported_reason`` is that it asks for a share of a GPU.
        storage_reason: why its volumes keep it on its node; "" where they do not.
        has_claims: whether volume claims do, and no local storage.
        asked: requests of each container as they are written, by name, while the pod has none as a whole and no
            overhead; None: it has.
    """

    pod_class: PodClass
    requests: Amounts
    constraints: InterPodConstraints | None
    usage_class: UsageClass
    scheduler_name: str
    preempts: bool
    finite: bool
    unsupported_reason: str
    over_limit: str
    unreadable: str
    rules_problem: str
    numa_problem: ModelError | None
    data_problem: str
    gates: tuple[str, ...]
    scheduling_group: WireSchedulingGroup | None
    storage_reason: str
    has_claims: bool
    asks_gpu_share: bool
    asked: dict[str, Quantities] | None
    extended: ExtendedRequests


def controller_of(meta: WirePodMeta) -> WireOwner:
    """The controller of a pod; one without kind and uid where there is none."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return owner
    return _NO_OWNER


def read_spec(wire: WirePod, intern: Interner) -> SpecReading:
    """What is read of the spec of a pod.

    Beside the spec it depends on the namespace, the name and uid (where a claim is made for the pod), the labels (their
    sizes, and those that ``matchLabelKeys`` names), whether a DaemonSet made it, the quality of service that the status
    states, the claims that it says were made for the pod, and the annotations about data and NUMA zones.
    """
    meta, spec, status = wire.metadata, wire.spec, wire.status or _NO_STATUS
    namespace = meta.namespace or "default"
    volumes = to_volumes(spec.volumes, namespace, meta.name, meta.uid or "") if spec.volumes else ()
    excess = over_limit(spec, meta.labels or {})
    unsupported_reason = "" if excess is None else f"it is not planned: {excess}"
    requests: Amounts = ()
    unrequested: Unrequested = ()
    extended: ExtendedRequests = ()
    unreadable, numa, numa_problem, hami = "", None, None, ""
    try:
        requests = intern(to_amounts(requests_of(spec)))
        unrequested = unrequested_of(spec, requests)
        extended = intern(extended_requests_of(spec, requests))
        hami = "" if unsupported_reason else asks_hami(requests)
        unsupported_reason = unsupported_reason or hami
    except ModelError as error:
        unreadable = str(error)
    if not unreadable:
        try:
            numa = numa_needs(spec, status, meta.annotations, requests)
        except ModelError as error:
            numa_problem = error
    if excess is None:
        constraints = to_inter_pod_constraints(spec, namespace, intern(to_labels(meta.labels)))
    else:
        constraints, heeded = anti_affinity_only(spec, namespace)
        unsupported_reason += _unheeded(spec, heeded)
    if constraints is not None:
        constraints = intern(constraints)
    data, data_problem = _data(wire)
    if excess is None:
        pinned = controller_of(meta).kind == DAEMON_SET and bool(spec.node_name)
        pod_class = _pod_class(wire, requests, volumes, data, numa, pinned=pinned)
    else:
        pod_class = _usage_class(spec, requests, volumes)
    if unrequested:
        pod_class = msgspec.structs.replace(pod_class, unrequested=unrequested)
    return SpecReading(
        pod_class=intern(pod_class),
        requests=requests,
        constraints=constraints,
        usage_class=intern(UsageClass(intern(namespace), intern(repositories_of(spec)), requests)),
        scheduler_name=intern(spec.scheduler_name or "default-scheduler"),
        preempts=spec.preemption_policy != "Never",
        finite=spec.restart_policy not in (None, "Always"),
        unsupported_reason=intern(unsupported_reason),
        over_limit="" if excess is None else excess.field,
        unreadable=unreadable,
        rules_problem=_rules_problem(constraints) if excess is None else "",
        numa_problem=numa_problem,
        data_problem=data_problem,
        gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
        scheduling_group=spec.scheduling_group,
        asks_gpu_share=bool(hami),
        storage_reason=_storage_reason(spec),
        has_claims=_has_claims(spec),
        asked=_asked(spec),
        extended=extended,
    )


def _unheeded(spec: WirePodSpec, heeded: int) -> str:
    """What is to be said where others do not heed all required anti-affinity terms of a pod; "" where they do."""
    affinity = spec.affinity and spec.affinity.pod_anti_affinity
    terms = len((affinity and affinity.required) or ())
    return "" if terms == heeded else f"; other pods heed {heeded} of its {terms} required anti-affinity terms"


def _asked(spec: WirePodSpec) -> dict[str, Quantities] | None:
    if spec.resources is not None or spec.overhead is not None:
        return None
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    return {each.name: (each.resources.requests if each.resources else None) or {} for each in containers}


def _rules_problem(constraints: InterPodConstraints | None) -> str:
    if constraints is not None and constraints.unreadable_affinity:
        return f"{constraints.unreadable_affinity}: a selector in it cannot be parsed"
    if constraints is not None and constraints.unreadable_spread:
        return f"{constraints.unreadable_spread}.labelSelector: it cannot be parsed"
    return ""


def _data(wire: WirePod) -> tuple[tuple[DataSource, ...], str]:
    """Where its data is, and why that cannot be read: then the pod is planned as if it read none."""
    annotations = wire.metadata.annotations
    text = None if annotations is None else annotations.data
    if text is None:
        return (), ""
    try:
        return parse_data(text), ""
    except ModelError as error:
        return (), error.problem


def _storage_reason(spec: WirePodSpec) -> str:
    if any(volume.empty_dir is not None or volume.host_path is not None for volume in spec.volumes or ()):
        return "it has local storage"
    return "it has volume claims" if _has_claims(spec) else ""


def _has_claims(spec: WirePodSpec) -> bool:
    return any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in spec.volumes or ()
    )


def _pod_class(
    wire: WirePod,
    requests: Amounts,
    volumes: Volumes,
    data: tuple[DataSource, ...],
    numa: NumaNeeds | None,
    *,
    pinned: bool,
) -> PodClass:
    """The class of a pod. Pods of a DaemonSet share one: its affinity to the node that it has (``pinned``) is left out.

    Such a pod stays as long as its node, so where else it may go does not matter.
    """
    spec = wire.spec
    node_affinity = (spec.affinity.node_affinity if spec.affinity else None) or WireNodeAffinity()
    required = None
    if node_affinity.required is not None:
        required = tuple(to_node_term(term) for term in node_affinity.required.node_selector_terms or ())
        if pinned and required == (_own_node(spec.node_name or ""),):
            required = None
    tolerations = (
        Toleration(t.key or "", t.operator or "", t.value or "", t.effect or "", t.toleration_seconds)
        for t in spec.tolerations or ()
    )
    return PodClass(
        requests=requests,
        node_selector=to_labels(spec.node_selector),
        required_affinity=required,
        preferred_affinity=tuple(
            PreferredTerm(p.weight, to_node_term(p.preference)) for p in node_affinity.preferred or ()
        ),
        tolerations=tuple(tolerations),
        host_ports=host_ports_of(spec),
        priority=spec.priority or 0,
        volumes=volumes,
        features=needed_features(spec),
        # A bound pod pulls no more images. Without them, bound pods of different images share one class.
        images=() if spec.node_name else images_of(spec),
        containers=0 if spec.node_name else len(spec.containers or ()) + len(spec.init_containers or ()),
        image_volumes=0 if spec.node_name else sum(volume.image is not None for volume in spec.volumes or ()),
        data=data,
        numa=numa,
        devices=to_claiming_pod(wire) if spec.resource_claims else None,
    )


def _own_node(name: str) -> NodeSelectorTerm:
    """What the DaemonSet controller writes (ReplaceDaemonSetPodNodeNameNodeAffinity)."""
    return NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (name,)),))


def _usage_class(spec: WirePodSpec, requests: Amounts, volumes: Volumes) -> PodClass:
    """The class of a pod that is not planned: only its usage on its node."""
    return PodClass(
        requests=requests,
        host_ports=host_ports_of(spec),
        priority=spec.priority or 0,
        volumes=volumes,
    )
