"""Gangs: what pods and PodGroup objects say of them.

Sources: k8s.io/api core/v1 PodSchedulingGroup and scheduling/v1alpha2 PodGroup; sigs.k8s.io/scheduler-plugins
apis/scheduling/v1alpha1; volcano.sh/apis scheduling/v1beta1; koordinator's apis/extension/coscheduling.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from flowcore.model.errors import ModelError
from flowcore.model.gang_terms import (
    GANG,
    GANG_GROUP,
    GANG_MIN_MEMBER,
    GANG_TOPOLOGY,
    KOORDINATOR_GROUPS,
    KOORDINATOR_LEAST,
    KOORDINATOR_NAME,
    KOORDINATOR_TIMEOUT,
    LONGEST_GROUP,
    MOST_IN_GROUP,
    POD_GROUP_LABELS,
    VOLCANO_GROUP,
    VOLCANO_GROUP_OLDER,
    GangKey,
    GangRef,
    PodGroup,
    Source,
    Terms,
)
from flowcore.model.selectors import is_label_key
from flowcore.model.wire.base import Interner, Wire, WireMeta

_MOST = 2**31 - 1
#: One more than a name may have: what is longer is no name, and need not be kept whole.
_LONGEST_KEPT = 254
#: So much of a text that cannot be read is shown.
_LONGEST_SHOWN = 100
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: Go's time.ParseDuration, without signs.
_DURATION = re.compile(r"(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class WireSchedulingGroup(Wire):
    pod_group_name: str | None = None


class WireGangAnnotations(Wire):
    """Those that say something of gangs, on pods and on PodGroup objects."""

    gang: str | None = msgspec.field(default=None, name=GANG)
    least: str | None = msgspec.field(default=None, name=GANG_MIN_MEMBER)
    group: str | None = msgspec.field(default=None, name=GANG_GROUP)
    topology: str | None = msgspec.field(default=None, name=GANG_TOPOLOGY)
    volcano: str | None = msgspec.field(default=None, name=VOLCANO_GROUP)
    volcano_older: str | None = msgspec.field(default=None, name=VOLCANO_GROUP_OLDER)
    koordinator: str | None = msgspec.field(default=None, name=KOORDINATOR_NAME)
    koordinator_least: str | None = msgspec.field(default=None, name=KOORDINATOR_LEAST)
    koordinator_groups: str | None = msgspec.field(default=None, name=KOORDINATOR_GROUPS)
    koordinator_timeout: str | None = msgspec.field(default=None, name=KOORDINATOR_TIMEOUT)


def to_gang(
    group: WireSchedulingGroup | None,
    labels: dict[str, str] | None,
    said: WireGangAnnotations | None,
    namespace: str,
    intern: Interner,
) -> tuple[GangRef | None, tuple[ModelError, ...]]:
    """The gang that a pod belongs to, and what is wrong with its annotations.

    The first source that names a gang counts, the others are not looked at. What cannot be read counts as not said.
    """
    key = _named(group, labels, said, namespace)
    if key is None:
        return None, ()
    if said is None or key.source.has_objects:
        return GangRef(key), ()
    problems: list[ModelError] = []
    if key.source is Source.KOORDINATOR:
        terms = _koordinator_terms(key, said, problems)
    else:
        terms = _our_terms(key, said, problems)
        if _NAME.fullmatch(key.name) is None:
            problems.insert(0, ModelError(_annotation(GANG), f'"{_short(key.name)}" is no name of a gang'))
    # The gangs of a group name the same others: they share one value.
    terms = msgspec.structs.replace(terms, group=intern(terms.group)) if terms.group else terms
    return GangRef(key, terms), tuple(problems)


def _named(
    group: WireSchedulingGroup | None, labels: dict[str, str] | None, said: WireGangAnnotations | None, namespace: str
) -> GangKey | None:
    if group is not None and group.pod_group_name:
        return GangKey(Source.NATIVE, namespace, group.pod_group_name)
    for label in POD_GROUP_LABELS if labels else ():
        if labels and labels.get(label):
            return GangKey(Source.COSCHEDULING, namespace, labels[label])
    if said is None:
        return None
    if name := said.volcano or said.volcano_older:
        return GangKey(Source.VOLCANO, namespace, name[:_LONGEST_KEPT])
    if said.koordinator:
        return GangKey(Source.KOORDINATOR, namespace, said.koordinator[:_LONGEST_KEPT])
    if said.gang is not None:
        return GangKey(Source.THALWEG, namespace, said.gang[:_LONGEST_KEPT])
    return None


def _koordinator_terms(key: GangKey, said: WireGangAnnotations, problems: list[ModelError]) -> Terms:
    least: int | None = None
    group: tuple[GangKey, ...] = ()
    timeout: int | None = None
    try:
        if said.koordinator_least is not None:
            least = _whole_number(KOORDINATOR_LEAST, said.koordinator_least)
    except ModelError as error:
        problems.append(error)
    try:
        group = _json_group(key, said.koordinator_groups)
    except ModelError as error:
        problems.append(error)
    try:
        if said.koordinator_timeout:
            timeout = _duration(KOORDINATOR_TIMEOUT, said.koordinator_timeout)
    except ModelError as error:
        problems.append(error)
    return Terms(least=least, group=group, timeout=timeout)


def _our_terms(key: GangKey, said: WireGangAnnotations, problems: list[ModelError]) -> Terms:
    least: int | None = None
    group: tuple[GangKey, ...] = ()
    topology = ""
    try:
        if said.least is not None:
            least = _whole_number(GANG_MIN_MEMBER, said.least)
    except ModelError as error:
        problems.append(error)
    try:
        group = _group(key, said.group)
    except ModelError as error:
        problems.append(error)
    try:
        topology = _label_key(said.topology)
    except ModelError as error:
        problems.append(error)
    return Terms(least=least, topology=topology, group=group)


# --- PodGroup objects ---


class _WireGangPolicy(Wire):
    min_count: int = 0


class _WireSchedulingPolicy(Wire):
    gang: _WireGangPolicy | None = None


class _WireTopology(Wire):
    key: str = ""


class _WireSchedulingConstraints(Wire):
    topology: list[_WireTopology] | None = None


class WirePodGroupSpec(Wire):
    """Of all sources: the first two are Kubernetes' own, the others of the coscheduling plugin and Volcano."""

    scheduling_policy: _WireSchedulingPolicy | None = None
    scheduling_constraints: _WireSchedulingConstraints | None = None
    min_member: int | None = None
    schedule_timeout_seconds: int | None = None


