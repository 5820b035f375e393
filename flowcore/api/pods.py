"""Pods."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.api.base import Interner, Wire, to_labels, to_seconds
from flowcore.api.data import parse_data
from flowcore.api.gangs import to_gang
from flowcore.api.inter_pod_constraints import anti_affinity_only, to_inter_pod_constraints
from flowcore.api.node_features import needed_features
from flowcore.api.pod_limits import over_limit
from flowcore.api.pod_numa import numa_needs
from flowcore.api.pod_objects import (
    WireNodeAffinity,
    WireOwner,
    WirePod,
    WirePodAnnotations,
    WirePodSpec,
    WirePodStatus,
)
from flowcore.api.pod_requests import has_resize, host_ports_of, images_of, repositories_of, requests_of
from flowcore.api.selectors import to_node_term
from flowcore.api.volumes import to_volumes
from flowcore.model.data import DATA, DataSource
from flowcore.model.devices import needs_devices
from flowcore.model.errors import ModelError
from flowcore.model.numa import NumaNeeds
from flowcore.model.pods import Pod, PodClass, PreferredTerm, Toleration
from flowcore.model.policies import DURING_EXECUTION, EVICTABLE, GATE, DuringExecution
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Amounts, to_amounts
from flowcore.model.usage import UsageClass
from flowcore.model.volumes import ClaimVolume, Disk, Volumes

#: Usage of a bound pod whose requests cannot be read: it fills its node, so that no unknown room is given away.
_UNKNOWN_USAGE: Amounts = ((CPU, MAX_AMOUNT), (EPHEMERAL_STORAGE, MAX_AMOUNT), (MEMORY, MAX_AMOUNT))

#: Controllers whose pods stay as long as their node exists. Static pods belong to their Node.
_PERMANENT = frozenset(("DaemonSet", "Node"))
_NO_OWNER = WireOwner()
_NEVER_RAN = (0.0, 0.0)
#: SystemCriticalPriority (pkg/apis/scheduling/types.go).
_SYSTEM_CRITICAL = 2_000_000_000
_MAX_NAME = 253
#: Message of the API server on each pod that is created with a gate (strategy.go, applySchedulingGatedCondition).
_GATED_AT_CREATION = "Scheduling is blocked due to non-empty scheduling gates"


def to_pod(wire: WirePod, intern: Interner) -> Pod:
    """A pod; ``blocked_reason`` and ``unsupported_reason`` say why this engine cannot place it."""
    meta, spec, status = wire.metadata, wire.spec, wire.status or WirePodStatus()
    namespace = meta.namespace or "default"
    node_name = spec.node_name or ""
    volumes = to_volumes(spec.volumes, namespace, meta.name, meta.uid or "") if spec.volumes else ()
    gates = [gate.name for gate in spec.scheduling_gates or ()]
    gated = gates == [GATE]
    deleting = meta.deletion_timestamp is not None
    blocked_reason = _blocked_reason([] if gated else gates, deleting=deleting)
    excess = over_limit(spec, meta.labels or {})
    unsupported_reason = f"it is not planned: {excess}" if excess is not None else _unsupported_reason(spec, volumes)
    requests: Amounts = ()
    unreadable = False
    try:
        requests = intern(to_amounts(requests_of(spec)))
        unsupported_reason = unsupported_reason or needs_devices(requests, {})
    except ModelError as error:
        unreadable = True
        blocked_reason = blocked_reason or str(error)
    usage = requests
    if unreadable and node_name:
        usage = _UNKNOWN_USAGE
    if node_name and not unreadable and has_resize(status):
        try:
            usage = intern(to_amounts(requests_of(spec, status)))
        except ModelError:
            usage = requests
    labels = intern(to_labels(meta.labels))
    constraints = to_inter_pod_constraints(spec, namespace, labels)
    if constraints is not None:
        constraints = intern(constraints if excess is None else anti_affinity_only(constraints))
    if constraints is not None and excess is None:
        if constraints.unreadable_affinity:
            blocked_reason = blocked_reason or f"{constraints.unreadable_affinity}: a selector in it cannot be parsed"
        if constraints.unreadable_spread:
            blocked_reason = blocked_reason or f"{constraints.unreadable_spread}.labelSelector: it cannot be parsed"
    gang, annotation_errors = to_gang(spec.scheduling_group, meta.labels, meta.annotations, namespace, intern)
    numa = None
    if not unreadable:
        try:
            numa = numa_needs(spec, status, meta.annotations, requests)
        except ModelError as error:
            annotation_errors = (*annotation_errors, error)
    if not node_name:
        blocked_reason = blocked_reason or "; ".join(str(each) for each in annotation_errors)
    during_execution, bad_rules_annotation = _during_execution(meta.annotations)
    data, data_problem = _data(meta.annotations) if not node_name else ((), "")
    controller = next((owner for owner in meta.owner_references or () if owner.controller), _NO_OWNER)
    unschedulable = next((c for c in status.conditions or () if c.type == "PodScheduled" and c.status == "False"), None)
    # A pod behind our own gate waits for us; behind another gate nobody may place it. The API server's message about
    # gates dates from the pod's creation, when it may have had another gate.
    tried = unschedulable is not None and (
        unschedulable.reason != "SchedulingGated" or (gated and unschedulable.message != _GATED_AT_CREATION)
    )
    return Pod(
        namespace=namespace,
        name=meta.name,
        uid=meta.uid or "",
        pod_class=intern(
            _pod_class(spec, requests, volumes, data, numa) if excess is None else _usage_class(spec, requests, volumes)
        ),
        labels=labels,
        scheduler_name=spec.scheduler_name or "default-scheduler",
        node_name=node_name,
        created=to_seconds(meta.creation_timestamp),
        terminal=status.phase in ("Succeeded", "Failed"),
        deleting=deleting,
        grace_period=float(meta.deletion_grace_period_seconds or 0),
        usage=usage,
        blocked_reason=intern(blocked_reason),
        unsupported_reason=intern(unsupported_reason),
        over_limit="" if excess is None else excess.field,
        unbindable_reason=intern(_unbindable_reason(volumes)),
        gated=gated,
        nominated_node=status.nominated_node_name or "",
        planned_node=meta.annotations.planned or "" if meta.annotations else "",
        unschedulable_message=intern(unschedulable.message or "" if unschedulable is not None else ""),
        unschedulable_reason=intern(unschedulable.reason or "" if unschedulable is not None else ""),
        unschedulable_since=to_seconds(unschedulable.last_transition_time)
        if unschedulable is not None and tried
        else 0.0,
        constraints=constraints,
        gang=intern(gang) if gang is not None else None,
        succeeded=status.phase == "Succeeded",
        owner=intern(controller.uid),
        permanent=controller.kind in _PERMANENT,
        bad_annotation=annotation_errors[0].field
        if annotation_errors
        else bad_rules_annotation or (f"annotation {DATA}" if data_problem else ""),
        annotation_problem=data_problem,
        replaces=_replaces(meta.annotations),
        preempts=spec.preemption_policy != "Never",
        started=to_seconds(status.start_time) if node_name else 0.0,
        ran=_ran(status),
        static=meta.annotations is not None and meta.annotations.mirror is not None,
        immovable_reason=intern(_immovable_reason(wire, status, controller)) if node_name else "",
        during_execution=during_execution,
        usage_class=intern(UsageClass(namespace, intern(repositories_of(spec)), requests)),
    )


def _ran(status: WirePodStatus) -> tuple[float, float]:
    """From the first start to the last end of a pod's containers; zeros unless it succeeded."""
    if status.phase != "Succeeded":
        return _NEVER_RAN
    states = [each.state.terminated for each in status.container_statuses or () if each.state is not None]
    ended = [each for each in states if each is not None and each.started_at is not None]
    if not ended:
        return _NEVER_RAN
    return min(to_seconds(each.started_at) for each in ended), max(to_seconds(each.finished_at) for each in ended)


