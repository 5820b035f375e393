"""From Kubernetes JSON to model values.

The ``Wire*`` structs name only the fields that scheduling reads; everything else, fields of newer
Kubernetes versions included, is skipped by the decoder. What has the wrong shape (a label that is a
number) raises ``msgspec.ValidationError`` with its path. What has the right shape and cannot be read (a
quantity ``"abc"``) blocks that one pod or node, with the field named, and disturbs no other.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec

from flowcore.model.errors import ModelError
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import HostPort, Pod, PodClass, PreferredTerm, Toleration
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    Amounts,
    NanoList,
    pod_total,
    raise_to,
    read_list,
    to_amounts,
)
from flowcore.model.rules import AffinityTerm, Rules, SpreadConstraint
from flowcore.model.selectors import Labels, LabelSelector, NodeSelectorTerm, Requirement

Quantity = str | int | float
Quantities = dict[str, Quantity]

#: What a bound pod counts for whose requests cannot be read: room that is not known to be free is not given away.
_UNKNOWN_USAGE: Amounts = ((CPU, MAX_AMOUNT), (EPHEMERAL_STORAGE, MAX_AMOUNT), (MEMORY, MAX_AMOUNT))
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Wire(msgspec.Struct, rename="camel", gc=False):
    """Base of the wire structs."""


class WireMeta(_Wire):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    resource_version: str | None = None


class WireRequirement(_Wire):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class WireLabelSelector(_Wire):
    match_labels: dict[str, str] | None = None
    match_expressions: list[WireRequirement] | None = None


class WireNodeSelectorTerm(_Wire):
    match_expressions: list[WireRequirement] | None = None
    match_fields: list[WireRequirement] | None = None


class WireNodeSelector(_Wire):
    node_selector_terms: list[WireNodeSelectorTerm | None] | None = None


class WirePreferredTerm(_Wire):
    weight: Int32 = 0
    preference: WireNodeSelectorTerm | None = None


class WireNodeAffinity(_Wire):
    required: WireNodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WirePreferredTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class WirePodAffinityTerm(_Wire):
    topology_key: str = ""
    label_selector: WireLabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: WireLabelSelector | None = None


class WirePreferredPodAffinityTerm(_Wire):
    pod_affinity_term: WirePodAffinityTerm | None = None


class WirePodAffinity(_Wire):
    required: list[WirePodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WirePreferredPodAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class WireAffinity(_Wire):
    node_affinity: WireNodeAffinity | None = None
    pod_affinity: WirePodAffinity | None = None
    pod_anti_affinity: WirePodAffinity | None = None


class WireToleration(_Wire):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class WireResources(_Wire):
    requests: Quantities | None = None


class WirePort(_Wire):
    host_port: Int32 | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class WireContainer(_Wire):
    name: str = ""
    resources: WireResources | None = None
    ports: list[WirePort] | None = None
    restart_policy: str | None = None


class WireClaimSource(_Wire):
    claim_name: str = ""


class WireAnything(_Wire):
    """An object whose being there is all that is read."""


class WireVolume(_Wire):
    name: str = ""
    persistent_volume_claim: WireClaimSource | None = None
    ephemeral: WireAnything | None = None


class WireGate(_Wire):
    name: str = ""


class WireSpread(_Wire):
    topology_key: str = ""
    when_unsatisfiable: str = ""
    max_skew: Int32 = 0
    min_domains: Int32 | None = None
    label_selector: WireLabelSelector | None = None
    match_label_keys: list[str] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class WirePodSpec(_Wire):
    containers: list[WireContainer] | None = None
    init_containers: list[WireContainer] | None = None
    resources: WireResources | None = None
    overhead: Quantities | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: WireAffinity | None = None
    tolerations: list[WireToleration] | None = None
    priority: Int32 | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[WireGate] | None = None
    resource_claims: list[WireGate] | None = None
    volumes: list[WireVolume] | None = None
    topology_spread_constraints: list[WireSpread] | None = None


class WireCondition(_Wire):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class WireContainerStatus(_Wire):
    name: str = ""
    resources: WireResources | None = None
    allocated_resources: Quantities | None = None


class WirePodStatus(_Wire):
    phase: str | None = None
    conditions: list[WireCondition] | None = None
    container_statuses: list[WireContainerStatus] | None = None
    init_container_statuses: list[WireContainerStatus] | None = None
    resources: WireResources | None = None
    allocated_resources: Quantities | None = None


class WirePod(_Wire):
    metadata: WireMeta
    spec: WirePodSpec
    status: WirePodStatus | None = None


class WireTaint(_Wire):
    key: str = ""
    value: str | None = None
    effect: str | None = None


class WireNodeSpec(_Wire):
    unschedulable: bool | None = None
    taints: list[WireTaint] | None = None


class WireNodeStatus(_Wire):
    allocatable: Quantities | None = None


class WireNode(_Wire):
    metadata: WireMeta
    spec: WireNodeSpec | None = None
    status: WireNodeStatus | None = None


class WireNamespace(_Wire):
    metadata: WireMeta


_T = TypeVar("_T")


class Interner:
    """Makes equal values the same object.

    Pods of one owner repeat their class, labels and usage; sharing them is what keeps a snapshot of
    150,000 pods small. Labels and messages of pods long gone would pile up: past ``most`` entries it forgets
    them all and begins again; what is in use stays as it is.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._known: dict[Any, Any] = {}
        self._most = most

    def __call__(self, value: _T) -> _T:
        if len(self._known) >= self._most:
            self._known.clear()
        return self._known.setdefault(value, value)  # type: ignore[no-any-return]


