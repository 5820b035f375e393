"""A snapshot in which pods that claim interchangeable devices request amounts of a column, and the way back.

Devices that claims of running pods have leave with them if the claims are theirs alone, as what they use does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.device_columns import DeviceColumns
from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.model.devices import IMPLICIT_PREFIX
from flowcore.model.persistent_usage import ALWAYS, PersistentUsage
from flowcore.model.pods import PodClass
from flowcore.model.resource_claims import ClaimingPod, DeviceTaker
from flowcore.model.resource_slices import DeviceId
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod
from flowcore.rules.devices.columns.claimed_numbers import Claimed, ClaimedNumbers
from flowcore.rules.devices.columns.request_kinds import Numbers, RequestKind
from flowcore.rules.devices.device_index import DeviceIndex


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
            DeviceTaker(pod.pod_class.devices, node, begun.table.nodes[begun.table.index[node]].labels)
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


def with_columns(snapshot: Snapshot) -> WithColumns:
    """The snapshot with a column for each set of interchangeable devices that pending pods claim."""
    if all(pod.pod_class.devices is None for pod in snapshot.pending):
        return WithColumns(snapshot, snapshot)
    index = DeviceIndex.of(snapshot.devices)
    claimed = ClaimedNumbers(index.devices_beside(snapshot.takers), snapshot.devices.classes)
    by_pod = {
        pod.key: numbers
        for pod in snapshot.pending
        if pod.pod_class.devices is not None and (numbers := claimed.of(pod.pod_class.devices)) is not None
    }
    waiting = [
        (taker.node, numbers)
        for taker in index.devices_beside(snapshot.takers).waiting.values()
        if (numbers := claimed.of(taker.pod)) is not None
    ]
    columns = _columns(index, snapshot, (*by_pod.values(), *(numbers for _, numbers in waiting)))
    if not columns:
        return WithColumns(snapshot, snapshot)
    widening = _Widening(snapshot, index, claimed, columns)
    widening.add_waiting(waiting)
    return widening.widened(by_pod)


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
        snapshot: Snapshot,
        index: DeviceIndex,
        claimed: ClaimedNumbers,
        columns: Mapping[RequestKind, RequestKind],
    ) -> None:
        self._snapshot, self._index, self._claimed = snapshot, index, claimed
        firsts = list(dict.fromkeys(columns.values()))
        self._selected = [index.columns.selected(kind, snapshot.table) for kind in firsts]
        self._names = _names(firsts, snapshot.resources)
        self._column_of = {kind: firsts.index(first) for kind, first in columns.items()}
        self._there = np.stack([each.counts(snapshot.table) for each in self._selected], axis=1)
        self._taken = self._all_taken()
        self._classes: dict[tuple[PodClass, Amounts], PodClass] = {}

    def _all_taken(self) -> Int64s:
        """int64[N, columns]: devices that claims have, and those that planned pods take."""
        snapshot, known = self._snapshot, self._index.devices.allocations
        taken: Int64s = np.stack([each.counts_taken(snapshot.table) for each in self._selected], axis=1)
        for key, allocation in self._index.devices_beside(snapshot.takers).allocations.items():
            if known.get(key) != allocation:
                for column, node in self._places(each.device for each in allocation.devices if not each.admin_access):
                    taken[snapshot.table.index[node], column] += 1
        return taken

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
            amounts = self._amounts(claimed[pod.key].numbers) if pod.key in claimed else ()
            if amounts:
                originals[pod.key] = pod
                pending.append(msgspec.structs.replace(pod, pod_class=self._requesting(pod.pod_class, amounts)))
            else:
                pending.append(pod)
        running = {pod.key: pod for pod in self._running_with_devices()}
        after = {key: self._using(pod) for key, pod in running.items()}
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
            columns=DeviceColumns(names, self._index.columns.invalid(snapshot.table), object()),
        )
        return WithColumns(widened, snapshot, originals, running)

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

    def _using(self, pod: RunningPod) -> RunningPod:
        """A running pod that uses the devices of its own claims, and whose replacement asks for as many."""
        claiming = pod.pod_class.devices
        if claiming is None:
            return pod
        held = Counter(self._names[column] for column, _ in self._places(self._own_devices(claiming)))
        amounts = self._amounts(self._claimed.anew(claiming))
        pod_class = self._requesting(pod.pod_class, amounts) if amounts else pod.pod_class
        return msgspec.structs.replace(pod, pod_class=pod_class, usage=(*pod.usage, *sorted(held.items())))

    def _own_devices(self, pod: ClaimingPod) -> Iterable[DeviceId]:
        """The devices of claims that go when a pod goes: made for it, and used by nobody else."""
        claims, made = self._snapshot.devices.claims, dict(pod.made)
        for named in pod.claims:
            claim = claims.get((pod.namespace, made.get(named.name, ""))) if named.template else None
            if claim is None or claim.allocation is None or claim.controller != pod.uid:
                continue
            if all(uid == pod.uid for uid in claim.reserved_for):
                yield from (each.device for each in claim.allocation.devices if not each.admin_access)

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


def _names(kinds: Iterable[RequestKind], resources: Iterable[str]) -> tuple[str, ...]:
    """A name for the column of each kind: as pods may ask for devices of the class, with a number if that is taken."""
    names = dict.fromkeys(resources)
    count = len(names)
    for kind in kinds:
        base, number = f"{IMPLICIT_PREFIX}{kind.device_class}", 1
        name = base
        while name in names:
            number += 1
            name = f"{base}-{number}"
        names[name] = None
    return tuple(names)[count:]
