"""NUMA zones of a node, what its kubelet keeps in one zone, and what a pod needs there.

Source: NodeResourceTopology (topology.node.k8s.io/v1alpha2); the kubelet's topology manager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from flowcore.model.resources import Amounts, capped

#: On a pod: ``single``, for one zone with room for the whole pod.
NUMA: Final = "scheduling.thalweg/numa"


class NumaNeeds(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a pod takes from the zones of its node.

    Attributes:
        containers: what each container needs in one zone where the kubelet keeps containers in one, in the order in
            which they start; without those that need nothing.
        pod: the same for the whole pod.
        everywhere: one zone must have room for the whole pod on every node, whatever its kubelet does.
    """

    containers: tuple[Amounts, ...] = ()
    pod: Amounts = ()
    everywhere: bool = False


class NumaNode(msgspec.Struct, frozen=True, gc=False):
    """The last report on the zones of a node.

    Attributes:
        zones: what is available in each zone, in the order of their numbers.
        single: the kubelet refuses pods that no single zone has room for (policy single-numa-node).
        pod_scope: it keeps whole pods in one zone, else each container.
        written: seconds since the epoch when the report was last written; 0 where it does not say so.
    """

    name: str
    zones: tuple[Amounts, ...] = ()
    single: bool = False
    pod_scope: bool = False
    written: float = 0.0


class NumaClaims(msgspec.Struct, frozen=True, gc=False):
    """What pods of a node take that its report may not show yet.

    Attributes:
        count: how many pods or containers the kubelet keeps in one zone each.
        largest: of each resource the most that one of these takes.
        total: what all pods take, from whatever zone.
        loose: the part of that which may come from several zones.
    """

    count: int = 0
    largest: Amounts = ()
    total: Amounts = ()
    loose: Amounts = ()


NO_CLAIMS: Final = NumaClaims()


def items_of(needs: NumaNeeds, node: NumaNode) -> tuple[Amounts, ...]:
    """What the kubelet of a node keeps in one zone each, of a pod with these needs; () where it may take any zones."""
    if not node.single:
        return ()
    if node.pod_scope:
        return (needs.pod,) if needs.pod else ()
    # A whole pod that must be in one zone may still be torn apart where each container is kept in one.
    return needs.containers if not needs.everywhere or len(needs.containers) == 1 else ()


def total_of(needs: NumaNeeds, node: NumaNode) -> Amounts:
    """What a pod with these needs takes from the zones of a node in sum."""
    if node.single and not node.pod_scope and not needs.everywhere:
        return sum_of(needs.containers)
    return needs.pod


def claims_of(pods: Iterable[NumaNeeds], node: NumaNode) -> NumaClaims:
    """What pods with these needs take on a node."""
    items: list[Amounts] = []
    total: list[Amounts] = []
    loose: list[Amounts] = []
    for needs in pods:
        sizes, amounts = items_of(needs, node), total_of(needs, node)
        items.extend(sizes)
        total.append(amounts)
        if not sizes:
            loose.append(amounts)
    return NumaClaims(len(items), largest_of(items), sum_of(total), sum_of(loose))


def largest_of(amounts: Iterable[Amounts]) -> Amounts:
    """Each resource with the most that one of these has."""
    largest: dict[str, int] = {}
    for one_pod in amounts:
        for name, amount in one_pod:
            largest[name] = max(largest.get(name, 0), amount)
    return tuple(sorted(largest.items()))


def sum_of(amounts: Iterable[Amounts]) -> Amounts:
    """Each resource with the sum of all these, at most as much as an amount can be."""
    sums: dict[str, int] = {}
    for one_pod in amounts:
        for name, amount in one_pod:
            sums[name] = sums.get(name, 0) + amount
    return capped(sorted(sums.items()))
