"""Claims to devices: what is asked for, what is allocated, and who uses it.

Source: resource/v1 ResourceClaim. Amounts are in billionths, exact, as quantities are compared.
"""

from __future__ import annotations

import hashlib

import msgspec

from flowcore.model.resource_slices import DeviceAmounts, DeviceId
from flowcore.model.selectors import Labels, NodeSelectorTerm

#: Most devices of one claim (AllocationResultsMaxSize).
MAX_DEVICES = 32
#: Most consumers that may reserve one claim (ResourceClaimReservedForMaxSize).
MAX_CONSUMERS = 256

EXACT_COUNT, ALL = "ExactCount", "All"

#: The claim for a pod's extended resources, before it is made; no object has such a name.
EXTENDED_RESOURCES = "<extended-resources>"
#: Most characters of a claim's name before its suffix: generated names have 63 at most (apiserver storage/names).
_NAME_LENGTH = 53


class ExtendedRequest(msgspec.Struct, frozen=True, gc=False):
    """What a claim would ask for in place of an extended resource of a pod.

    Attributes:
        requests: names and numbers of its requests.
        mappings: container -> a request that serves it, in kube-scheduler's order.
    """

    resource: str
    requests: tuple[tuple[str, int], ...]
    mappings: tuple[tuple[str, str], ...] = ()


#: Of a pod, sorted by resource.
ExtendedRequests = tuple[ExtendedRequest, ...]


def extended_claim_name(pod: str, uid: str) -> str:
    """The name of the claim that Thalweg makes for the extended resources of a pod: the same at each attempt."""
    suffix = hashlib.sha256(uid.encode()).hexdigest()[:10]
    return f"{pod}-extended-resources-"[:_NAME_LENGTH] + suffix


