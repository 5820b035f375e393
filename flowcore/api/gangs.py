"""Gangs, from pods and PodGroup objects.

Sources: k8s.io/api core/v1 PodSchedulingGroup and scheduling/v1alpha2 PodGroup; sigs.k8s.io/scheduler-plugins
apis/scheduling/v1alpha1; volcano.sh/apis scheduling/v1beta1; koordinator's apis/extension/coscheduling.go; kueue's
pkg/controller/jobs/pod/constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from flowcore.api.annotation_texts import MAX_INT32, annotation, shortened, whole_number
from flowcore.api.base import Int32, Interner, Wire, WireMeta
from flowcore.api.durations import parse_seconds
from flowcore.api.gang_topology import WireTopologyAnnotations, to_gang_topology
from flowcore.api.hyper_nodes import WireSubGroup, WireTierLimit, to_sub_groups, to_tier_limit
from flowcore.api.named_claims import WireNamedClaim, to_pod_claims
from flowcore.model.errors import ModelError
from flowcore.model.gang_spec import (
    GANG,
    GANG_GROUP,
    GANG_MIN_MEMBER,
    GANG_OF_CONTROLLER,
    GROUP_SIZE,
    KOORDINATOR_GROUPS,
    KOORDINATOR_MIN_AVAILABLE,
    KOORDINATOR_NAME,
    KOORDINATOR_TIMEOUT,
    KUEUE_FAST_ADMISSION,
    KUEUE_GROUP,
    KUEUE_SERVING,
    KUEUE_TOTAL_COUNT,
    MAX_GANGS_IN_GROUP,
    MAX_GROUP_BYTES,
    POD_GROUP_LABELS,
    SCHEDULED_CONDITIONS,
    VOLCANO_GROUP,
    VOLCANO_GROUP_OLDER,
    GangKey,
    GangRef,
    GangSource,
    GangSpec,
    GroupCondition,
    PodGroup,
)
from flowcore.model.gang_topology import GangTopology
from flowcore.model.hyper_nodes import SubGroup
from flowcore.model.selectors import TOPOLOGY_SEPARATOR

#: One more than the longest name: a longer text is no name and need not be kept whole.
_MAX_KEPT = 254
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class WireSchedulingGroup(Wire):
    pod_group_name: str | None = None


class WireGangAnnotations(WireTopologyAnnotations):
    """The annotations about gangs, on pods and on PodGroup objects."""

    gang: str | None = msgspec.field(default=None, name=GANG)
    least: str | None = msgspec.field(default=None, name=GANG_MIN_MEMBER)
    group: str | None = msgspec.field(default=None, name=GANG_GROUP)
    volcano: str | None = msgspec.field(default=None, name=VOLCANO_GROUP)
    volcano_older: str | None = msgspec.field(default=None, name=VOLCANO_GROUP_OLDER)
    koordinator: str | None = msgspec.field(default=None, name=KOORDINATOR_NAME)
    koordinator_least: str | None = msgspec.field(default=None, name=KOORDINATOR_MIN_AVAILABLE)
    koordinator_groups: str | None = msgspec.field(default=None, name=KOORDINATOR_GROUPS)
    koordinator_timeout: str | None = msgspec.field(default=None, name=KOORDINATOR_TIMEOUT)
    kueue_total: str | None = msgspec.field(default=None, name=KUEUE_TOTAL_COUNT)
    kueue_fast: str | None = msgspec.field(default=None, name=KUEUE_FAST_ADMISSION)
    kueue_serving: str | None = msgspec.field(default=None, name=KUEUE_SERVING)
    group_size: str | None = msgspec.field(default=None, name=GROUP_SIZE)
    of_controller: str | None = msgspec.field(default=None, name=GANG_OF_CONTROLLER)


def to_gang(
    group: WireSchedulingGroup | None,
    labels: dict[str, str] | None,
    annotations: WireGangAnnotations | None,
    topology: GangTopology | None,
    namespace: str,
    intern: Interner,
) -> tuple[GangRef | None, tuple[ModelError, ...]]:
    """The gang of a pod, and the errors in its annotations.

    The first source that names a gang counts; the others are not read. An annotation with an error counts as absent.

    Args:
        topology: what the pod's annotations say of it (``to_gang_topology``).
    """
    key = _gang_key(group, labels, annotations, namespace)
    if key is None:
        return None, ()
    if annotations is None or key.source.has_pod_groups:
        return GangRef(key), ()
    problems: list[ModelError] = []
    if key.source is GangSource.KOORDINATOR:
        spec = _koordinator_spec(key, annotations, problems)
    elif key.source is GangSource.KUEUE:
        spec = _kueue_spec(annotations, problems)
    else:
        spec = _own_spec(key, annotations, topology or GangTopology(), problems)
        if _NAME.fullmatch(key.name) is None:
            problems.insert(0, ModelError(annotation(GANG), f'"{shortened(key.name)}" is no name of a gang'))
    # All gangs of a group name the same gangs: they share one value.
    spec = msgspec.structs.replace(spec, group=intern(spec.group)) if spec.group else spec
    return GangRef(key, spec), tuple(problems)


def to_group_size(annotations: WireGangAnnotations | None) -> int:
    """How many pods a LeaderWorkerSet's annotation says are in the group of a pod; 0: nothing readable is said."""
    text = None if annotations is None else annotations.group_size
    if text is None or re.fullmatch(r"[0-9]{1,10}", text) is None:
        return 0
    return min(int(text), MAX_INT32)


