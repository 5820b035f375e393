"""Nodes are emptied one after the other: their pods go where pods stay, and to empty nodes where one replaces several.

Where a pod finds no room, another pod makes room for it if it has room elsewhere itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.model.pod_index import EMPTY_SIGNATURE
from flowcore.model.pods import PodClass
from flowcore.model.running_pods import RunningPod
from flowcore.questions.audit.audited_cluster import AuditedCluster
from flowcore.rules.filters import static_fits

#: How often nodes are looked for, for one pod each time; one that looks at so many pods counts for one more.
_MOST_LOOKS, _PODS_A_LOOK = 30_000, 500
#: An empty node is filled where that empties as many others at least.
_LEAST_REPLACED = 2


@dataclass(frozen=True, slots=True, eq=False)
class _Needs:
    """What pods of a class need.

    Attributes:
        amounts: int64[R].
        asks: bool[R].
        usable: bool[N], nodes that the filters let them use, but for the room and the pods there.
        size: the largest part that it takes of what nodes offer at most.
    """

    amounts: Int64s
    asks: Bools
    usable: Bools
    size: float


@dataclass(frozen=True, slots=True, eq=False)
class PodMove:
    """A pod leaves a node for another one, both by their position.

    Attributes:
        empties: whether its node is to be empty, else it makes room.
    """

    pod: RunningPod
    node: int
    target: int
    empties: bool


class Consolidation:
    """Where pods go. Rules between pods are not looked at: pods with such rules stay, and have no labels here.

    Attributes:
        nodes: that are empty then, by position, in the order in which they were emptied.
    """

    def __init__(self, cluster: AuditedCluster, pods_on: Mapping[str, Sequence[RunningPod]]) -> None:
        """The cluster as it is.

        Args:
            pods_on: the pods that keep each node from being empty, by its name.
        """
        self._snapshot, self._index = cluster.snapshot, cluster.snapshot.table.index
        running = self._snapshot.running
        self._asked: dict[PodClass, _Needs] = {}
        self._looks = _MOST_LOOKS
        self._pods = {self._index[name]: {pod.key: pod for pod in pods} for name, pods in pods_on.items()}
        self._free = self._snapshot.free.copy()
        self._moves = cluster.most_moves
        self._budgets = Counter[str]() if running is None else Counter(running.budgets)
        self.nodes = list[int]()
        self._done = list[tuple[RunningPod, int, int]]()
        alone = [pod for pods in pods_on.values() for pod in pods if _moves_alone(pod)]
        self._staying = {self._index[pod.node] for pods in pods_on.values() for pod in pods if not _moves_alone(pod)}
        #: Pods that may make room, the smallest first, and where they are.
        self._smallest = sorted(alone, key=lambda pod: (self._needs(pod).size, pod.key))
        self._row = {pod.key: row for row, pod in enumerate(self._smallest)}
        self._places = np.array([self._index[pod.node] for pod in self._smallest], dtype=np.int64)
        self._amounts = np.array([self._needs(pod).amounts for pod in self._smallest], dtype=np.int64)
        #: Pods go to the node with the highest rank; -1: to no node that is empty.
        self._rank = np.full(len(self._index), -1, dtype=np.int64)
        self._rank[[*self._pods]] = len(self._index)

    def _in_order(self) -> list[int]:
        """Nodes all of whose pods may move, those with the least to move first."""
        offered = self._snapshot.allocatable
        share = ((offered - self._free) / np.maximum(offered, 1)).max(axis=1)
        nodes = [node for node in self._pods if node not in self._staying]
        return sorted(nodes, key=lambda node: (len(self._pods[node]), share[node], node))

    def moves(self) -> list[PodMove]:
        """The moves, those that empty nodes by these."""
        empty = {node: number for number, node in enumerate(self.nodes)}
        moves = [
            PodMove(pod, home, node, empties=home in empty)
            for node, pods in self._pods.items()
            for pod in pods.values()
            if (home := self._index[pod.node]) != node
        ]
        return sorted(moves, key=lambda move: (empty.get(move.node, -1), move.pod.key))

    def empty_all(self, *, others: bool = False) -> int:
        """Empties what it can; how many nodes these are.

        Args:
            others: whether other pods may make room.
        """
        emptied, order = len(self.nodes), self._in_order()
        self._rank[order] = np.arange(len(order))
        for node in order:
            if self._moves and self._looks > 0:
                self._empty(node, others=others)
        return len(self.nodes) - emptied

    def fill(self, empty: Iterable[int], *, others: bool = False) -> None:
        """Opens empty nodes one after the other, as long as each replaces several."""
        for node in empty:
            if node in self._pods:
                continue
            done, rank, emptied = len(self._done), self._rank.copy(), len(self.nodes)
            self._rank[node], self._pods[node] = len(self._index), {}
            self._staying.add(node)
            if self.empty_all(others=others) < _LEAST_REPLACED:
                self._undo(done)
                self._rank = rank
                del self.nodes[emptied:], self._pods[node]
                self._staying.remove(node)
                return

    def _empty(self, node: int, *, others: bool) -> bool:
        """Moves all pods of a node, or none."""
        done, rank, self._rank[node] = len(self._done), self._rank[node], -1
        for pod in sorted(self._pods[node].values(), key=lambda pod: -self._needs(pod).size):
            if not (self._rehome(pod, node) or (others and self._swap_in(pod, node))):
                self._undo(done)
                self._rank[node] = rank
                return False
        del self._pods[node]
        self.nodes.append(node)
        return True

    def _rehome(self, pod: RunningPod, node: int) -> bool:
        """Moves a pod from its node to another one, if it can."""
        target = self._target(pod, node)
        if target >= 0:
            self._move(pod, node, target)
        return target >= 0

    def _swap_in(self, pod: RunningPod, node: int) -> bool:
        """Moves a pod to where another one moves away for it, if there is one."""
        needs, places = self._needs(pod), self._places
        self._looks -= len(places) // _PODS_A_LOOK
        enough = self._free[places][:, needs.asks] + self._amounts[:, needs.asks] >= needs.amounts[needs.asks]
        rows = np.nonzero(enough.all(axis=1) & needs.usable[places] & (self._rank[places] >= 0))[0]
        hopeless, done = set[PodClass](), len(self._done)
        for row in rows.tolist():
            leaves, place = self._smallest[row], int(places[row])
            if leaves.pod_class in hopeless:
                continue
            if self._rehome(leaves, place):
                if self._may_leave(pod, node):
                    self._move(pod, node, place)
                    return True
                self._undo(done)
                return False
            hopeless.add(leaves.pod_class)
        return False

    def _may_leave(self, pod: RunningPod, node: int) -> bool:
        """Whether one more move is allowed; a pod that moves anyway may go elsewhere."""
        if self._index[pod.node] != node:
            return True
        return self._moves > 0 and all(self._budgets[budget] > 0 for budget in pod.budgets)

    def _target(self, pod: RunningPod, node: int) -> int:
        """The node with the highest rank that takes the pod; -1: none does."""
        if not self._may_leave(pod, node):
            return -1
        needs = self._needs(pod)
        self._looks -= 1
        fits = needs.usable & (self._free[:, needs.asks] >= needs.amounts[needs.asks]).all(axis=1)
        fits[node] = False
        target = int(np.where(fits, self._rank, -1).argmax())
        return target if fits[target] and self._rank[target] >= 0 else -1

    def _move(self, pod: RunningPod, node: int, target: int) -> None:
        home, amounts = self._index[pod.node], self._needs(pod).amounts
        held = self._snapshot.vector(pod.usage)
        self._free[node] += held if node == home else amounts
        self._free[target] -= held if target == home else amounts
        del self._pods[node][pod.key]
        self._pods[target][pod.key] = pod
        self._places[self._row[pod.key]] = target
        more = (node == home) - (target == home)
        self._moves -= more
        self._budgets.subtract(dict.fromkeys(pod.budgets, more))
        self._done.append((pod, node, target))

    def _undo(self, until: int) -> None:
        while len(self._done) > until:
            pod, node, target = self._done.pop()
            self._pods.setdefault(node, {})
            self._move(pod, target, node)
            self._done.pop()

    def _needs(self, pod: RunningPod) -> _Needs:
        asked = self._asked.get(pod.pod_class)
        if asked is None:
            amounts = self._snapshot.vector(pod.pod_class.requests)
            usable = static_fits(pod.pod_class, EMPTY_SIGNATURE, self._snapshot)
            size = float((amounts / np.maximum(self._snapshot.allocatable.max(axis=0), 1)).max())
            asked = self._asked[pod.pod_class] = _Needs(amounts, amounts > 0, usable, size)
        return asked


def _moves_alone(pod: RunningPod) -> bool:
    """Pods with rules about other pods or host ports stay: they could not move one after the other in any order."""
    bound = pod.immovable_reason or pod.unevictable_reason or pod.signature.constraints is not None
    return not (bound or pod.pod_class.host_ports or pod.pod_class.devices is not None)


def in_legal_order(moves: Sequence[PodMove], begun: Snapshot) -> list[PodMove]:
    """The moves that can be made one after the other, in an order in which each pod has room before it leaves."""
    free, ordered, left = begun.free.copy(), list[PodMove](), [*moves]
    amounts = {move.pod.key: begun.vector(move.pod.pod_class.requests) for move in moves}
    while left:
        later = list[PodMove]()
        for move in left:
            asked = amounts[move.pod.key]
            if ((free[move.target] >= asked) | (asked == 0)).all():
                free[move.target] -= asked
                free[move.node] += begun.vector(move.pod.usage)
                ordered.append(move)
            else:
                later.append(move)
        if len(later) == len(left):
            break
        left = later
    return ordered
