"""The pods that a fix is to place: which of them are alike, and which nodes would take them if they were changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Snapshot
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.model.resource_claims import ResourceClaim
from flowcore.model.services import ServiceIndex
from flowcore.questions.scenario import GovernedScenario, Scenario
from flowcore.questions.scenario.context import always
from flowcore.rules.devices.nameless_claims import without_names
from flowcore.rules.devices.pod_claims import ClaimRejection, claims_of, named_claims
from flowcore.rules.filters import Verdicts, dynamic_resources, run_filters
from flowcore.rules.verdicts import VerdictCache


@dataclass(frozen=True, slots=True)
class Wanted:
    """Waiting pods that are alike.

    Attributes:
        pod: one of them, perhaps changed.
        signature: its own, with the limits of its policy.
        keys: of all of them.
        claims: to devices, of one of them, by their names in it, perhaps changed; none where it cannot use them, or has
            extended resources by devices too.
        services: by which pods without a controller are spread.
    """

    pod: Pod
    signature: PodSignature
    keys: tuple[str, ...]
    policy: Policy
    claims: Mapping[str, ResourceClaim] = field(default_factory=dict)
    services: ServiceIndex | None = None

    def with_pod(self, pod: Pod) -> Wanted:
        """The same pods, changed."""
        return replace(self, pod=pod, signature=with_policy_constraints(pod.signature, self.policy, self.services))

    def with_claims(self, claims: Mapping[str, ResourceClaim]) -> Wanted:
        """The same pods with other claims."""
        return replace(self, claims=claims)

    def without_requests(self) -> Wanted:
        """The same pods if they took no room."""
        pod_class = msgspec.structs.replace(self.pod.pod_class, requests=(), host_ports=())
        return replace(self, pod=msgspec.structs.replace(self.pod, pod_class=pod_class))


def wanted_pods(scenario: Scenario, keys: Sequence[str]) -> tuple[Wanted, ...]:
    """The waiting pods of some keys; pods that are alike are together."""
    governed = GovernedScenario(scenario)
    alike: dict[tuple[object, ...], list[Pod]] = {}
    for key in keys:
        pod = scenario.cluster.waiting[key]
        claims = _usable_claims(pod, scenario)
        # Pods of one template have claims of their own that ask for the same.
        asks = (_without_claims(pod), without_names(claims)) if claims else (pod.pod_class,)
        alike.setdefault((asks, pod.signature, governed.policy_of(pod).name), []).append(pod)
    wanted = []
    for pods in alike.values():
        policy = governed.policy_of(pods[0])
        services = scenario.cluster.services
        signature = with_policy_constraints(pods[0].signature, policy, services)
        of_all = tuple(pod.key for pod in pods)
        wanted.append(Wanted(pods[0], signature, of_all, policy, _claims(pods[0], scenario), services))
    return tuple(wanted)


def _usable_claims(pod: Pod, scenario: Scenario) -> tuple[ResourceClaim, ...]:
    """The claims of a pod, that for its extended resources too; none where it cannot use them."""
    claiming, devices = pod.pod_class.devices, scenario.cluster.devices
    if claiming is None:
        return ()
    claims = claims_of(claiming, devices.claims, devices.classes, devices.extended)
    return () if isinstance(claims, ClaimRejection) else claims


def _claims(pod: Pod, scenario: Scenario) -> dict[str, ResourceClaim]:
    """The claims of a pod that may be changed, by their names in it.

    A pod with extended resources by devices is judged as it is: these and its claims may take the same devices.
    """
    claiming = pod.pod_class.devices
    if claiming is None or claiming.extended or not _usable_claims(pod, scenario):
        return {}
    return named_claims(claiming, scenario.cluster.devices.claims)


def _without_claims(pod: Pod) -> PodClass:
    return msgspec.structs.replace(pod.pod_class, devices=None)


def have_devices(wanted: Wanted, snapshot: Snapshot) -> Bools:
    """bool[N]: nodes that have devices for the claims of one of these pods."""
    claims = tuple(wanted.claims.values())
    return ~dynamic_resources.nodes_without_devices(claims, snapshot)


class Judge:
    """Says which nodes take pods beside all that a plan places.

    Args:
        after: the snapshot after the plan.
        patient: whether the asker waits for searches for devices.
    """

    def __init__(self, after: Snapshot, patient: Callable[[], bool] = always) -> None:
        self.snapshot, self._patient = after, patient
        self._cache = VerdictCache.of(after)

    def fits(self, wanted: Wanted) -> Bools:
        """bool[N]: nodes that take one of these pods."""
        if not wanted.claims:
            return self._fits(wanted.pod.pod_class, wanted)
        mask = self._fits(_without_claims(wanted.pod), wanted)
        return mask & have_devices(wanted, self.snapshot) if self._patient() else np.zeros_like(mask)

    def verdicts(self, wanted: Wanted) -> Verdicts:
        """What all filters say of one of these pods as it is."""
        return run_filters(wanted.pod.pod_class, self.snapshot, wanted.signature, self._cache.run_filter)

    def _fits(self, pod_class: PodClass, wanted: Wanted) -> Bools:
        return run_filters(pod_class, self.snapshot, wanted.signature, self._cache.run_filter).fits
