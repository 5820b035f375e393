"""The line of the binder's pods that wait for a turn on their nodes: namespaces alternate."""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from itertools import chain, zip_longest

from flowcore.model.pods import Pod


class TurnLine:
    """Pods in line, by namespace. Whose namespace had a turn goes to the end; in one the highest priority is first."""

    def __init__(self) -> None:
        #: Namespace -> key of a pod -> its priority.
        self._pods: dict[str, dict[str, int]] = {}

    def __contains__(self, pod: Pod) -> bool:
        return pod.key in self._pods.get(pod.namespace, ())

    @property
    def namespaces(self) -> KeysView[str]:
        """Namespaces of the pods, in their order."""
        return self._pods.keys()

    def in_order(self, namespaces: Iterable[str]) -> list[tuple[str, str]]:
        """Namespaces and keys of the pods of some namespaces, as the line is now."""
        ordered = [
            [(namespace, key) for key in sorted(pods, key=pods.__getitem__, reverse=True)]
            for namespace, pods in ((namespace, self._pods[namespace]) for namespace in namespaces)
        ]
        return [pod for pod in chain.from_iterable(zip_longest(*ordered)) if pod is not None]

    def add(self, pod: Pod) -> None:
        """A pod waits; it may do so already."""
        self._pods.setdefault(pod.namespace, {}).setdefault(pod.key, pod.pod_class.priority)

    def leave(self, pod: Pod) -> None:
        """A pod waits no more, or did not."""
        pods = self._pods.get(pod.namespace, {})
        if pods.pop(pod.key, None) is not None and not pods:
            del self._pods[pod.namespace]

    def served(self, pod: Pod) -> None:
        """A pod has its turn."""
        self.leave(pod)
        pods = self._pods.pop(pod.namespace, None)
        if pods is not None:
            self._pods[pod.namespace] = pods
