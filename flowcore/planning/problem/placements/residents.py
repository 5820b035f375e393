"""Pods on nodes that may leave: running pods, and placements of the same plan that can still be taken back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, pairwise, repeat
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.resources import Amounts, non_zero_requests
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.plan_key import PRIORITY_OFFSET, Loss
from flowcore.planning.problem.result import Placement

#: So many of the highest priorities are told apart where losses are added up, and those below count alike: solvers
#: know numbers no longer than that.
_MOST_TIERS = 4


class ResidentKind(NamedTuple):
    """What pods have in common that may leave for the same reasons, and go to the same nodes; see ``RunningPod``."""

    pod_class: PodClass
    signature: PodSignature
    policy: str
    usage: Amounts
    immovable_reason: str
    unevictable_reason: str


_KIND_OF = attrgetter(*ResidentKind._fields)


@dataclass(frozen=True)
class Residents:
    """V pods by number, those of each node the least important first.

    Attributes:
        running: what is known of running pods.
        pods: the running pods, then the placements as if they ran.
        placements: of the plan, those that can be taken back.
        nodes: int64[V], node of each.
        kinds: int64[V], number of the kind of each.
        kind_list: the kinds by number, in the order of their first pods.
        usage: int64[V, R].
        sizes: int64[V], the row of ``amounts`` that each has as its usage.
        amounts: int64[S, R], each usage once, or a few times.
        kept: keys of placements that are not taken back for others.
    """

    running: RunningPods
    pods: tuple[RunningPod, ...]
    placements: tuple[Placement, ...]
    nodes: Int64s
    kinds: Int64s
    kind_list: tuple[ResidentKind, ...]
    usage: Int64s
    sizes: Int64s
    amounts: Int64s
    kept: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, snapshot: Snapshot, running: RunningPods, placements: Sequence[Placement], kept: Collection[str] = ()
    ) -> Residents:
        """Residents of the nodes of a snapshot; ``kept``: as the attribute."""
        index = snapshot.table.index
        everybody = (*running.pods, *map(_as_running, placements))
        nodes = _numbers(map(index.get, map(attrgetter("node"), everybody), repeat(-1)), len(everybody))
        known = nodes >= 0
        pods = everybody if known.all() else tuple(compress(everybody, known.tolist()))
        # Most pods are like others: what follows from their kind is asked once for each kind.
        numbers: defaultdict[tuple[object, ...], int] = defaultdict(lambda: len(numbers))
        kinds = _numbers(map(numbers.__getitem__, map(_KIND_OF, pods)), len(pods))
        kind_list = tuple(map(ResidentKind._make, numbers))
        rows: dict[Amounts, int] = {}
        size_of_kind = [rows.setdefault(kind.usage, len(rows)) for kind in kind_list]
        sizes = np.array(size_of_kind, dtype=np.int64)[kinds]
        amounts = np.array([snapshot.vector(usage) for usage in rows], dtype=np.int64)
        amounts = amounts.reshape(-1, len(snapshot.resources))
        return cls(
            running,
            pods,
            tuple(placements),
            nodes[known],
            kinds,
            kind_list,
            amounts[sizes],
            sizes,
            amounts,
            frozenset(kept),
        )

    @cached_property
    def priorities(self) -> Int64s:
        """int64[V]."""
        return np.array([kind.pod_class.priority for kind in self.kind_list], dtype=np.int64)[self.kinds]

    @cached_property
    def counted(self) -> Int64s:
        """int64[V, 2]: what each counts for, in the columns of ``Snapshot.non_zero_requested``."""
        counted = [non_zero_requests(kind.usage, kind.pod_class.unrequested) for kind in self.kind_list]
        return np.array(counted, dtype=np.int64).reshape(-1, 2)[self.kinds]

    @cached_property
    def evictable(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """bool[V]: nothing is known against an eviction, or against taking a placement back."""
        evictable = np.array([not kind.unevictable_reason for kind in self.kind_list], dtype=np.bool_)[self.kinds]
        evictable[self.running_count :] = [placement.pod.key not in self.kept for placement in self.placements]
        return evictable

    @cached_property
    def started(self) -> NDArray[np.float64]:
        """float64[V]: as ``RunningPod.started``."""
        return np.fromiter(map(attrgetter("started"), self.pods), dtype=np.float64, count=len(self.pods))

    @cached_property
    def by_node(self) -> tuple[tuple[int, ...], ...]:
        """For each node its residents, the most important first (util.MoreImportantPod of kube-scheduler)."""
        order = np.lexsort((np.where(self.started == 0, np.inf, self.started), -self.priorities, self.nodes))
        count = int(self.nodes.max(initial=-1)) + 1
        bounds = np.searchsorted(self.nodes[order], np.arange(count + 1)).tolist()
        residents = tuple(order.tolist())
        return tuple(residents[first:end] for first, end in pairwise(bounds))

    def on(self, node: int) -> tuple[int, ...]:
        """Residents of a node, the most important first."""
        return self.by_node[node] if node < len(self.by_node) else ()

    @cached_property
    def by_gang(self) -> dict[str, tuple[int, ...]]:
        """Pods of each gang, by ``gang_of``."""
        gangs: dict[str, list[int]] = {}
        for resident in range(len(self.pods)):
            if name := self.gang_of(resident):
                gangs.setdefault(name, []).append(resident)
        return {name: tuple(members) for name, members in gangs.items()}

    def gang_of(self, resident: int) -> str:
        """The gang of a resident; "": none.

        A gang that is placed leaves as a whole, but those that it does without may leave alone: ``pods`` has no gang
        for these.
        """
        return self.pods[resident].gang if self.is_running(resident) else _placed_gang(self.placement(resident))

    @property
    def running_count(self) -> int:
        """How many of them run; the others are placements."""
        return len(self.pods) - len(self.placements)

    def is_running(self, resident: int) -> bool:
        """Whether a resident runs; if not, it is a placement of the plan."""
        return resident < self.running_count

    def placement(self, resident: int) -> Placement:
        """The placement that a resident is."""
        return self.placements[resident - self.running_count]


def _numbers(values: Iterable[int], count: int) -> Int64s:
    return np.fromiter(values, dtype=np.int64, count=count)


def _as_running(placement: Placement) -> RunningPod:
    """A placement as if it ran, for a moment only."""
    pod = placement.pod
    return RunningPod(
        key=pod.key,
        uid=pod.uid,
        node=placement.node,
        pod_class=pod.pod_class,
        usage=pod.pod_class.requests,
        signature=pod.signature,
        started=np.inf,
        policy=pod.policy,
        queue=pod.queue,
        gang="" if placement.optional else _placed_gang(placement),
    )


def _placed_gang(placement: Placement) -> str:
    """Another name than that of its gang: pods that run and pods that are placed leave each by themselves."""
    return f"placed {placement.atomic_group}" if placement.atomic_group else ""


def loss_of(residents: Residents, members: Sequence[int], pods: int = 1, lost_work: Int64s | None = None) -> Loss:
    """What it is to lose some residents.

    Args:
        pods: for how many pods they leave.
        lost_work: int64[V], what is summed in place of priorities; None: priorities.
    """
    lost = [residents.pods[member] for member in members]
    highest = max((pod.priority for pod in lost), default=-np.inf)
    if lost_work is None:
        total = sum(pod.priority + PRIORITY_OFFSET for pod in lost)
    else:
        total = int(lost_work[list(members)].sum())
    earliest = min((pod.started or np.inf for pod in lost if pod.priority == highest), default=0.0)
    return Loss(float(highest), total / pods, len(lost) / pods, -pods, -earliest)


def losses_by_priority(priorities: Iterable[int], factor: int) -> dict[int, int]:
    """What it is to lose a pod of each priority, for sums over many pods: 1 or more.

    Args:
        factor: a pod counts like so many of the next lower priority.
    """
    tiers = sorted(set(priorities))
    alike = max(0, len(tiers) - _MOST_TIERS)
    return {priority: factor ** max(0, tier - alike) for tier, priority in enumerate(tiers)}
