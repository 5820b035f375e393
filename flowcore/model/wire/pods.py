"""Pods."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.model.devices import needs_devices
from flowcore.model.errors import ModelError
from flowcore.model.pods import Pod, PodClass, PreferredTerm, Toleration
from flowcore.model.policies import GATE
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, Amounts, to_amounts
from flowcore.model.volumes import ClaimVolume, Disk, Volumes
from flowcore.model.wire.base import Interner, Wire, to_labels, to_seconds
from flowcore.model.wire.features import needed_features
from flowcore.model.wire.gangs import to_gang
from flowcore.model.wire.limits import over_limit
from flowcore.model.wire.pod_objects import (
    WireNodeAffinity,
    WireOwner,
    WirePod,
    WirePodAnnotations,
    WirePodSpec,
    WirePodStatus,
)
from flowcore.model.wire.requests import has_resize, host_ports_of, images_of, requests_of
from flowcore.model.wire.rules import only_for_others, to_rules
from flowcore.model.wire.selectors import to_node_term
from flowcore.model.wire.volumes import to_volumes

#: What a bound pod counts for whose requests cannot be read: room that is not known to be free is not given away.
_UNKNOWN_USAGE: Amounts = ((CPU, MAX_AMOUNT), (EPHEMERAL_STORAGE, MAX_AMOUNT), (MEMORY, MAX_AMOUNT))

#: Kinds of controllers whose pods stay on their node as long as it exists; Node controls static pods.
_PERMANENT = frozenset(("DaemonSet", "Node"))
_NO_OWNER = WireOwner()
_LONGEST_NAME = 253
#: What the API server writes on each pod that is created with a gate (strategy.go, applySchedulingGatedCondition).
_GATED_AT_CREATION = "Scheduling is blocked due to non-empty scheduling gates"


def to_pod(wire: WirePod, intern: Interner) -> Pod:
    """A pod; whatever keeps this engine from placing it is said in ``blocked``."""
    meta, spec, status = wire.metadata, wire.spec, wire.status or WirePodStatus()
    namespace = meta.namespace or "default"
    node_name = spec.node_name or ""
    volumes = to_volumes(spec.volumes, namespace, meta.name, meta.uid or "") if spec.volumes else ()
    gates = [gate.name for gate in spec.scheduling_gates or ()]
    gated = gates == [GATE]
    deleting = meta.deletion_timestamp is not None
    blocked = _blocked([] if gated else gates, deleting=deleting)
    excess = over_limit(spec, meta.labels or {})
    unjudged = f"it is not planned: {excess}" if excess is not None else _unjudged(spec, volumes)
    requests: Amounts = ()
    unreadable = False
    try:
        requests = intern(to_amounts(requests_of(spec)))
        unjudged = unjudged or needs_devices(requests, {})
    except ModelError as error:
        unreadable = True
        blocked = blocked or str(error)
    usage = requests
    if unreadable and node_name:
        usage = _UNKNOWN_USAGE
    if node_name and not unreadable and has_resize(status):
        try:
            usage = intern(to_amounts(requests_of(spec, status)))
        except ModelError:
            usage = requests
    labels = intern(to_labels(meta.labels))
    rules = to_rules(spec, namespace, labels)
    if rules is not None:
        rules = intern(rules if excess is None else only_for_others(rules))
    if rules is not None and excess is None:
        if rules.unreadable_affinity:
            blocked = blocked or f"{rules.unreadable_affinity}: a selector in it cannot be parsed"
        if rules.unreadable_spread:
            blocked = blocked or f"{rules.unreadable_spread}.labelSelector: it cannot be parsed"
    gang, unread = to_gang(spec.scheduling_group, meta.labels, meta.annotations, namespace, intern)
    if not node_name:
        blocked = blocked or "; ".join(str(each) for each in unread)
    controller = next((owner for owner in meta.owner_references or () if owner.controller), _NO_OWNER)
    told = next((c for c in status.conditions or () if c.type == "PodScheduled" and c.status == "False"), None)
    # Behind our own gate it waits for us; behind another's, nobody may place it. What the API server says of gates it
    # says at creation, and another gate may have been there then.
    tried = told is not None and (told.reason == "Unschedulable" or (gated and told.message != _GATED_AT_CREATION))
    return Pod(
        namespace=namespace,
        name=meta.name,
        uid=meta.uid or "",
        pod_class=intern(_pod_class(spec, requests, volumes) if excess is None else _taken(spec, requests, volumes)),
        labels=labels,
        scheduler_name=spec.scheduler_name or "default-scheduler",
        node_name=node_name,
        created=to_seconds(meta.creation_timestamp),
        terminal=status.phase in ("Succeeded", "Failed"),
        deleting=deleting,
        usage=usage,
        blocked=intern(blocked),
        unjudged=intern(unjudged),
        over_limit="" if excess is None else excess.field,
        unbindable=intern(_unbindable(volumes)),
        gated=gated,
        nominated=status.nominated_node_name or "",
        planned=meta.annotations.planned or "" if meta.annotations else "",
        told=intern(told.message or "" if told is not None else ""),
        tried=to_seconds(told.last_transition_time) if told is not None and tried else 0.0,
        rules=rules,
        gang=intern(gang) if gang is not None else None,
        succeeded=status.phase == "Succeeded",
        owner=intern(controller.uid),
        permanent=controller.kind in _PERMANENT,
        bad_annotation=unread[0].field if unread else "",
        replaces=_replaces(meta.annotations),
    )


def _replaces(said: WirePodAnnotations | None) -> str | None:
    # What is longer than any name is no name: so much of it tells that.
    return None if said is None or said.replaces is None else said.replaces[: _LONGEST_NAME + 1]


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
    """What is left of a pod whose JSON has not the shape that it should have.

    It waits with the problem as its reason. Bound, it is taken to fill its node: what it holds is not known, and
    room that is not known to be free must not be given away.

    Raises:
        msgspec.ValidationError: not even name and node can be read.
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
        blocked=f"it cannot be read: {problem}",
    )


