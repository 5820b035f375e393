"""What the claims of a waiting pod may give up so that a node has devices for it: a value, a selector, a constraint.

Changes of claims are judged without a plan, as other relaxations are: by a search for devices on all nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

import msgspec

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.model.resource_claims import EXACT_COUNT, DeviceRequest, ResourceClaim
from flowcore.questions.diagnosis.fixes.proposals.compared_values import ComparedValue, compared_values, with_value
from flowcore.questions.diagnosis.fixes.proposals.relaxations import Relaxation, Site
from flowcore.questions.diagnosis.fixes.proposals.waiting_pods import Wanted, have_devices
from flowcore.questions.scenario.hypothetical.change_claims import ClaimChange, changed_claim
from flowcore.questions.scenario.hypothetical.changes import (
    Change,
    CountDevices,
    DropDeviceConstraint,
    ReplaceDeviceSelector,
)
from flowcore.rules.devices.allocation.attribute_constraints import attribute_of

#: Most relaxations of the claims of pods, and most values of one attribute: a search on thousands of nodes takes about
#: a second.
_MOST, _MOST_VALUES = 8, 4
#: Most values with which one is compared.
_MOST_COMPARED = 200


@dataclass(frozen=True, slots=True)
class OtherClaim:
    """A claim asks for something else.

    Attributes:
        change: for any pod.
    """

    change: ClaimChange

    def lift(self, wanted: Wanted) -> Wanted:
        """The pods without what is given up."""
        return wanted.with_claims(
            {
                name: changed_claim(claim, self.change) if name == self.change.claim else claim
                for name, claim in wanted.claims.items()
            }
        )

    def prefers(self, wanted: Wanted, snapshot: Snapshot) -> Int64s | None:
        """int64[N]: how much one pod on each node must have given up; None: all nodes are alike."""

    def settle(self, site: Site) -> list[Change]:
        """The changes of all pods."""
        return [msgspec.structs.replace(self.change, pod=key) for key in site.wanted.keys]


@dataclass(frozen=True, slots=True)
class FewerDevices:
    """A request asks for fewer devices.

    Attributes:
        change: to one device, for any pod.
    """

    change: CountDevices

    def lift(self, wanted: Wanted) -> Wanted:
        """The pods without what is given up."""
        return OtherClaim(self.change).lift(wanted)

    def prefers(self, wanted: Wanted, snapshot: Snapshot) -> Int64s | None:
        """int64[N]: how much one pod on each node must have given up; None: all nodes are alike."""

    def settle(self, site: Site) -> list[Change]:
        """The changes that ask for no more devices than some node has for one pod."""
        asked = _request(site.wanted.claims[self.change.claim], self.change.request)
        least, most = 1, 1 if asked is None else asked.count - 1
        while least < most:
            middle = (least + most + 1) // 2
            lifted = OtherClaim(msgspec.structs.replace(self.change, count=middle)).lift(site.lifted)
            if (site.mask & have_devices(lifted, site.snapshot)).any():
                least = middle
            else:
                most = middle - 1
        return OtherClaim(msgspec.structs.replace(self.change, count=least)).settle(site)


def device_relaxations(wanted: Wanted, snapshot: Snapshot) -> Iterator[Relaxation]:
    """What the claims of these pods that have no devices yet may give up; the first few."""
    return islice(_relaxations(wanted, snapshot), _MOST)


def _relaxations(wanted: Wanted, snapshot: Snapshot) -> Iterator[Relaxation]:
    claims = {name: claim for name, claim in wanted.claims.items() if claim.allocation is None}
    selectors = [
        (name, reference, selector)
        for name, claim in claims.items()
        for reference, request in _requests(claim)
        for selector in request.selectors
        if selector is not None
    ]
    for name, reference, selector in selectors:
        for compared in compared_values(selector):
            for value in _other_values(compared, snapshot):
                new_selector = with_value(selector, compared, value)
                yield OtherClaim(ReplaceDeviceSelector("", name, reference, selector, new_selector))
    for name, claim in claims.items():
        for constraint in claim.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute
            if attribute:
                yield OtherClaim(DropDeviceConstraint("", name, attribute))
        for reference, request in _requests(claim):
            if request.mode == EXACT_COUNT and request.count > 1:
                yield FewerDevices(CountDevices("", name, reference, 1))
    for name, reference, selector in selectors:
        if not compared_values(selector):
            yield OtherClaim(ReplaceDeviceSelector("", name, reference, selector))


def _requests(claim: ResourceClaim) -> Iterator[tuple[str, DeviceRequest]]:
    """What a claim asks for, alternatives too, each with its name."""
    for request in claim.requests:
        for alternative in request.alternatives:
            yield request.reference(alternative), alternative


def _request(claim: ResourceClaim, reference: str) -> DeviceRequest | None:
    return dict(_requests(claim)).get(reference)


def _other_values(compared: ComparedValue, snapshot: Snapshot) -> list[str]:
    """Other values that devices have of the same attribute: the nearest one first, then the commonest."""
    counts = Counter[str]()
    for resource_slice in snapshot.devices.slices.values():
        for device in resource_slice.devices:
            attribute = attribute_of(device, resource_slice.driver, compared.attribute)
            if attribute is not None and attribute.kind == "string" and attribute.value != compared.value:
                counts[str(attribute.value)] += 1
    commonest = sorted(counts, key=lambda value: (-counts[value], value))
    near = get_close_matches(compared.value, commonest[:_MOST_COMPARED], 1)
    return list(dict.fromkeys([*near, *commonest[:_MOST_VALUES]]))[:_MOST_VALUES]
