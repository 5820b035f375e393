"""The policies in force, in order: which policy governs a pod, and which rules it adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flowcore.api.base import to_labels
from flowcore.model.advice import ExtenderPod
from flowcore.model.constraint_limits import with_policy_constraints
from flowcore.model.generational_cache import GenerationalCache, estimate_bytes
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy, by_precedence, governing
from flowcore.model.selectors import Labels, LabelSelector, value_of
from flowcore.model.services import ServiceIndex

#: Bytes of remembered answers, twice.
_CACHE_BYTES = 2**23
#: Label with a namespace's own name. The API server sets it on each namespace, and it cannot be changed.
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
#: A lookup of more labels takes longer than asking each policy.
_MAX_CACHED_LABELS = 256


@dataclass(frozen=True, slots=True)
class LabelsRead:
    """The labels that policies read. Pods with other labels, such as their index in a Job, are all alike to them.

    Attributes:
        of_pods, of_namespaces: their keys.
    """

    of_pods: frozenset[str]
    of_namespaces: frozenset[str]

    @classmethod
    def by(cls, policies: Iterable[Policy]) -> LabelsRead:
        """The labels that these policies read, and the one with the name of a namespace."""
        selects = [policy.selects for policy in policies]
        of_pods = _keys(each.pods for each in selects)
        return cls(of_pods, _keys(each.namespaces for each in selects) | {_NAMESPACE_NAME})

    def among(self, labels: Labels, namespace_labels: Labels) -> tuple[Labels, Labels]:
        """The labels of a pod and of its namespace that are read."""
        of_pods, of_namespaces = self.of_pods, self.of_namespaces
        return (
            tuple([label for label in labels if label[0] in of_pods]),
            tuple([label for label in namespace_labels if label[0] in of_namespaces]),
        )


def _keys(selectors: Iterable[LabelSelector | None]) -> frozenset[str]:
    return frozenset(
        requirement.key for selector in selectors if selector is not None for requirement in selector.requirements
    )


class PolicyIndex:
    """The policies in force. The first that matches a pod governs it; the built-in default is the last.

    Args:
        policies: accepted policies in any order, without the built-in default.
        own_namespace: Thalweg's; "" where it runs in no namespace. There and in kube-system no policy with delivery
            Extender governs a pod: the cluster and Thalweg need those pods, so they never wait for Thalweg.

    Attributes:
        system_namespaces: these two. Nobody is evicted there.
    """

    def __init__(self, policies: Iterable[Policy] = (), own_namespace: str = "") -> None:
        self.system_namespaces = frozenset({"kube-system", own_namespace} - {""})
        self._ordered = by_precedence([BUILT_IN, *policies])
        self._read = LabelsRead.by(self._ordered)
        #: By scheduler name and by the labels that are read.
        self._matching: GenerationalCache[tuple[str, Labels, Labels], list[Policy]] = GenerationalCache(_CACHE_BYTES)
        #: Of a pod's signature the policy and the version of the Services that it was asked for with, and the answer.
        self._ruled: GenerationalCache[PodSignature, tuple[Policy, int, PodSignature]] = GenerationalCache(_CACHE_BYTES)

    @property
    def ordered(self) -> tuple[Policy, ...]:
        """All policies in force, by precedence; the built-in default is the last."""
        return self._ordered

    def replace(self, policies: Iterable[Policy]) -> bool:
        """Puts these policies in force in place of those before; returns whether that changes anything."""
        ordered = by_precedence([BUILT_IN, *policies])
        if ordered == self._ordered:
            return False
        self._ordered, self._read = ordered, LabelsRead.by(ordered)
        self._matching.clear()
        return True

    def of(self, pod: Pod, namespaces: Mapping[str, Labels]) -> Policy | None:
        """The policy that governs a pod; None where no policy does.

        None also where the pod's namespace is unknown: a policy may select by the labels of the namespace.

        Args:
            namespaces: labels of each known namespace.
        """
        namespace_labels = namespaces.get(pod.namespace)
        if namespace_labels is None:
            return None
        matching = self.governing(pod.scheduler_name, pod.labels, namespace_labels)
        return matching[0] if matching else None

    def tell_apart(self, labels: Labels, others: Labels) -> bool:
        """Whether a pod may have another policy in a namespace with these labels than in one with the others."""
        selectors = (policy.selects.namespaces for policy in self._ordered)
        return self._is_system(labels) != self._is_system(others) or any(
            selector is not None and selector.matches(labels) != selector.matches(others) for selector in selectors
        )

    def of_request(self, pod: ExtenderPod, namespace_labels: Labels) -> Policy | None:
        """The policy that would govern a pod as a request describes it. The answer is not remembered."""
        matching = self._find(pod.scheduler_name, to_labels(dict(pod.labels)), namespace_labels)
        return matching[0] if matching else None

    def governing(self, scheduler_name: str, labels: Labels, namespace_labels: Labels) -> list[Policy]:
        """All policies that match a pod; the first governs it. The answer is remembered until ``age`` drops it."""
        labels, namespace_labels = self._read.among(labels, namespace_labels)
        if len(labels) + len(namespace_labels) > _MAX_CACHED_LABELS:
            return self._find(scheduler_name, labels, namespace_labels)
        key = (scheduler_name, labels, namespace_labels)
        matching = self._matching.get(key)
        if matching is None:
            matching = self._find(scheduler_name, labels, namespace_labels)
            self._matching.put(key, matching, 56 + 8 * len(matching))
        return matching

    def with_policy_rules(self, signature: PodSignature, policy: Policy, services: ServiceIndex) -> PodSignature:
        """The signature of a governed pod with the rules of its policy (``with_policy_constraints``).

        The answer is remembered until ``age`` drops it.
        """
        known = self._ruled.get(signature)
        if known is None or known[0] is not policy or known[1] != services.version:
            ruled = with_policy_constraints(signature, policy, services)
            known = policy, services.version, ruled
            self._ruled.put(signature, known, 0 if ruled is signature else estimate_bytes(ruled))
        return known[2]

    def left_out(self, scheduler_name: str, labels: Labels, namespace_labels: Labels) -> list[Policy]:
        """The policies that match a pod and do not govern it, because it is in a system namespace."""
        if not self._is_system(namespace_labels):
            return []
        matching = governing(self._ordered, scheduler_name, labels, namespace_labels)
        return [policy for policy in matching if policy.delivery.through_kube_scheduler]

    def _find(self, scheduler_name: str, labels: Labels, namespace_labels: Labels) -> list[Policy]:
        matching = governing(self._ordered, scheduler_name, labels, namespace_labels)
        if self._is_system(namespace_labels):
            return [policy for policy in matching if not policy.delivery.through_kube_scheduler]
        return matching

    def _is_system(self, namespace_labels: Labels) -> bool:
        return value_of(namespace_labels, _NAMESPACE_NAME) in self.system_namespaces

    def age(self) -> None:
        """Drops the answers that were not read since the last call but one. To be called now and then."""
        self._matching.age()
        self._ruled.age()
