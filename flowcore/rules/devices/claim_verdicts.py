"""Whether a node has the devices of a pod's claims, with kube-scheduler's verdicts and words.

Source: kube-scheduler plugins/dynamicresources (Filter, filterExtendedResources). Not here: how long an allocated
device may take until its driver confirms it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from flowcore.model.devices import DeviceClass
from flowcore.model.resource_claims import EXTENDED_RESOURCES, ClaimAllocation, ResourceClaim
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.allocator import Unallocatable, allocate
from flowcore.rules.devices.allocation.pools import SliceIndex
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.node_reach import ReachedNode, any_term_matches
from flowcore.rules.devices.pod_claims import ERROR, UNRESOLVABLE, ClaimRejection
from flowcore.rules.devices.search_effort import SearchEffort, Spend, unlimited

NAME = "DynamicResources"
REASON_ELSEWHERE = "resourceclaim not available on the node"


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What verdicts read of a cluster.

    Attributes:
        slices: all devices that there are.
        classes: by name.
        allocated: what claims have.
        selectors: remembers what expressions say of devices.
        effort: what a round spends on searches.
    """

    slices: SliceIndex
    classes: Mapping[str, DeviceClass]
    allocated: AllocatedDevices
    selectors: DeviceSelectors
    effort: SearchEffort = field(default_factory=SearchEffort)


def node_devices(
    claims: Sequence[ResourceClaim], node: ReachedNode, state: DeviceState, spend: Spend = unlimited
) -> tuple[ClaimAllocation, ...] | ClaimRejection:
    """What a pod's claims have on a node.

    Args:
        claims: of the pod, as ``claims_of`` gives them.
        spend: counts the work.

    Returns:
        One allocation for each claim: its own, or one that it can get here; or why the pod does not fit.

    Raises:
        EffortSpentError: ``spend`` does.
    """
    waiting = [needed_on(node, claim) for claim in claims if claim.allocation is None]
    if not any(claim.requests for claim in waiting) and all(claim.name == EXTENDED_RESOURCES for claim in claims):
        return tuple(ClaimAllocation() for _ in claims)
    pools = state.slices.pools(node) if waiting else ()
    chosen = allocate(waiting, node, pools, state.classes, state.allocated, state.selectors, spend=spend)
    if isinstance(chosen, Unallocatable):
        return ClaimRejection(chosen.reason, ERROR if chosen.is_error else UNRESOLVABLE)
    if not all(is_available(claim.allocation, node) for claim in claims):
        return ClaimRejection(REASON_ELSEWHERE)
    fresh = iter(chosen)
    return tuple(next(fresh) if claim.allocation is None else claim.allocation for claim in claims)


def needed_on(node: ReachedNode, claim: ResourceClaim) -> ResourceClaim:
    """A claim without requests in whose place the node offers an extended resource itself."""
    if not node.offered:
        return claim
    requests = tuple(request for request in claim.requests if request.resource not in node.offered)
    return claim if len(requests) == len(claim.requests) else msgspec.structs.replace(claim, requests=requests)


def is_available(allocation: ClaimAllocation | None, node: ReachedNode) -> bool:
    """Whether a node reaches what a claim has; None: nothing."""
    return allocation is None or allocation.terms is None or any_term_matches(allocation.terms, node)
