"""Pods that plans had no node for: where room comes free, they come before pods that are new."""

from __future__ import annotations

from collections import Counter

from flowcore.model.pods import Pod


class PodsInVain:
    """Waiting pods that a plan had no node for, and that have none since, by priority."""

    def __init__(self) -> None:
        self._priorities: dict[str, int] = {}
        self._counts: Counter[int] = Counter()

    @property
    def highest(self) -> int | None:
        """The highest priority; None: there are no such pods."""
        return max(self._counts, default=None)

    def add(self, pod: Pod) -> None:
        """A plan had no node for a waiting pod."""
        self.drop(pod.key)
        priority = self._priorities[pod.key] = pod.pod_class.priority
        self._counts[priority] += 1

    def drop(self, key: str) -> None:
        """A pod waits no more, or has a place."""
        priority = self._priorities.pop(key, None)
        if priority is not None:
            self._counts[priority] -= 1
            if not self._counts[priority]:
                del self._counts[priority]
