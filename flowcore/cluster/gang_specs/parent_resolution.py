"""The requirements of a gang that a controller makes, from its parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from flowcore.cluster.gang_specs.gang_spec_resolution import ResolvedGangSpec
from flowcore.model.gang_parents import GangParent, PartSize
from flowcore.model.gang_spec import GangKey, GangSpec
from flowcore.model.pods import Pod


def resolve_parent(key: GangKey, parent: GangParent | None, pods: Collection[Pod]) -> ResolvedGangSpec:
    """The requirements of a gang.

    Args:
        parent: None: it is not seen yet.
        pods: waiting, bound and succeeded pods of the gang.
    """
    shown = key.parent.display_name
    if parent is None:
        return ResolvedGangSpec(GangSpec(), unschedulable_reason=f"{shown} does not exist")
    if parent.problem:
        return ResolvedGangSpec(GangSpec(), unschedulable_reason=f"{shown}: {parent.problem}")
    part = parent.part(key.part)
    if part is None:
        return ResolvedGangSpec(GangSpec(min_member=0))  # it has no pods: they leave the gang with the part
    strangers = {pod.key: f"{shown} did not make this pod" for pod in pods if not _is_made_by(pod, key, parent, part)}
    size, beside = part.size, parent.beside(key.part)
    said = [pod.group_size for pod in pods if pod.group_size > 0 and pod.key not in strangers]
    if said and part.elsewhere is not None:
        size = max(0, min(said) - part.elsewhere)
    if said and min(said) == 1:  # a leader without workers
        beside = ()
    group = tuple(sorted(GangKey(key.source, key.namespace, key.name, key.kind, name) for name in beside))
    ended = part.ended if part.jobs is None else part.ended + _ended_of_unfinished(pods, part)
    return ResolvedGangSpec(GangSpec(min_member=size, group=group), non_members=strangers, ended=ended)


def _ended_of_unfinished(pods: Collection[Pod], part: PartSize) -> int:
    """Ended pods of Jobs that go on: the parent counts all pods of a Job only once the Job ended.

    A Job of which a pod has or had a node was placed whole. What it has no more of has ended, though the pods may be
    gone, with their node for example; or it is made again, and then placed by itself.
    """
    unended, succeeded, begun = Counter[str](), Counter[str](), set[str]()
    for pod in pods:
        (succeeded if pod.succeeded else unended)[pod.owner] += 1
        if pod.node_name:
            begun.add(pod.owner)
    of_job = part.size // part.jobs if part.jobs else 0
    return sum(max(succeeded[job], of_job - count if job in begun else 0) for job, count in unended.items())


def _is_made_by(pod: Pod, key: GangKey, parent: GangParent, part: PartSize) -> bool:
    """Whether the parent made the pod, and not a namesake."""
    if part.pods is not None:
        return pod.name in part.pods
    if part.jobs is not None:
        number = pod.controller.rpartition("-")[2]
        return number.isdecimal() and int(number) < part.jobs
    # Not the launcher of an MPIJob, and no pod that names its parent by a label.
    is_controller = pod.controller == f"{key.kind.partition('.')[0]}/{key.name}"
    return not is_controller or pod.owner == parent.uid