def _during_execution(annotations: WirePodAnnotations | None) -> tuple[DuringExecution | None, str]:
    """What the annotation says, and the field if it cannot be read: then the pod is left alone."""
    text = None if annotations is None else annotations.during_execution
    if text is None:
        return None, ""
    try:
        return DuringExecution(text), ""
    except ValueError:
        return DuringExecution.IGNORE, f"annotation {DURING_EXECUTION}"


def _data(annotations: WirePodAnnotations | None) -> tuple[tuple[DataSource, ...], str]:
    """Where its data is, and why that cannot be read: then the pod is planned as if it read none."""
    text = None if annotations is None else annotations.data
    if text is None:
        return (), ""
    try:
        return parse_data(text), ""
    except ModelError as error:
        return (), error.problem


def _immovable_reason(wire: WirePod, status: WirePodStatus, controller: WireOwner) -> str:
    """Why a running pod is never moved, "" where it may be: at least what the descheduler's DefaultEvictor spares."""
    spec, annotations = wire.spec, wire.metadata.annotations
    # Every API server writes the time of creation; manifests by hand often say nothing of time.
    if status.phase == "Pending" and status.start_time is None and wire.metadata.creation_timestamp is not None:
        return "it has not started yet"
    if annotations is not None and annotations.mirror is not None:
        return "it is a static pod"
    if not controller.uid:
        return "no controller would replace it"
    if controller.kind in _PERMANENT:
        return f"it belongs to a {controller.kind}"
    if (spec.priority or 0) >= _SYSTEM_CRITICAL:
        return "it is system-critical"
    if annotations is not None and annotations.evictable is not None:
        if annotations.evictable == "false":
            return f"its annotation {EVICTABLE} says so"
        if annotations.evictable != "true":
            return f"its annotation {EVICTABLE} is neither true nor false"
    for volume in spec.volumes or ():
        if volume.empty_dir is not None or volume.host_path is not None:
            return "it has local storage"
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            return "it has volume claims"
    return ""


