"""The gangs of one round; the same for the operator and ``plan``.

Each step takes one gang, so that an event loop can turn between two steps. The cluster may change between steps. Each
gang is computed once, when it is first asked for, and all gangs of a group share that result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flowcore.cluster.gang_specs.gang_slices import Slices, slice_gangs, slices_of
from flowcore.cluster.indexes.gang_registry import GangRegistry
from flowcore.model.gang_spec import GangKey, GangSource, GangSpec
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod
from flowcore.model.policies import Delivery
from flowcore.model.selectors import TOPOLOGY_SEPARATOR

#: (node, label) -> the node's value of the label; "" where it has none.
DomainOf = Callable[[str, str], str]
#: Gangs that the name of a group lists; the name of a larger group has the first gang and a count.
_MAX_LISTED = 3
_PODS_PER_STEP = 8
#: Most different levels that the gangs of a namespace may prefer in a round: each is read from all nodes.
MAX_PREFERRED_LEVELS = 16


@dataclass(frozen=True, slots=True)
class GangProgress:
    """A gang in one round, as ``RoundGangs`` computes it.

    Attributes:
        spec: what it needs.
        placed: how many of its pods have a node or are on their way to one.
        missing: how many more it needs; zero or less where it has enough.
        has_waiting: whether any of its pods waits.
        deliveries: how the plans of its pods in this round are delivered.
        unschedulable_reason: why it cannot be placed in this round whatever room there is, apart from its group; ""
            where it may.
        slices: ``slices_of``.
    """

    spec: GangSpec
    placed: int
    missing: int
    has_waiting: bool
    deliveries: frozenset[Delivery]
    unschedulable_reason: str
    slices: Slices


class RoundGangs:
    """Computes the gangs of one round, in steps.

    Attributes:
        gang_names: for each pending pod the names of its gangs.
        gangs: these gangs, sorted by name. Both are complete after the last step.
    """

    def __init__(
        self,
        registry: GangRegistry,
        pending: Sequence[tuple[Pod, Delivery]],
        reserved: Mapping[str, str],
        domain_of: DomainOf,
        paused: Collection[str] = (),
    ) -> None:
        """For one round.

        Args:
            pending: the pods to place, and how the plan of each is delivered.
            reserved: keys of pods on their way to a node, and that node.
            paused: keys of pods that are not planned for a while, since a write for them was refused.
        """
        self._registry, self._pending, self._reserved, self._domain_of = registry, pending, reserved, domain_of
        self._paused = paused
        self._positions: dict[GangKey, list[int]] = {}
        self._progress: dict[GangKey, GangProgress] = {}
        self._groups: dict[tuple[GangKey, ...], _Group] = {}
        #: Topologies that gangs prefer, by namespace.
        self._preferred: dict[str, set[str]] = {}
        self.gang_names: list[tuple[str, ...]] = [()] * len(pending)
        self.gangs: list[Gang] = []

    def steps(self) -> Iterator[None]:
        """Computes the names and the gangs, a few pods or one gang with each step."""
        for position, (pod, _) in enumerate(self._pending):
            if not position % _PODS_PER_STEP:
                yield
            now = self._registry.waiting_pod(pod.key)  # it may have changed since the round began
            if now is None or now.gang is None:
                continue
            key = now.gang.key
            own_reason = self._registry.state(key).non_members.get(pod.key, "")
            if not own_reason and (problem := _topology_problem(now)):
                own_reason = f"{key.display_name}: {pod.key}: {problem}"
            if own_reason:
                name = f"{key.display_name} as {pod.key} has it"
                self._add(Gang(name, 1, unschedulable_reason=own_reason), [position])
            else:
                self._positions.setdefault(key, []).append(position)
        for key, positions in self._positions.items():
            self._add_gangs(key, positions)
            yield
        self.gangs.sort(key=lambda gang: gang.name)

    def _add(self, gang: Gang, positions: Sequence[int]) -> None:
        self.gangs.append(gang)
        for position in positions:
            self.gang_names[position] = (*self.gang_names[position], gang.name)

    def _add_gangs(self, key: GangKey, positions: Sequence[int]) -> None:
        """Adds a gang, and its slices as gangs that share its pods."""
        gang, slices = self._gang(key), list[tuple[Gang, list[int]]]()
        if gang is None or not gang.unschedulable_reason:
            slices = self._slices(key, positions, "" if gang is None else gang.atomic_group)
        late = {
            position for gang_of_slice, places in slices if gang_of_slice.unschedulable_reason for position in places
        }
        if gang is not None:
            self._add(gang, [position for position in positions if position not in late])
        for gang_of_slice, places in slices:
            self._add(gang_of_slice, places)

    def _slices(self, key: GangKey, positions: Sequence[int], atomic_group: str) -> list[tuple[Gang, list[int]]]:
        """The slices of a gang with pods that wait, each with their positions."""
        progress = self.progress(key)
        slices = progress.slices
        if not slices.of_pods:
            return []
        in_slices: dict[int, list[int]] = {}
        for position in positions:
            number = slices.of_pods.get(self._pending[position][0].key)
            if number is not None:
                in_slices.setdefault(number, []).append(position)
        counts: dict[int, Counter[str]] = {}
        for pod, node in self._nodes(key):
            number = slices.of_pods.get(pod)
            if number is not None and (value := self._domain_of(node, slices.keys[number])):
                counts.setdefault(number, Counter())[value] += 1
        homes = {number: (_most_common(values), values.total()) for number, values in counts.items()}
        alone = len(positions) - sum(map(len, in_slices.values()))
        waiting = {number: len(places) for number, places in in_slices.items()}
        gangs = slice_gangs(
            key, slices, waiting, homes, progress.missing, alone, atomic_group, begun=progress.placed > 0
        )
        return [(gang, in_slices[number]) for number, gang in gangs.items()]

    def _gang(self, key: GangKey) -> Gang | None:
        """A gang as a whole; None: it asks for nothing that its pods by themselves do not ask for."""
        progress = self.progress(key)
        spec = progress.spec
        unschedulable_reason = progress.unschedulable_reason
        if not unschedulable_reason and progress.missing > 0 and spec.group:
            unschedulable_reason = self._group(spec.group).blocked_reason(key, progress)
        if not unschedulable_reason and progress.missing <= 0 and not spec.topology_key:
            return None
        # A gang that cannot be placed must not block a group that does not name it in turn.
        is_asking = progress.missing > 0 and not unschedulable_reason
        domain = self._domain(key, spec.topology_key) if spec.topology_key else ""
        return Gang(
            name=key.display_name,
            min_placed=progress.missing + self._replaced(key) if progress.missing > 0 else 0,
            atomic_group=_atomic_group_name(spec.group) if is_asking else "",
            topology_key=spec.topology_key,
            domain=domain,
            preferred=self._levels(key, spec) if progress.missing > 0 else (),
            unschedulable_reason=unschedulable_reason,
            partially_placed=progress.missing > 0 and progress.placed > 0,
            foreign_pods=self._foreign_pods(key)
            if not unschedulable_reason and progress.missing < len(self._positions.get(key, ()))
            else (),
            placed=progress.placed if domain else 0,
        )

    def _replaced(self, key: GangKey) -> int:
        """How many of its waiting pods are to take the place of one that it has: with them it has no pod more."""
        _, bound = self._registry.members(key)
        waiting = (self._pending[position][0] for position in self._positions.get(key, ()))
        return sum(f"{pod.namespace}/{pod.replaces}" in bound for pod in waiting)

    def _foreign_pods(self, key: GangKey) -> tuple[str, ...]:
        """Pods of controllers that do not decide, where the gang needs fewer pods than it has.

        Pods of a parent may have a controller each, and all are alike.
        """
        if key.source is GangSource.CONTROLLER:
            return ()
        owner = self._registry.state(key).owner
        pods = (self._pending[position][0] for position in self._positions[key])
        return tuple(sorted(pod.key for pod in pods if pod.owner != owner))

    def progress(self, key: GangKey) -> GangProgress:
        """A gang in this round."""
        progress = self._progress.get(key)
        if progress is None:
            pending = [self._pending[position] for position in self._positions.get(key, ())]
            progress = self._progress[key] = _progress(self._registry, key, pending, self._reserved, self._paused)
        return progress

    def _group(self, group: tuple[GangKey, ...]) -> _Group:
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = _Group(self, self._registry, group)
        return members

    def is_group_of(self, group: _Group, key: GangKey) -> bool:
        """Whether a gang names this group. Each gang's group is compared once."""
        return self._group(self.progress(key).spec.group) is group

    def _levels(self, key: GangKey, spec: GangSpec) -> tuple[tuple[str, str], ...]:
        """The levels that a gang prefers, each within those before it, and its domain at each.

        Levels beyond what its namespace may have in a round are left out.
        """
        known = self._preferred.setdefault(key.namespace, set())
        labels = spec.topology_key.split(TOPOLOGY_SEPARATOR) if spec.topology_key else []
        levels = []
        for label in spec.preferred:
            labels = list(dict.fromkeys((*labels, label)))
            topology = TOPOLOGY_SEPARATOR.join(labels)
            if topology not in known and len(known) >= MAX_PREFERRED_LEVELS:
                break
            known.add(topology)
            levels.append((topology, self._domain(key, topology)))
        return tuple(levels)

    def _domain(self, key: GangKey, topology: str) -> str:
        """The domain of most of its pods: others may have placed them in several."""
        nodes = (node for _, node in self._nodes(key))
        return _most_common(Counter(value for node in nodes if (value := self._domain_of(node, topology))))

    def _nodes(self, key: GangKey) -> Iterator[tuple[str, str]]:
        """Its pods that have a node or are on their way to one, and the node."""
        waiting, bound = self._registry.members(key)
        yield from ((name, pod.node_name) for name, pod in bound.items())
        yield from ((name, self._reserved[name]) for name in waiting if name in self._reserved)


