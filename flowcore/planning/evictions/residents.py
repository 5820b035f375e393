"""Pods on nodes that may leave: running pods, and placements of the same plan that can still be taken back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.problem.result import Placement

#: kube-scheduler adds this to each priority, so that fewer victims of low priority are better than many
#: (framework/preemption pickOneNodeForPreemption).
PRIORITY_OFFSET = 2**31


@dataclass(frozen=True)
class Residents:
    """V pods by number, those of each node the least important first.

    Attributes:
        running: what is known of running pods.
        pods: the running pods, then the placements as if they ran.
        placements: of the plan, those that can be taken back.
        nodes: int64[V], node of each.
        usage: int64[V, R].
        kept: keys of placements that are not taken back for others.
    """

    running: RunningPods
    pods: tuple[RunningPod, ...]
    placements: tuple[Placement, ...]
    nodes: Int64s
    usage: Int64s
    kept: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, snapshot: Snapshot, running: RunningPods, placements: Sequence[Placement], kept: Collection[str] = ()
    ) -> Residents:
        """Residents of the nodes of a snapshot; ``kept``: as the attribute."""
        index = snapshot.table.index
        known = [pod for pod in running.pods if pod.node in index]
        pods = (*known, *map(_as_running, placements))
        numbers: defaultdict[Amounts, int] = defaultdict(lambda: len(numbers))
        kinds = list(map(numbers.__getitem__, map(attrgetter("usage"), pods)))
        rows = [snapshot.vector(amounts) for amounts in numbers]
        usage = np.array(rows, dtype=np.int64).reshape(-1, len(snapshot.resources))[kinds]
        nodes = np.fromiter(map(index.__getitem__, map(attrgetter("node"), pods)), dtype=np.int64, count=len(pods))
        return cls(running, pods, tuple(placements), nodes, usage, frozenset(kept))

    @cached_property
    def priorities(self) -> Int64s:
        """int64[V]."""
        return np.array([pod.priority for pod in self.pods], dtype=np.int64)

    @cached_property
    def evictable(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """bool[V]: nothing is known against an eviction, or against taking a placement back."""
        evictable = [not pod.unevictable_reason for pod in self.pods[: self.running_count]]
        evictable += [placement.pod.key not in self.kept for placement in self.placements]
        return np.array(evictable, dtype=np.bool_)

    @cached_property
    def by_node(self) -> tuple[tuple[int, ...], ...]:
        """For each node its residents, the most important first (util.MoreImportantPod of kube-scheduler)."""
        started = np.array([pod.started or np.inf for pod in self.pods])
        order = np.lexsort((started, -self.priorities, self.nodes))
        count = int(self.nodes.max(initial=-1)) + 1
        bounds = np.searchsorted(self.nodes[order], np.arange(count + 1))
        return tuple(tuple(order[bounds[node] : bounds[node + 1]].tolist()) for node in range(count))

    def on(self, node: int) -> tuple[int, ...]:
        """Residents of a node, the most important first."""
        return self.by_node[node] if node < len(self.by_node) else ()

    @cached_property
    def by_gang(self) -> dict[str, tuple[int, ...]]:
        """Running pods of each gang."""
        gangs: dict[str, list[int]] = {}
        for resident, pod in enumerate(self.pods[: self.running_count]):
            if pod.gang:
                gangs.setdefault(pod.gang, []).append(resident)
        return {name: tuple(members) for name, members in gangs.items()}

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
    )


#: What kube-scheduler compares nodes by, the smaller the better: PDB violations (none here), highest priority of a
#: victim, sum of the priorities (or what a policy has summed in their place), number, earliest start of the most
#: important victims (the later the better).
VictimsKey = tuple[float, float, float, float]


def victims_key(
    residents: Residents, members: Sequence[int], shared_by: int = 1, lost_work: Int64s | None = None
) -> VictimsKey:
    """The key of some victims.

    Args:
        shared_by: for how many pods they leave: their sum and number are divided by it.
        lost_work: int64[V], what is summed in place of priorities; None: priorities.
    """
    pods = [residents.pods[member] for member in members]
    if not pods:
        return (-np.inf, 0.0, 0.0, 0.0)
    highest = max(pod.priority for pod in pods)
    if lost_work is None:
        total = sum(pod.priority + PRIORITY_OFFSET for pod in pods)
    else:
        total = int(lost_work[list(members)].sum())
    earliest = min(pod.started or np.inf for pod in pods if pod.priority == highest)
    return float(highest), total / shared_by, len(pods) / shared_by, -earliest
