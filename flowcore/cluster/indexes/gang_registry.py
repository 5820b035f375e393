"""All gangs and their pods. ``round_gangs`` says what a round takes of them.

These pods of a gang count towards its minMember: bound pods that are not being deleted, pods on their way to a node,
and pods that succeeded while the gang goes on (``_Members.succeeded_count``). A pod that failed, is being deleted or
is gone must be replaced. A pod that waits but cannot be planned now (ungoverned, blocked, backing off) exists, but it
does not help the gang now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice

from flowcore.cluster.gang_specs.gang_spec_resolution import ResolvedGangSpec, deciding_owner, resolve_gang_spec
from flowcore.cluster.gang_specs.parent_resolution import resolve_parent
from flowcore.cluster.gang_specs.topology_agreement import with_pod_topology
from flowcore.cluster.hyper_nodes.tier_limits import Tiers
from flowcore.model.gang_parents import GangParent, ParentKey
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec, PodGroup
from flowcore.model.gang_topology import GangTopology, job_and_rank
from flowcore.model.pods import Pod


@dataclass(frozen=True, slots=True)
class PartialGang:
    """A gang with some pods on nodes, but fewer than it needs (GangRegistry.partial_gangs).

    Attributes:
        name: as users know it.
        bound: pods with a node.
        waiting: pods without a node.
        needed: its minMember.
        timeout: seconds that it may stay partial, in place of its policy's timeout; None: the policy's counts.
    """

    key: GangKey
    name: str
    bound: tuple[Pod, ...]
    waiting: tuple[Pod, ...]
    needed: int
    timeout: int | None


#: What a pod says of its gang: its controller, and what that needs.
_Statement = tuple[str, GangSpec | None, GangTopology | None]


@dataclass(slots=True)
class _Members:
    """Pods of one gang, by their keys.

    Attributes:
        statements: how many of its pods say each of these.
    """

    waiting: dict[str, Pod] = field(default_factory=dict)
    bound: dict[str, Pod] = field(default_factory=dict)
    succeeded: dict[str, Pod] = field(default_factory=dict)
    statements: Counter[_Statement] = field(default_factory=Counter)

    def put(self, pod: Pod) -> None:
        """Takes a pod that is not there, or one that only differs in what decides about no gang."""
        pods = getattr(self, _state_of(pod))
        if (before := pods.get(pod.key)) is not None:
            self._count(before, -1)
        pods[pod.key] = pod
        self._count(pod, 1)

    def drop(self, pod: Pod) -> None:
        """A pod that was put is gone."""
        del getattr(self, _state_of(pod))[pod.key]
        self._count(pod, -1)

    def _count(self, pod: Pod, by: int) -> None:
        statement = pod.owner, None if pod.gang is None else pod.gang.spec, pod.gang_topology
        self.statements[statement] += by
        if not self.statements[statement]:
            del self.statements[statement]

    def that_decide(self) -> tuple[Collection[Pod], Collection[Pod]]:
        """Pods that say all that is said of the gang: waiting and bound ones, and succeeded ones.

        One of each where all say the same: the work does not grow with the gang.
        """
        pods = chain(self.waiting.values(), self.bound.values())
        if len(self.statements) == 1 and (first := list(islice(pods, 1))):
            return first, list(islice(self.succeeded.values(), 1))
        return list(pods), self.succeeded.values()

    def without(self, non_members: Collection[str]) -> _Members:
        """The members without these pods."""
        if not non_members:
            return self
        waiting, bound, succeeded = (
            {key: pod for key, pod in each.items() if key not in non_members} for each in self.by_state
        )
        return _Members(waiting, bound, succeeded)

    @property
    def by_state(self) -> tuple[dict[str, Pod], ...]:
        """Waiting, bound and succeeded pods."""
        return self.waiting, self.bound, self.succeeded

    @property
    def succeeded_count(self) -> int:
        """How many succeeded pods count.

        All, as long as a pod runs. After that, those whose controller has a waiting pod: the rest of a Job goes on,
        while the next Job of a CronJob, whose pods name the same gang, starts from zero.
        """
        if self.bound or not self.succeeded:
            return len(self.succeeded)
        owners = {pod.owner for pod in self.waiting.values()}
        return sum(pod.owner in owners for pod in self.succeeded.values())


@dataclass(frozen=True, slots=True)
class GangState:
    """A gang's requirements by its pods and its PodGroup, until one of them changes.

    Attributes:
        bound_count: pods with a node.
        succeeded_count: succeeded pods that count.
        unschedulable_reason: why the requirements cannot be met by any plan; "" where they can.
        owner: the controller whose pods decide; pods of other controllers are foreign.
        non_members: keys of pods that name the gang and are no members, and why.
    """

    spec: GangSpec
    bound_count: int
    succeeded_count: int
    unschedulable_reason: str
    owner: str
    non_members: Mapping[str, str]


class GangRegistry:
    """All gangs of the cluster, each with its pods and its state."""

    def __init__(self) -> None:
        #: PodGroup objects.
        self.groups: dict[GangKey, PodGroup] = {}
        self._tiers = Tiers()
        #: Objects that say what the gangs of their pods need.
        self.parents: dict[ParentKey, GangParent] = {}
        #: Parents that make some pods only once others run, by namespace.
        self._ordered_parents: dict[str, dict[ParentKey, None]] = {}
        #: Gangs with pods, by their parent.
        self._parts: dict[ParentKey, dict[GangKey, None]] = {}
        self._members: dict[GangKey, _Members] = {}
        self._pods: dict[str, Pod] = {}
        self._states: dict[GangKey, GangState] = {}

    # --- what there is ---

    def put(self, pod: Pod) -> bool:
        """Takes a new or changed pod; returns whether the change may decide about other pods of its gang."""
        before = self._pods.get(pod.key)
        if before is None and (pod.gang is None or _state_of(pod) == ""):
            return False
        if before is not None and _identity(before) == _identity(pod):
            self._store(pod)
            return False
        changed = self.drop(pod.key)
        if pod.gang is not None and _state_of(pod):
            self._store(pod)
            self._states.pop(pod.gang.key, None)
            changed |= self._affects_waiting(pod.gang)
        return changed

    def exchange(self, pod: Pod) -> None:
        """Takes a pod that differs only in what decides about no gang, such as its priority."""
        if pod.key in self._pods:
            self._store(pod)

    def drop(self, key: str) -> bool:
        """A pod is gone; returns whether that may decide about other pods of its gang."""
        pod = self._pods.pop(key, None)
        if pod is None or pod.gang is None:
            return False
        gang = pod.gang.key
        members = self._members[gang]
        matters = self._affects_waiting(pod.gang)
        members.drop(pod)
        if not (members.waiting or members.bound or members.succeeded):
            del self._members[gang]
            self._drop_part(gang)
        self._states.pop(gang, None)
        return matters

    def _store(self, pod: Pod) -> None:
        if pod.gang is None:
            return
        self._pods[pod.key] = pod
        gang = pod.gang.key
        members = self._members.get(gang)
        if members is None:
            members = self._members[gang] = _Members()
            if gang.source is GangSource.CONTROLLER:
                self._parts.setdefault(gang.parent, {})[gang] = None
        members.put(pod)

    def _drop_part(self, gang: GangKey) -> None:
        if gang.source is GangSource.CONTROLLER:
            parts = self._parts[gang.parent]
            del parts[gang]
            if not parts:
                del self._parts[gang.parent]

    def order(self, key: GangKey) -> list[str]:
        """Keys of the pods of a gang: the waiting, the bound and the succeeded ones, each in their order."""
        return [pod for each in (self._members.get(key) or _Members()).by_state for pod in each]

    def restore_order(self, key: GangKey, pods: Sequence[str]) -> None:
        """Puts the pods of a gang, the same as when ``order`` was asked, in the order of then."""
        if self.order(key) != list(pods):
            for pod in [self._pods[each] for each in pods]:
                self.drop(pod.key)
                self.put(pod)

    def put_group(self, group: PodGroup) -> bool:
        """Takes a new or changed PodGroup; returns whether pods wait for what it says now."""
        before = self.groups.get(group.key)
        self.groups[group.key] = group
        if group.plans_as(before):
            return False  # its status alone changed
        self._states.pop(group.key, None)
        return self._affects_waiting(GangRef(group.key, group.spec))

    def drop_group(self, key: GangKey) -> bool:
        """A PodGroup is gone; returns whether pods wait for it."""
        before = self.groups.pop(key, None)
        if before is None:
            return False
        self._states.pop(key, None)
        return self._affects_waiting(GangRef(key, before.spec))

    def set_tiers(self, tiers: Tiers) -> bool:
        """Takes the tiers that HyperNodes have; returns whether pods may wait for them."""
        if tiers == self._tiers:
            return False
        self._tiers = tiers
        self._states.clear()
        return bool(self._members)

    def asks_for_tiers(self, pod: Pod) -> bool:
        """Whether the gang of a pod says anything of tiers of HyperNodes."""
        group = self.groups.get(pod.gang.key) if pod.gang is not None else None
        by_group = group is not None and (group.spec.limit is not None or bool(group.spec.sub_groups))
        return by_group or (pod.gang_topology is not None and pod.gang_topology.limit is not None)

    def set_parent(self, key: ParentKey, parent: GangParent | None) -> bool:
        """Takes a parent of gangs; None: it is gone. Returns whether pods wait for it."""
        if self.parents.get(key) == parent:
            return False
        if parent is None:
            del self.parents[key]
        else:
            self.parents[key] = parent
        if parent is not None and parent.after:
            self._ordered_parents.setdefault(key.namespace, {})[key] = None
        elif (ordered := self._ordered_parents.get(key.namespace)) is not None:
            ordered.pop(key, None)
            if not ordered:
                del self._ordered_parents[key.namespace]
        gangs = self._parts.get(key, {})
        for gang in gangs:
            self._states.pop(gang, None)
        return any(self._members[gang].waiting for gang in gangs)

    def ordered_parents(self, namespace: str) -> Iterable[ParentKey]:
        """The parents of a namespace that make some pods only once others run."""
        return self._ordered_parents.get(namespace, ())

    def parts(self, key: ParentKey) -> Iterable[GangKey]:
        """The gangs of a parent that have pods."""
        return self._parts.get(key, ())

    def of_controllers(self) -> Iterator[GangKey]:
        """The gangs of all parents that have pods."""
        return chain.from_iterable(self._parts.values())

    def _affects_waiting(self, gang: GangRef) -> bool:
        """Whether pods of the gang, or of its group, may wait for a change of the gang."""
        members = self._members.get(gang.key)
        if members is None:
            return False
        group = self.groups.get(gang.key)
        in_group = gang.spec.group or gang.key.part or (group is not None and group.spec.group)
        return bool(members.waiting or in_group)

    # --- what it comes to ---

    def waiting_pod(self, key: str) -> Pod | None:
        """A waiting pod of a gang, as it is now; None where it does not wait."""
        pod = self._pods.get(key)
        return pod if pod is not None and _state_of(pod) == "waiting" else None

    def partial_gangs(self, reserved: Mapping[str, str]) -> list[PartialGang]:
        """Gangs with bound pods, but fewer than needed, counting pods on their way to a node.

        A complete gang is among them where another gang of its group is incomplete and has waiting pods. Gangs that
        their controllers make are not: one that has grown while it runs cannot be told from one that lost pods. Nor are
        those of a CompositePodGroup, which may need all of its gangs.
        """
        # Each gang is computed once, however many others name it.
        declared = [key for key in self._members if self._may_be_partial(key)]
        short = {key for key in declared if self._lacks_pods(key, reserved)}
        lacking = {key for key in short if self.members(key)[0]}

        def is_group_short(key: GangKey) -> bool:
            return not lacking.isdisjoint(self.state(key).spec.group)

        return [
            self._to_partial(key) for key in declared if self.members(key)[1] and (key in short or is_group_short(key))
        ]

    def partial_gang(self, key: GangKey, reserved: Mapping[str, str]) -> PartialGang | None:
        """The gang, if it is partial (``partial_gangs``)."""
        may_be_partial = self._may_be_partial(key) and self.members(key)[1]
        return self._to_partial(key) if may_be_partial and self.lacks_pods(key, reserved) else None

    def _may_be_partial(self, key: GangKey) -> bool:
        group = self.groups.get(key)
        return key.source is not GangSource.CONTROLLER and not (group is not None and group.composite_reason)

    def lacks_pods(self, key: GangKey, reserved: Container[str], besides: str = "") -> bool:
        """Whether it, or a gang of its group with waiting pods, has fewer pods than it needs.

        Args:
            reserved: keys of pods on their way to a node; they count.
            besides: a pod that does not count.
        """
        return bool(self.lacking((key,), reserved, besides))

    def lacking(self, keys: Iterable[GangKey], reserved: Container[str], besides: str = "") -> list[GangKey]:
        """The gangs, of some, that lack pods (``lacks_pods``). Each gang is looked at once, whoever names it."""
        is_short = cache(lambda gang: self._lacks_pods(gang, reserved, besides))

        @cache
        def is_group_short(group: tuple[GangKey, ...]) -> bool:
            return any(is_short(gang) for gang in group if self.members(gang)[0])

        def lacks(key: GangKey) -> bool:
            return is_short(key) or is_group_short(self.state(key).spec.group)

        return [key for key in keys if lacks(key)]

    def depends_on(self, key: GangKey) -> tuple[GangKey, ...]:
        """The gangs that it is placed with, itself among them."""
        return self.state(key).spec.group or (key,)

    def _to_partial(self, key: GangKey) -> PartialGang:
        spec, (waiting, bound) = self.state(key).spec, self.members(key)
        return PartialGang(
            key, key.display_name, tuple(bound.values()), tuple(waiting.values()), spec.min_member or 0, spec.timeout
        )

    def _lacks_pods(self, key: GangKey, reserved: Container[str], besides: str = "") -> bool:
        """Whether it has fewer pods than it needs, counting pods on their way to a node."""
        missing = self._missing(key)
        return missing > 0 and missing > sum(pod in reserved and pod != besides for pod in self.members(key)[0])

    def _missing(self, key: GangKey) -> int:
        """How many more pods it needs, not counting pods on their way to a node."""
        state = self.state(key)
        return (state.spec.min_member or 0) - state.bound_count - state.succeeded_count

    def state(self, key: GangKey) -> GangState:
        """The requirements by its pods and its PodGroup as they are now."""
        state = self._states.get(key)
        if state is None:
            state = self._compute_state(key)
            if key in self._members:
                self._states[key] = state
        return state

    def _compute_state(self, key: GangKey) -> GangState:
        members_of = self._members.get(key) or _Members()
        pods, succeeded = members_of.that_decide()
        if key.source.has_pod_groups:
            group = self.groups.get(key)
            if group is None:
                resolved = ResolvedGangSpec(GangSpec(), unschedulable_reason=f"{key.display_name} does not exist")
            else:
                problem = group.problem or group.composite_reason
                reason = f"{key.display_name}: {problem}" if problem else ""
                resolved = ResolvedGangSpec(group.spec, deciding_owner(pods), reason)
        elif key.source is GangSource.CONTROLLER:
            pods_made = list(chain.from_iterable(each.values() for each in members_of.by_state))
            resolved = resolve_parent(key, self.parents.get(key.parent), pods_made)
        else:
            resolved = resolve_gang_spec(key, pods, succeeded)
        resolved = self._tiers.applied(with_pod_topology(key, resolved, pods), key.display_name)
        members = members_of.without(resolved.non_members)
        return GangState(
            resolved.spec,
            len(members.bound),
            max(members.succeeded_count, resolved.ended),
            resolved.unschedulable_reason,
            resolved.owner,
            resolved.non_members,
        )

    def members(self, key: GangKey) -> tuple[Mapping[str, Pod], Mapping[str, Pod]]:
        """Waiting pods of a gang, and bound ones, by key."""
        members_of = self._members.get(key)
        if members_of is None:
            return {}, {}
        members_of = members_of.without(self.state(key).non_members)
        return members_of.waiting, members_of.bound

    def succeeded(self, key: GangKey) -> Mapping[str, Pod]:
        """Succeeded pods that name a gang, by key, also those that do not count towards what it needs now."""
        return (self._members.get(key) or _Members()).succeeded

    def first_in_group(self, key: GangKey) -> GangKey:
        """The first gang of its group; itself where it has no group, or where the first gang names another group."""
        group = self.state(key).spec.group
        return group[0] if group and self.state(group[0]).spec.group == group else key

    def exists(self, key: GangKey) -> bool:
        """Whether any pod names the gang."""
        return key in self._members


def _state_of(pod: Pod) -> str:
    """The dict of ``_Members`` that holds it; "" where it does not count."""
    if pod.succeeded:
        return "succeeded"
    if pod.terminal or pod.deleting:
        return ""
    return "bound" if pod.node_name else "waiting"


def _identity(pod: Pod) -> tuple[object, ...]:
    said = pod.gang, pod.gang_topology, job_and_rank(pod.labels)
    return pod.uid, said, _state_of(pod), pod.node_name, pod.owner, bool(pod.blocked_reason)
