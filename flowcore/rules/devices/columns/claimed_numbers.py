"""What pods claim, as numbers of devices: asked once for claims that are alike."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from flowcore.model.resource_claims import AttributeConstraint, ClaimingPod, ClaimRequest, ResourceClaim
from flowcore.rules.devices.claimable_devices import ClaimableDevices
from flowcore.rules.devices.columns.request_kinds import Classes, Numbers, RequestKind, kinds_of, numbers_of
from flowcore.rules.devices.pod_claims import ClaimRejection

_Content = tuple[tuple[ClaimRequest, ...], tuple[AttributeConstraint, ...]]


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a pod is to get that it does not have yet.

    Attributes:
        namespace: of the pod.
        claims: of a pod that is to get this.
        numbers: how many devices of each kind; (): numbers do not say it.
        kinds: of all its requests.
    """

    namespace: str
    claims: tuple[ResourceClaim, ...]
    numbers: Numbers
    kinds: tuple[RequestKind, ...]


class ClaimedNumbers:
    """Answers for pods of one round.

    Args:
        offered: extended resources that some nodes offer themselves.
    """

    def __init__(self, devices: ClaimableDevices, classes: Classes, offered: AbstractSet[str] = frozenset()) -> None:
        self._devices, self._classes, self._offered = devices, classes, offered
        self._of_content: dict[_Content, tuple[Numbers, tuple[RequestKind, ...]]] = {}
        self._of_pod: dict[tuple[str, tuple[_Content, ...]], Claimed] = {}

    def of(self, pod: ClaimingPod) -> Claimed | None:
        """What a pod is to get; None: nothing, or no node can take it."""
        claims = self._devices.claims_of(pod)
        if isinstance(claims, ClaimRejection):
            return None
        waiting = [claim for claim in claims if claim.allocation is None]
        if not waiting:
            return None
        # Claims that others may use too, and devices that the pod has already, say more than numbers.
        if len(waiting) < len(claims) or pod.may_share:
            return Claimed(pod.namespace, claims, (), self._sum(tuple(waiting)).kinds)
        return self._sum(claims)

    def anew(self, pod: ClaimingPod) -> Numbers:
        """What a pod like this one would ask for that has no devices yet; (): numbers do not say it."""
        claims = self._devices.claims_of(pod)
        if isinstance(claims, ClaimRejection) or pod.may_share:
            return ()
        return self._sum(claims).numbers

    def _sum(self, claims: tuple[ResourceClaim, ...]) -> Claimed:
        """What claims ask for, whatever they have."""
        namespace = claims[0].namespace if claims else ""
        contents = tuple((claim.requests, claim.constraints) for claim in claims)
        known = self._of_pod.get((namespace, contents))
        if known is None:
            total: dict[RequestKind, int] = {}
            parts = [self._claim(content) for content in contents]
            for numbers, _ in parts:
                for kind, number in numbers:
                    total[kind] = total.get(kind, 0) + number
            kinds = tuple(dict.fromkeys(kind for _, kinds in parts for kind in kinds))
            is_number = all(numbers for numbers, _ in parts)
            numbers = tuple(total.items()) if is_number else ()
            known = self._of_pod[namespace, contents] = Claimed(namespace, claims, numbers, kinds)
        return known

    def _claim(self, content: _Content) -> tuple[Numbers, tuple[RequestKind, ...]]:
        known = self._of_content.get(content)
        if known is None:
            numbers = numbers_of(*content, self._classes, self._offered)
            known = self._of_content[content] = numbers, kinds_of(content[0], self._classes, self._offered)
        return known