class DeviceToleration(msgspec.Struct, frozen=True, gc=False):
    """Taints of devices that a request puts up with. An empty key or effect means any.

    Attributes:
        seconds: how long a pod keeps its device after a taint came that evicts; None for ever.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class DeviceRequest(msgspec.Struct, frozen=True, gc=False):
    """Devices of one class.

    Attributes:
        name: of the request, or of the alternative in its list.
        selectors: CEL expressions that all hold for a device; None for one of a kind that is not known.
        mode: ``EXACT_COUNT``, ``ALL``, or one that is not known.
        count: how many, if the mode is the former.
        admin_access: devices that others use serve too.
        capacity: what it takes of devices that are shared.
        skips_full: of all devices it takes those that others have left enough of; False: all, or it fails.
    """

    name: str
    device_class: str
    selectors: tuple[str | None, ...] = ()
    mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: DeviceAmounts = ()
    skips_full: bool = False


class ClaimRequest(msgspec.Struct, frozen=True, gc=False):
    """One request of a claim.

    Attributes:
        exactly: what is asked for; None if there are alternatives, or if it asks in a way that is not known.
        first_available: alternatives, the preferred first.
        resource: the extended resource in whose place it is; a node that offers this itself needs no device for it. "":
            none.
        lacks: the feature gate that is off and that it needs (``device_gates``); "": there is none.
    """

    name: str
    exactly: DeviceRequest | None = None
    first_available: tuple[DeviceRequest, ...] = ()
    resource: str = ""
    lacks: str = ""

    @property
    def alternatives(self) -> tuple[DeviceRequest, ...]:
        """What serves it, the preferred first; empty for a request of a kind that is not known."""
        return self.first_available or (() if self.exactly is None else (self.exactly,))

    def reference(self, alternative: DeviceRequest) -> str:
        """The name that an allocation gives one of its alternatives: ``request`` or ``request/alternative``."""
        return f"{self.name}/{alternative.name}" if self.first_available else self.name


class AttributeConstraint(msgspec.Struct, frozen=True, gc=False):
    """What the devices of some requests have in common, or apart.

    Attributes:
        requests: names, or ``request/alternative``; empty for all of the claim.
        match_attribute: all have this attribute with one value; "" for none.
        distinct_attribute: all have this attribute, each with a value of its own; "" for none.
    """

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class AllocatedDevice(msgspec.Struct, frozen=True, gc=False):
    """A device, or a share of one, that a claim has.

    Attributes:
        request: ``request`` or ``request/alternative``.
        share_id: which share of the device; None for a device that nobody shares. A plan leaves it "": who writes the
            allocation draws it.
        consumed: how much of each capacity the share takes.
        binding_conditions: what its driver says true of it before a pod may be bound; empty: nothing.
        failure_conditions: what its driver says true of it if it will never be ready.
    """

    request: str
    device: DeviceId
    admin_access: bool = False
    share_id: str | None = None
    consumed: DeviceAmounts = ()
    binding_conditions: tuple[str, ...] = ()
    failure_conditions: tuple[str, ...] = ()

    @property
    def what(self) -> tuple[str, DeviceId, DeviceAmounts]:
        """What it is of which device, and for which request; who writes it decides the rest."""
        return self.request, self.device, self.consumed


class ClaimAllocation(msgspec.Struct, frozen=True, gc=False):
    """What a claim got.

    Attributes:
        terms: the nodes that reach it: any of the terms; None for all nodes.
    """

    devices: tuple[AllocatedDevice, ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None

    def is_like(self, allocation: ClaimAllocation) -> bool:
        """Whether both have the same of the same devices."""
        return [device.what for device in self.devices] == [device.what for device in allocation.devices]


class ResourceClaim(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim.

    Attributes:
        controller: uid of the owner that controls it, "" without one.
        controller_group: the name of the owner, if that is a PodGroup of Kubernetes; else "".
        is_being_deleted: no new pod may use it.
        allocation: None while it has no devices.
        reserved_for: uids of its consumers.
        is_ours: Thalweg wrote the allocation, or made the claim for extended resources, by what the API server
            remembers of writers.
        awaited: devices of the allocation, each with the conditions that its driver has not reported yet.
        failure: what a driver says of a device that will never be ready; "": nothing.
        is_extended: it was made for the extended resources of its controller, a pod.
    """

    namespace: str
    name: str
    uid: str = ""
    controller: str = ""
    is_being_deleted: bool = False
    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[AttributeConstraint, ...] = ()
    allocation: ClaimAllocation | None = None
    reserved_for: tuple[str, ...] = ()
    is_ours: bool = False
    awaited: tuple[str, ...] = ()
    failure: str = ""
    is_extended: bool = False
    controller_group: str = ""

    @property
    def key(self) -> str:
        """As messages name it."""
        return f"{self.namespace}/{self.name}"


class GroupConsumer(msgspec.Struct, frozen=True, gc=False):
    """A PodGroup that reserves a claim for all of its pods."""

    name: str
    uid: str


class PlannedClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim of a planned pod, and what it has for the pod.

    Attributes:
        uid: of the claim; "": it is made for the pod's extended resources before the pod is bound.
        allocation: what it has already, or what it is to get.
        requests: of a claim that is to be made; (): it is there.
        group: the PodGroup that it is reserved for in place of the pod; None: it is reserved for the pod.
    """

    namespace: str
    name: str
    uid: str
    allocation: ClaimAllocation
    requests: tuple[ClaimRequest, ...] = ()
    group: GroupConsumer | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    def consumer(self, pod: str) -> str:
        """The uid of whom it is reserved for; ``pod``: the uid of the pod that it is planned for."""
        return pod if self.group is None else self.group.uid


class PodClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim as a pod or a PodGroup names it in ``spec.resourceClaims``.

    Attributes:
        name: in the pod, or in the PodGroup.
        claim: the ResourceClaim's name; "" if it is made from a template.
        template: the ResourceClaimTemplate's name; "" if there is none.
    """

    name: str
    claim: str = ""
    template: str = ""


class ClaimingGroup(msgspec.Struct, frozen=True, gc=False):
    """The PodGroup of a pod as claims see it.

    Attributes:
        uid: "": it is not there, or it is a manifest.
        claims: those that its pods share. A pod shares one that it names as the group does, in all fields
            (dynamic-resource-allocation resourceclaim, BindTo).
    """

    name: str
    uid: str = ""
    claims: tuple[PodClaim, ...] = ()


