"""Which pods are in a gang by their controller. Policies decide, and what is known of the parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from flowcore.api.gang_parents import INDEXED, kinds_asked, may_have_parent, parent_gangs, parents_named
from flowcore.api.kinds import ObjectKind
from flowcore.cluster.gang_specs.mixed_parents import NO_WAYS, MixedParents, Way
from flowcore.cluster.indexes.policy_index import LabelsRead, PolicyIndex
from flowcore.model.gang_parents import GangController, GangParent, ParentKey
from flowcore.model.gang_spec import GangKey, GangRef
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN, Delivery, GangPolicy, Policy
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
        unseen_version: changes with each change of ``unseen``.
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
        #: The policies as they were read last.
        self._read = policies.ordered
        self._objects: Counter[str] = Counter()
        #: Keys of pods that name a parent, by its kind, followed or not, and by namespace.
        self._naming: dict[str, dict[str, dict[str, None]]] = {}
        #: Keys of the pods that are in gangs of a parent, or would be if it made any; and the gang of each.
        self._pods: dict[ParentKey, dict[str, None]] = {}
        self._gang_of: dict[str, GangKey] = {}
        self._unseen: dict[ParentKey, None] = {}
        self.unseen_version = 0

    def read_policies(self, pods: Mapping[str, Pod], namespaces: Mapping[str, Labels]) -> list[str]:
        """Looks at the policies anew; returns the keys of the pods that may be in other gangs now.

        Args:
            pods: all pods by key.
        """
        before, self._read = self._read, self.policies.ordered
        rules = tuple(dict.fromkeys(rule for policy in self._read for rule in policy.gangs.parents))
        if rules != self._all_sources.parents:
            self._all_sources = msgspec.structs.replace(self._all_sources, parents=rules)
            return list(pods)
        changed = _changed(before, self._read)
        return list(self._selected_by(changed, pods, namespaces)) if changed else []

    def _selected_by(
        self, policies: Sequence[Policy], pods: Mapping[str, Pod], namespaces: Mapping[str, Labels]
    ) -> Iterator[str]:
        """Keys of the pods that name a parent and that any of these policies selects."""
        read = LabelsRead.by(policies)
        known: dict[tuple[str, Labels, Labels], bool] = {}
        for key in self.candidates():
            pod = pods[key]
            terms = pod.scheduler_name, *read.among(pod.labels, namespaces.get(pod.namespace, ()))
            if terms not in known:
                known[terms] = any(policy.selects.matches(*terms) for policy in policies)
            if known[terms]:
                yield key

    # --- parents ---

    def count_parent(self, key: ParentKey, sign: int) -> bool:
        """Counts a parent that came (1) or went (-1); returns whether its kind is known from now on, or no longer."""
        self._note_unseen(key)
        before = self._objects[key.kind]
        self._objects[key.kind] = before + sign
        return self.followed is None and not (before and self._objects[key.kind])

    def pods_of(self, parent: ParentKey) -> list[str]:
        """Keys of the pods that are in gangs of a parent, or would be if it made any."""
        return list(self._pods.get(parent, ()))

    def unseen(self) -> Collection[ParentKey]:
        """Parents that pods name and that are not known."""
        return self._unseen.keys()

    def _note_unseen(self, key: ParentKey) -> None:
        """Keeps ``unseen`` up to date. Pods may name very many parents, and nearly all are known."""
        is_unseen = key in self._pods and key not in self._parents
        if is_unseen == (key in self._unseen):
            return
        self.unseen_version += 1
        if is_unseen:
            self._unseen[key] = None
        else:
            del self._unseen[key]

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
        if pod.asks_gang:
            self.asked.update(kinds_asked(pod))
        named = self._parents_named(pod)
        self._note_kinds(pod, dict.fromkeys(parent.kind for parent in named))
        key, ways = self._named(pod, namespaces, self._possible(named))
        self._note_gang(pod.key, key)
        changed = self._put_ways(pod.key, ways)
        return self._in_gang(pod, key), changed

    def put_again(self, pod: Pod) -> Pod:
        """The same pod in the gang of its controller, or in none, as its parent makes gangs now."""
        return self._in_gang(pod, self._gang_of.get(pod.key))

    def drop(self, pod: Pod) -> Collection[ParentKey]:
        """A pod is gone; returns the parents of which other pods are in other gangs now."""
        self._note_kinds(pod, ())
        self._note_gang(pod.key, None)
        return self._put_ways(pod.key, NO_WAYS)

    def candidates(self, namespace: str | None = None) -> Collection[str]:
        """Keys of the pods that name a parent of any kind, followed or not; of all namespaces, or of this one."""
        if namespace is None:
            return self.naming(self._naming)
        return dict.fromkeys(key for pods in self._naming.values() for key in pods.get(namespace, ()))

    def naming(self, kinds: Iterable[str]) -> Collection[str]:
        """Keys of the pods that name a parent of one of these kinds, followed or not."""
        return dict.fromkeys(key for kind in kinds for pods in self._naming.get(kind, {}).values() for key in pods)

    def _note_kinds(self, pod: Pod, kinds: Collection[str]) -> None:
        """Notes the kinds of the parents that a pod names."""
        key, namespace = pod.key, pod.namespace
        left = [each for each, pods in self._naming.items() if each not in kinds and key in pods.get(namespace, ())]
        for kind in left:
            by_namespace = self._naming[kind]
            del by_namespace[namespace][key]
            if not by_namespace[namespace]:
                del by_namespace[namespace]
                if not by_namespace:
                    del self._naming[kind]
        for kind in kinds:
            self._naming.setdefault(kind, {}).setdefault(namespace, {})[key] = None

    def possible_parents(self, pod: Pod) -> Collection[ParentKey]:
        """The parents that a pod might be of, whatever its policy says."""
        return self._possible(self._parents_named(pod))

    def _possible(self, named: Sequence[ParentKey]) -> Collection[ParentKey]:
        return dict.fromkeys(parent for parent in named if self.is_followed(parent.kind))

    def _parents_named(self, pod: Pod) -> Sequence[ParentKey]:
        """The parents that a pod names by the rows of any policy, whatever kinds are followed."""
        return parents_named(pod, self._all_sources) if self._may_have_parent(pod) else ()

    def unknown_parent(self, pod: Pod, namespaces: Mapping[str, Labels]) -> tuple[ParentKey, bool] | None:
        """The parent that a pod without a gang names and that is not known, and whether others of its kind are."""
        if pod.gang is not None or not self._may_have_parent(pod):
            return None
        key = next(parent_gangs(pod, self._gang_policy(pod, namespaces)[0], lambda _: True), None)
        if key is None or key.parent in self._parents:
            return None
        return key.parent, self.is_followed(key.kind)

    def _note_gang(self, pod: str, gang: GangKey | None) -> None:
        before = self._gang_of.get(pod)
        if before == gang:
            return
        if before is not None:
            pods = self._pods[before.parent]
            del pods[pod], self._gang_of[pod]
            if not pods:
                del self._pods[before.parent]
                self._note_unseen(before.parent)
        if gang is not None:
            self._gang_of[pod] = gang
            self._pods.setdefault(gang.parent, {})[pod] = None
            self._note_unseen(gang.parent)

    def _put_ways(self, pod: str, ways: Mapping[ParentKey, Way]) -> Collection[ParentKey]:
        known = self._mixed.ways_of(pod)
        if known == ways:
            return ()
        keys = {*known, *ways}
        parents = [parent for key in keys if (parent := self._parents.get(key)) is not None]
        before = [self._mixed.is_mixed(parent) for parent in parents]
        self._mixed.put(pod, ways)
        return [parent.key for parent, was in zip(parents, before, strict=True) if self._mixed.is_mixed(parent) != was]

    def _named(
        self, pod: Pod, namespaces: Mapping[str, Labels], possible: Collection[ParentKey]
    ) -> tuple[GangKey | None, Mapping[ParentKey, Way]]:
        """The gang of a pod if its parent makes one, and how the pod is delivered, for each parent it might be of.

        Pods that do not count have no ways: those that failed or are being deleted.
        """
        if not possible:
            return None, NO_WAYS
        gangs, delivery = self._gang_policy(pod, namespaces)
        key = None if pod.names_gang else next(parent_gangs(pod, gangs, self.is_followed), None)
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

    def is_followed(self, kind: str) -> bool:
        """Whether parents of a kind (``ObjectKind.qualified``) are known, or about to be listed."""
        return self._objects[kind] > 0 if self.followed is None else kind in self.followed


def _changed(before: Sequence[Policy], now: Sequence[Policy]) -> list[Policy]:
    """Policies of before and of now that may put the pods that they select into other gangs.

    Those with which both begin, and with which both end, are left out: they decide about all other pods as they did.
    """
    old, new = list(before), list(now)
    for end in (0, -1):
        while old and new and _decides(old[end]) == _decides(new[end]):
            del old[end], new[end]
    return old + new


def _decides(policy: Policy) -> tuple[object, ...]:
    """What of a policy decides which pods are in the gangs of their controllers."""
    return policy.selects, policy.delivery, policy.gangs.controllers, policy.gangs.parents
