"""Resource claims as pods and PodGroups name them (core/v1 PodResourceClaim, scheduling PodGroupResourceClaim)."""

from __future__ import annotations

from collections.abc import Iterable

from flowcore.api.base import Wire
from flowcore.model.resource_claims import PodClaim


class WireNamedClaim(Wire):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


def to_pod_claims(wire: Iterable[WireNamedClaim] | None) -> tuple[PodClaim, ...]:
    """The claims in their order."""
    return tuple(
        PodClaim(each.name, each.resource_claim_name or "", each.resource_claim_template_name or "")
        for each in wire or ()
    )
