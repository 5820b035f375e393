"""How the plan of a policy is delivered: the one place that knows which deliveries there are.

``delivery_of`` makes a policy's delivery from its spec; everybody else asks that delivery.
"""

from __future__ import annotations

from typing import Protocol

from flowcore.model.constraint_limits import all_or_none
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery as DeliveryName
from flowcore.model.policies import Policy, Steering
from thalweg_operator.reservations.ledger.reservation import Owner


class PodDelivery(Protocol):
    """How a plan reaches the pods of a policy."""

    @property
    def owner(self) -> Owner | None:
        """Owner of the reservations of its placements; None: placements are only observed, not reserved or written."""

    @property
    def steered(self) -> bool:
        """Whether kube-scheduler binds its pods."""

    def blocked(self, policy: Policy, pod: Pod, /) -> bool:
        """Whether no round may plan a pod."""

    def is_told(self, pod: Pod, /) -> bool:
        """Whether we tell a pod why no round may plan it."""

    def may_choose(self, policy: Policy, pod: Pod, /) -> bool:
        """Whether kube-scheduler may choose a node for a pod that the plan has none for."""


class ObserveDelivery:
    """Another scheduler places the pods; we say in Events what we would do."""

    owner, steered = None, False

    def blocked(self, _policy: Policy, pod: Pod, /) -> bool:
        """Whether no round may plan the pod."""
        return bool(pod.skip_reason)

    def is_told(self, _pod: Pod, /) -> bool:
        """Whether we tell a pod why no round may plan it."""
        return False

    def may_choose(self, _policy: Policy, _pod: Pod, /) -> bool:
        """Whether kube-scheduler may choose a node for a pod without a plan."""
        return False


class BinderDelivery:
    """We bind the pods."""

    owner, steered = Owner.BINDER, False

    def blocked(self, policy: Policy, pod: Pod, /) -> bool:
        """Whether no round may plan the pod."""
        return pod.gated or bool(pod.skip_reason) or _only_awaits_claim(policy, pod)

    def is_told(self, pod: Pod, /) -> bool:
        """Whether we tell a pod why no round may plan it."""
        return _speaks(pod)

    def may_choose(self, _policy: Policy, _pod: Pod, /) -> bool:
        """Whether kube-scheduler may choose a node for a pod without a plan."""
        return False


class ExtenderDelivery:
    """We nominate, kube-scheduler binds."""

    owner, steered = Owner.STEERING, True

    def blocked(self, policy: Policy, pod: Pod, /) -> bool:
        """Whether no round may plan the pod."""
        return bool(pod.skip_reason) or _only_awaits_claim(policy, pod)

    def is_told(self, pod: Pod, /) -> bool:
        """Whether we tell a pod why no round may plan it: kube-scheduler judges those itself that we do not plan."""
        return _speaks(pod) and (bool(pod.blocked_reason) or not pod.unsupported_reason)

    def may_choose(self, policy: Policy, pod: Pod, /) -> bool:
        """Whether kube-scheduler may choose: the policy only prefers the planned node, and the pod is of no gang."""
        return policy.steering is Steering.PREFER and not (pod.gated or pod.grows) and pod.gang is None


def _speaks(pod: Pod) -> bool:
    """Whether we tell the pod: the API server itself writes a closed gate on it, in its own words."""
    return not (pod.deleting or pod.held_by_gates)


def _only_awaits_claim(policy: Policy, pod: Pod) -> bool:
    """Whether a pod by itself waits for a claim that is still to be made: no node takes it before.

    kube-scheduler does not queue it either (DynamicResources.PreEnqueue). What is placed together or not at all is
    planned as a whole.
    """
    return pod.awaits_claim and pod.gang is None and not all_or_none(pod.labels, policy)


_DELIVERIES: dict[DeliveryName, PodDelivery] = {
    DeliveryName.OBSERVE: ObserveDelivery(),
    DeliveryName.BINDER: BinderDelivery(),
    DeliveryName.EXTENDER: ExtenderDelivery(),
}


def delivery_of(policy: Policy) -> PodDelivery:
    """A policy's delivery."""
    return _DELIVERIES[policy.delivery]
