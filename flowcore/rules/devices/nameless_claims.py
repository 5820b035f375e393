"""What claims ask for, without who asks: claims that a template makes for many pods are alike."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowcore.model.resource_claims import ResourceClaim

#: What stands for the names of a claim; no name has such characters.
_NAMESPACE, _NAME = "\1", "\2{}\2"

#: Claims of one pod without their names and consumers: all that the answer of a node depends on.
NamelessClaims = tuple[ResourceClaim, ...]


def without_names(claims: Sequence[ResourceClaim]) -> NamelessClaims:
    """The claims of a pod, as those of others that ask for the same are too."""
    return tuple(
        msgspec.structs.replace(
            claim,
            namespace=_NAMESPACE,
            name=_NAME.format(place),
            uid="",
            controller="",
            controller_group="",
            is_being_deleted=False,
            reserved_for=(),
            is_ours=False,
            awaited=(),
            failure="",
            is_extended=False,
        )
        for place, claim in enumerate(claims)
    )


def named(reason: str, claims: Sequence[ResourceClaim]) -> str:
    """The reason that a node gave for nameless claims, with the names of these."""
    for place, claim in enumerate(claims):
        name = _NAME.format(place)
        reason = reason.replace(f"{_NAMESPACE}/{name}", claim.key).replace(name, claim.name)
    return reason


def extended_resources(claims: Sequence[ResourceClaim]) -> tuple[str, ...]:
    """The extended resources in whose place claims are, sorted: nodes that offer them need fewer devices."""
    return tuple(sorted({request.resource for claim in claims for request in claim.requests if request.resource}))