def to_asks_gang(annotations: WireGangAnnotations | None) -> tuple[bool, tuple[ModelError, ...]]:
    """Whether a pod asks to be in the gang of its controller, and what is wrong with that annotation."""
    text = None if annotations is None else annotations.of_controller
    if text in (None, "true", "false"):
        return text == "true", ()
    return False, (ModelError(annotation(GANG_OF_CONTROLLER), f'"{shortened(text or "")}" is neither true nor false'),)


def _gang_key(
    group: WireSchedulingGroup | None,
    labels: dict[str, str] | None,
    annotations: WireGangAnnotations | None,
    namespace: str,
) -> GangKey | None:
    if group is not None and group.pod_group_name:
        return GangKey(GangSource.NATIVE, namespace, group.pod_group_name)
    for label in POD_GROUP_LABELS if labels else ():
        if labels and labels.get(label):
            return GangKey(GangSource.COSCHEDULING, namespace, labels[label])
    if annotations is None:
        return None
    if name := annotations.volcano or annotations.volcano_older:
        return GangKey(GangSource.VOLCANO, namespace, name[:_MAX_KEPT])
    if annotations.koordinator:
        return GangKey(GangSource.KOORDINATOR, namespace, annotations.koordinator[:_MAX_KEPT])
    if annotations.gang is not None:
        return GangKey(GangSource.THALWEG, namespace, annotations.gang[:_MAX_KEPT])
    if labels and labels.get(KUEUE_GROUP) and annotations.kueue_total is not None and not _may_grow(annotations):
        return GangKey(GangSource.KUEUE, namespace, labels[KUEUE_GROUP])
    return None


def _may_grow(annotations: WireGangAnnotations) -> bool:
    """Whether a group of Kueue runs before all of its pods exist, as those that it makes for a StatefulSet do."""
    return "true" in (annotations.kueue_fast, annotations.kueue_serving)


def _koordinator_spec(key: GangKey, annotations: WireGangAnnotations, problems: list[ModelError]) -> GangSpec:
    min_member: int | None = None
    group: tuple[GangKey, ...] = ()
    timeout: int | None = None
    try:
        if annotations.koordinator_least is not None:
            min_member = whole_number(KOORDINATOR_MIN_AVAILABLE, annotations.koordinator_least)
    except ModelError as error:
        problems.append(error)
    try:
        group = _json_group(key, annotations.koordinator_groups)
    except ModelError as error:
        problems.append(error)
    try:
        if annotations.koordinator_timeout:
            timeout = _duration(KOORDINATOR_TIMEOUT, annotations.koordinator_timeout)
    except ModelError as error:
        problems.append(error)
    return GangSpec(min_member=min_member, group=group, timeout=timeout)


def _kueue_spec(annotations: WireGangAnnotations, problems: list[ModelError]) -> GangSpec:
    try:
        return GangSpec(min_member=whole_number(KUEUE_TOTAL_COUNT, annotations.kueue_total or ""))
    except ModelError as error:
        problems.append(error)
    return GangSpec()


def _own_spec(
    key: GangKey, annotations: WireGangAnnotations, topology: GangTopology, problems: list[ModelError]
) -> GangSpec:
    min_member: int | None = None
    group: tuple[GangKey, ...] = ()
    try:
        if annotations.least is not None:
            min_member = whole_number(GANG_MIN_MEMBER, annotations.least)
    except ModelError as error:
        problems.append(error)
    try:
        group = _group(key, annotations.group)
    except ModelError as error:
        problems.append(error)
    return GangSpec(min_member=min_member, topology_key=topology.required, group=group)