class WirePodGroupMeta(WireMeta):
    annotations: WireGangAnnotations | None = None


class WirePodGroup(Wire):
    metadata: WirePodGroupMeta
    spec: WirePodGroupSpec | None = None


def to_pod_group(wire: WirePodGroup, source: Source, intern: Interner) -> PodGroup:
    """A PodGroup; what cannot be read is said in ``problem``.

    Not read, of Volcano: minTaskMember, minResources, queue, networkTopology; of all: status, and what only preemption
    reads.
    """
    meta, spec = wire.metadata, wire.spec or WirePodGroupSpec()
    key = GangKey(source, meta.namespace or "default", meta.name)
    said = meta.annotations or WireGangAnnotations()
    problems: list[str] = []
    timeout: int | None = None
    topology, group = "", tuple[GangKey, ...]()
    if source is Source.NATIVE:
        gang = spec.scheduling_policy.gang if spec.scheduling_policy is not None else None
        # Pods of the basic policy are placed each by itself.
        least = gang.min_count if gang is not None else 0
        constraints = spec.scheduling_constraints
        topology = next((each.key for each in (constraints.topology if constraints else None) or () if each.key), "")
    else:
        least = spec.min_member or 0
        if source is Source.COSCHEDULING and (spec.schedule_timeout_seconds or 0) > 0:
            timeout = spec.schedule_timeout_seconds
    try:
        group = _group(key, said.group)
        if source is Source.COSCHEDULING and not group:
            group = _json_group(key, said.koordinator_groups)
    except ModelError as error:
        problems.append(str(error))
    try:
        topology = topology or _label_key(said.topology)
    except ModelError as error:
        problems.append(str(error))
    terms = Terms(least=max(0, min(least, _MOST)), topology=topology, group=group, timeout=timeout)
    return PodGroup(key, intern(terms), "; ".join(problems))


