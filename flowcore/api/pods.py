"""Pods."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.api.base import Interner, Wire, to_labels, to_seconds
from flowcore.api.checkpoints import parse_checkpoint
from flowcore.api.gang_topology import to_gang_topology
from flowcore.api.gangs import to_asks_gang, to_gang, to_group_size
from flowcore.api.pod_objects import (
    WireOwner,
    WirePod,
    WirePodAnnotations,
    WirePodMeta,
    WirePodSpec,
    WirePodStatus,
)
from flowcore.api.pod_requests import (
    deferred_growth,
    has_resize,
    resized_usage,
    resized_usage_by_container,
    whole_amounts,
)
from flowcore.api.pod_specs import DAEMON_SET, SpecReading, controller_of, read_spec
from flowcore.api.shared_gpus import asks_kai, holds_shared_gpu
from flowcore.model.data import DATA
from flowcore.model.errors import ModelError
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import (
    DO_NOT_DISRUPT,
    DURING_EXECUTION,
    EVICTABLE,
    GATE,
    SAFE_TO_EVICT,
    DuringExecution,
)
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resource_claims import ClaimingPod
from flowcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Amounts, to_amounts

#: Usage of a bound pod whose requests cannot be read: it fills its node, so that no unknown room is given away.
_UNKNOWN_USAGE: Amounts = ((CPU, MAX_AMOUNT), (EPHEMERAL_STORAGE, MAX_AMOUNT), (MEMORY, MAX_AMOUNT))

#: Controllers whose pods stay as long as their node exists. Static pods belong to their Node.
_PERMANENT = frozenset((DAEMON_SET, "Node"))
#: Controllers whose pods kube-scheduler spreads by default (plugins/helper/spread.go).
_SPREADING = frozenset((("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")))
_NO_STATUS = WirePodStatus()
_NOTHING: Amounts = ()
_ENDED = ("Succeeded", "Failed")
#: SystemCriticalPriority (pkg/apis/scheduling/types.go).
_SYSTEM_CRITICAL = 2_000_000_000
_MAX_NAME = 253
#: Message of the API server on each pod that is created with a gate (strategy.go, applySchedulingGatedCondition).
_GATED_AT_CREATION = "Scheduling is blocked due to non-empty scheduling gates"


def to_pod(wire: WirePod, intern: Interner) -> Pod:
    """A pod; ``blocked_reason`` and ``unsupported_reason`` say why this engine cannot place it."""
    reading, node_name = read_spec(wire, intern), wire.spec.node_name or ""
    return to_read_pod(wire.metadata, node_name, wire.status, reading, intern, wire.spec)


def to_read_pod(
    meta: WirePodMeta,
    node_name: str,
    wire_status: WirePodStatus | None,
    reading: SpecReading,
    intern: Interner,
    spec: WirePodSpec | None = None,
) -> Pod:
    """A pod whose spec was read already.

    Args:
        spec: needed where the kubelet reports other amounts than those of the spec (``is_as_asked``).
    """
    status = _NO_STATUS if wire_status is None else wire_status
    gated = reading.gates == (GATE,)
    deleting = meta.deletion_timestamp is not None
    gates = () if gated else reading.gates
    blocked_reason = _blocked_reason(gates, deleting=deleting)
    blocked_reason = blocked_reason or reading.unreadable
    usage, usage_by_container, grows = reading.requests, None, _NOTHING
    if node_name and reading.unreadable:
        usage = _UNKNOWN_USAGE
    elif node_name and spec is not None and has_resize(status):
        try:
            usage = intern(to_amounts(resized_usage(spec, status)))
            older = to_amounts(resized_usage_by_container(spec, status))
            usage_by_container = None if older == usage else intern(older)
            if not deleting and status.phase not in _ENDED:
                grows = intern(to_amounts(deferred_growth(spec, status)))
        except ModelError:
            usage = reading.requests
    namespace = intern(meta.namespace or "default")
    blocked_reason = blocked_reason or reading.rules_problem
    gang_topology = to_gang_topology(meta.annotations, meta.labels)
    gang, annotation_errors = to_gang(
        reading.scheduling_group, meta.labels, meta.annotations, gang_topology, namespace, intern
    )
    asks_gang, asking_errors = to_asks_gang(meta.annotations)
    annotation_errors = (*annotation_errors, *asking_errors)
    if reading.numa_problem is not None:
        annotation_errors = (*annotation_errors, reading.numa_problem)
    if not node_name and annotation_errors:
        blocked_reason = blocked_reason or "; ".join(str(each) for each in annotation_errors)
    during_execution, bad_rules_annotation = _during_execution(meta.annotations)
    checkpointed, bad_checkpoint = _checkpointed(meta.annotations)
    bad_annotation, annotation_problem = _first_bad(
        annotation_errors, bad_rules_annotation, reading.data_problem, bad_checkpoint
    )
    asks = "" if reading.unsupported_reason else asks_kai(meta.annotations)
    controller = controller_of(meta)
    immovable_reason = _immovable_reason(meta, status, controller, reading) if node_name else ""
    unschedulable = next((c for c in status.conditions or () if c.type == "PodScheduled" and c.status == "False"), None)
    # A pod behind our own gate waits for us; behind another gate it may not be placed. The API server's message about
    # gates dates from the pod's creation, when it may have had another gate.
    tried = unschedulable is not None and (
        unschedulable.reason != "SchedulingGated" or (gated and unschedulable.message != _GATED_AT_CREATION)
    )
    return Pod(
        namespace=namespace,
        name=meta.name,
        uid=meta.uid or "",
        pod_class=_holding_class(reading.pod_class, meta, status) if node_name else reading.pod_class,
        labels=intern(to_labels(meta.labels)),
        scheduler_name=reading.scheduler_name,
        node_name=intern(node_name) if node_name else "",
        created=to_seconds(meta.creation_timestamp),
        generation=meta.generation or 0,
        terminal=status.phase in _ENDED,
        deleting=deleting,
        grace_period=float(meta.deletion_grace_period_seconds or 0),
        usage=usage,
        usage_by_container=usage_by_container,
        grows=grows,
        blocked_reason=intern(blocked_reason) if blocked_reason else "",
        unsupported_reason=reading.unsupported_reason or (intern(asks) if asks else ""),
        over_limit=reading.over_limit,
        gates=intern(gates),
        asks_gpu_share=bool(asks or reading.asks_gpu_share),
        gated=gated,
        nominated_node=status.nominated_node_name or "",
        planned_node=meta.annotations.planned or "" if meta.annotations else "",
        unschedulable_message=intern(unschedulable.message or "") if unschedulable is not None else "",
        unschedulable_reason=intern(unschedulable.reason or "") if unschedulable is not None else "",
        unschedulable_is_old=unschedulable is not None
        and 0 < (unschedulable.observed_generation or 0) < (meta.generation or 0),
        unschedulable_since=to_seconds(unschedulable.last_transition_time)
        if unschedulable is not None and tried
        else 0.0,
        resource_version="" if node_name else meta.resource_version or "",
        constraints=reading.constraints,
        gang=intern(gang) if gang is not None else None,
        gang_topology=intern(gang_topology) if gang_topology is not None else None,
        succeeded=status.phase == "Succeeded",
        owner=intern(controller.uid),
        spread_owner=intern(controller.uid) if (controller.api_version, controller.kind) in _SPREADING else "",
        controller=intern(f"{controller.kind}/{controller.name}") if controller.name else "",
        controller_group=intern(controller.api_version.rpartition("/")[0]),
        group_size=to_group_size(meta.annotations),
        asks_gang=asks_gang,
        permanent=controller.kind in _PERMANENT,
        bad_annotation=bad_annotation,
        annotation_problem=annotation_problem,
        replaces=_replaces(meta.annotations),
        preempts=reading.preempts,
        started=to_seconds(status.start_time) if node_name else 0.0,
        static=meta.annotations is not None and meta.annotations.mirror is not None,
        immovable_reason=intern(immovable_reason),
        kept_by_claims=reading.has_claims and immovable_reason == reading.storage_reason,
        during_execution=during_execution,
        usage_class=reading.usage_class,
        finite=reading.finite,
        checkpointed=checkpointed,
        holds_shared_gpu=holds_shared_gpu(namespace, meta.labels),
        extended=reading.extended,
    )


def _holding_class(pod_class: PodClass, meta: WirePodMeta, status: WirePodStatus) -> PodClass:
    """The class of a pod with a node: devices of its extended resources are those of one more claim of its own."""
    extended = status.extended_resource_claim_status
    if extended is None:
        return pod_class
    claiming = pod_class.devices or ClaimingPod(meta.namespace or "default", meta.name, meta.uid or "")
    return msgspec.structs.replace(pod_class, devices=claiming.with_extended_claim(made=extended.resource_claim_name))


def _first_bad(
    errors: Sequence[ModelError], bad_rules_annotation: str, data_problem: str, bad_checkpoint: ModelError | None
) -> tuple[str, str]:
    """The first annotation that cannot be read, and what is wrong with it, "" where that is said elsewhere."""
    if errors:
        return errors[0].field, ""  # its text is the reason why the pod is blocked
    if bad_rules_annotation:
        return bad_rules_annotation, ""
    if data_problem:
        return f"annotation {DATA}", data_problem
    return ("", "") if bad_checkpoint is None else (bad_checkpoint.field, bad_checkpoint.problem)


def _checkpointed(annotations: WirePodAnnotations | None) -> tuple[float, ModelError | None]:
    """When its work was last saved, 0 where nothing readable is said; and why it cannot be read."""
    text = None if annotations is None else annotations.checkpointed_at
    if text is None:
        return 0.0, None
    try:
        return parse_checkpoint(text), None
    except ModelError as error:
        return 0.0, error


def is_as_asked(status: WirePodStatus | None, reading: SpecReading) -> bool:
    """Whether the kubelet reports the amounts of the spec, or none, so that the pod holds what it requests."""
    if status is None:
        return True
    asked = reading.asked
    if asked is None:
        return not has_resize(status)
    for container in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
        wanted = asked.get(container.name)
        if container.resources is not None and (container.resources.requests or {}) != wanted:
            return False
        if container.allocated_resources and container.allocated_resources != wanted:
            return False
    return status.allocated_resources is None or status.resources is None or _covers(reading, status)


def _covers(reading: SpecReading, status: WirePodStatus) -> bool:
    """Whether a pod requests all that its node reports of it as a whole."""
    requested = dict(reading.requests)
    try:
        reported = whole_amounts(status)
    except ModelError:
        return False
    return all(amount <= requested.get(name, 0) for amounts in reported for name, amount in to_amounts(amounts))


def _during_execution(annotations: WirePodAnnotations | None) -> tuple[DuringExecution | None, str]:
    """What the annotation says, and the field if it cannot be read: then the pod is left alone."""
    text = None if annotations is None else annotations.during_execution
    if text is None:
        return None, ""
    try:
        return DuringExecution(text), ""
    except ValueError:
        return DuringExecution.IGNORE, f"annotation {DURING_EXECUTION}"


def _immovable_reason(meta: WirePodMeta, status: WirePodStatus, controller: WireOwner, reading: SpecReading) -> str:
    """Why a running pod is never moved, "" where it may be: at least what the descheduler's DefaultEvictor spares."""
    annotations = meta.annotations
    # Every API server writes the time of creation; manifests by hand often say nothing of time.
    if status.phase == "Pending" and status.start_time is None and meta.creation_timestamp is not None:
        return "it has not started yet"
    if annotations is not None and annotations.mirror is not None:
        return "it is a static pod"
    if not controller.uid:
        return "no controller would replace it"
    if controller.kind in _PERMANENT:
        return f"it belongs to a {controller.kind}"
    if reading.pod_class.priority >= _SYSTEM_CRITICAL:
        return "it is system-critical"
    return _annotated_reason(annotations) or reading.storage_reason


def _annotated_reason(annotations: WirePodAnnotations | None) -> str:
    """The annotation that keeps a pod where it is, ours or one of Cluster Autoscaler or Karpenter; "": none does."""
    if annotations is None:
        return ""
    # Karpenter takes a time for which this holds, too: the pod stays then for good.
    kept = annotations.do_not_disrupt not in (None, "", "false")
    for name, says_so in (
        (EVICTABLE, annotations.evictable == "false"),
        (SAFE_TO_EVICT, annotations.safe_to_evict == "false"),
        (DO_NOT_DISRUPT, kept),
    ):
        if says_so:
            return f"its annotation {name} says so"
    if annotations.evictable not in (None, "true"):
        return f"its annotation {EVICTABLE} is neither true nor false"
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


def _blocked_reason(gates: Sequence[str], *, deleting: bool) -> str:
    """Why the pod may not be placed now; "": it may be."""
    if deleting:
        return "it is being deleted"
    if gates:
        return "its scheduling gates are closed: " + ", ".join(gates)
    return ""
