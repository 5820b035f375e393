"""What each queue of a snapshot holds, asks for, and is due, and how urgent that makes its waiting pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.cluster.indexes.queue_index import QueueProblem, QueueTree
from flowcore.costs.shares.additions import added_by
from flowcore.costs.shares.filling import EPSILON, FilledQueue, Float64s, dominant_share, fill
from flowcore.costs.shares.guarantees import check_guarantees
from flowcore.model.queues import QueueShare
from flowcore.model.resources import PODS, Amounts, capped

_NO_URGENCIES: Mapping[str, float] = {}


def own_pods(name: str) -> str:
    """Under which name the pods that a queue with children has itself are kept beside these; no queue is called so."""
    return f"{name}/"


class Shares:
    """The shares of all accepted queues of a snapshot. Amounts by queue include those of queues below it.

    Pods that a queue with children has itself are one more child of it, of weight 1 and without bounds (``own_pods``).

    Queues share what pods of no queue leave: those are never held back, and never evicted for a share.

    Attributes:
        tree: the accepted queues.
        capacity: float64[R], what all queues together can have, in the columns of the snapshot. Nodes that are cordoned
            offer what their pods hold, and so do nodes that offer none of a resource.
        held: float64[R] by queue, what its pods hold; of those that come and those that leave first the larger part.
        used: the same without pods that are leaving.
        pending: waiting pods of each queue itself in their order: by priority, then the longest waiting first.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """A snapshot with queues."""
        state = snapshot.queues
        self._snapshot = snapshot
        self._fits: dict[Amounts, bool] = {}
        self.tree = QueueTree(() if state is None else state.queues)
        held, stays = dict[str, Float64s](), dict[str, Float64s]()
        for name, usage in {} if state is None else state.usage.items():
            if name in self.tree.queues:
                held[name] = self._row(usage.used)
                stays[name] = np.maximum(held[name] - self._row(usage.leaving), 0.0)
        # Of a resource that a node does not offer its pods take nothing from others: GPUs that HAMi hands out.
        closed = snapshot.table.unschedulable[:, np.newaxis] | (snapshot.allocatable == 0)
        for name, nodes in {} if snapshot.columns is None else snapshot.columns.extended.items():
            closed[:, snapshot.resources.index(name)] |= nodes
        offered = np.where(closed, snapshot.used, snapshot.allocatable)
        self.held, self.used = self._with_children(held), self._with_children(stays)
        for name, usage in {} if state is None else state.usage.items():
            if name in self.tree.queues:
                self.held[name] = self.held[name] - self._row(usage.twice)
        of_queues = sum((self.held[name] for name in self.tree.children("")), self._zeros)
        of_others = snapshot.used.astype(np.float64).sum(axis=0) - of_queues
        self.capacity = np.maximum(offered.astype(np.float64).sum(axis=0) - np.maximum(of_others, 0.0), 0.0)
        self.pending = _pending_by_queue(snapshot.pending, self.tree)
        waiting = {name: self._sum_of_fitting(pods) for name, pods in self.pending.items()}
        # Of a resource that queues cannot have nothing is due; that must not keep what is due of others.
        self._asked = {
            name: np.where(self.capacity > 0, stays.get(name, self._zeros) + waiting.get(name, self._zeros), 0.0)
            for name in self.tree.queues
        }

    @property
    def resources(self) -> tuple[str, ...]:
        """The R names of the columns."""
        return self._snapshot.resources

    @property
    def _zeros(self) -> Float64s:
        return np.zeros(len(self._snapshot.resources))

    def _row(self, amounts: Amounts, missing: float = 0.0) -> Float64s:
        """float64[R]: amounts in the columns of the snapshot; resources that no node offers are left out.

        So are numbers of devices: what queues hold of them is not counted.
        """
        by_name, plain = dict(amounts), self._snapshot.plain_resources
        row = np.full(len(self._snapshot.resources), missing)
        row[: len(plain)] = [by_name.get(name, missing) for name in plain]
        return row

    def request(self, requests: Amounts) -> Float64s:
        """float64[R]: what one pod asks for, or holds."""
        return self._row((*requests, (PODS, 1)))

    def added_by(self, pod: PendingPod) -> Float64s:
        """float64[R]: what the placement of a waiting pod adds to what its queue holds."""
        return self._row(added_by(pod))

    def limit(self, name: str) -> Float64s:
        """float64[R]: the limit of a queue; infinite for resources without one."""
        return self._row(self.tree.queues[name].limit, np.inf)

    def guarantee(self, name: str) -> Float64s:
        """float64[R]: the guarantee of a queue, if it counts; NaN for resources without one."""
        return self._row(self._guarantees[0].get(name, ()), np.nan)

    def dominant(self, amounts: Float64s) -> float:
        """The dominant share of amounts, float64[R]."""
        return dominant_share(amounts, self.capacity)

    def path(self, name: str) -> tuple[str, ...]:
        """Names from the top of the tree down to the pods that a queue has itself."""
        path = self.tree.path(name)
        return (*path, own_pods(name)) if self.tree.children(name) else path

    def _with_children(self, own: Mapping[str, Float64s]) -> dict[str, Float64s]:
        total = {name: own.get(name, self._zeros).copy() for name in self.tree.queues}
        for name in reversed(tuple(self.tree.queues)):
            if parent := self.tree.queues[name].parent:
                total[parent] += total[name]
            if self.tree.children(name):
                total[own_pods(name)] = own.get(name, self._zeros)
        return total

    def _sum_of_fitting(self, pods: Sequence[PendingPod]) -> Float64s:
        """What waiting pods ask for, those left out that are larger than every node: nothing is due for them."""
        total = self._zeros
        for pod in pods:
            if self.fits_a_node(pod):
                total += self.added_by(pod)
        return total

    def fits_a_node(self, pod: PendingPod) -> bool:
        """Whether some node, if it were empty, had room for a waiting pod."""
        requests = pod.pod_class.requests
        if requests not in self._fits:
            offered = all(name in self._snapshot.resources for name, _ in requests)
            large_enough = self._snapshot.allocatable >= self._snapshot.vector(requests)
            self._fits[requests] = offered and bool(large_enough.all(axis=1).any())
        return self._fits[requests]

    @cached_property
    def _guarantees(self) -> tuple[dict[str, Amounts], dict[str, QueueProblem]]:
        capacity = dict(zip(self._snapshot.resources, self.capacity.tolist(), strict=True))
        return check_guarantees(self.tree, capacity)

    @cached_property
    def fair(self) -> dict[str, Float64s]:
        """float64[R] by queue: what is due to it at what all queues hold and ask for now."""
        return self._fill(self._asked)

    @cached_property
    def fair_share(self) -> dict[str, float]:
        """The dominant share of ``fair``, by queue."""
        return {name: self.dominant(amounts) for name, amounts in self.fair.items()}

    def _entitled(self) -> dict[str, Float64s]:
        """float64[R] by queue: what would be due to it if all queues asked for more than they get.

        A queue that asks for nothing now counts as one that asks for as much of each resource as there is.
        """
        demands = {}
        for name, asked in self._asked.items():
            size = self.dominant(asked)
            if size > 0.0:
                demands[name] = asked / size
            else:
                demands[name] = self._zeros if self.tree.children(name) else self.capacity
        return self._fill(demands)

    def _fill(self, demands: Mapping[str, Float64s]) -> dict[str, Float64s]:
        """What is due to each queue if they ask for this."""
        position = {name: index for index, name in enumerate(self.tree.queues)}
        nodes, own, names = [], [], list(position)
        for name, queue in self.tree.queues.items():
            node = FilledQueue(
                position.get(queue.parent, -1), queue.weight, demands[name], self.guarantee(name), self.limit(name)
            )
            if self.tree.children(name):
                no_bounds = self._row((), np.nan), self._row((), np.inf)
                own.append(FilledQueue(position[name], 1, node.demand, *no_bounds))
                names.append(own_pods(name))
                node.demand = self._zeros
            nodes.append(node)
        nodes += own
        for index, node in enumerate(nodes):
            if node.parent >= 0:
                nodes[node.parent].children.append(index)
        return dict(zip(names, fill(nodes, self.capacity), strict=True))

    def report(self) -> tuple[QueueShare, ...]:
        """The shares of all accepted queues, for people."""
        rows, entitled, problems = [], self._entitled(), self._guarantees[1]
        for name in self.tree.queues:
            used = self.used[name]
            amounts = zip(self._snapshot.resources, used.tolist(), strict=True)
            share, problem = self.dominant(used), problems.get(name)
            rows.append(
                QueueShare(
                    name,
                    used=capped((resource, int(amount)) for resource, amount in amounts if amount),
                    used_share=share,
                    fair_share=self.fair_share[name],
                    borrowed_share=max(0.0, share - self.dominant(entitled[name])),
                    problem=("", "") if problem is None else (problem.reason, problem.message),
                )
            )
        return tuple(rows)


