"""The requirements of a gang that is declared on its pods: the pods of one controller decide.

That is the controller of the oldest pod with a minMember annotation. Pods without a controller decide together, and
only where no pod of a controller has one. A pod of another controller with other requirements is no member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from flowcore.model.gang_spec import (
    GANG_MIN_MEMBER,
    KOORDINATOR_MIN_AVAILABLE,
    KUEUE_TOTAL_COUNT,
    MAX_GANGS_IN_GROUP,
    GangKey,
    GangSource,
    GangSpec,
)
from flowcore.model.pods import Pod

#: The annotation with the minMember of a gang.
_MIN_MEMBER_ANNOTATION = {
    GangSource.KOORDINATOR: KOORDINATOR_MIN_AVAILABLE,
    GangSource.THALWEG: GANG_MIN_MEMBER,
    GangSource.KUEUE: KUEUE_TOTAL_COUNT,
}


@dataclass(frozen=True, slots=True)
class ResolvedGangSpec:
    """The requirements of a gang.

    Attributes:
        owner: the controller that decides; "" for pods without one. Pods of others are foreign.
        unschedulable_reason: why no plan can meet the requirements; "" where one may.
        non_members: keys of pods that name the gang and are no members, and why.
        ended: how many of its pods its parent says have ended for good, whether or not they are still there.
    """

    spec: GangSpec
    owner: str = ""
    unschedulable_reason: str = ""
    non_members: Mapping[str, str] = field(default_factory=dict)
    ended: int = 0


def resolve_gang_spec(key: GangKey, pods: Collection[Pod], succeeded: Iterable[Pod] = ()) -> ResolvedGangSpec:
    """The requirements of a gang from the annotations of its pods.

    Args:
        pods: waiting and bound pods that name the gang.
        succeeded: succeeded pods that name it. They do not decide, but may be members.
    """
    specs = {(pod.owner, pod.gang.spec) for pod in pods if pod.gang is not None}
    owner = next(iter(specs))[0] if len(specs) == 1 else deciding_owner(pods)
    spec, unschedulable_reason = _merge_specs(key, {each for by, each in specs if by == owner})
    non_members = {}
    for members in (pods if len(specs) > 1 else (), succeeded):
        for pod in members:
            if pod.owner != owner and pod.gang is not None and (difference := _difference(key, pod.gang.spec, spec)):
                non_members[pod.key] = f"{key.display_name} belongs to another controller, and this pod's {difference}"
    return ResolvedGangSpec(spec, owner, unschedulable_reason, non_members)


def deciding_owner(pods: Collection[Pod]) -> str:
    """The controller whose pods decide for a gang; "" where its pods have none."""
    owners = {pod.owner for pod in pods}
    return min(pods, key=_decision_order).owner if len(owners) > 1 else next(iter(owners), "")


def _decision_order(pod: Pod) -> tuple[bool, bool, float, str]:
    silent = pod.gang is None or pod.gang.spec.min_member is None
    return silent, not pod.owner, pod.created, pod.key


def _merge_specs(key: GangKey, specs: set[GangSpec]) -> tuple[GangSpec, str]:
    """One requirement from several, and why no plan can meet it ("" where one may)."""
    if len(specs) == 1:
        merged = next(iter(specs))
    else:
        merged = GangSpec(
            min_member=max((each.min_member for each in specs if each.min_member is not None), default=None),
            topology_key=min((each.topology_key for each in specs if each.topology_key), default=""),
            group=tuple(sorted({gang for spec in specs for gang in spec.group})),
            timeout=max((each.timeout for each in specs if each.timeout is not None), default=None),
        )
    if merged.min_member is None:
        return merged, f"{key.display_name}: none of its pods has the annotation {_MIN_MEMBER_ANNOTATION[key.source]}"
    topologies = sorted({each.topology_key for each in specs} - {""}) if len(specs) > 1 else []
    if len(topologies) > 1:
        return merged, f"{key.display_name}: its pods name different topologies: {', '.join(topologies)}"
    if len(merged.group) > MAX_GANGS_IN_GROUP:
        problem = f"its pods name a group of {len(merged.group)} gangs, {MAX_GANGS_IN_GROUP} are allowed"
        return GangSpec(merged.min_member, merged.topology_key, (), merged.timeout), f"{key.display_name}: {problem}"
    return merged, ""


def _difference(key: GangKey, own: GangSpec, spec: GangSpec) -> str:
    """How a pod's requirements differ from the gang's; "" where they do not."""
    if own.min_member is not None and own.min_member != spec.min_member:
        return f"{_MIN_MEMBER_ANNOTATION[key.source]} is {own.min_member}, not {spec.min_member}"
    if own.topology_key and own.topology_key != spec.topology_key:
        return f"topology is {own.topology_key}, not {spec.topology_key or 'given'}"
    if own.group and own.group != spec.group:
        return "group of gangs is another one"
    if own.timeout is not None and own.timeout != spec.timeout:
        return f"time is {own.timeout} s, not {spec.timeout}"
    return ""
