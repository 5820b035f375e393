"""A snapshot in which pods that claim interchangeable devices request amounts of a column, and the way back.

Devices that claims of running pods have leave with them if the claims are theirs alone, as what they use does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import numpy as np

from flowcore.cluster.arrays.device_columns import DeviceColumns
from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.model.devices import IMPLICIT_PREFIX
from flowcore.model.persistent_usage import ALWAYS, PersistentUsage
from flowcore.model.pods import PodClass
from flowcore.model.resource_claims import ClaimingPod
from flowcore.model.resource_slices import DeviceId
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod
from flowcore.rules.devices.columns.claimed_numbers import Claimed, ClaimedNumbers
from flowcore.rules.devices.columns.column_sets import MOST_KINDS
from flowcore.rules.devices.columns.conflicts import (
    NO_PREEMPTION,
    Asking,
    Columns,
    Conflicts,
    Preemption,
    are_columns,
    askings_of,
    in_fair_order,
)
from flowcore.rules.devices.columns.extended_resources import (
    PLENTY,
    WithExtendedResources,
    resources_by_devices,
    with_extended_resources,
)
from flowcore.rules.devices.columns.request_kinds import Numbers, RequestKind
from flowcore.rules.devices.device_index import DeviceIndex
from flowcore.rules.devices.node_reach import device_taker
from flowcore.rules.devices.pod_claims import own_claims
from flowcore.rules.devices.search_effort import REASON_LATER, REASON_OTHERS_FIRST, EffortSpentError

#: Is called after each search of devices, with the pods that it was for.
_Charge = Callable[[Sequence[PendingPod]], None]
#: The class of devices that nobody gets in this round; no class has such a name.
_LATER = "(later)"


@dataclass(frozen=True)
class WithColumns:
    """A snapshot with columns of devices.

    Attributes:
        begun: the same without them.
        pending, running: pods that are changed there, as they are in ``begun``, by key.
    """

    snapshot: Snapshot
    begun: Snapshot
    pending: Mapping[str, PendingPod] = field(default_factory=dict)
    running: Mapping[str, RunningPod] = field(default_factory=dict)

    def pod(self, pod: PendingPod) -> PendingPod:
        """A waiting pod as it is without columns."""
        return self.pending.get(pod.key, pod)

    def running_pod(self, pod: RunningPod) -> RunningPod:
        """A running pod, or a waiting one as if it ran, as it is without columns."""
        return self.running.get(pod.key, pod)

    def without(self, after: Snapshot, placed: Iterable[tuple[PendingPod, str]]) -> Snapshot:
        """A later snapshot without columns, in which placed pods take their devices one by one.

        Args:
            placed: pods, and the names of their nodes.
        """
        begun = self.begun
        if self.snapshot is begun:
            return after
        takers = tuple(
            device_taker(pod.pod_class.devices, begun.table.nodes[begun.table.index[node]])
            for pod, node in ((self.pending[pod.key], node) for pod, node in placed if pod.key in self.pending)
            if pod.pod_class.devices is not None
        )
        return replace(
            after,
            resources=begun.resources,
            allocatable=begun.allocatable,
            used=np.ascontiguousarray(after.used[:, : len(begun.resources)]),
            pending=tuple(map(self.pod, after.pending)),
            running=begun.running if after.running is self.snapshot.running else after.running,
            persistent_usage=begun.persistent_usage,
            columns=None,
            takers=(*after.takers, *takers) if takers else after.takers,
        )


def _not_charged(_pods: Sequence[PendingPod]) -> None:
    """Measures nothing."""


def with_columns(
    snapshot: Snapshot, charge: _Charge = _not_charged, preemption: Preemption = NO_PREEMPTION
) -> WithColumns:
    """The snapshot with a column for each set of interchangeable devices that pending pods claim.

    Args:
        charge: is called after each piece of work, with the pods that it was for; without pods, if it was for all.
        preemption: for which pods running ones may be evicted.
    """
    if all(pod.pod_class.devices is None for pod in snapshot.pending):
        return WithColumns(snapshot, snapshot)
    begun = snapshot
    extended = with_extended_resources(begun, resources_by_devices(pod.pod_class for pod in begun.pending))
    snapshot = extended.snapshot
    index = DeviceIndex.of(snapshot.devices)
    devices = index.devices_beside(snapshot.takers)
    numbers = ClaimedNumbers(devices, snapshot.devices.classes, extended.offered)
    by_pod, on_their_way = dict[str, Claimed](), list[tuple[str, Claimed]]()
    pods = _PodsOf()
    for pod in snapshot.pending:
        if pod.pod_class.devices is not None and (claimed := numbers.of(pod.pod_class.devices)) is not None:
            by_pod[pod.key] = claimed
            pods.of(claimed).append(pod)
    for taker in devices.waiting.values():
        if (claimed := numbers.of(taker.pod)) is not None:
            on_their_way.append((taker.node, claimed))
    fixed = _each_once(claimed for _, claimed in on_their_way)
    everybody = _each_once((*by_pod.values(), *fixed))  # most are of few templates
    turn = snapshot.devices.turn
    kinds = {kind for claimed in everybody for kind in claimed.kinds}
    if len(kinds) > MOST_KINDS:
        asking = in_fair_order(pods.askings(everybody, preemption), turn)
        kinds = _some_kinds((*fixed, *(each.claimed for each in asking)))
    known = [claimed for claimed in everybody if kinds.issuperset(claimed.kinds)]
    index.columns.retain(kinds)
    charge(())
    later = _not_searched(index, snapshot, known, lambda claimed: charge(pods.of(claimed)))
    taking = list[Claimed]()
    for claimed in known:
        if later.isdisjoint(claimed.kinds):
            if _may_take(claimed, index, snapshot):
                taking.append(claimed)
            charge(pods.of(claimed))
    columns: Columns = _columns(index, snapshot, taking) if len(known) == len(everybody) else {}
    waiting = set[str]()
    if not all(are_columns(claimed, columns) for claimed in taking) and kinds.issuperset(
        kind for claimed in fixed for kind in claimed.kinds
    ):
        taken = [claimed for claimed in fixed if claimed in taking]
        columns_of = partial(_columns, index, snapshot)
        taking_kinds = {kind for claimed in taking for kind in claimed.kinds}
        conflicts = Conflicts(index.columns, snapshot, taking_kinds, taken, columns_of, preemption)
        askings = in_fair_order(pods.askings(taking, preemption), turn)
        needy = conflicts.needy(askings, columns)
        snapshot.devices.is_searched &= not (needy and index.has_turns(5 * len(needy)))
        unknown = pods.askings([each for each in everybody if not kinds.issuperset(each.kinds)], preemption)
        unknown = [replace(each, claimed=replace(each.claimed, numbers=(), kinds=())) for each in unknown]
        who_waits = conflicts.who_waits(askings, unknown, needy, turn) if needy else set[Asking]()
        if who_waits:
            columns = columns_of([*taken, *(each.claimed for each in askings if each not in who_waits)])
            waiting = {pod.key for asking in who_waits for pod in asking.pods}
        charge(())
    if not (columns or later) or (len(known) < len(everybody) and not columns):
        return WithColumns(snapshot, begun, {}, extended.running)
    widening = _Widening(begun, extended, index, numbers, columns, later, waiting)
    widening.add_waiting(on_their_way)
    return widening.widened(by_pod)


class _PodsOf:
    """The pods that are to get the same; most are of few templates."""

    def __init__(self) -> None:
        self._pods: dict[int, list[PendingPod]] = {}

    def of(self, claimed: Claimed) -> list[PendingPod]:
        """The pods of some claims that wait; none if all of them are on their way."""
        return self._pods.setdefault(id(claimed), [])

    def askings(self, claimed: Iterable[Claimed], preemption: Preemption) -> list[Asking]:
        """The pods that wait, by what they are to get and by priority."""
        return askings_of(((each, self.of(each)) for each in claimed), preemption)


def _each_once(claimed: Iterable[Claimed]) -> list[Claimed]:
    return list({id(content): content for content in claimed}.values())


def _some_kinds(claimed: Iterable[Claimed]) -> set[RequestKind]:
    """The kinds of the first of them, and of as many others as may be known at once."""
    kinds = set[RequestKind]()
    for content in claimed:
        if len(kinds.union(content.kinds)) <= MOST_KINDS:
            kinds.update(content.kinds)
    return kinds


def _may_take(claimed: Claimed, index: DeviceIndex, snapshot: Snapshot) -> bool:
    """Whether some node may have devices for a pod in this round; with numbers, also if others leave first."""
    if not claimed.numbers:
        return _has_a_node(claimed, index, snapshot)
    nodes = np.ones(len(snapshot.table.nodes), dtype=np.bool_)
    for kind, number in claimed.numbers:
        selected = index.columns.selected(kind, snapshot.table)
        if not kind.offered and selected.is_countable:
            nodes &= selected.counts(snapshot.table) >= number
    return bool(nodes.any())


def _has_a_node(claimed: Claimed, index: DeviceIndex, snapshot: Snapshot) -> bool:
    """Whether some node has devices for a pod that takes them one by one; else it takes none in this round."""
    return not index.without_devices(claimed.claims, snapshot.table, snapshot.takers).all()


def _not_searched(
    index: DeviceIndex, snapshot: Snapshot, claimed: Iterable[Claimed], charge: Callable[[Claimed], None]
) -> set[RequestKind]:
    """The kinds of which it is not known yet which devices they select: a round spends so much on each namespace."""
    missing, searched = set[RequestKind](), set[RequestKind]()
    asking = {(each.namespace, kind): each for each in claimed for kind in each.kinds}
    for (namespace, kind), asks in asking.items():
        if kind in searched:
            continue
        try:
            index.columns.selected(kind, snapshot.table, index.effort_of(namespace))
            searched.add(kind)
        except EffortSpentError:
            missing.add(kind)
        charge(asks)
    return missing - searched


def _columns(index: DeviceIndex, snapshot: Snapshot, claimed: Iterable[Claimed]) -> dict[RequestKind, RequestKind]:
    """The kinds that are columns, each with the first one that the same devices serve.

    A pod that asks for a kind that is none takes all its devices one by one, so that its other kinds are none either.
    """
    alike = dict.fromkeys((each.numbers, each.kinds) for each in claimed)
    counted = dict.fromkeys(kind for numbers, _ in alike for kind, _ in numbers)
    others = dict.fromkeys(kind for numbers, kinds in alike if not numbers for kind in kinds)
    while counted:
        columns = index.columns.columns(counted, others, snapshot.table)
        by_one = dict.fromkeys(
            kind for numbers, _ in alike if any(kind not in columns for kind, _ in numbers) for kind, _ in numbers
        )
        if not by_one:
            return columns
        others |= by_one
        counted = dict.fromkeys(kind for kind in counted if kind not in by_one)
        alike = {(numbers, kinds): None for numbers, kinds in alike if not any(kind in by_one for kind, _ in numbers)}
    return {}


class _Widening:
    """Columns in the making."""

    def __init__(
        self,
        begun: Snapshot,
        extended: WithExtendedResources,
        index: DeviceIndex,
        claimed: ClaimedNumbers,
        columns: Mapping[RequestKind, RequestKind],
        later: AbstractSet[RequestKind],
        waiting: AbstractSet[str],
    ) -> None:
        snapshot = extended.snapshot
        self._begun, self._extended, self._snapshot = begun, extended, snapshot
        self._index, self._claimed = index, claimed
        firsts = list(dict.fromkeys(columns.values()))
        self._selected = [index.columns.selected(kind, snapshot.table) for kind in firsts]
        self._column_of = {kind: firsts.index(first) for kind, first in columns.items()}
        self._later, self._waiting = later, waiting
        self._amounts_of: dict[int, Amounts] = {}
        reasons = [*([REASON_LATER] if later else []), *([REASON_OTHERS_FIRST] if waiting else [])]
        named = [*(kind.device_class for kind in firsts), *(_LATER for _ in reasons)]
        self._names = _names(named, snapshot.resources)
        #: Why pods wait that request something of the last columns, by name.
        self._reasons = dict(zip(self._names[len(firsts) :], reasons, strict=True))
        self._there = self._stacked(selected.counts(snapshot.table) for selected in self._selected)
        for column, kind in enumerate(firsts):
            if kind.offered and snapshot.columns is not None:
                self._there[~snapshot.columns.extended[kind.offered], column] += PLENTY
        self._taken = self._all_taken()
        self._classes: dict[tuple[PodClass, Amounts], PodClass] = {}

    def _all_taken(self) -> Int64s:
        """int64[N, columns]: devices that claims have, and those that planned pods take."""
        snapshot, known = self._snapshot, self._index.devices.allocations
        taken = self._stacked(selected.counts_taken(snapshot.table) for selected in self._selected)
        for key, allocation in self._index.devices_beside(snapshot.takers).allocations.items():
            if known.get(key) != allocation:
                for column, node in self._places(each.device for each in allocation.devices if not each.admin_access):
                    taken[snapshot.table.index[node], column] += 1
        return taken

    def _stacked(self, columns: Iterable[Int64s]) -> Int64s:
        """int64[N, columns]; zeros for columns beyond the given ones."""
        stacked: Int64s = np.zeros((len(self._snapshot.table.nodes), len(self._names)), dtype=np.int64)
        for column, amounts in enumerate(columns):
            stacked[:, column] = amounts
        return stacked

    def _places(self, devices: Iterable[DeviceId]) -> Iterable[tuple[int, str]]:
        """Column and node of each of some devices that is in a column."""
        for device in devices:
            for column, selected in enumerate(self._selected):
                node = selected.node_of.get(device)
                if node is not None:
                    yield column, node

    def add_waiting(self, waiting: Iterable[tuple[str, Claimed]]) -> None:
        """Pods on their way to nodes where others have their devices still: what they are to get is theirs."""
        for node, claimed in waiting:
            row = self._snapshot.table.index.get(node)
            if row is not None and all(kind in self._column_of for kind, _ in claimed.numbers):
                for kind, number in claimed.numbers:
                    self._taken[row, self._column_of[kind]] += number

    def widened(self, claimed: Mapping[str, Claimed]) -> WithColumns:
        """The snapshot with what each pod claims, by key."""
        snapshot, names = self._snapshot, self._names
        pending, originals = list[PendingPod](), dict[str, PendingPod]()
        for pod in snapshot.pending:
            amounts = self._requested(pod.key, claimed[pod.key]) if pod.key in claimed else ()
            if amounts:
                originals[pod.key] = pod
                pending.append(msgspec.structs.replace(pod, pod_class=self._requesting(pod.pod_class, amounts)))
            else:
                pending.append(pod)
        running = {pod.key: pod for pod in self._running_with_devices()}
        after = self._all_using(running)
        begun_columns = snapshot.columns
        widened = replace(
            snapshot,
            resources=(*snapshot.resources, *names),
            allocatable=np.concatenate([snapshot.allocatable, self._there], axis=1),
            used=np.concatenate([snapshot.used, self._taken], axis=1),
            pending=tuple(pending),
            running=snapshot.running
            if snapshot.running is None
            else replace(snapshot.running, pods=tuple(after.get(pod.key, pod) for pod in snapshot.running.pods)),
            persistent_usage=self._persistent_usage(),
            columns=DeviceColumns(
                names if begun_columns is None else (*begun_columns.names, *names),
                self._reasons,
                self._index.columns.invalid(snapshot.table),
                object(),
                {} if begun_columns is None else begun_columns.extended,
            ),
        )
        snapshot.devices.is_searched &= not self._later
        return WithColumns(widened, self._begun, originals, {**running, **self._extended.running})

    def _requested(self, key: str, claimed: Claimed) -> Amounts:
        if key in self._waiting:
            return ((self._names[-1], 1),)
        amounts = self._amounts_of.get(id(claimed))
        if amounts is None:
            is_later = not self._later.isdisjoint(claimed.kinds)
            amounts = ((next(iter(self._reasons)), 1),) if is_later else self._amounts(claimed.numbers)
            self._amounts_of[id(claimed)] = amounts
        return amounts

    def _amounts(self, numbers: Numbers) -> Amounts:
        """Numbers by the names of columns; () if some kind has none."""
        if not all(kind in self._column_of for kind, _ in numbers):
            return ()
        total = Counter[str]()
        for kind, number in numbers:
            total[self._names[self._column_of[kind]]] += number
        return tuple(sorted(total.items()))

    def _requesting(self, pod_class: PodClass, amounts: Amounts) -> PodClass:
        """The class with amounts in place of claims."""
        bare = msgspec.structs.replace(pod_class, devices=None)
        known = self._classes.get((bare, amounts))
        if known is None:
            requests = (*pod_class.requests, *amounts)
            known = self._classes[bare, amounts] = msgspec.structs.replace(bare, requests=requests)
        return known

    def _running_with_devices(self) -> Iterable[RunningPod]:
        running = self._snapshot.running
        return () if running is None else (pod for pod in running.pods if pod.pod_class.devices is not None)

    def _all_using(self, running: Mapping[str, RunningPod]) -> dict[str, RunningPod]:
        """Running pods with devices, by key, as they use columns."""
        columns = self._names, tuple(self._column_of.items()), self._snapshot.devices.published
        known, using = self._index.columns.running(columns), dict[str, RunningPod]()
        if len(known) > 2 * len(running) + 100:  # those that are gone pile up
            known.clear()
        for key, pod in running.items():
            before = known.get(pod.uid)
            if before is None or before[0] is not pod:
                before = known[pod.uid] = pod, self._using(pod)
            using[key] = before[1]
        return using

    def _using(self, pod: RunningPod) -> RunningPod:
        """A running pod that uses the devices of its own claims, and whose replacement asks for as many.

        Where it has fewer that leave with it, its claims stay: no other node has what they have, so it does not move.
        """
        claiming = pod.pod_class.devices
        if claiming is None:
            return pod
        held = Counter(self._names[column] for column, _ in self._places(self._own_devices(claiming)))
        amounts = self._amounts(self._claimed.anew(claiming))
        if any(held[name] < number for name, number in amounts):
            amounts = ()
        pod_class = self._requesting(pod.pod_class, amounts) if amounts else pod.pod_class
        return msgspec.structs.replace(pod, pod_class=pod_class, usage=(*pod.usage, *sorted(held.items())))

    def _own_devices(self, pod: ClaimingPod) -> Iterable[DeviceId]:
        """The devices that come free when a pod goes."""
        for claim in own_claims(pod, self._snapshot.devices.claims):
            if claim.allocation is not None:
                devices = (each.device for each in claim.allocation.devices if not each.admin_access)
                yield from (device for device in devices if not self._index.columns.is_had_twice(device))

    def _persistent_usage(self) -> tuple[PersistentUsage, ...] | None:
        """No room of a gang is held on the strength of devices that running pods have."""
        usage, nodes = self._snapshot.persistent_usage, self._snapshot.table.nodes
        if usage is None or not self._snapshot.gangs:
            return usage
        rows = np.flatnonzero(self._taken.any(axis=1)).tolist()
        taken = (PersistentUsage(nodes[row].name, ALWAYS, self._taken_on(row), 0) for row in rows)
        return (*usage, *taken)

    def _taken_on(self, row: int) -> Amounts:
        return tuple(zip(self._names, self._taken[row].tolist(), strict=True))


def _names(classes: Iterable[str], resources: Iterable[str]) -> tuple[str, ...]:
    """A name for each column: as pods may ask for devices of the class, with a number if that is taken."""
    names = dict.fromkeys(resources)
    count = len(names)
    for device_class in classes:
        name, number = f"{IMPLICIT_PREFIX}{device_class}", 1
        while name in names:
            number += 1
            name = f"{IMPLICIT_PREFIX}{device_class}-{number}"
        names[name] = None
    return tuple(names)[count:]