def _most_common(counts: Mapping[str, int]) -> str:
    """The most frequent value, of several the first by name; "" where there is none."""
    return min(counts, key=lambda value: (-counts[value], value), default="")


def _progress(
    registry: GangRegistry,
    key: GangKey,
    pending: Sequence[tuple[Pod, Delivery]],
    reserved: Mapping[str, str],
    paused: Collection[str],
) -> GangProgress:
    """A gang in one round; the arguments as of ``RoundGangs``, with those of ``pending`` that are of the gang."""
    state = registry.state(key)
    waiting, bound = registry.members(key)
    placed, needed = len(bound) + sum(pod in reserved for pod in waiting), state.spec.min_member or 0
    missing = needed - placed - state.succeeded_count
    deliveries = frozenset(delivery for _, delivery in pending)
    reason = state.unschedulable_reason
    if not reason and missing > 0:
        exist = state.bound_count + state.succeeded_count + len(waiting)
        if exist < needed:
            reason = f"{key.display_name}: {exist} of {needed} pods exist"
        elif len(ready := [pod for pod, _ in pending if not pod.awaits_claim]) < missing:
            now = {pod.key for pod in ready}
            others = [pod for name, pod in sorted(waiting.items()) if name not in now and name not in reserved]
            whys = ((pod.key, _waiting_reason(pod, paused)) for pod in others)
            why = next((f"; {name}: {why}" for name, why in whys if why), "")
            reason = f"{key.display_name}: it needs {missing} pods at once, {len(ready)} can be planned now{why}"
        elif len(deliveries) > 1:
            ways = ", ".join(sorted(each.value for each in deliveries))
            reason = f"{key.display_name}: its pods are not delivered the same way: {ways}"
    slices = Slices()
    if state.spec.has_slices and not reason:
        slices = slices_of(key, state.spec, [*waiting.values(), *bound.values()])
        reason = slices.problem
    return GangProgress(
        state.spec,
        placed,
        max(1, missing) if reason else missing,
        bool(waiting),
        deliveries,
        reason,
        slices,
    )