def to_labels(labels: dict[str, str] | None) -> Labels:
    """Sorted pairs, as all model values carry labels."""
    return tuple(sorted(labels.items())) if labels else ()


def to_node(wire: WireNode, intern: Interner) -> Node:
    """A node; an allocatable that does not parse makes ``problem`` name it."""
    spec, status, problem = wire.spec or WireNodeSpec(), wire.status or WireNodeStatus(), ""
    allocatable: Amounts = ()
    try:
        allocatable = to_amounts(read_list(status.allocatable, "status.allocatable"))
    except ModelError as error:
        problem = f"node's {error}"
    return Node(
        name=wire.metadata.name,
        uid=wire.metadata.uid or "",
        labels=to_labels(wire.metadata.labels),
        taints=tuple(Taint(t.key, t.value or "", t.effect or "") for t in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        allocatable=intern(allocatable),
        problem=problem,
    )


def to_pod(wire: WirePod, intern: Interner) -> Pod:
    """A pod; whatever keeps this engine from placing it is said in ``blocked``."""
    meta, spec, status = wire.metadata, wire.spec, wire.status or WirePodStatus()
    namespace = meta.namespace or "default"
    node_name = spec.node_name or ""
    blocked = _blocked(spec, deleting=meta.deletion_timestamp is not None)
    requests: Amounts = ()
    unreadable = False
    try:
        requests = intern(to_amounts(_requests(spec)))
    except ModelError as error:
        unreadable = True
        blocked = blocked or str(error)
    usage = requests
    if unreadable and node_name:
        usage = _UNKNOWN_USAGE
    if node_name and not unreadable and _has_resize(status):
        try:
            usage = intern(to_amounts(_requests(spec, status)))
        except ModelError:
            usage = requests
    labels = intern(to_labels(meta.labels))
    rules = _rules(spec, namespace, labels)
    anti_affinity: tuple[AffinityTerm, ...] = ()
    if rules is not None:
        rules = intern(rules)
        if rules.unreadable_affinity:
            blocked = blocked or f"{rules.unreadable_affinity}: a selector in it cannot be parsed"
        anti_affinity = intern(rules.anti_affinity)
    told = next(
        (c.message or "" for c in status.conditions or () if c.type == "PodScheduled" and c.status == "False"), ""
    )
    return Pod(
        namespace=namespace,
        name=meta.name,
        uid=meta.uid or "",
        pod_class=intern(_pod_class(spec, requests)),
        labels=labels,
        scheduler_name=spec.scheduler_name or "default-scheduler",
        node_name=node_name,
        created=_seconds(meta.creation_timestamp),
        terminal=status.phase in ("Succeeded", "Failed"),
        deleting=meta.deletion_timestamp is not None,
        usage=usage,
        blocked=intern(blocked),
        told=intern(told),
        required_anti_affinity=anti_affinity,
        rules=rules,
    )


def _seconds(when: datetime | None) -> float:
    """Seconds since the epoch; a time without a zone is UTC, as all of Kubernetes' are."""
    if when is None:
        return 0.0
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()


class _WirePlace(_Wire):
    node_name: str | None = None
    scheduler_name: str | None = None


class _WirePlacedPod(_Wire):
    metadata: WireMeta
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
        created=_seconds(wire.metadata.creation_timestamp),
        usage=_UNKNOWN_USAGE,
        blocked=f"it cannot be read: {problem}",
    )