def _pending_by_queue(pending: Sequence[PendingPod], tree: QueueTree) -> dict[str, list[PendingPod]]:
    by_queue: dict[str, list[PendingPod]] = {}
    for pod in pending:
        if pod.queue in tree.queues:
            by_queue.setdefault(pod.queue, []).append(pod)
    for pods in by_queue.values():
        pods.sort(key=lambda pod: (-pod.pod_class.priority, pod.came))
    return by_queue


def urgencies(snapshot: Snapshot) -> Mapping[str, float]:
    """How urgent each waiting pod of a queue is, 0..1.25, by key; empty where there are no queues."""
    if snapshot.queues is None or not snapshot.queues.queues:
        return _NO_URGENCIES
    shares = Shares(snapshot)
    return {key: urgency for pods in shares.pending.values() for key, urgency in urgencies_of(shares, pods).items()}


def urgencies_of(shares: Shares, pods: Iterable[PendingPod]) -> dict[str, float]:
    """How urgent waiting pods of queues are if each queue places its own in this order, by key.

    A pod is as urgent as its queue is short of its share once the pods before it in the queue and half of the pod are
    placed. Let r be what the queue has then, in parts of its fair share: within the guarantee 1.25 - r/4, within the
    fair share 1 - r/4, and beyond it 1/4r. So half of the scale lies between what is due to a queue and what is not.
    With half of the pod the shares are rounded to whole pods (Webster 1832): with all of it, which is the method of
    Jefferson, a large queue would get more than a pod too many, and one that is due less than a pod none.
    """
    urgency_by_key: dict[str, float] = {}
    used: dict[str, Float64s] = {}
    for pod in pods:
        name = shares.path(pod.queue)[-1]
        request, fair, guarantee = shares.added_by(pod), shares.fair_share[name], shares.guarantee(name)
        amounts = used[name] = used.get(name, shares.used[name]) + request
        asked = ~np.isnan(guarantee) & (request > 0)
        part = shares.dominant(amounts - request / 2) / fair if fair > 0.0 else np.inf
        if part > 1.0 + EPSILON:
            urgency_by_key[pod.key] = 0.25 / part
        else:
            guaranteed = asked.any() and bool((amounts[asked] <= guarantee[asked]).all())
            urgency_by_key[pod.key] = (1.25 if guaranteed else 1.0) - 0.25 * part
    return urgency_by_key