def _replaces(annotations: WirePodAnnotations | None) -> str | None:
    # A text longer than any name is no name: one more character than the longest name tells that.
    return None if annotations is None or annotations.replaces is None else annotations.replaces[: _MAX_NAME + 1]


class _WirePlace(Wire):
    node_name: str | None = None
    scheduler_name: str | None = None


class _WireIdentity(Wire):
    name: str
    namespace: str | None = None
    uid: str | None = None


class _WirePlacedPod(Wire):
    metadata: _WireIdentity
    spec: _WirePlace


def to_unreadable_pod(raw: bytes, problem: str) -> Pod:
    """A pod whose JSON has the wrong shape.

    It waits with the problem as the reason. A bound one counts as filling its node: its usage is unknown, and unknown
    room must not be given away.

    Raises:
        msgspec.ValidationError: name and node cannot be read either.
    """
    wire = msgspec.json.decode(raw, type=_WirePlacedPod)
    return Pod(
        namespace=wire.metadata.namespace or "default",
        name=wire.metadata.name,
        uid=wire.metadata.uid or "",
        pod_class=PodClass(),
        scheduler_name=wire.spec.scheduler_name or "default-scheduler",
        node_name=wire.spec.node_name or "",
        usage=_UNKNOWN_USAGE,
        blocked_reason=f"it cannot be read: {problem}",
    )


def _pod_class(
    spec: WirePodSpec, requests: Amounts, volumes: Volumes, data: tuple[DataSource, ...], numa: NumaNeeds | None
) -> PodClass:
    node_affinity = (spec.affinity.node_affinity if spec.affinity else None) or WireNodeAffinity()
    required = None
    if node_affinity.required is not None:
        required = tuple(to_node_term(term) for term in node_affinity.required.node_selector_terms or ())
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
        node_name=spec.node_name or "",
        priority=spec.priority or 0,
        volumes=volumes,
        features=needed_features(spec),
        # A bound pod pulls no more images. Without them, bound pods of different images share one class.
        images=() if spec.node_name else images_of(spec),
        containers=0 if spec.node_name else len(spec.containers or ()) + len(spec.init_containers or ()),
        data=data,
        numa=numa,
    )


def _usage_class(spec: WirePodSpec, requests: Amounts, volumes: Volumes) -> PodClass:
    """The class of a pod that is not planned: only its usage on its node."""
    return PodClass(
        requests=requests,
        host_ports=host_ports_of(spec),
        node_name=spec.node_name or "",
        priority=spec.priority or 0,
        volumes=volumes,
    )


def _blocked_reason(gates: Sequence[str], *, deleting: bool) -> str:
    """Why nobody may place the pod now, "" when it may be placed."""
    if deleting:
        return "it is being deleted"
    if gates:
        return "its scheduling gates are closed: " + ", ".join(gates)
    return ""


def _unsupported_reason(spec: WirePodSpec, volumes: Volumes) -> str:
    """Why this engine cannot plan the pod, "" when it can.

    A rule that is not evaluated here makes the pod wait; it is never skipped.
    """
    if spec.resource_claims:
        names = ", ".join(claim.name for claim in spec.resource_claims)
        return f"its resource claims ({names}) need kube-scheduler's binding work, which the binder does not do"
    disk = next((volume for volume in volumes if isinstance(volume, Disk)), None)
    if disk is not None:
        return f"its volumes: {disk.plugin} disks without a claim are not decided by this engine yet"
    return ""


def _unbindable_reason(volumes: Volumes) -> str:
    claims = [volume.name for volume in volumes if isinstance(volume, ClaimVolume)]
    if not claims:
        return ""
    names = ", ".join(claims)
    return (
        f"its volume claims ({names}) need kube-scheduler's binding work, which the binder does not do; a policy with "
        "delivery: Extender plans such pods and leaves the binding to kube-scheduler"
    )
