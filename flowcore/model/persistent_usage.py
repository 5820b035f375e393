"""Room on nodes that does not come free: what runs there and stays, as far as gangs that wait for room can tell.

DaemonSet pods and static pods stay as long as their node. Pods that no policy places count as staying too: when they
end, others fill their room. All other pods may end, but a gang waits for none of a higher priority than its own.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.resources import Amounts, capped

#: Above every pod's priority: pods with this stay, whatever the priority of waiting pods.
ALWAYS = 2**31


class PersistentUsage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Pods of one priority on one node that stay for all gangs of lower priority: how many, and what they take."""

    node: str
    priority: int
    amounts: Amounts
    pod_count: int


class PersistentUsageSums:
    """Adds up the pods of a cluster."""

    def __init__(self, above: int) -> None:
        """Pods of a higher priority than ``above``, and pods that stay whatever the priority of waiting pods."""
        self._above = above
        self._amounts: dict[tuple[str, int], Counter[str]] = {}
        self._pod_counts: Counter[tuple[str, int]] = Counter()

    def add(self, pod: Pod, policy: Policy | None) -> None:
        """A pod of the cluster, and the policy that governs it."""
        if not pod.node_name or pod.terminal or pod.deleting:
            return
        governed = policy is not None and policy.delivery.acts
        priority = pod.pod_class.priority if governed and not pod.permanent else ALWAYS
        if priority <= self._above:
            return
        key = (pod.node_name, priority)
        self._pod_counts[key] += 1
        amounts = self._amounts.setdefault(key, Counter())
        for name, amount in pod.usage:
            amounts[name] += amount

    def totals(self) -> tuple[PersistentUsage, ...]:
        """What stays, by node and priority."""
        return tuple(
            PersistentUsage(
                node, priority, capped(self._amounts[node, priority].items()), self._pod_counts[node, priority]
            )
            for node, priority in sorted(self._pod_counts)
        )
