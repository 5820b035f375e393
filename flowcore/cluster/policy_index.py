"""The policies in force, in order: which policy governs a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowcore.api.base import to_labels
from flowcore.model.advice import ExtenderPod
from flowcore.model.generational_cache import GenerationalCache
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Policy, by_precedence, governing
from flowcore.model.selectors import Labels

#: Bytes of remembered answers, twice.
_CACHE_BYTES = 2**23
#: A lookup of more labels takes longer than asking each policy.
_MAX_CACHED_LABELS = 256


class PolicyIndex:
    """The policies in force. The first that matches a pod governs it; the built-in default is the last.

    Args:
        policies: accepted policies in any order, without the built-in default.
    """

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self._ordered = by_precedence([BUILT_IN, *policies])
        self._matching: GenerationalCache[tuple[str, Labels, Labels], list[Policy]] = GenerationalCache(_CACHE_BYTES)

    @property
    def ordered(self) -> tuple[Policy, ...]:
        """All policies in force, by precedence; the built-in default is the last."""
        return self._ordered

    def replace(self, policies: Iterable[Policy]) -> bool:
        """Puts these policies in force in place of those before; returns whether that changes anything."""
        ordered = by_precedence([BUILT_IN, *policies])
        if ordered == self._ordered:
            return False
        self._ordered = ordered
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

    def of_request(self, pod: ExtenderPod, namespace_labels: Labels) -> Policy | None:
        """The policy that would govern a pod as a request describes it. The answer is not remembered."""
        matching = governing(self._ordered, pod.scheduler_name, to_labels(dict(pod.labels)), namespace_labels)
        return matching[0] if matching else None

    def governing(self, scheduler_name: str, labels: Labels, namespace_labels: Labels) -> list[Policy]:
        """All policies that match a pod; the first governs it. The answer is remembered until ``age`` drops it."""
        if len(labels) + len(namespace_labels) > _MAX_CACHED_LABELS:
            return governing(self._ordered, scheduler_name, labels, namespace_labels)
        key = (scheduler_name, labels, namespace_labels)
        matching = self._matching.get(key)
        if matching is None:
            matching = governing(self._ordered, scheduler_name, labels, namespace_labels)
            self._matching.put(key, matching, 56 + 8 * len(matching))
        return matching

    def age(self) -> None:
        """To be called now and then: drops the answers that nobody asked for since the last call but one."""
        self._matching.age()