@dataclass(frozen=True, slots=True)
class _Blocker:
    """A gang that keeps the other gangs of its group waiting, and why.

    Attributes:
        has_waiting: whether any of its pods waits.
        deliveries: it blocks only gangs with other deliveries than these; None: it blocks all.
    """

    gang: GangKey
    has_waiting: bool
    reason: str
    deliveries: frozenset[Delivery] | None = None


class _Group:
    """A group of gangs in one round. Each of its gangs is computed once."""

    def __init__(self, round_gangs: RoundGangs, registry: GangRegistry, group: tuple[GangKey, ...]) -> None:
        self._round_gangs, self._registry = round_gangs, registry
        self._blockers: list[_Blocker] = []
        self._unseen = iter(group)

    def blocked_reason(self, key: GangKey, progress: GangProgress) -> str:
        """Why other gangs of the group keep a gang waiting; "" where they do not.

        A gang that has begun is not blocked by gangs without waiting pods: they may have ended before.
        """
        for blocker in self._find_blockers():
            if blocker.gang == key or (progress.placed > 0 and not blocker.has_waiting):
                continue
            if blocker.deliveries is None or blocker.deliveries != progress.deliveries:
                return f"{key.display_name}{blocker.reason}"
        return ""

    def _find_blockers(self) -> Iterator[_Blocker]:
        yield from self._blockers
        for key in self._unseen:
            blocker = self._blocker(key)
            if blocker is not None:
                self._blockers.append(blocker)
                yield blocker

    def _blocker(self, key: GangKey) -> _Blocker | None:
        if not self._registry.exists(key):
            return _Blocker(key, has_waiting=False, reason=f": {key.display_name} of its group has no pods")
        progress = self._round_gangs.progress(key)
        if not self._round_gangs.is_group_of(self, key):
            return _Blocker(key, progress.has_waiting, f": {key.display_name} does not name the same group")
        if progress.missing <= 0:
            return None
        if progress.unschedulable_reason:
            return _Blocker(key, progress.has_waiting, f" waits for its group: {progress.unschedulable_reason}")
        if any(each.deliveries == progress.deliveries for each in self._blockers):
            return None  # another blocker blocks the same gangs already
        return _Blocker(key, progress.has_waiting, ": its group is not delivered the same way", progress.deliveries)


