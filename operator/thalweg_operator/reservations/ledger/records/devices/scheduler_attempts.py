"""Pods that kube-scheduler may be choosing devices for: from our answer until it has written their claims, or not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from flowcore.model.pods import Pod

#: Seconds in which kube-scheduler writes a claim after our answer, or not at all.
_ATTEMPT_SECONDS = 10.0
#: Seconds in which it may still write the claim of a pod that is gone.
_GONE_SECONDS = 1.0


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """A pod that we let through to these nodes: kube-scheduler may be choosing devices for it on one of them."""

    pod: Pod
    nodes: frozenset[str]
    until: float


class SchedulerAttempts:
    """Attempts by uid of their pod: one of the same name may come while the claim of the first is being written."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempt] = {}
        #: Uids of their pods, by node.
        self._at: dict[str, set[str]] = {}

    def let_through(self, pod: Pod, nodes: frozenset[str], now: float) -> None:
        """kube-scheduler may be choosing devices for this pod on one of these nodes; without nodes: on none."""
        self._drop(pod.uid)
        if nodes and pod.pod_class.devices is not None:
            self._add(Attempt(pod, nodes, now + _ATTEMPT_SECONDS))

    def changed(self, pod: Pod) -> None:
        """A pod changed: the watch may show which node kube-scheduler chose, though not yet the devices there.

        kube-scheduler nominates the node before it writes claims (schedule_one.go bindingCycle, since 1.35). Our own
        nomination says nothing of that.
        """
        attempt = self._attempts.get(pod.uid)
        if attempt is None:
            return
        known = attempt.pod.nominated_node, pod.planned_node
        is_nominated = pod.nominated_node in attempt.nodes and pod.nominated_node not in known
        node = pod.node_name or (pod.nominated_node if is_nominated else "")
        if node:
            self._drop(pod.uid)
            self._add(msgspec.structs.replace(attempt, nodes=frozenset((node,))))

    def gone(self, pod: Pod, now: float) -> None:
        """A pod is gone: its claim may just be written."""
        attempt = self._attempts.get(pod.uid)
        if attempt is not None:
            until = min(attempt.until, now + _GONE_SECONDS)
            self._attempts[pod.uid] = msgspec.structs.replace(attempt, until=until)

    def pods(self) -> Iterator[Pod]:
        """The pods of all attempts, as they were when kube-scheduler was answered."""
        return (attempt.pod for attempt in self._attempts.values())

    def at(self, node: str) -> Iterator[Pod]:
        """The pods of attempts on a node, as they were when kube-scheduler was answered."""
        return (self._attempts[uid].pod for uid in self._at.get(node, ()))

    def forget(self, now: float) -> None:
        """Forgets attempts that must have ended by now."""
        for uid in [uid for uid, attempt in self._attempts.items() if attempt.until <= now]:
            self._drop(uid)

    def _add(self, attempt: Attempt) -> None:
        self._attempts[attempt.pod.uid] = attempt
        for node in attempt.nodes:
            self._at.setdefault(node, set()).add(attempt.pod.uid)

    def _drop(self, uid: str) -> None:
        attempt = self._attempts.pop(uid, None)
        if attempt is None:
            return
        for node in attempt.nodes:
            uids = self._at[node]
            uids.discard(uid)
            if not uids:
                del self._at[node]