class ClaimingPod(msgspec.Struct, frozen=True, gc=False):
    """What a verdict on devices reads of a pod.

    Attributes:
        made: name in the pod -> the claim that was made from its template, "" if none is needed; from
            ``status.resourceClaimStatuses``.
        extended: what the claim asks for that is made for its extended resources, on a node that offers none of them;
            the claim is the last of ``claims``. (): there is none, or the cluster has it.
        group: its PodGroup of Kubernetes; None: it has none, or PodGroups share no claims (a gate that is off).
    """

    namespace: str
    name: str
    uid: str
    claims: tuple[PodClaim, ...] = ()
    made: tuple[tuple[str, str], ...] = ()
    extended: tuple[ClaimRequest, ...] = ()
    group: ClaimingGroup | None = None

    @property
    def key(self) -> str:
        """As messages name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def may_share(self) -> bool:
        """Whether one of its claims is not its own: other pods may use it too."""
        return any(named.claim or self.is_of_group(named) for named in self.claims)

    @property
    def awaits_claim(self) -> bool:
        """Whether a claim is still to be made from its template, by the controller of claims."""
        made = {EXTENDED_RESOURCES, *dict(self.made)}  # that one is made by who places the pod
        return any(named.template and named.name not in made for named in self.claims)

    def is_of_group(self, named: PodClaim) -> bool:
        """Whether a claim of it is one that its PodGroup shares."""
        return self.group is not None and named in self.group.claims

    def group_of(self, claim: str) -> GroupConsumer | None:
        """The PodGroup that the claim of this name is reserved for; None: it is reserved for the pod."""
        if self.group is None or not self.group.claims:
            return None
        made = dict(self.made)
        names = {named.claim or made.get(named.name, "") for named in self.claims if self.is_of_group(named)}
        return GroupConsumer(self.group.name, self.group.uid) if claim in names else None

    def consumer(self, claim: str) -> str:
        """The uid of whom the claim of this name is reserved for: of the pod, or of its PodGroup."""
        group = self.group_of(claim)
        return self.uid if group is None else group.uid

    @property
    def extended_resources(self) -> tuple[str, ...]:
        """The extended resources that are devices on nodes which do not offer them, sorted."""
        return tuple(sorted({request.resource for request in self.extended if request.resource}))

    @property
    def has_extended_claim(self) -> bool:
        """Whether it has a claim for its extended resources, made or not."""
        return any(claim.name == EXTENDED_RESOURCES for claim in self.claims)

    def with_extended_claim(self, requests: tuple[ClaimRequest, ...] = (), made: str = "") -> ClaimingPod:
        """The pod with a claim for its extended resources, as one from a template.

        Args:
            requests: of a claim that is not made yet.
            made: name of the claim; "": it is not made yet.
        """
        pod = self.without_extended_claim
        claims = (*pod.claims, PodClaim(EXTENDED_RESOURCES, template=EXTENDED_RESOURCES))
        names = (*pod.made, (EXTENDED_RESOURCES, made)) if made else pod.made
        return msgspec.structs.replace(pod, claims=claims, made=names, extended=requests)

    @property
    def without_extended_claim(self) -> ClaimingPod:
        """The pod with the claims that it names itself."""
        claims = tuple(claim for claim in self.claims if claim.name != EXTENDED_RESOURCES)
        made = tuple(each for each in self.made if each[0] != EXTENDED_RESOURCES)
        return msgspec.structs.replace(self, claims=claims, made=made, extended=())

    @property
    def anonymous(self) -> ClaimingPod | None:
        """What pods have in common that one controller makes: the claims as their template names them. None: none."""
        claims = self.without_extended_claim.claims
        return ClaimingPod(self.namespace, "", "", claims) if claims else None


class DeviceTaker(msgspec.Struct, frozen=True, gc=False):
    """A pod that is to take devices on a node, where its claims may not say so yet.

    Attributes:
        labels: of the node.
        claims: what its claims get there; empty: that is not decided.
        offered: extended resources of the pod that the node offers itself.
    """

    pod: ClaimingPod
    node: str
    labels: Labels = ()
    claims: tuple[PlannedClaim, ...] = ()
    offered: tuple[str, ...] = ()
