"""Which pods are in a gang by their controller. Policies decide, and what is known of the parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import msgspec

from flowcore.api.gang_parents import INDEXED, kinds_asked, may_have_parent, parent_gangs
from flowcore.api.kinds import ObjectKind
from flowcore.cluster.gang_specs.mixed_parents import NO_WAYS, MixedParents, Way
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.model.gang_parents import GangController, GangParent, ParentKey
from flowcore.model.gang_spec import GangKey, GangRef
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Delivery, GangPolicy
from flowcore.model.selectors import Labels


class ParentGangs:
    """Says which gang a pod is in by its controller.

    A pod whose parent makes no gang is in none: it is placed, moved and steered as any single pod.

    Args:
        policies: those that decide. They may change in place.
        parents: those that are known. They may change in place.

    Attributes:
        followed: kinds whose parents are known, or about to be listed (``ObjectKind.qualified``): pods of other kinds
            are in no gang. None: of a dump, which knows the kinds that it has objects of, and all of their objects.
        gone: parents of these kinds that do not exist, as far as can be known.
        asked: kinds of parents by which pods asked to be gangs. They stay: else a pod that comes and goes again would
            begin and end the watch of all objects of a kind.
    """

    def __init__(self, policies: PolicyIndex, parents: Mapping[ParentKey, GangParent]) -> None:
        self.followed: frozenset[str] | None = None
        self.gone: frozenset[ParentKey] = frozenset()
        self.asked: set[ObjectKind] = set()
        self.policies = policies
        self._parents = parents
        self._mixed = MixedParents()
        #: All sources that any policy might turn on, with the rows of all policies.
        self._all_sources = GangPolicy(controllers=tuple(GangController))
        self._objects: Counter[str] = Counter()
        #: Keys of pods that rows may be about, by namespace.
        self._candidates: dict[str, dict[str, None]] = {}
        #: Keys of the pods that are in gangs of a parent, or would be if it made any; and the gang of each.
        self._pods: dict[ParentKey, dict[str, None]] = {}
        self._gang_of: dict[str, GangKey] = {}

    def read_policies(self) -> bool:
        """Looks at the policies anew; returns whether rows may be about other pods now than those that were put."""
        rules = dict.fromkeys(rule for policy in self.policies.ordered for rule in policy.gangs.parents)
        had_rules, now = bool(self._all_sources.parents), tuple(rules)
        self._all_sources = msgspec.structs.replace(self._all_sources, parents=now)
        return bool(now) and not had_rules

    # --- parents ---

    def count_parent(self, key: ParentKey, sign: int) -> bool:
        """Counts a parent that came (1) or went (-1); returns whether its kind is known from now on, or no longer."""
        before = self._objects[key.kind]
        self._objects[key.kind] = before + sign
        return self.followed is None and not (before and self._objects[key.kind])

    def pods_of(self, parent: ParentKey) -> list[str]:
        """Keys of the pods that are in gangs of a parent, or would be if it made any."""
        return list(self._pods.get(parent, ()))

    def unseen(self) -> Iterator[ParentKey]:
        """Parents that pods name and that are not known."""
        return (key for key in self._pods if key not in self._parents)

    def making(self, key: ParentKey) -> Collection[str] | bool:
        """The roles of a parent whose pods are gangs; True: all, False: none."""
        parent = self._parents.get(key)
        if parent is None:
            return self.followed is not None and key not in self.gone
        if parent.deleting or (not parent.problem and self._mixed.is_mixed(parent)):
            return False
        return bool(parent.problem) or {role for role, part in parent.roles.items() if part.size > 0}

    def _makes(self, key: GangKey) -> bool:
        """Whether the pods of a part are a gang (``making``)."""
        parent = self._parents.get(key.parent)
        if parent is None or parent.deleting or parent.problem:
            return bool(self.making(key.parent))
        part = parent.part(key.part)
        return part is not None and part.size > 0 and not self._mixed.is_mixed(parent)

    # --- pods ---

    def put(self, pod: Pod, namespaces: Mapping[str, Labels]) -> tuple[Pod, Collection[ParentKey]]:
        """Takes a pod that is new, has changed, or is to be looked at anew.

        Returns:
            The pod in the gang of its controller, or in none; a gang that it names itself goes before. And the parents
            of which other pods are in other gangs now.
        """
        self.put_candidate(pod)
        if pod.asks_gang:
            self.asked.update(kinds_asked(pod))
        key, ways = self._named(pod, namespaces)
        self._note_gang(pod.key, key)
        changed = self._put_ways(pod.key, ways)
        return self._in_gang(pod, key), changed

    def put_again(self, pod: Pod) -> Pod:
        """The same pod in the gang of its controller, or in none, as its parent makes gangs now."""
        return self._in_gang(pod, self._gang_of.get(pod.key))

    def drop(self, pod: Pod) -> Collection[ParentKey]:
        """A pod is gone; returns the parents of which other pods are in other gangs now."""
        candidates = self._candidates.get(pod.namespace)
        if candidates is not None:
            candidates.pop(pod.key, None)
            if not candidates:
                del self._candidates[pod.namespace]
        self._note_gang(pod.key, None)
        return self._put_ways(pod.key, NO_WAYS)

    def put_candidate(self, pod: Pod) -> None:
        """Notes a pod that rows may be about."""
        if self._may_have_parent(pod):
            self._candidates.setdefault(pod.namespace, {})[pod.key] = None

    def candidates(self, namespace: str | None = None) -> Iterator[str]:
        """Keys of the pods that rows may be about; of all namespaces, or of this one."""
        for name in self._candidates if namespace is None else (namespace,):
            yield from self._candidates.get(name, ())

    def possible_parents(self, pod: Pod) -> Collection[ParentKey]:
        """The parents that a pod might be of, whatever its policy says."""
        if not self._may_have_parent(pod):
            return ()
        return {key.parent for key in parent_gangs(pod, self._all_sources, self._is_followed)}

    def unknown_parent(self, pod: Pod, namespaces: Mapping[str, Labels]) -> tuple[ParentKey, bool] | None:
        """The parent that a pod without a gang names and that is not known, and whether others of its kind are."""
        if pod.gang is not None or not self._may_have_parent(pod):
            return None
        key = next(parent_gangs(pod, self._gang_policy(pod, namespaces)[0], lambda _: True), None)
        if key is None or key.parent in self._parents:
            return None
        return key.parent, self._is_followed(key.kind)

    def _note_gang(self, pod: str, gang: GangKey | None) -> None:
        before = self._gang_of.get(pod)
        if before == gang:
            return
        if before is not None:
            pods = self._pods[before.parent]
            del pods[pod], self._gang_of[pod]
            if not pods:
                del self._pods[before.parent]
        if gang is not None:
            self._gang_of[pod] = gang
            self._pods.setdefault(gang.parent, {})[pod] = None

    def _put_ways(self, pod: str, ways: Mapping[ParentKey, Way]) -> Collection[ParentKey]:
        known = self._mixed.ways_of(pod)
        if known == ways:
            return ()
        keys = {*known, *ways}
        parents = [parent for key in keys if (parent := self._parents.get(key)) is not None]
        before = [self._mixed.is_mixed(parent) for parent in parents]
        self._mixed.put(pod, ways)
        return [parent.key for parent, was in zip(parents, before, strict=True) if self._mixed.is_mixed(parent) != was]

    def _named(self, pod: Pod, namespaces: Mapping[str, Labels]) -> tuple[GangKey | None, Mapping[ParentKey, Way]]:
        """The gang of a pod if its parent makes one, and how the pod is delivered, for each parent it might be of.

        Pods that do not count have no ways: those that failed or are being deleted.
        """
        possible = self.possible_parents(pod)
        if not possible:
            return None, NO_WAYS
        gangs, delivery = self._gang_policy(pod, namespaces)
        key = None if pod.names_gang else next(parent_gangs(pod, gangs, self._is_followed), None)
        if pod.deleting or (pod.terminal and not pod.succeeded):
            return key, NO_WAYS
        ways: dict[ParentKey, Way] = {}
        for parent in possible:
            uid = pod.owner if pod.controller == f"{parent.kind.partition('.')[0]}/{parent.name}" else ""
            if key is None or key.parent != parent:
                ways[parent] = uid, None
            elif delivery is not None:
                ways[parent] = uid, (delivery, key.part == INDEXED)
        return key, ways

    def _in_gang(self, pod: Pod, key: GangKey | None) -> Pod:
        if pod.names_gang:
            return pod
        gang = GangRef(key) if key is not None and self._makes(key) else None
        return pod if gang == pod.gang else msgspec.structs.replace(pod, gang=gang)

    def _may_have_parent(self, pod: Pod) -> bool:
        return may_have_parent(pod) or (pod.owner != "" and bool(self._all_sources.parents))

    def _gang_policy(self, pod: Pod, namespaces: Mapping[str, Labels]) -> tuple[GangPolicy, Delivery | None]:
        """What the policy of a pod says of gangs, and how the pod is delivered; None: no policy governs it."""
        governing = self.policies.governing(pod.scheduler_name, pod.labels, namespaces.get(pod.namespace, ()))
        return (governing[0].gangs, governing[0].delivery) if governing else (BUILT_IN.gangs, None)

    def _is_followed(self, kind: str) -> bool:
        return self._objects[kind] > 0 if self.followed is None else kind in self.followed