def to_label_selector(wire: WireLabelSelector) -> LabelSelector:
    """metav1.LabelSelector to a conjunction of requirements."""
    labels = tuple(Requirement(key, "In", (value,)) for key, value in sorted((wire.match_labels or {}).items()))
    return LabelSelector(labels + _requirements(wire.match_expressions))


def _requirements(wire: list[WireRequirement] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in wire or ())


def _term(wire: WireNodeSelectorTerm | None) -> NodeSelectorTerm:
    if wire is None:
        return NodeSelectorTerm()
    return NodeSelectorTerm(_requirements(wire.match_expressions), _requirements(wire.match_fields))


def _rules(spec: WirePodSpec, namespace: str, labels: Labels) -> Rules | None:
    """What the pod demands of the pods around it, None when it demands nothing."""
    if spec.affinity is None and not spec.topology_spread_constraints:
        return None
    affinity = spec.affinity or WireAffinity()
    sides = ((affinity.pod_affinity, "podAffinity"), (affinity.pod_anti_affinity, "podAntiAffinity"))
    terms: list[tuple[AffinityTerm, ...]] = []
    unreadable_affinity = ""
    for wire, name in sides:
        own = wire or WirePodAffinity()
        required = tuple(_affinity_term(term, namespace) for term in own.required or ())
        # Preferred terms decide nothing here, but kube-scheduler refuses the pod if it cannot parse one (NewPodInfo).
        preferred = tuple(
            _affinity_term(each.pod_affinity_term or WirePodAffinityTerm(), namespace) for each in own.preferred or ()
        )
        if not all(map(_is_readable, required + preferred)):
            unreadable_affinity = unreadable_affinity or f"spec.affinity.{name}"
        # One that cannot be parsed voids them all (framework GetAffinityTerms).
        terms.append(required if all(map(_is_readable, required)) else ())
    hard = [
        (_spread(wire, labels), f"spec.topologySpreadConstraints[{at}]")
        for at, wire in enumerate(spec.topology_spread_constraints or ())
        if wire.when_unsatisfiable == "DoNotSchedule"
    ]
    unreadable_spread = next(
        (field for spread, field in hard if spread.selector is not None and not spread.selector.is_valid), ""
    )
    if not (terms[0] or terms[1] or hard or unreadable_affinity):
        return None
    return Rules(
        namespace=namespace,
        labels=labels,
        affinity=terms[0],
        anti_affinity=terms[1],
        spread=() if unreadable_spread else tuple(spread for spread, _ in hard),
        unreadable_affinity=unreadable_affinity,
        unreadable_spread=unreadable_spread,
    )


def _is_readable(term: AffinityTerm) -> bool:
    return all(selector is None or selector.is_valid for selector in (term.selector, term.namespace_selector))


def _affinity_term(wire: WirePodAffinityTerm, namespace: str) -> AffinityTerm:
    selector = None if wire.label_selector is None else to_label_selector(wire.label_selector)
    own = (namespace,) if not wire.namespaces and wire.namespace_selector is None else ()
    return AffinityTerm(
        topology_key=wire.topology_key,
        selector=selector,
        namespaces=tuple(wire.namespaces or own),
        namespace_selector=None if wire.namespace_selector is None else to_label_selector(wire.namespace_selector),
    )


def _spread(wire: WireSpread, labels: Labels) -> SpreadConstraint:
    selector = None
    if wire.label_selector is not None:
        keys = wire.match_label_keys or ()
        merged = tuple(Requirement(key, "In", (value,)) for key, value in labels if key in keys)
        selector = LabelSelector(merged + to_label_selector(wire.label_selector).requirements)
    return SpreadConstraint(
        topology_key=wire.topology_key,
        max_skew=wire.max_skew,
        selector=selector,
        min_domains=1 if wire.min_domains is None else wire.min_domains,
        honors_affinity=wire.node_affinity_policy in (None, "Honor"),
        honors_taints=wire.node_taints_policy == "Honor",
    )


def _pod_class(spec: WirePodSpec, requests: Amounts) -> PodClass:
    node_affinity = (spec.affinity.node_affinity if spec.affinity else None) or WireNodeAffinity()
    required = None
    if node_affinity.required is not None:
        required = tuple(_term(term) for term in node_affinity.required.node_selector_terms or ())
    tolerations = (
        Toleration(t.key or "", t.operator or "", t.value or "", t.effect or "") for t in spec.tolerations or ()
    )
    return PodClass(
        requests=requests,
        node_selector=to_labels(spec.node_selector),
        required_affinity=required,
        preferred_affinity=tuple(PreferredTerm(p.weight, _term(p.preference)) for p in node_affinity.preferred or ()),
        tolerations=tuple(tolerations),
        host_ports=_host_ports(spec),
        node_name=spec.node_name or "",
        priority=spec.priority or 0,
    )


