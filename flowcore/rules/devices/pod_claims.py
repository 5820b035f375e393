"""The claims of a pod, and whether the pod may use them at all.

Source: kube-scheduler plugins/dynamicresources (foreachPodResourceClaim, PreFilter, filterExtendedResources),
dynamic-resource-allocation resourceclaim. A claim without room for one more consumer is in use: kube-scheduler 1.36
hears that from the API server when it binds, here the pod waits with the words that kube-scheduler has for a claim in
use. A claim that a PodGroup shares has the group for a consumer, in place of its pods (IsForPod, BindTo).

A pod whose extended resources are devices has one more claim, which is made when the pod is bound, by kube-scheduler or
by the binder. One that has devices before was left by an attempt that failed: who made it deletes it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from flowcore.model.device_gates import PRIORITIZED_LIST
from flowcore.model.devices import DeviceClass
from flowcore.model.nodes import Node
from flowcore.model.resource_claims import EXTENDED_RESOURCES, MAX_CONSUMERS, ClaimingPod, PodClaim, ResourceClaim

#: Codes of kube-scheduler's verdicts.
UNRESOLVABLE, ERROR = "UnschedulableAndUnresolvable", "Error"

REASON_IN_USE = "resourceclaim in use"
REASON_LEFT_OVER = "cannot schedule extended resource claim"
LACKS_ALTERNATIVES = f"has subrequests, but the {PRIORITIZED_LIST} feature is disabled"

#: Namespace and name -> claim.
Claims = Mapping[tuple[str, str], ResourceClaim]


@dataclass(frozen=True, slots=True)
class ClaimRejection:
    """Why a pod cannot have its devices.

    Attributes:
        reason: kube-scheduler's text.
        code: ``UNRESOLVABLE`` or ``ERROR``.
    """

    reason: str
    code: str = UNRESOLVABLE

    @property
    def ends_attempt(self) -> bool:
        """Whether the pod gets no node at all, once it is the verdict of one that its other filters leave."""
        return self.code == ERROR


def claims_of(
    pod: ClaimingPod,
    claims: Claims,
    classes: Mapping[str, DeviceClass],
    extended: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> tuple[ResourceClaim, ...] | ClaimRejection:
    """The claims of a pod in its order, or why no node can take the pod.

    Args:
        extended: uid of a pod -> the claim that was made for its extended resources.
    """
    pod_claims = list[ResourceClaim]()
    for named in pod.claims:
        if named.name == EXTENDED_RESOURCES and pod.extended:
            continue
        claim = _claim(pod, named, claims)
        if isinstance(claim, ClaimRejection):
            return claim
        if claim is not None:
            pod_claims.append(claim)
    for claim in pod_claims:
        rejection = claim_problem(pod, claim, classes)
        if rejection is not None:
            return rejection
    if not pod.extended:
        return tuple(pod_claims)
    made = claims.get(extended.get(pod.uid, ("", "")))
    if made is not None and (made.allocation is not None or made.is_being_deleted):
        return ClaimRejection(REASON_LEFT_OVER)
    return (*pod_claims, ResourceClaim(pod.namespace, EXTENDED_RESOURCES, controller=pod.uid, requests=pod.extended))


def named_claims(pod: ClaimingPod, claims: Claims) -> dict[str, ResourceClaim]:
    """The claims that a pod has, by their names in the pod; those that are not there are left out."""
    made = dict(pod.made)
    named = {each.name: claims.get((pod.namespace, each.claim or made.get(each.name, ""))) for each in pod.claims}
    return {name: claim for name, claim in named.items() if claim is not None}


def lacks_devices(pod: ClaimingPod, claims: Claims, extended: Mapping[str, tuple[str, str]], node: Node) -> bool:
    """Whether devices are still to be chosen for a pod on a node.

    Args:
        extended: uid of a pod -> the key of the claim for its extended resources.
    """
    made, offered = dict(pod.made), dict(node.allocatable)
    for named in pod.claims:
        if named.name == EXTENDED_RESOURCES:
            if pod.extended and all(offered.get(resource) for resource in pod.extended_resources):
                continue  # the node offers them itself
            claim = claims.get(extended.get(pod.uid, ("", "")))
        else:
            name = named.claim or made.get(named.name)
            if name == "":
                continue  # no claim is needed
            claim = claims.get((pod.namespace, name or ""))
        if claim is None or claim.allocation is None:
            return True
    return False


def own_claims(pod: ClaimingPod, claims: Claims) -> tuple[ResourceClaim, ...]:
    """The claims that go when a pod goes: those made for it that nobody else uses."""
    made = dict(pod.made)
    named = (claims.get((pod.namespace, made.get(each.name, ""))) for each in pod.claims if each.template)
    return tuple(
        claim
        for claim in named
        if claim is not None
        and claim.controller == pod.uid
        and all(consumer == pod.uid for consumer in claim.reserved_for)
    )


def asking_anew(pod: ClaimingPod, claims: Claims) -> ClaimingPod | None:
    """A pod that asks for what one asks for in claims of its own, none of which is made yet. None: for nothing.

    It has one claim for all, without their constraints.
    """
    made = dict(pod.made)
    own = {
        named.name: claims.get((pod.namespace, made.get(named.name, "")))
        for named in pod.claims
        if named.template and not pod.is_of_group(named)
    }
    requests = tuple(
        msgspec.structs.replace(request, name=f"{name}/{request.name}")
        for name, claim in own.items()
        if claim is not None
        for request in claim.requests
    )
    if not (requests or pod.extended):
        return None
    bare = ClaimingPod(pod.namespace, pod.name, pod.uid)
    return bare.with_extended_claim((*pod.extended, *requests))


def _claim(pod: ClaimingPod, named: PodClaim, claims: Claims) -> ResourceClaim | ClaimRejection | None:
    """A claim; None: none is needed."""
    name = named.claim
    if not name:
        if not named.template:
            return ClaimRejection(
                f'pod "{pod.key}", spec.resourceClaim "{named.name}": none of the supported fields are set'
            )
        made = dict(pod.made)
        if named.name not in made:
            return ClaimRejection(f'pod "{pod.key}": ResourceClaim not created yet')
        name = made[named.name]
        if not name:
            return None
    claim = claims.get((pod.namespace, name))
    if claim is None:
        return ClaimRejection(f'could not find ResourceClaim "{pod.namespace}/{name}"')
    if claim.is_being_deleted:
        return ClaimRejection(f'resourceclaim "{claim.name}" is being deleted')
    if not named.claim and claim.controller != pod.uid and not _is_of_group(pod, claim):
        problem = "Pod is not owner" if pod.group is None else f"neither Pod nor PodGroup {pod.group.name} is the owner"
        return ClaimRejection(f"ResourceClaim {claim.key} was not created for Pod {pod.key} ({problem})")
    return claim


def _is_of_group(pod: ClaimingPod, claim: ResourceClaim) -> bool:
    """Whether a claim was made for the PodGroup of a pod. A pod does not know the uid of its group."""
    return pod.group is not None and claim.controller_group == pod.group.name


def claim_problem(pod: ClaimingPod, claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> ClaimRejection | None:
    """Why no node can take a pod for the sake of one of its claims; None: some may."""
    if claim.allocation is not None:
        is_full = len(claim.reserved_for) >= MAX_CONSUMERS and pod.consumer(claim.name) not in claim.reserved_for
        return ClaimRejection(REASON_IN_USE) if is_full else None
    for request in claim.requests:
        if not request.alternatives:
            return ClaimRejection(f"resource claim {claim.key}, request {request.name}: unknown request type")
        if request.lacks == PRIORITIZED_LIST:
            return ClaimRejection(f"resource claim {claim.key}, request {request.name}: {LACKS_ALTERNATIVES}")
        for alternative in request.alternatives:
            name = request.reference(alternative)
            if not alternative.device_class:
                return ClaimRejection(f"request {name}: unsupported request type", ERROR)
            if alternative.device_class not in classes:
                return ClaimRejection(f"request {name}: device class {alternative.device_class} does not exist")
    return None