# --- PodGroup objects ---


class _WireGangPolicy(Wire):
    min_count: int = 0


class _WireSchedulingPolicy(Wire):
    gang: _WireGangPolicy | None = None


class _WireTopology(Wire):
    key: str = ""


class WireSchedulingConstraints(Wire):
    topology: list[_WireTopology] | None = None


def topology_of(constraints: WireSchedulingConstraints | None) -> str:
    """The topology of a PodGroup or a CompositePodGroup; "": it has none."""
    keys = [topology.key for topology in (constraints.topology if constraints else None) or () if topology.key]
    return TOPOLOGY_SEPARATOR.join(dict.fromkeys(keys))


class WirePodGroupSpec(Wire):
    """Fields of all sources: the last four are of the coscheduling plugin and Volcano, the others of Kubernetes.

    ``disruption_mode`` is a text in v1alpha2 (Pod, PodGroup), and an object later ({"single": {}}, {"all": {}}).
    """

    scheduling_policy: _WireSchedulingPolicy | None = None
    scheduling_constraints: WireSchedulingConstraints | None = None
    disruption_mode: str | dict[str, object] | None = None
    priority_class_name: str | None = None
    priority: Int32 | None = None
    preemption_policy: str | None = None
    parent_composite_pod_group_name: str | None = None
    resource_claims: list[WireNamedClaim] | None = None
    min_member: int | None = None
    schedule_timeout_seconds: int | None = None
    network_topology: WireTierLimit | None = None
    sub_group_policy: list[WireSubGroup] | None = None


class _WireGroupOwner(Wire):
    uid: str = ""
    controller: bool | None = None


class _WireCondition(Wire):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class WirePodGroupStatus(Wire):
    #: Read of Kubernetes' own source only: others may have another shape.
    conditions: object = None
    #: Read of Volcano's source only.
    phase: object = None


class WirePodGroupMeta(WireMeta):
    annotations: WireGangAnnotations | None = None
    generation: int | None = None
    owner_references: list[_WireGroupOwner] | None = None


class WirePodGroup(Wire):
    metadata: WirePodGroupMeta
    spec: WirePodGroupSpec | None = None
    status: WirePodGroupStatus | None = None


def to_pod_group(wire: WirePodGroup, source: GangSource, intern: Interner) -> PodGroup:
    """A PodGroup; ``problem`` names the fields that cannot be read.

    Volcano's minTaskMember, minResources and queue are not read; nor are priority and status of other sources than
    Kubernetes' own, but for Volcano's phase.
    """
    meta, spec = wire.metadata, wire.spec or WirePodGroupSpec()
    key = GangKey(source, meta.namespace or "default", meta.name)
    annotations = meta.annotations or WireGangAnnotations()
    problems: list[str] = []
    timeout: int | None = None
    topology, group = "", tuple[GangKey, ...]()
    is_native = source is GangSource.NATIVE
    if is_native:
        gang = spec.scheduling_policy.gang if spec.scheduling_policy is not None else None
        # Pods of the basic policy are placed independently.
        min_member = gang.min_count if gang is not None else 0
        topology = topology_of(spec.scheduling_constraints)
    else:
        min_member = spec.min_member or 0
        if source is GangSource.COSCHEDULING and (spec.schedule_timeout_seconds or 0) > 0:
            timeout = spec.schedule_timeout_seconds
    try:
        group = _group(key, annotations.group)
        if source is GangSource.COSCHEDULING and not group:
            group = _json_group(key, annotations.koordinator_groups)
    except ModelError as error:
        problems.append(str(error))
    levels = to_gang_topology(annotations) or GangTopology()
    if levels.unreadable:
        problems.append(levels.unreadable)
    limit, sub_groups = levels.limit, tuple[SubGroup, ...]()
    try:
        if source is GangSource.VOLCANO and spec.network_topology is not None:
            limit = to_tier_limit(spec.network_topology, "spec.networkTopology")
        if source is GangSource.VOLCANO:
            sub_groups = to_sub_groups(spec.sub_group_policy or [], "spec.subGroupPolicy")
    except ModelError as error:
        problems.append(str(error))
    mode = spec.disruption_mode
    gang_spec = GangSpec(
        min_member=max(0, min(min_member, MAX_INT32)),
        topology_key=topology or levels.required,
        preferred=levels.preferred,
        slice_key=levels.slice_key,
        slice_size=levels.slice_size,
        group=group,
        timeout=timeout,
        evicted_whole=mode == "PodGroup" or (isinstance(mode, dict) and mode.get("all") is not None),
        priority=spec.priority if is_native else None,
        preempts=spec.preemption_policy != "Never" if is_native and spec.preemption_policy else None,
        limit=limit,
        sub_groups=sub_groups,
    )
    group_object = PodGroup(key, intern(gang_spec), "; ".join(problems))
    if source is GangSource.VOLCANO:
        return _with_phase(group_object, wire)
    if not is_native:
        return group_object
    return msgspec.structs.replace(
        group_object,
        parent=spec.parent_composite_pod_group_name or "",
        uid=meta.uid or "",
        claims=to_pod_claims(spec.resource_claims),
        generation=meta.generation or 0,
        conditions=_conditions(wire.status.conditions if wire.status is not None else None),
    )


