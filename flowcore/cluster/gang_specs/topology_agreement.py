"""The topology of a gang from what its pods say of it: those that say something must agree."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import msgspec

from flowcore.cluster.gang_specs.gang_spec_resolution import ResolvedGangSpec
from flowcore.model.gang_spec import GangKey, GangSource
from flowcore.model.gang_topology import GangTopology
from flowcore.model.pods import Pod


def with_pod_topology(key: GangKey, resolved: ResolvedGangSpec, pods: Collection[Pod]) -> ResolvedGangSpec:
    """The requirements of a gang, with the topology that its pods say; what its PodGroup says goes before.

    Pods of another controller than the one that decides say nothing, but for those of one parent.

    Args:
        pods: waiting and bound pods that name the gang.
    """
    if resolved.unschedulable_reason:
        return resolved
    first_pods: dict[GangTopology, str] = {}
    for pod in pods:
        topology = pod.gang_topology
        # A pod whose annotations cannot be read waits by itself.
        if topology is None or topology.bad_annotation or pod.key in resolved.non_members:
            continue
        if key.source is GangSource.CONTROLLER or pod.owner == resolved.owner:
            first_pods[topology] = min(pod.key, first_pods.get(topology, pod.key))
    if not first_pods:
        return resolved
    first, *others = sorted(first_pods, key=lambda topology: first_pods[topology])
    if others:
        said = [f"{first_pods[topology]} has {_text(topology)}" for topology in (first, others[0])]
        problem = f"its pods name different topologies: {', '.join(said)}"
        return replace(resolved, unschedulable_reason=f"{key.display_name}: {problem}")
    spec = resolved.spec
    sliced = spec if spec.slice_size else first
    spec = msgspec.structs.replace(
        spec,
        topology_key=spec.topology_key or first.required,
        preferred=spec.preferred or first.preferred,
        slice_key=sliced.slice_key,
        slice_size=sliced.slice_size,
        limit=spec.limit or first.limit,
    )
    return replace(resolved, spec=spec)


def _text(topology: GangTopology) -> str:
    """What a topology says, in the order of its annotations."""
    parts = [
        f"topology {topology.required}" if topology.required else "",
        f"preferred {', '.join(topology.preferred)}" if topology.preferred else "",
        f"slices of {topology.slice_size} by {topology.slice_key}" if topology.slice_size else "",
        f"HyperNodes {topology.limit.text}" if topology.limit is not None else "",
    ]
    return " and ".join(part for part in parts if part)