class _WireNamed(Wire):
    metadata: WireMeta


def to_unreadable_pod_group(raw: bytes, source: Source, problem: str) -> PodGroup:
    """What is left of a PodGroup whose JSON has not the shape that it should have: its pods wait with the problem.

    Raises:
        msgspec.ValidationError: not even its name can be read.
    """
    meta = msgspec.json.decode(raw, type=_WireNamed).metadata
    return PodGroup(GangKey(source, meta.namespace or "default", meta.name), Terms(), problem)


# --- annotations ---


def _annotation(name: str) -> str:
    return f"annotation {name}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _check_length(annotation: str, text: str) -> None:
    if len(text) > LONGEST_GROUP or len(text.encode(errors="replace")) > LONGEST_GROUP:
        raise ModelError(_annotation(annotation), f"it is longer than {LONGEST_GROUP // 1024} KiB")


def _whole_number(annotation: str, text: str) -> int:
    if re.fullmatch(r"[0-9]{1,10}", text) is None or not 0 < int(text) <= _MOST:
        raise ModelError(_annotation(annotation), f'"{_short(text)}" is no whole number above zero')
    return int(text)


def _duration(annotation: str, text: str) -> int:
    """Whole seconds of Go's notation, at least one."""
    if len(text) > 100 or _DURATION.fullmatch(text) is None:
        raise ModelError(_annotation(annotation), f'"{_short(text)}" is no duration')
    seconds = sum(float(amount) * _SECONDS[unit] for amount, unit in _DURATION_PART.findall(text))
    return min(_MOST, max(1, round(min(seconds, float(_MOST)))))


def _label_key(text: str | None) -> str:
    if text is not None and not is_label_key(text):
        raise ModelError(_annotation(GANG_TOPOLOGY), f'"{_short(text)}" is no key of a label')
    return text or ""


def _group(key: GangKey, text: str | None) -> tuple[GangKey, ...]:
    """Gangs by name, or by namespace/name, with commas between them."""
    if text is None:
        return ()
    _check_length(GANG_GROUP, text)
    return _keys(key, GANG_GROUP, [each.strip() for each in text.split(",")])


def _json_group(key: GangKey, text: str | None) -> tuple[GangKey, ...]:
    """Gangs as namespace/name, as JSON."""
    if not text:
        return ()
    _check_length(KOORDINATOR_GROUPS, text)
    try:
        names = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelError(_annotation(KOORDINATOR_GROUPS), f'"{_short(text)}" is no JSON list of names') from error
    return _keys(key, KOORDINATOR_GROUPS, names)


def _keys(key: GangKey, annotation: str, names: Iterable[str]) -> tuple[GangKey, ...]:
    """The gangs named, of the same source, and the one that names them; () where that is by itself."""
    keys = {key}
    for each in names:
        namespace, slash, name = each.rpartition("/")
        if _NAME.fullmatch(name) is None or (slash and _NAME.fullmatch(namespace) is None):
            raise ModelError(_annotation(annotation), f'"{_short(each)}" is no name of a gang')
        keys.add(GangKey(key.source, namespace or key.namespace, name))
    if len(keys) > MOST_IN_GROUP:
        problem = f"the group has {len(keys)} gangs, {MOST_IN_GROUP} are allowed"
        raise ModelError(_annotation(annotation), problem)
    return tuple(sorted(keys)) if len(keys) > 1 else ()