def _conditions(conditions: object) -> tuple[GroupCondition, ...]:
    """What a status says of the group's scheduling; () where it cannot be read: no plan depends on it."""
    try:
        read = msgspec.convert(conditions, type=list[_WireCondition] | None) or ()
    except msgspec.ValidationError:
        return ()
    wanted = set(SCHEDULED_CONDITIONS.values())
    return tuple(
        GroupCondition(each.type, each.status, each.reason, each.message, each.observed_generation)
        for each in read
        if each.type in wanted
    )


def _with_phase(group: PodGroup, wire: WirePodGroup) -> PodGroup:
    """A PodGroup of Volcano, with what its controller waits for before it makes the pods of a Job."""
    meta = wire.metadata
    owner = next((each.uid for each in meta.owner_references or () if each.controller), "")
    phase = wire.status.phase if wire.status is not None else None
    return msgspec.structs.replace(
        group, uid=meta.uid or "", owner=owner, phase=phase if isinstance(phase, str) else ""
    )


class _WireNamed(Wire):
    metadata: WireMeta


def to_unreadable_pod_group(raw: bytes, source: GangSource, problem: str) -> PodGroup:
    """A PodGroup whose JSON has the wrong shape. Its pods wait, with the problem as the reason.

    Raises:
        msgspec.ValidationError: the name cannot be read either.
    """
    meta = msgspec.json.decode(raw, type=_WireNamed).metadata
    # Without uid: what its status says is not known, so nobody writes it.
    return PodGroup(GangKey(source, meta.namespace or "default", meta.name), GangSpec(), problem)


# --- annotations ---


def _check_length(name: str, text: str) -> None:
    if len(text) > MAX_GROUP_BYTES or len(text.encode(errors="replace")) > MAX_GROUP_BYTES:
        raise ModelError(annotation(name), f"it is longer than {MAX_GROUP_BYTES // 1024} KiB")


def _duration(name: str, text: str) -> int:
    seconds = parse_seconds(text)
    if seconds is None:
        raise ModelError(annotation(name), f'"{shortened(text)}" is no duration')
    return max(1, seconds)


def _group(key: GangKey, text: str | None) -> tuple[GangKey, ...]:
    """Gangs as a comma-separated list of name or namespace/name."""
    if text is None:
        return ()
    _check_length(GANG_GROUP, text)
    return _keys(key, GANG_GROUP, [each.strip() for each in text.split(",")])


def _json_group(key: GangKey, text: str | None) -> tuple[GangKey, ...]:
    """Gangs as a JSON list of namespace/name."""
    if not text:
        return ()
    _check_length(KOORDINATOR_GROUPS, text)
    try:
        names = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelError(annotation(KOORDINATOR_GROUPS), f'"{shortened(text)}" is no JSON list of names') from error
    return _keys(key, KOORDINATOR_GROUPS, names)


def _keys(key: GangKey, by: str, names: Iterable[str]) -> tuple[GangKey, ...]:
    """The named gangs and the gang that names them, all of one source; () where no other gang is named."""
    keys = {key}
    for written in names:
        namespace, slash, name = written.rpartition("/")
        if _NAME.fullmatch(name) is None or (slash and _NAME.fullmatch(namespace) is None):
            raise ModelError(annotation(by), f'"{shortened(written)}" is no name of a gang')
        keys.add(GangKey(key.source, namespace or key.namespace, name))
    if len(keys) > MAX_GANGS_IN_GROUP:
        problem = f"the group has {len(keys)} gangs, {MAX_GANGS_IN_GROUP} are allowed"
        raise ModelError(annotation(by), problem)
    return tuple(sorted(keys)) if len(keys) > 1 else ()
