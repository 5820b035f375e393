"""kube-scheduler's feature gates for devices: what a gate that is off, or an older version, leaves of objects.

Source: kubernetes pkg/features (versioned defaults); dynamic-resource-allocation structured (GatherPools, isSelectable,
allocateDevice, Allocate), kube-scheduler plugins/dynamicresources (PreFilter).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.model.resource_claims import ALL, ClaimAllocation, ClaimRequest, DeviceRequest, ResourceClaim
from flowcore.model.resource_slices import Device, DeviceCapacity, NodeReach, ResourceSlice

ADMIN_ACCESS: Final = "DRAAdminAccess"
BINDING_CONDITIONS: Final = "DRADeviceBindingConditions"
CLAIM_DEVICE_STATUS: Final = "DRAResourceClaimDeviceStatus"
CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
DEVICE_TAINTS: Final = "DRADeviceTaints"
DEVICE_TAINT_RULES: Final = "DRADeviceTaintRules"
EXTENDED_RESOURCE: Final = "DRAExtendedResource"
FRACTIONAL_RANGES: Final = "DRAFractionalCapacityRange"
PARTITIONABLE_DEVICES: Final = "DRAPartitionableDevices"
PRIORITIZED_LIST: Final = "DRAPrioritizedList"
WORKLOAD_CLAIMS: Final = "DRAWorkloadResourceClaims"

#: Gate -> the version of Kubernetes, 1.N, from which on it is on unless a setting says otherwise; None: it is off in
#: all. That of fractions is of 1.37, and is on once kube-scheduler need not be compatible with 1.36, which is 1.38 by
#: default.
ON_SINCE: Final[Mapping[str, int | None]] = {
    ADMIN_ACCESS: 34,
    BINDING_CONDITIONS: 36,
    CLAIM_DEVICE_STATUS: 33,
    CONSUMABLE_CAPACITY: 36,
    DEVICE_TAINTS: 36,
    DEVICE_TAINT_RULES: 37,
    EXTENDED_RESOURCE: 36,
    FRACTIONAL_RANGES: 38,
    PARTITIONABLE_DEVICES: 36,
    PRIORITIZED_LIST: 34,
    WORKLOAD_CLAIMS: None,
}

#: Gates by which no slice is read otherwise, and gates by which no claim is.
_NOT_OF_SLICES: Final = frozenset({DEVICE_TAINT_RULES, WORKLOAD_CLAIMS})
_NOT_OF_CLAIMS: Final = _NOT_OF_SLICES | {DEVICE_TAINTS, FRACTIONAL_RANGES, PARTITIONABLE_DEVICES}
#: The first version, 1.N, in which "all devices" are those that match, whether others have left enough of them or not.
_ALL_THAT_MATCH: Final = 37
_NEWEST: Final = KubernetesVersion()


class DeviceGates:
    """Which gates are off, and objects as they are with these.

    Args:
        off: names of gates, of ``ON_SINCE``.
        version: of the API server.
    """

    def __init__(self, off: frozenset[str] = frozenset(), version: KubernetesVersion = _NEWEST) -> None:
        self.off = off
        self._skips_full = version.rules < _ALL_THAT_MATCH

    @classmethod
    def of_server(cls, version: KubernetesVersion, settings: Mapping[str, bool]) -> DeviceGates:
        """The defaults of a version, and settings that count instead.

        Args:
            version: of the API server. One that is not of Kubernetes 1 has all gates on that any version has on.
            settings: gate -> whether it is on.
        """
        minor = version.minor
        defaults = {gate: since is not None and (minor is None or minor >= since) for gate, since in ON_SINCE.items()}
        return cls(frozenset(gate for gate, is_on in {**defaults, **settings}.items() if not is_on), version)

    @property
    def has_extended_resources(self) -> bool:
        """Whether DeviceClasses back extended resources."""
        return EXTENDED_RESOURCE not in self.off

    @property
    def has_taint_rules(self) -> bool:
        """Whether DeviceTaintRules taint devices."""
        return not self.off & {DEVICE_TAINTS, DEVICE_TAINT_RULES}

    @property
    def has_group_claims(self) -> bool:
        """Whether the pods of a PodGroup share its claims."""
        return WORKLOAD_CLAIMS not in self.off

    @property
    def _has_binding_conditions(self) -> bool:
        return not self.off & {BINDING_CONDITIONS, CLAIM_DEVICE_STATUS}

    @property
    def _is_stable(self) -> bool:
        """Whether kube-scheduler has its older allocator for these gates (structured/internal/stable)."""
        return CONSUMABLE_CAPACITY in self.off and not self._has_binding_conditions

    def as_read(self, resource_slice: ResourceSlice) -> ResourceSlice:
        """A slice as allocations read it. One that none can read reaches no node; its pool has it all the same."""
        if self.off <= _NOT_OF_SLICES:
            return resource_slice
        if PARTITIONABLE_DEVICES in self.off and (resource_slice.per_device or resource_slice.shared_counters):
            return msgspec.structs.replace(
                resource_slice, reach=NodeReach(), per_device=False, devices=(), shared_counters=()
            )
        return msgspec.structs.replace(resource_slice, devices=tuple(map(self._device, resource_slice.devices)))

    def _device(self, device: Device) -> Device:
        if DEVICE_TAINTS in self.off:
            device = msgspec.structs.replace(device, taints=())
        if CONSUMABLE_CAPACITY in self.off:
            capacity = tuple((name, DeviceCapacity(amount.value)) for name, amount in device.capacity)
            device = msgspec.structs.replace(device, allow_multiple=False, capacity=capacity)
        elif FRACTIONAL_RANGES in self.off:
            device = _with_whole_steps(device)
        if device.binding_conditions and not self._has_binding_conditions:
            device = msgspec.structs.replace(device, is_selectable=False)
            if self._is_stable:  # it does not take pools with such devices last
                device = msgspec.structs.replace(device, binding_conditions=(), failure_conditions=())
        if device.consumes and PARTITIONABLE_DEVICES in self.off:
            device = msgspec.structs.replace(device, consumes=(), is_allocatable=False)
        return device

    def as_claimed(self, claim: ResourceClaim) -> ResourceClaim:
        """A claim whose requests say which gate they lack, and in which nobody shares devices where nobody may."""
        if self.off <= _NOT_OF_CLAIMS and not (self._skips_full and _asks_for_all(claim)):
            return claim
        allocation = claim.allocation
        if allocation is not None and CONSUMABLE_CAPACITY in self.off:
            allocation = _without_shares(allocation)
        return msgspec.structs.replace(claim, requests=tuple(map(self._request, claim.requests)), allocation=allocation)

    def _request(self, request: ClaimRequest) -> ClaimRequest:
        request = msgspec.structs.replace(
            request,
            exactly=None if request.exactly is None else self._alternative(request.exactly),
            first_available=tuple(map(self._alternative, request.first_available)),
        )
        return msgspec.structs.replace(request, lacks=self._lacking(request))

    def _alternative(self, request: DeviceRequest) -> DeviceRequest:
        capacity = () if self._is_stable else request.capacity  # that allocator knows no amounts
        skips_full = self._skips_full and request.mode == ALL
        return msgspec.structs.replace(request, capacity=capacity, skips_full=skips_full)

    def _lacking(self, request: ClaimRequest) -> str:
        """The first gate that a request needs and that is off; "": there is none."""
        alternatives = request.alternatives
        needs = {
            PRIORITIZED_LIST: bool(request.first_available),
            CONSUMABLE_CAPACITY: any(each.capacity for each in alternatives),
            ADMIN_ACCESS: any(each.admin_access for each in alternatives),
        }
        return next((gate for gate, is_needed in needs.items() if is_needed and gate in self.off), "")


def _with_whole_steps(device: Device) -> Device:
    steps = [amount.policy.valid_range for _, amount in device.capacity if amount.policy is not None]
    if not any(valid is not None and valid.step is not None for valid in steps):
        return device  # as nearly all
    capacity = tuple((name, _in_whole_units(amount)) for name, amount in device.capacity)
    return msgspec.structs.replace(device, capacity=capacity)


def _in_whole_units(amount: DeviceCapacity) -> DeviceCapacity:
    policy = amount.policy
    if policy is None or policy.valid_range is None:
        return amount
    valid = msgspec.structs.replace(policy.valid_range, in_thousandths=False)
    return msgspec.structs.replace(amount, policy=msgspec.structs.replace(policy, valid_range=valid))


def _asks_for_all(claim: ResourceClaim) -> bool:
    return any(each.mode == ALL for request in claim.requests for each in request.alternatives)


def _without_shares(allocation: ClaimAllocation) -> ClaimAllocation:
    devices = tuple(msgspec.structs.replace(each, share_id=None, consumed=()) for each in allocation.devices)
    return msgspec.structs.replace(allocation, devices=devices)
