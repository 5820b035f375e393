"""Which pods are in a gang by their controller. Policies decide, and what is known of the kinds of parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec

from flowcore.api.gang_parents import may_have_parent, parent_gang
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.model.gang_parents import ParentKey
from flowcore.model.gang_spec import GangKey, GangRef, GangSource
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN
from flowcore.model.selectors import Labels


class ParentGangs:
    """Says which gang a pod is in by its controller.

    Args:
        policies: those that decide. They may change in place.

    Attributes:
        followed: kinds whose parents are known, or about to be listed (``ObjectKind.qualified``): pods of other kinds
            are in no gang. None: of a dump, which knows the kinds that it has objects of.
    """

    def __init__(self, policies: PolicyIndex) -> None:
        self.followed: frozenset[str] | None = None
        self.policies = policies
        #: Whether policies name kinds themselves.
        self._has_rules = False
        self._objects: Counter[str] = Counter()
        #: Keys of pods that built-in rows may be about, by namespace.
        self._candidates: dict[str, dict[str, None]] = {}

    def read_policies(self) -> bool:
        """Looks at the policies anew; returns whether pods of any kind may be in another gang now."""
        before, self._has_rules = self._has_rules, any(policy.gangs.parents for policy in self.policies.ordered)
        return before or self._has_rules

    def count_parent(self, key: ParentKey, sign: int) -> bool:
        """Counts a parent that came (1) or went (-1); returns whether its kind is known from now on, or no longer."""
        before = self._objects[key.kind]
        self._objects[key.kind] = before + sign
        return self.followed is None and not (before and self._objects[key.kind])

    def put_pod(self, pod: Pod) -> None:
        """A pod came or changed."""
        if may_have_parent(pod):
            self._candidates.setdefault(pod.namespace, {})[pod.key] = None

    def drop_pod(self, pod: Pod) -> None:
        """A pod is gone."""
        candidates = self._candidates.get(pod.namespace)
        if candidates is not None:
            candidates.pop(pod.key, None)
            if not candidates:
                del self._candidates[pod.namespace]

    def candidates(self, namespace: str | None = None) -> Iterator[str]:
        """Keys of the pods that built-in rows may be about; of all namespaces, or of this one."""
        for name in self._candidates if namespace is None else (namespace,):
            yield from self._candidates.get(name, ())

    def with_gang(self, pod: Pod, namespaces: Mapping[str, Labels]) -> Pod:
        """A pod in the gang of its controller, or in none if there is none; a gang that it names itself goes before."""
        if pod.gang is not None and pod.gang.key.source is not GangSource.CONTROLLER:
            return pod
        key = self._gang_key(pod, namespaces, self._is_followed)
        gang = None if key is None else GangRef(key)
        return pod if gang == pod.gang else msgspec.structs.replace(pod, gang=gang)

    def unknown_kind(self, pod: Pod, namespaces: Mapping[str, Labels]) -> str:
        """The kind of the parent that a pod names, where nothing of that kind is known; "" elsewhere."""
        if pod.gang is not None:
            return ""
        key = self._gang_key(pod, namespaces, lambda _: True)
        return "" if key is None or self._is_followed(key.kind) else key.kind

    def _gang_key(
        self, pod: Pod, namespaces: Mapping[str, Labels], is_followed: Callable[[str], bool]
    ) -> GangKey | None:
        if not may_have_parent(pod) and not (pod.owner and self._has_rules):
            return None
        governing = self.policies.governing(pod.scheduler_name, pod.labels, namespaces.get(pod.namespace, ()))
        return parent_gang(pod, (governing[0] if governing else BUILT_IN).gangs, is_followed)

    def _is_followed(self, kind: str) -> bool:
        return self._objects[kind] > 0 if self.followed is None else kind in self.followed
