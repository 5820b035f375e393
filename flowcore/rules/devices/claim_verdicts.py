"""Whether a node has the devices of a pod's claims, with kube-scheduler's verdicts and words.

Source: kube-scheduler plugins/dynamicresources (Filter, filterExtendedResources, computeScore). Not here: how long an
allocated device may take until its driver confirms it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
#: Most alternatives of a request (FirstAvailableDeviceRequestMaxSize): the score of the first one.
_MOST_ALTERNATIVES = 8


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
    chosen: tuple[ClaimAllocation, ...] | Unallocatable = ()
    if waiting:
        pools = state.slices.pools(node)
        chosen = allocate(waiting, node, pools, state.classes, state.allocated, state.selectors, spend=spend)
    if isinstance(chosen, Unallocatable):
        return ClaimRejection(chosen.reason, ERROR if chosen.ends_attempt else UNRESOLVABLE)
    if not all(is_available(claim.allocation, node) for claim in claims):
        return ClaimRejection(REASON_ELSEWHERE)
    fresh = iter(chosen)
    return tuple(next(fresh) if claim.allocation is None else claim.allocation for claim in claims)


def has_alternatives(claims: Sequence[ResourceClaim]) -> bool:
    """Whether nodes may give claims different alternatives of a request (``firstAvailable``)."""
    return any(request.first_available for claim in claims if claim.allocation is None for request in claim.requests)


def alternatives_score(claims: Sequence[ResourceClaim], allocations: Sequence[ClaimAllocation]) -> int:
    """kube-scheduler's score of what claims have on a node: 8 less the place of the alternative, over all requests.

    Requests without alternatives count for nothing.

    Args:
        allocations: of each claim, as ``node_devices`` gives them.
    """
    score = 0
    for claim, allocation in zip(claims, allocations, strict=True):
        served = {device.request for device in allocation.devices}
        score += sum(
            max(_MOST_ALTERNATIVES - place, 0)
            for request in claim.requests
            for place, alternative in enumerate(request.first_available)
            if request.reference(alternative) in served
        )
    return score


def needed_on(node: ReachedNode, claim: ResourceClaim) -> ResourceClaim:
    """A claim without requests in whose place the node offers an extended resource itself."""
    if not node.offered:
        return claim
    requests = tuple(request for request in claim.requests if request.resource not in node.offered)
    return claim if len(requests) == len(claim.requests) else msgspec.structs.replace(claim, requests=requests)


def are_allocated(claims: Iterable[ResourceClaim]) -> bool:
    """Whether all claims have what they ask for, so that nodes differ only by whether they reach that."""
    return all(claim.allocation is not None for claim in claims)


def is_available(allocation: ClaimAllocation | None, node: ReachedNode) -> bool:
    """Whether a node reaches what a claim has; None: nothing."""
    return allocation is None or allocation.terms is None or any_term_matches(allocation.terms, node)