def _waiting_reason(pod: Pod, paused: Collection[str]) -> str:
    """Why a pod is not planned in this round; "": not known here."""
    pause = "it pauses, since a write for it was refused" if pod.key in paused else ""
    claim = "its ResourceClaim is not created yet" if pod.awaits_claim else ""
    return pod.blocked_reason or pod.unsupported_reason or pause or _topology_problem(pod) or claim


def _topology_problem(pod: Pod) -> str:
    """Which annotation about the topology of its gang cannot be read, and why; "": all can."""
    return "" if pod.gang_topology is None else pod.gang_topology.unreadable


def _atomic_group_name(group: tuple[GangKey, ...]) -> str:
    """The name of a group. It is unique, since a gang is in one group only."""
    if len(group) > _MAX_LISTED:
        return f"{group[0].display_name} and {len(group) - 1} others of its group"
    return ", ".join(each.display_name for each in group)


def gangs_for(
    registry: GangRegistry, pending: Sequence[tuple[Pod, Delivery]], reserved: Mapping[str, str], domain_of: DomainOf
) -> tuple[list[tuple[str, ...]], list[Gang]]:
    """All steps of a ``RoundGangs`` at once: the names of each pod's gangs, and these gangs sorted by name."""
    round_gangs = RoundGangs(registry, pending, reserved, domain_of)
    for _ in round_gangs.steps():
        pass
    return round_gangs.gang_names, round_gangs.gangs
