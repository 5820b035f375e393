"""Searches devices of one node for all claims of a pod.

Source: dynamic-resource-allocation structured (allocateOne): claims, requests, alternatives and devices are tried in
order, and the first choice that keeps all rules is taken. Two things differ, and neither changes whether there is a
choice: a device is not tried where an interchangeable one has failed, and the search ends after so many steps, where
kube-scheduler ends it after ten seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flowcore.model.devices import DeviceClass
from flowcore.model.resource_claims import MAX_DEVICES, ClaimAllocation, ResourceClaim
from flowcore.model.resource_slices import DeviceId
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.rules.devices.allocation.allocated_devices import AllocatedDevices
from flowcore.rules.devices.allocation.attribute_constraints import (
    ConstraintState,
    attribute_of,
    constraint_state,
)
from flowcore.rules.devices.allocation.chosen_devices import ChosenDevice, ChosenDevices, amounts_of
from flowcore.rules.devices.allocation.consumable_capacity import fits_capacity
from flowcore.rules.devices.allocation.pools import Pool, PooledDevice
from flowcore.rules.devices.allocation.requested_devices import (
    ClaimsUnallocatable,
    RequestedDevices,
    check_capacity_gate,
    requested_devices,
)
from flowcore.rules.devices.cel import CelProblem
from flowcore.rules.devices.device_selectors import DeviceSelectors
from flowcore.rules.devices.node_reach import NODE_NAME, ReachedNode, reaches
from flowcore.rules.devices.search_effort import CHOICE, NODE, Spend, unlimited

#: Devices that a search tries. A node has hundreds of them at most; a search that needs many times as many goes through
#: combinations, and kube-scheduler would be at it for seconds too.
MAX_STEPS = 20_000

#: kube-scheduler's reasons.
REASON_NONE_FIT = "cannot allocate all claims"
REASON_INVALID_POOLS = "invalid resource pools were encountered"
#: Without the node's name, which kube-scheduler puts before it: nodes are counted by their reasons.
REASON_TIMED_OUT = "timed out trying to allocate devices"


@dataclass(frozen=True, slots=True)
class Unallocatable:
    """Why a node has no devices for the claims.

    Attributes:
        reason: kube-scheduler's text.
        is_error: something is wrong with a claim, a class or the pools; kube-scheduler ends its attempt.
        is_limit: an error of kube-scheduler's too, but at another limit: the node is judged alone.
    """

    reason: str
    is_error: bool = False
    is_limit: bool = False

    @property
    def ends_attempt(self) -> bool:
        """Whether the pod gets no node at all."""
        return self.is_error and not self.is_limit


def allocate(
    claims: Sequence[ResourceClaim],
    node: ReachedNode,
    pools: Sequence[Pool],
    classes: Mapping[str, DeviceClass],
    allocated: AllocatedDevices,
    selectors: DeviceSelectors,
    max_steps: int = MAX_STEPS,
    spend: Spend = unlimited,
) -> tuple[ClaimAllocation, ...] | Unallocatable:
    """Devices for claims that have none yet.

    Args:
        pools: those that the node reaches.
        allocated: what other claims have.
        spend: counts the work.

    Returns:
        One allocation for each claim, or why there is none.

    Raises:
        EffortSpentError: ``spend`` does.
    """
    try:
        search = _Search(claims, node, pools, classes, allocated, selectors, max_steps, spend)
        chosen = search.run()
        if chosen is not None:
            return tuple(_allocation(claim, devices, node) for claim, devices in zip(claims, chosen, strict=True))
    except ClaimsUnallocatable as problem:
        return Unallocatable(problem.reason, problem.is_error, problem.is_limit)
    return Unallocatable(REASON_INVALID_POOLS if any(pool.problem for pool in pools) else REASON_NONE_FIT)


class _Position(NamedTuple):
    """What is to be chosen next.

    Attributes:
        alternative: of the request; -1 while none is chosen.
        number: how many devices the request has already.
        start: the first device to try. Devices of one request come in order, so that each set of them is tried once.
    """

    claim: int
    request: int = 0
    alternative: int = -1
    number: int = 0
    start: int = 0


class _Search:
    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        node: ReachedNode,
        pools: Sequence[Pool],
        classes: Mapping[str, DeviceClass],
        allocated: AllocatedDevices,
        selectors: DeviceSelectors,
        max_steps: int,
        spend: Spend,
    ) -> None:
        self._node = node
        self._spend = spend
        self._pools = pools
        self._selectors = selectors
        self._steps_left = max_steps
        self._devices = [device for pool in pools if pool.is_usable for device in pool.devices]
        spend(NODE + len(self._devices) + sum(len(pool.consumers) for pool in pools))
        self._selectable: dict[tuple[int, DeviceId], bool] = {}
        self._likenesses: dict[DeviceId, Hashable] = {}
        # What "all" devices are follows from what others have, before anything is chosen.
        self._chosen = ChosenDevices(allocated, ())
        #: Claim -> request -> alternatives.
        self._requests = list[list[list[RequestedDevices]]]()
        constraints = list[list[ConstraintState]]()
        for claim in claims:
            self._requests.append(self._requests_of(claim, classes))
            self._check_number(claim, self._requests[-1])
            constraints.append(_constraints_of(claim))
        self._attributes = tuple(
            sorted({each.match_attribute or each.distinct_attribute for claim in claims for each in claim.constraints})
        )
        self._chosen = ChosenDevices(allocated, constraints)

    def run(self) -> list[list[ChosenDevice]] | None:
        """The devices of each claim, None if there are none.

        Raises:
            ClaimsUnallocatable: something is wrong, or the search takes too long.
        """
        position = self._next_open(_Position(0))
        if position is None:
            return self._chosen.of_claims
        stack = [self._choices(position)]
        while stack:
            made = next(stack[-1], None)
            if made is None:
                stack.pop()
                continue
            position = self._next_open(made)
            if position is None:
                return self._chosen.of_claims
            stack.append(self._choices(position))
        return None

    def _requests_of(self, claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> list[list[RequestedDevices]]:
        requests = list[list[RequestedDevices]]()
        for parent in claim.requests:
            alternatives = list[RequestedDevices]()
            check_capacity_gate(claim, parent)
            for request in parent.alternatives:
                requested = requested_devices(claim, parent, request, classes)
                if requested.takes_all:
                    requested.all_devices = self._matching_devices(requested)
                    requested.number = len(requested.all_devices)
                alternatives.append(requested)
            if not alternatives:
                raise ClaimsUnallocatable(
                    f"resource claim {claim.key}, request {parent.name}: unknown request type", is_error=False
                )
            requests.append(alternatives)
        return requests

    def _matching_devices(self, requested: RequestedDevices) -> list[PooledDevice]:
        """What "all" are, whoever has them. A pool that cannot tell its devices makes that unknown."""
        matching = list[PooledDevice]()
        for pool in self._pools:
            if not pool.is_usable:
                state = "being updated" if pool.is_incomplete else "invalid"
                raise ClaimsUnallocatable(
                    f"claim {requested.claim.key}, request {requested.request.name}: asks for all devices, "
                    f"but resource pool {pool.pool_id} is currently {state}"
                )
            matching += (
                pooled
                for pooled in pool.devices
                if self._matches(requested, pooled) and self._counts(requested, pooled)
            )
        return matching

    def _counts(self, requested: RequestedDevices, pooled: PooledDevice) -> bool:
        """Whether a device that matches is one of "all": it is large enough, whoever has something of it."""
        if requested.request.skips_full:
            return self._chosen.fits(requested, pooled) is not None
        taken = amounts_of(requested, pooled)
        return taken is not None and fits_capacity(taken, pooled.device)

    @staticmethod
    def _check_number(claim: ResourceClaim, requests: list[list[RequestedDevices]]) -> None:
        least = _least_number(requests)
        if least > MAX_DEVICES:
            raise ClaimsUnallocatable(
                f"claim {claim.key}: number of requested devices {least} exceeds the claim limit of {MAX_DEVICES}"
            )

    def _next_open(self, position: _Position) -> _Position | None:
        """The first choice from here on that is not made yet; None: all are."""
        while position.claim < len(self._requests):
            if position.request == len(self._requests[position.claim]):
                position = _Position(position.claim + 1)
                continue
            if position.alternative < 0:
                return position
            requested = self._requested(position)
            # All of no devices is a choice that cannot be made.
            if position.number < requested.number or (requested.takes_all and not requested.number):
                return position
            position = _Position(position.claim, position.request + 1)
        return None

    def _requested(self, position: _Position) -> RequestedDevices:
        return self._requests[position.claim][position.request][position.alternative]

    def _choices(self, position: _Position) -> Iterator[_Position]:
        """Makes one choice after the other, each undone when the next one is asked for."""
        if position.alternative < 0:
            for alternative in range(len(self._requests[position.claim][position.request])):
                yield position._replace(alternative=alternative)
            return
        requested = self._requested(position)
        number = len(self._chosen.of_claims[position.claim]) + requested.number - position.number
        if number + self._least_after(position) > MAX_DEVICES:
            return
        if requested.takes_all:
            if position.number < requested.number:
                yield from self._choice(position, requested, requested.all_devices[position.number])
            return
        yield from self._device_choices(position, requested)

    def _least_after(self, position: _Position) -> int:
        """How many devices the later requests of a claim take at least."""
        return _least_number(self._requests[position.claim][position.request + 1 :])

    def _device_choices(self, position: _Position, requested: RequestedDevices) -> Iterator[_Position]:
        failed = set[Hashable]()
        for place in range(position.start, len(self._devices)):
            pooled = self._devices[place]
            if self._chosen.is_in_use(position.claim, requested, pooled) or not self._matches(requested, pooled):
                continue
            if failed and self._likeness(pooled) in failed:
                continue
            if requested.request.capacity and amounts_of(requested, pooled) is None:
                continue  # asked before taints and counters: an amount that nobody can give out is an error
            yield from self._choice(position._replace(start=place + 1), requested, pooled)
            failed.add(self._likeness(pooled))

    def _choice(self, position: _Position, requested: RequestedDevices, pooled: PooledDevice) -> Iterator[_Position]:
        self._spend(CHOICE)
        self._steps_left -= 1
        if self._steps_left < 0:
            raise ClaimsUnallocatable(REASON_TIMED_OUT, is_limit=True)
        if self._chosen.take(position.claim, requested, pooled):
            yield position._replace(number=position.number + 1)
            self._chosen.undo(position.claim)

    def _likeness(self, pooled: PooledDevice) -> Hashable:
        """Equal for devices that serve all requests alike. A device that somebody has something of is like no other."""
        if not self._chosen.is_untouched(pooled):
            return pooled.device_id
        likeness = self._likenesses.get(pooled.device_id)
        if likeness is None:
            likeness = self._likenesses[pooled.device_id] = self._untouched_likeness(pooled)
        return likeness

    def _untouched_likeness(self, pooled: PooledDevice) -> Hashable:
        device, driver = pooled.device, pooled.driver
        requests = (requested for claim in self._requests for alternatives in claim for requested in alternatives)
        try:
            matching = tuple(self._matches(requested, pooled) for requested in requests)
        except ClaimsUnallocatable:  # the search comes to it, or does without
            return pooled.device_id
        values = tuple(attribute_of(device, driver, name) for name in self._attributes)
        rules = (device.capacity, device.consumes, device.taints, device.allow_multiple, device.is_allocatable)
        return pooled.pool.pool_id, matching, values, rules

    def _matches(self, requested: RequestedDevices, pooled: PooledDevice) -> bool:
        """Whether class and request select a device, and the node reaches it."""
        key = (id(requested), pooled.device_id)
        matches = self._selectable.get(key)
        if matches is None:
            matches = self._selectable[key] = self._selects(requested, pooled)
        return matches

    def _selects(self, requested: RequestedDevices, pooled: PooledDevice) -> bool:
        if not pooled.device.is_selectable:
            return False
        for owner, expressions in (
            (f"class {requested.device_class.name}", requested.device_class.selectors),
            (f"claim {requested.claim.key}", requested.request.selectors),
        ):
            for index, expression in enumerate(expressions):
                if expression is None:
                    raise ClaimsUnallocatable(
                        f"{owner}: selector #{index}: CEL expression empty (unsupported selector type?)"
                    )
                answer = self._selectors.matches(expression, pooled.driver, pooled.device, self._spend)
                if isinstance(answer, CelProblem):
                    raise ClaimsUnallocatable(
                        f"{owner}: selector #{index}: CEL {answer.stage} error: {answer.text}",
                        is_limit=answer.is_limit,
                    )
                if not answer:
                    return False
        return not pooled.resource_slice.per_device or reaches(pooled.device.reach, self._node)


def _least_number(requests: Sequence[Sequence[RequestedDevices]]) -> int:
    return sum(min(requested.number for requested in alternatives) for alternatives in requests)


def _constraints_of(claim: ResourceClaim) -> list[ConstraintState]:
    states = list[ConstraintState]()
    for index, constraint in enumerate(claim.constraints):
        state = constraint_state(constraint)
        if state is None:
            raise ClaimsUnallocatable(
                f"claim {claim.key}, constraint #{index}: empty constraint (unsupported constraint type?)"
            )
        states.append(state)
    return states


def _allocation(claim: ResourceClaim, devices: Sequence[ChosenDevice], node: ReachedNode) -> ClaimAllocation:
    return ClaimAllocation(tuple(chosen.to_allocated() for chosen in devices), _terms(claim, devices, node))


def _terms(
    claim: ResourceClaim, devices: Sequence[ChosenDevice], node: ReachedNode
) -> tuple[NodeSelectorTerm, ...] | None:
    """The nodes that reach all devices: one node, those that meet all requirements of the slices, or all of them."""
    expressions, fields = list[Requirement](), list[Requirement]()
    for chosen in devices:
        resource_slice, device = chosen.pooled.resource_slice, chosen.pooled.device
        reach = device.reach if resource_slice.per_device else resource_slice.reach
        if reach.node_name or device.binds_to_node:
            return (NodeSelectorTerm(fields=(Requirement(NODE_NAME, "In", (node.name,)),)),)
        if reach.terms and len(reach.terms) > 1:
            raise ClaimsUnallocatable(
                f"create NodeSelector for claim {claim.name}: unsupported ResourceSlice.NodeSelector with "
                f"{len(reach.terms)} terms"
            )
        for term in reach.terms or ():
            expressions += (each for each in term.expressions if each not in expressions)
            fields += (each for each in term.fields if each not in fields)
    return (NodeSelectorTerm(tuple(expressions), tuple(fields)),) if expressions or fields else None
