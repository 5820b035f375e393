"""Whether a node has room for pods of a demand if some residents leave: by arithmetic, or by every filter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.resources import Amounts
from flowcore.planning.problem.demands.demands import Demand
from flowcore.planning.problem.placements.plans import Plan
from flowcore.rules.filters import node_volume_limits, run_filters, static_fits
from flowcore.rules.filters.node_resources_fit import not_offered
from flowcore.rules.filters.registry import EASED_BY_LEAVING, RESOURCES, RUNNING_TERMS, run_filter
from flowcore.rules.verdicts import VerdictCache


class FitCheck(Protocol):
    """Answers for one demand; it follows the state."""

    #: bool[N]: nodes that reject its pods whichever residents leave are False.
    possible: Bools
    #: Whether the verdict on a node follows from that node alone.
    by_node: bool
    #: What limits of queues ask of who leaves.
    limits: LimitedAmounts

    def fits_now(self) -> Bools:
        """bool[N]: nodes where a pod fits with nobody else leaving."""
        ...

    def possible_without(self, may_leave: Bools) -> Bools | None:
        """bool[N]: nodes that may take a pod if all of these leave, bool[V]; None: nothing is known of that."""
        ...

    def fits(self, node: int, without: Collection[int], count: int = 1) -> bool:
        """Whether ``count`` pods fit on a node once these residents have left too, by number."""
        ...


def is_plain(pod_class: PodClass, signature: PodSignature, snapshot: Snapshot) -> bool:
    """Whether only resources change where pods of a class fit: no ports, volumes, zones, devices or rules between pods.

    Rules of running pods about it count where they reject a node.
    """
    constraints = signature.constraints
    if pod_class.host_ports or pod_class.volumes or pod_class.devices is not None:
        return False
    if pod_class.numa is not None and snapshot.numa is not None:
        return False
    if constraints is not None and (
        constraints.affinity or constraints.anti_affinity or constraints.spread or constraints.limits
    ):
        return False
    return not any(each.nodes.any() for each in run_filter(RUNNING_TERMS, pod_class, signature, snapshot))


class LimitedAmounts:
    """What limits of queues lack for pods of a demand, an amount for each limit and resource that they count for."""

    def __init__(self, state: Plan, demand: Demand) -> None:
        self._state, self._limits, self._pod = state, state.limits, demand.group.pods[0]
        self._added = self._limits.of_waiting(self._pod)
        rows = self._limits.rows(self._pod.queue)
        limited = np.isfinite(self._limits.left[rows]) & (self._added > 0) if len(rows) else np.zeros((0, 0))
        places, self._columns = np.nonzero(limited)
        self._rows = rows[places]
        #: By what counts of a resident: its queue and what it uses.
        self._usage: dict[tuple[str, Amounts], Sequence[int]] = {}

    def missing(self, count: int = 1) -> list[int]:
        """How much is missing for ``count`` pods; not above zero where there is enough."""
        left = self._limits.left[self._rows, self._columns]
        return [int(amount) for amount in (self._added[self._columns] * count - left).tolist()]

    def usage(self, resident: int) -> Sequence[int]:
        """How much of each a resident frees by leaving."""
        pod = self._state.residents.pods[resident]
        usage = self._usage.get((pod.queue, pod.usage))
        if usage is None:
            counts = np.isin(self._rows, self._limits.rows(pod.queue))
            amounts = np.where(counts, self._limits.of_running(pod.usage)[self._columns], 0)
            usage = self._usage[pod.queue, pod.usage] = [int(amount) for amount in amounts.tolist()]
        return usage

    def allow(self, without: Collection[int] = (), count: int = 1) -> bool:
        """Whether limits leave enough for ``count`` pods once these residents have left too."""
        if not len(self._rows):
            return True
        usages = [self.usage(resident) for resident in without]
        return all(amount <= sum(usage[place] for usage in usages) for place, amount in enumerate(self.missing(count)))

    def most(self, count: int) -> int:
        """For how many pods there is enough, ``count`` at most."""
        if not len(self._rows):
            return count
        left = self._limits.left[self._rows, self._columns]
        return int(np.clip((left // self._added[self._columns]).min(), 0, count))

    @property
    def rows(self) -> Int64s:
        """Numbers of the limits that pods of the demand may pass."""
        return np.unique(self._rows)

    def lacking(self) -> Int64s:
        """Numbers of those limits that lack something for one pod."""
        return np.unique(self._rows[np.array(self.missing(), dtype=np.float64) > 0])


class ResourceFit:
    """For pods whose fit only resources decide."""

    by_node = True

    def __init__(self, state: Plan, demand: Demand) -> None:
        self._state = state
        self.possible = demand.allowed
        self._demand = demand
        self._columns = np.nonzero(demand.requests > 0)[0].tolist()
        self._requests = demand.requests[demand.requests > 0].tolist()
        self.limits = LimitedAmounts(state, demand)
        self._usage: dict[int, Sequence[int]] = {}

    def fits_now(self) -> Bools:
        """bool[N]: nodes where a pod fits with nobody else leaving."""
        return self._state.has_room_at(self._demand, np.arange(len(self._state.free)))

    def possible_without(self, _may_leave: Bools) -> Bools | None:
        """bool[N]: nodes that may take a pod if all of these leave; None: unknown."""
        return None

    def fits(self, node: int, without: Collection[int], count: int = 1) -> bool:
        """Whether ``count`` pods fit on a node once these residents have left too."""
        free = self._state.free[node]
        usages = [self.usage(resident) for resident in without]
        for place, (column, request) in enumerate(zip(self._columns, self._requests, strict=True)):
            if int(free[column]) + sum(usage[place] for usage in usages) < request * count:
                return False
        return self.limits.allow(without, count)

    def usage(self, resident: int) -> Sequence[int]:
        """What a resident uses of the resources that the demand asks for, and below limits of queues."""
        usage = self._usage.get(resident)
        if usage is None:
            of_node = self._state.residents.usage[resident][self._columns].tolist()
            usage = self._usage[resident] = [*of_node, *self.limits.usage(resident)]
        return usage

    def missing(self, node: int, count: int) -> list[int]:
        """What these resources and limits lack for ``count`` pods; not above zero where there is enough."""
        free = self._state.free[node]
        of_node = [
            request * count - int(free[column]) for column, request in zip(self._columns, self._requests, strict=True)
        ]
        return [*of_node, *self.limits.missing(count)]


class LimitFit(ResourceFit):
    """Whether limits of queues let a pod in once others have left, on whatever node."""

    def __init__(self, state: Plan, demand: Demand) -> None:
        super().__init__(state, demand)
        self._columns, self._requests = [], []


class FilteredFit:
    """For other pods: every filter judges the cluster without those that leave.

    Most trials need no such cluster. Amounts are counted. Where nothing else rejects a node with all decisions so far,
    nothing does once more pods have left, unless a pod wants others beside it. Where a filter rejects it that reads
    no pod, it always will.
    """

    by_node = False

    def __init__(self, state: Plan, demand: Demand, cache: VerdictCache) -> None:
        self._state, group, before = state, demand.group, state.before
        self._pod_class, self._signature = group.pod_class, group.signature
        self._asked = demand.requests > 0
        self._requests = demand.requests[self._asked]
        self.possible = static_fits(group.pod_class, group.signature, before, cache.run_filter)
        if demand.kept_to is not None:
            self.possible = self.possible & demand.kept_to
        if not_offered(group.pod_class, before):
            self.possible = np.zeros_like(self.possible)
        constraints = group.signature.constraints
        self._wants_others = constraints is not None and bool(constraints.affinity or constraints.spread)
        self.limits = LimitedAmounts(state, demand)
        self._known: _Verdict | None = None

    def fits_now(self) -> Bools:
        """bool[N]: nodes where a pod fits with nobody else leaving."""
        return self._now().fits

    def possible_without(self, may_leave: Bools) -> Bools | None:
        """bool[N]: nodes that may take a pod if all of these leave; rules that only forbid then forbid least."""
        if self._wants_others:
            return None
        now = self._now()
        if not now.open.any():
            return ~now.closed
        snapshot = self._state.snapshot(np.nonzero(may_leave)[0].tolist())
        # Nobody need leave a node on which a claim would err.
        return run_filters(self._pod_class, snapshot, self._signature, errors_end=False).fits

    def fits(self, node: int, without: Collection[int], count: int = 1) -> bool:
        """Whether one pod fits on a node once these residents of it have left; pods of such demands come one by one."""
        if count > 1 or not self.limits.allow(without):
            return False
        usage = self._state.residents.usage
        free = self._state.free[node][self._asked] + sum(usage[resident][self._asked] for resident in without)
        if (free < self._requests).any():
            return False
        now = self._now()
        if now.closed[node] or not (now.open[node] or self._wants_others):
            return not now.closed[node]
        if now.limited[node] and not self._wants_others:
            storage, name = self._state.snapshot().storage, self._state.before.table.nodes[node].name
            mounted = self._state.mounted(node, without)
            return not node_volume_limits.rejects(self._pod_class.volumes, storage, name, mounted)
        snapshot = self._state.snapshot(without)
        return bool(run_filters(self._pod_class, snapshot, self._signature).fits[node])

    def _now(self) -> _Verdict:
        """The verdict with all decisions so far."""
        changes = self._state.changes
        if self._known is None or self._known.changes != changes:
            verdicts = run_filters(self._pod_class, self._state.snapshot(), self._signature)
            blocking = {name for name, _ in verdicts.by_filter} - EASED_BY_LEAVING - {RESOURCES.name}
            closed, is_open = verdicts.rejected_by(blocking), verdicts.rejected_by(EASED_BY_LEAVING)
            limited = is_open & ~verdicts.rejected_by(EASED_BY_LEAVING - {node_volume_limits.NAME})
            self._known = _Verdict(changes, verdicts.fits, closed, is_open, limited)
        return self._known


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What filters say of pods of a demand after so many changes.

    Attributes:
        fits: bool[N].
        closed: bool[N], nodes that a filter rejects whoever leaves.
        open: bool[N], nodes that only a trial tells about: a filter rejects them that may not once others have left.
        limited: bool[N], those that NodeVolumeLimits alone rejects, which is asked about one node.
    """

    changes: int
    fits: Bools
    closed: Bools
    open: Bools
    limited: Bools
