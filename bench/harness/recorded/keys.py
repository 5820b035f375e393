"""What plans are compared by, the smaller the better: as planners did, and by the one key that is to come.

Levels are priorities. In a level pods are counted: recorded pods have waited so shortly that none is as dear to leave
as two others. Guarantees and fair shares are no levels here. Costs are by sums of our own, since planners may come to
state others: those that they state are listed beside.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from harness.recorded.objects import Cluster, Pod, kept, selects
from harness.recorded.planners import Plan

#: What kube-scheduler adds to each priority before it sums them (pickOneNodeForPreemption), and what is below all.
_ABOVE_ALL, _NOBODY = 2**31, -(2**32)
_NODE, _BASE, _PER_PRIORITY, _PER_SECOND = 1000, 100_000, 10, 5
_EXTENDED = frozenset({"nvidia.com/gpu"})

#: Of those that leave without a new node: the highest priority, the sum, how many, and that the last ones started go.
Victims = tuple[int, int, int, float]


@dataclass(frozen=True)
class Keys:
    """A plan by both keys."""

    cluster: Cluster
    plan: Plan

    @cached_property
    def lost(self) -> list[Pod]:
        """Pods that leave without a new node."""
        return [self.cluster.pods[each.pod] for each in self.plan.leavers if not each.to]

    @cached_property
    def left(self) -> list[Pod]:
        """Pods that waited and get no node."""
        return [pod for pod in self.cluster.waiting if pod.key not in self.plan.placed]

    @cached_property
    def left_by_level(self) -> tuple[int, ...]:
        """How many of them, the highest priority first."""
        return self._by_level(self.left)

    @cached_property
    def old(self) -> tuple[object, ...]:
        """What waits level by level, victims, moves for others."""
        return self.left_by_level, self.victims, self.moves

    @cached_property
    def new(self) -> tuple[object, ...]:
        """Duties, what has no node level by level, victims, moves for others; the cost comes after these."""
        return self.duties, self.without_node, self.victims, self.moves

    @cached_property
    def duties(self) -> int:
        """Pods that gangs lack which have begun."""
        lacks = 0
        for gang in {pod.gang for pod in self.cluster.pods.values() if pod.gang}:
            members = [pod for pod in self.cluster.pods.values() if pod.gang == gang]
            there = sum(bool(pod.node) and not pod.deleting for pod in members)
            if there:
                come = sum(pod.key in self.plan.placed for pod in members)
                lacks += max(0, max(pod.min_member for pod in members) - there - come)
        return lacks

    @cached_property
    def without_node(self) -> tuple[int, ...]:
        """What has no node, the highest priority first: who leaves without a new one waits at its level."""
        return self._by_level([*self.left, *self.lost])

    def _by_level(self, pods: Iterable[Pod]) -> tuple[int, ...]:
        counts = Counter(pod.priority for pod in pods)
        levels = sorted({pod.priority for pod in self.cluster.pods.values()}, reverse=True)
        return tuple(counts[level] for level in levels)

    @cached_property
    def victims(self) -> Victims:
        """By kube-scheduler's order, over the cluster."""
        highest = max((pod.priority for pod in self.lost), default=_NOBODY)
        first = min((pod.started for pod in self.lost if pod.priority == highest), default=math.inf)
        return highest, sum(pod.priority + _ABOVE_ALL for pod in self.lost), len(self.lost), -first

    @cached_property
    def moves(self) -> int:
        """Moves made for waiting pods."""
        return sum(bool(each.to) and not each.gain for each in self.plan.leavers)

    @cached_property
    def cost(self) -> float:
        """By how much nodes become dearer, and what leaving pods costs."""
        return _Costs(self.cluster).of(self.plan, self.left)


class _Costs:
    """CPUMemory with balance 0, idle resources, interference, and the price of waiting per pod.

    As flowcore states them: a node's potential is ``1000 * (room_cpu * u_cpu^2 + room_mem * u_mem^2) / 4``, with rooms
    in waiting pods of mean size; a pod costs 1000 more on a node with GPUs that it does not ask for.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        waiting = cluster.waiting or cluster.running
        self._units = [_unit([pod.counted[column] for pod in waiting]) for column in (0, 1)]
        nodes = cluster.nodes.values()
        names = {name for node in nodes for name in node.allocatable}
        self._mean = {name: sum(node.allocatable.get(name, 0) for node in nodes) / len(nodes) for name in names}
        cost = cluster.policy["cost"]
        self._kinds = [(str(each["name"]), kept(each["pods"])) for each in cost.get("kinds", ())]
        interference = cost.get("interference", {})
        self._penalties = {
            (each["kind"], each["beside"]): each["penalty"] for each in interference.get("penalties", ())
        }

    def of(self, plan: Plan, left: Iterable[Pod]) -> float:
        """The cost of a plan."""
        leaving = {each.pod for each in plan.leavers}
        before, after = defaultdict[str, list[Pod]](list), defaultdict[str, list[Pod]](list)
        for pod in self._cluster.running:
            before[pod.node].append(pod)
            if pod.key not in leaving:
                after[pod.node].append(pod)
        for key, node in plan.placed.items():
            after[node].append(self._cluster.pods[key])
        for each in plan.leavers:
            if each.to:
                after[each.to].append(self._cluster.pods[each.pod])
        touched = {*plan.placed.values(), *(each.to for each in plan.leavers if each.to)}
        touched |= {self._cluster.pods[key].node for key in leaving}
        total = sum(self._of_node(node, after[node]) - self._of_node(node, before[node]) for node in touched)
        return total + sum(self._of_waiting(pod) for pod in left)

    def _of_node(self, name: str, pods: list[Pod]) -> float:
        node, cost = self._cluster.nodes[name], 0.0
        for column, resource in enumerate(("cpu", "memory")):
            capacity, taken = node.allocatable.get(resource, 0), sum(pod.counted[column] for pod in pods)
            if capacity:
                cost += _NODE * (capacity / self._units[column]) * (taken / capacity) ** 2 / 4
            else:
                cost += _NODE * taken / self._units[column] / 2
        offers = [name for name in _EXTENDED if node.allocatable.get(name)]
        cost += sum(_NODE for pod in pods if offers and not any(pod.requests.get(name) for name in offers))
        if self._penalties:
            kinds = Counter(kind for pod in pods if (kind := self._kind(pod)))
            for (kind, beside), penalty in self._penalties.items():
                cost += penalty * kinds[kind] * (kinds[beside] - (kind == beside))
        return cost

    def _kind(self, pod: Pod) -> str:
        return next((name for name, selector in self._kinds if selects(selector, pod.labels)), "")

    def _of_waiting(self, pod: Pod) -> float:
        tenths = max(10 * amount / self._mean[name] for name, amount in pod.requests.items() if self._mean.get(name))
        waited = self._cluster.moment - pod.created
        return _BASE + _PER_PRIORITY * pod.priority + _PER_SECOND * waited * max(1.0, tenths)


def _unit(sizes: list[int]) -> float:
    """What a pod of mean size counts for: that size, or where pods are unlike the next power of two."""
    mean = sum(sizes) / max(len(sizes), 1)
    return mean if len(set(sizes)) == 1 else 2.0 ** round(math.log2(max(mean, 1.0)))
