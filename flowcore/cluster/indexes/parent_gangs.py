"""Which pods are in a gang by their controller. Policies decide, and what is known of the kinds of parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from flowcore.api.gang_parents import may_have_parent, parent_gangs
from flowcore.cluster.gang_specs.mixed_parents import Way
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.model.gang_parents import GangController, ParentKey
from flowcore.model.gang_spec import GangKey, GangRef, GangSource
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, GangPolicy
from flowcore.model.selectors import Labels

_NO_WAYS: Final[Mapping[ParentKey, Way]] = {}


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
        #: All sources that any policy might turn on, with the rows of all policies.
        self._all_sources = GangPolicy(controllers=tuple(GangController))
        self._objects: Counter[str] = Counter()
        #: Keys of pods that rows may be about, by namespace.
        self._candidates: dict[str, dict[str, None]] = {}

    def read_policies(self) -> bool:
        """Looks at the policies anew; returns whether rows may be about other pods now than those that were put."""
        rules = dict.fromkeys(rule for policy in self.policies.ordered for rule in policy.gangs.parents)
        had_rules, now = bool(self._all_sources.parents), tuple(rules)
        self._all_sources = msgspec.structs.replace(self._all_sources, parents=now)
        return bool(now) and not had_rules

    def count_parent(self, key: ParentKey, sign: int) -> bool:
        """Counts a parent that came (1) or went (-1); returns whether its kind is known from now on, or no longer."""
        before = self._objects[key.kind]
        self._objects[key.kind] = before + sign
        return self.followed is None and not (before and self._objects[key.kind])

    def put_pod(self, pod: Pod) -> None:
        """A pod came or changed."""
        if self._may_have_parent(pod):
            self._candidates.setdefault(pod.namespace, {})[pod.key] = None

    def drop_pod(self, pod: Pod) -> None:
        """A pod is gone."""
        candidates = self._candidates.get(pod.namespace)
        if candidates is not None:
            candidates.pop(pod.key, None)
            if not candidates:
                del self._candidates[pod.namespace]

    def candidates(self, namespace: str | None = None) -> Iterator[str]:
        """Keys of the pods that rows may be about; of all namespaces, or of this one."""
        for name in self._candidates if namespace is None else (namespace,):
            yield from self._candidates.get(name, ())

    def with_gang(self, pod: Pod, namespaces: Mapping[str, Labels]) -> Pod:
        """A pod in the gang of its controller, or in none if there is none; a gang that it names itself goes before."""
        return self.placed(pod, namespaces)[0]

    def placed(self, pod: Pod, namespaces: Mapping[str, Labels]) -> tuple[Pod, Mapping[ParentKey, Way]]:
        """A pod ``with_gang``, and how it is delivered, for each parent that it might be of.

        Pods that do not count have no ways: those that failed or are being deleted.
        """
        named = pod.gang is not None and pod.gang.key.source is not GangSource.CONTROLLER
        may_have = self._may_have_parent(pod)
        possible = tuple(parent_gangs(pod, self._all_sources, self._is_followed)) if may_have else ()
        if not possible:
            return (pod if named or pod.gang is None else msgspec.structs.replace(pod, gang=None)), _NO_WAYS
        governing = self.policies.governing(pod.scheduler_name, pod.labels, namespaces.get(pod.namespace, ()))
        policy = governing[0] if governing else BUILT_IN
        key = None if named else next(parent_gangs(pod, policy.gangs, self._is_followed), None)
        if not named:
            gang = None if key is None else GangRef(key)
            pod = pod if gang == pod.gang else msgspec.structs.replace(pod, gang=gang)
        if pod.deleting or (pod.terminal and not pod.succeeded):
            return pod, _NO_WAYS
        ways: dict[ParentKey, Way] = {}
        for parent in {each.parent for each in possible}:
            uid = pod.owner if pod.controller == f"{parent.kind.partition('.')[0]}/{parent.name}" else ""
            if key is None or key.parent != parent:
                ways[parent] = uid, None
            elif governing:
                ways[parent] = uid, policy.delivery
        return pod, ways

    def unknown_kind(self, pod: Pod, namespaces: Mapping[str, Labels]) -> str:
        """The kind of the parent that a pod names, where nothing of that kind is known; "" elsewhere."""
        if pod.gang is not None:
            return ""
        key = self._gang_key(pod, namespaces, lambda _: True)
        return "" if key is None or self._is_followed(key.kind) else key.kind

    def _may_have_parent(self, pod: Pod) -> bool:
        return may_have_parent(pod) or (pod.owner != "" and bool(self._all_sources.parents))

    def _gang_key(
        self, pod: Pod, namespaces: Mapping[str, Labels], is_followed: Callable[[str], bool]
    ) -> GangKey | None:
        if not self._may_have_parent(pod):
            return None
        governing = self.policies.governing(pod.scheduler_name, pod.labels, namespaces.get(pod.namespace, ()))
        return next(parent_gangs(pod, (governing[0] if governing else BUILT_IN).gangs, is_followed), None)

    def _is_followed(self, kind: str) -> bool:
        return self._objects[kind] > 0 if self.followed is None else kind in self.followed
