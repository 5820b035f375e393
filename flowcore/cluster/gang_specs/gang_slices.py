"""The slices of a gang: its pods by their ranks, so many in each, or by their labels.

Each slice is a gang that shares its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flowcore.model.gang_spec import GangKey, GangSpec
from flowcore.model.gang_topology import MAX_SLICES, least_size, rank_of, ranks_before
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod

#: Number of a sub-group, and its labels' values, in an order that has numbers in theirs.
_Split = tuple[int, tuple[tuple[int, str], ...]]


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of a gang.

    Attributes:
        of_pods: key of a pod -> its slice, from 0 on.
        keys: slice -> the topology that it has one domain of.
        problem: why nobody can tell; "" where it is told.
    """

    of_pods: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""


def slices_of(key: GangKey, spec: GangSpec, pods: Iterable[Pod]) -> Slices:
    """The slices of a gang.

    Where pods ask for slices, those that do not are in none, such as a launcher. Where a PodGroup asks for them, all
    pods are in one, or those that its sub-groups select.

    Args:
        spec: with slices.
        pods: its members, waiting and bound.
    """
    members = sorted(pods, key=lambda pod: pod.key)
    slices = _by_labels(spec, members) if spec.sub_groups else _by_ranks(key, spec, members)
    if len(slices.keys) > MAX_SLICES:
        size = f" of {spec.slice_size}" if spec.slice_size else ""
        count = len(slices.keys)
        return Slices(problem=f"{key.display_name}: it has {count} slices{size}, {MAX_SLICES} are allowed")
    return slices


def _by_ranks(key: GangKey, spec: GangSpec, members: Sequence[Pod]) -> Slices:
    sliced = [pod for pod in members if pod.gang_topology is not None and pod.gang_topology.slice_size] or members
    # Of a JobSet fewer pods may be needed, or left, than there were: ranks of its Jobs must not meet then.
    size = max(spec.min_member or 0, len(sliced), max((least_size(pod.labels) for pod in sliced), default=0))
    named, before = key.display_name, ranks_before(pod.labels for pod in sliced)
    holders: dict[int, Pod] = {}
    for pod in sliced:
        rank = rank_of(pod.labels, size, before)
        if rank is None:
            return Slices(problem=f"{named}: it has slices, and {pod.key} has no label with its rank")
        holder = holders.setdefault(rank, pod)
        if holder is not pod:
            return Slices(problem=f"{named}: it has slices, and {holder.key} and {pod.key} have the same rank {rank}")
    slices = {pod.key: rank // spec.slice_size for rank, pod in holders.items()}
    return Slices(slices, dict.fromkeys(slices.values(), spec.slice_key))


def _by_labels(spec: GangSpec, members: Sequence[Pod]) -> Slices:
    """Pods of a sub-group with the same values are a slice; of several sub-groups of a pod the first counts."""
    of_pods: dict[str, _Split] = {}
    for pod in members:
        labels = dict(pod.labels)
        for number, group in enumerate(spec.sub_groups):
            values = [labels.get(label, "") for label in group.labels]
            if all(values) and group.selector.selects(labels):
                if group.key:
                    of_pods[pod.key] = number, tuple((len(value), value) for value in values)
                break
    numbers = {split: number for number, split in enumerate(sorted(set(of_pods.values())))}
    keys = {number: spec.sub_groups[split[0]].key for split, number in numbers.items()}
    return Slices({pod: numbers[split] for pod, split in of_pods.items()}, keys)


def slice_gangs(
    key: GangKey,
    slices: Slices,
    waiting: Mapping[int, int],
    homes: Mapping[int, tuple[str, int]],
    missing: int,
    alone: int,
    atomic_group: str,
    *,
    begun: bool,
) -> dict[int, Gang]:
    """The slices with pods that wait, each as a gang.

    While the gang lacks pods, the slices that it needs are placed with it, whole. Those beyond that come after it,
    since part of a slice is no use. Of a gang that has what it needs, pods come back one by one to their slice.

    Args:
        waiting: slice -> how many of its pods wait and can be planned.
        homes: slice -> the domain of most of its pods that have a node, and how many have one.
        missing: how many pods the gang lacks.
        alone: pods that wait and are in no slice.
        atomic_group: of the gang.
        begun: whether pods of the gang have a node.
    """
    gangs, lacking = dict[int, Gang](), missing - alone
    for number in sorted(waiting, key=lambda number: (number not in homes, number)):
        name, count = f"{key.display_name} slice {number}", waiting[number]
        if missing > 0 >= lacking:
            reason = f"{name} is placed after the slices that the gang needs"
            gangs[number] = Gang(name, count, slice_of=key.display_name, unschedulable_reason=reason)
            continue
        lacking -= count
        domain, placed = homes.get(number, ("", 0))
        gangs[number] = Gang(
            name,
            0 if missing <= 0 and number in homes else count,
            atomic_group,
            slice_of=key.display_name,
            topology_key=slices.keys[number],
            domain=domain,
            partially_placed=missing > 0 and begun,
            placed=placed,
        )
    return gangs