def _pod_class(spec: WirePodSpec, requests: Amounts, volumes: Volumes) -> PodClass:
    node_affinity = (spec.affinity.node_affinity if spec.affinity else None) or WireNodeAffinity()
    required = None
    if node_affinity.required is not None:
        required = tuple(to_node_term(term) for term in node_affinity.required.node_selector_terms or ())
    tolerations = (
        Toleration(t.key or "", t.operator or "", t.value or "", t.effect or "") for t in spec.tolerations or ()
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
        # A pod that has its node brings nothing any more: such pods share their class whatever they run.
        images=() if spec.node_name else images_of(spec),
        containers=0 if spec.node_name else len(spec.containers or ()) + len(spec.init_containers or ()),
    )


def _taken(spec: WirePodSpec, requests: Amounts, volumes: Volumes) -> PodClass:
    """Of a pod that is not planned: what it takes where it runs."""
    return PodClass(
        requests=requests,
        host_ports=host_ports_of(spec),
        node_name=spec.node_name or "",
        priority=spec.priority or 0,
        volumes=volumes,
    )


def _blocked(gates: Sequence[str], *, deleting: bool) -> str:
    """Why nobody may place the pod now, "" when it may be placed."""
    if deleting:
        return "it is being deleted"
    if gates:
        return "its scheduling gates are closed: " + ", ".join(gates)
    return ""


def _unjudged(spec: WirePodSpec, volumes: Volumes) -> str:
    """Why this engine cannot plan the pod, "" when it can.

    It never places what it cannot judge: a rule that is not evaluated here is a reason to wait, not a rule to skip.
    """
    if spec.resource_claims:
        names = ", ".join(claim.name for claim in spec.resource_claims)
        return f"its resource claims ({names}) need kube-scheduler's binding work, which the binder does not do"
    disk = next((volume for volume in volumes if isinstance(volume, Disk)), None)
    if disk is not None:
        return f"its volumes: {disk.plugin} disks without a claim are not decided by this engine yet"
    return ""


def _unbindable(volumes: Volumes) -> str:
    claims = [volume.name for volume in volumes if isinstance(volume, ClaimVolume)]
    if not claims:
        return ""
    names = ", ".join(claims)
    return (
        f"its volume claims ({names}) need kube-scheduler's binding work, which the binder does not do; a policy with "
        "delivery: Extender plans such pods and leaves the binding to kube-scheduler"
    )