def _host_ports(spec: WirePodSpec) -> tuple[HostPort, ...]:
    """Ports that the pod holds for as long as it runs: app containers and sidecars."""
    containers = [c for c in spec.init_containers or () if c.restart_policy == "Always"] + (spec.containers or [])
    ports = {
        HostPort(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 - a value, not a bind
        for container in containers
        for port in container.ports or ()
        if port.host_port is not None and port.host_port > 0
    }
    return tuple(sorted(ports))


def _requests(spec: WirePodSpec, status: WirePodStatus | None = None) -> NanoList:
    """What the pod asks for; with ``status``, what it holds while it is resized in place (KEP-1287)."""
    held: dict[str, WireContainerStatus] = {}
    infeasible = False
    if status is not None:
        held = {s.name: s for s in (status.container_statuses or []) + (status.init_container_statuses or [])}
        infeasible = any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions or ())

    def effective(asked: NanoList, actual: NanoList, allocated: NanoList) -> NanoList:
        result: NanoList = {} if infeasible else dict(asked)
        raise_to(result, actual)
        raise_to(result, allocated)
        return result

    def container(wire: WireContainer, field: str, *, resizable: bool) -> NanoList:
        asked = read_list(wire.resources.requests if wire.resources else None, f"{field}.resources.requests")
        seen = held.get(wire.name)
        if not resizable or seen is None or seen.resources is None:
            return asked
        where = f"status.containerStatuses[{wire.name}]"
        return effective(
            asked,
            read_list(seen.resources.requests, f"{where}.resources.requests"),
            read_list(seen.allocated_resources, f"{where}.allocatedResources"),
        )

    containers = [container(c, f"spec.containers[{i}]", resizable=True) for i, c in enumerate(spec.containers or ())]
    init_containers = [
        (
            container(c, f"spec.initContainers[{i}]", resizable=c.restart_policy == "Always"),
            c.restart_policy == "Always",
        )
        for i, c in enumerate(spec.init_containers or ())
    ]
    pod_level = read_list(spec.resources.requests if spec.resources else None, "spec.resources.requests")
    if pod_level and status is not None and status.resources is not None:
        actual = read_list(status.resources.requests, "status.resources.requests")
        allocated = read_list(status.allocated_resources, "status.allocatedResources")
        resized = effective(pod_level, actual, allocated)
        pod_level = {name: resized.get(name, 0) for name in pod_level}
    return pod_total(containers, init_containers, pod_level, read_list(spec.overhead, "spec.overhead"))


def _has_resize(status: WirePodStatus) -> bool:
    reported = (status.container_statuses or []) + (status.init_container_statuses or [])
    return status.resources is not None or any(s.resources is not None for s in reported)


def _blocked(spec: WirePodSpec, *, deleting: bool) -> str:
    """Why this engine must not place the pod, "" when it may.

    It never binds what it cannot judge: a rule that is not evaluated here is a reason to wait, not a rule to skip.
    """
    if deleting:
        return "it is being deleted"
    if spec.scheduling_gates:
        return "its scheduling gates are closed: " + ", ".join(gate.name for gate in spec.scheduling_gates)
    if spec.resource_claims:
        names = ", ".join(claim.name for claim in spec.resource_claims)
        return f"its resource claims ({names}) need kube-scheduler's binding work, which the binder does not do"
    claims = [v.persistent_volume_claim.claim_name for v in spec.volumes or () if v.persistent_volume_claim]
    claims += [v.name for v in spec.volumes or () if v.ephemeral is not None]
    if claims:
        names = ", ".join(claims)
        return f"its volume claims ({names}) need kube-scheduler's binding work, which the binder does not do"
    affinity = spec.affinity or WireAffinity()
    for rule, name in ((affinity.pod_affinity, "podAffinity"), (affinity.pod_anti_affinity, "podAntiAffinity")):
        if rule is not None and rule.required:
            return f"spec.affinity.{name}: required rules between pods are not decided by this engine yet"
    for index, spread in enumerate(spec.topology_spread_constraints or ()):
        if spread.when_unsatisfiable == "DoNotSchedule":
            return f"spec.topologySpreadConstraints[{index}]: DoNotSchedule is not decided by this engine yet"
    return ""
